"""From values to places on a chart, and where its marks are."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

_LEAST = 1e-290
"""Under it logarithms and steps leave what a float can hold."""
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Scale:
    """A map from values low..high to begin..end px; log: by their logarithms."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, at = log10(low), log10(high), log10(at)
        return self.begin + (at - low) / (high - low) * (self.end - self.begin)

    def ticks(self, most: int) -> list[float]:
        return _decades(self.low, self.high, most) if self.log else _even(self.low, self.high, most)


def scale(
    values: Sequence[float], begin: float, end: float, log: bool = False, zero: bool = False
) -> Scale:
    """A scale that holds all finite values with some room. log: values of 0 and less are at its low
    end; zero: it holds 0, and begins there where no value is less."""
    usable = [each for each in values if isfinite(each) and (each > _LEAST or not log)]
    if not usable:
        usable = [1.0]
    low, high = min(usable), max(usable)
    if log:
        room = max((high / low) ** 0.04, 1.1)
        return Scale(low / room, high * room, begin, end, True)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    span, size = high - low, max(abs(low), abs(high))
    if span <= max(1e-12 * size, _LEAST):
        span = size if size > _LEAST else 1.0
    return Scale(
        low if zero and low == 0 else low - 0.04 * span, high + 0.06 * span, begin, end, False
    )


def _even(low: float, high: float, most: int) -> list[float]:
    raw = (high - low) / max(most, 1)
    power = 10.0 ** floor(log10(raw))
    step = next(each * power for each in _STEPS if each * power >= raw * (1 - 1e-9))
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [each * step for each in range(first, last + 1)]


def _decades(low: float, high: float, most: int) -> list[float]:
    first, last = ceil(log10(low) - 1e-9), floor(log10(high) + 1e-9)
    decades = [10.0**each for each in range(first, last + 1)]
    if len(decades) >= 3:
        return decades[:: ceil(len(decades) / max(most, 1))]
    finer = [
        factor * 10.0**each
        for each in range(first - 1, last + 1)
        for factor in (1.0, 2.0, 5.0)
        if low <= factor * 10.0**each <= high
    ]
    return finer[:: ceil(len(finer) / max(most, 1))] if len(finer) >= 2 else _even(low, high, most)


def short(value: float) -> str:
    """A mark's figure: 0.05, 2, 1,500, 20k, 3M."""
    size = abs(value)
    for least, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= least:
            return f"{value / (1e3 if unit == 'k' else least):g}{unit}"
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
