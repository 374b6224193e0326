"""Go-style durations (`250ms`, `1h`, `1m30s`), as every NSQ flag takes them."""

import re

_UNIT_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,  # Go takes both: the micro sign
    "μs": 1e-6,  # and the Greek letter
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_PART = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)"
_WHOLE = re.compile(rf"(?:{_PART})+")
MAX_SECONDS = 10 * 365 * 86400.0  # longer is a slip of the keyboard


def parse_duration(text: object) -> float:
    """Seconds of a Go-style duration, to the nanosecond; raises ValueError that shows the right
    form."""
    if isinstance(text, str):
        stripped = text.strip()
        if stripped == "0":
            return 0.0
        if _WHOLE.fullmatch(stripped):
            seconds = sum(float(n) * _UNIT_SECONDS[unit] for n, unit in re.findall(_PART, stripped))
            if seconds <= MAX_SECONDS:
                return round(seconds, 9)
            raise ValueError(f"duration {text!r} is longer than ten years")
    raise ValueError(
        f"{text!r} is not a duration; write a number and a unit (h, m, s, ms, us or ns), such as "
        "250ms or 24h"
    )


def format_duration(seconds: float) -> str:
    """The duration in the largest unit that shows it with at most three decimals, to the
    nanosecond: 0.25 -> '250ms', 90 -> '1.5m', 90.5 -> '90.5s'. `parse_duration` reads it back."""
    nanoseconds, sign = round(abs(seconds) * 1e9), "-" if seconds < 0 else ""
    for unit in ("h", "m", "s", "ms", "us"):
        thousandths, rest = divmod(nanoseconds * 1000, round(_UNIT_SECONDS[unit] * 1e9))
        if thousandths >= 1000 and not rest:
            whole, decimals = divmod(thousandths, 1000)
            number = f"{whole}.{decimals:03}".rstrip("0").rstrip(".")
            return f"{sign}{number}{unit}"
    return f"{sign}{nanoseconds}ns" if nanoseconds else "0s"
