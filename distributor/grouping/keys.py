"""The key by which each publisher is placed: a user's, or that of its inferred group."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

Use = Literal["user", "inferred", "both"]
"""Whose groups count."""

_MARK = "~"


def merged(
    keys: Mapping[str, str | None], groups: Mapping[str, Sequence[str]], use: Use
) -> dict[str, str | None]:
    """publisher id -> key, of all in `keys`; None: a group of its own.

    keys:   by users, of every registered publisher; empty is none
    groups: name -> ids, no id in two of them; who is not registered is passed over

    With `both`, a key that a user gave stays. The others of a group share a key of their own, or
    that of more than half of the group, where users gave its members one: then they burst with
    those. A group's key is no key of a user's, so nobody is put together by a name alone.
    """
    found = {each: None if use == "inferred" else key or None for each, key in keys.items()}
    if use == "user":
        return found
    mark = _mark(found.values())
    for name, members in groups.items():
        there = [each for each in members if each in found]
        most = Counter(found[each] for each in there).most_common(1)
        key, count = most[0] if most else (None, 0)
        joins = key is not None and 2 * count > len(there)
        for each in there:
            if found[each] is None:
                found[each] = key if joins else mark + name
    return found


def _mark(keys: object) -> str:
    """A mark with which no key of a user's begins."""
    mark = _MARK
    given = tuple(each for each in keys if each)  # type: ignore[attr-defined]
    while any(each.startswith(mark) for each in given):
        mark += _MARK
    return mark
