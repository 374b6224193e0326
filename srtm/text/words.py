"""How the sentences of a plan write numbers and names."""

from collections.abc import Sequence

_SHOWN = 3


def number(value: float) -> str:
    """1234567.8 as 1,234,567.8; at most three decimals, all of a small figure's first digits."""
    if 0 < abs(value) < 0.001:
        return f"{value:.3g}"
    text = f"{value:,.3f}"
    return text.rstrip("0").rstrip(".")


def rate(value: float) -> str:
    return f"{number(value)} messages/s"


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def some(names: Sequence[str]) -> str:
    """The first few by name, the others by number."""
    text = ", ".join(names[:_SHOWN])
    return f"{text} and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else text
