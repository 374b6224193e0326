"""Go-style durations (`250ms`, `1h`, `1m30s`), as every NSQ flag takes them."""

import re
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

_UNIT_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_PART = r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)"
_WHOLE = re.compile(rf"(?:{_PART})+")
_MAX_SECONDS = 10 * 365 * 86400.0  # longer is a slip of the keyboard


def parse_duration(text: object) -> float:
    """Seconds of a Go-style duration; raises ValueError that shows the right form."""
    if isinstance(text, str):
        stripped = text.strip()
        if stripped == "0":
            return 0.0
        if _WHOLE.fullmatch(stripped):
            seconds = sum(float(n) * _UNIT_SECONDS[unit] for n, unit in re.findall(_PART, stripped))
            if seconds <= _MAX_SECONDS:
                return seconds
            raise ValueError(f"duration {text!r} is longer than ten years")
    raise ValueError(f"{text!r} is not a duration; write a number and a unit, such as 250ms or 1h")


def format_duration(seconds: float) -> str:
    """The shortest single-unit form: 0.25 -> '250ms', 90 -> '1.5m'."""
    if seconds == 0:
        return "0s"
    for unit in ("h", "m", "s", "ms", "us"):
        if abs(seconds) >= _UNIT_SECONDS[unit]:
            return f"{seconds / _UNIT_SECONDS[unit]:.4g}{unit}"
    return f"{seconds / 1e-9:.4g}ns"


def _duration_or_seconds(value: object) -> float:
    """Files and flags write durations as text; values inside the program are seconds already."""
    return value if isinstance(value, float) else parse_duration(value)


Duration = Annotated[
    float,
    BeforeValidator(_duration_or_seconds),
    PlainSerializer(format_duration, return_type=str, when_used="json"),
]
"""A pydantic field in seconds that is written as a Go-style duration."""
