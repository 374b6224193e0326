"""A key that a file's table does not have, told with the one that was meant. Pure."""

import difflib
from collections.abc import Collection, Iterable


def unknown_key(key: str, known: Collection[str]) -> str:
    """What is wrong with it, and the remedy."""
    near = difflib.get_close_matches(key.replace("_", "-"), known, n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"known are {', '.join(known)}"
    return f'unknown key "{key}"; {hint}'


def refuse_unknown(values: object, known: Iterable[str], also: Collection[str] = ()) -> object:
    """Refuse keys that are not known, for a validator before pydantic's own, which names no remedy.
    `also`: keys that are taken, and not proposed. Raises ValueError."""
    names = sorted(known)
    for key in values if isinstance(values, dict) else ():
        if key not in names and key not in also:
            raise ValueError(unknown_key(str(key), names))
    return values
