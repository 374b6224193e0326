"""Numbers that another program tells, within what they can be. Pure."""

from typing import Any

from srtm.host.clock import MOST_NS

MOST_COUNT = 1 << 40
"""of messages in one document"""


def whole(value: Any, least: int, most: int) -> int:
    """Raises ValueError for what is no integer from `least` to `most`."""
    if type(value) is not int or not least <= value <= most:
        said = repr(value) if type(value) in (float, str) else type(value).__name__
        raise ValueError(f"{said[:40]} is no integer from {least} to {most}")
    return value


def number(value: Any, least: float, most: float) -> float:
    """Raises ValueError for what is no number from `least` to `most`."""
    if type(value) not in (int, float) or not least <= value <= most:
        raise ValueError(f"{str(value)[:40]} is no number from {least:g} to {most:g}")
    return float(value)


def nanoseconds(value: Any) -> int:
    """Raises ValueError."""
    return whole(value, -MOST_NS, MOST_NS)
