"""The arrival rate of the next seconds, with the error that such forecasts have had.

Several simple forecasters (straight lines through the last seconds, damped or not) run side by
side; each is weighed by the squared error of what it said `ahead` intervals ago. So a smooth ramp
is followed within a few seconds, and a noisy rate is averaged, without a setting for either. What
they are held against is a mean over a few intervals: one interval's own noise is no error of a
forecast, it belongs to the shape of what comes.
"""

import math
from collections import deque

import numpy as np
from numpy.typing import NDArray

from srtm.autoscaler.policies.srtm.tuning import TUNING, Tuning

Floats = NDArray[np.float64]


class Forecast:
    """Rates seen once an interval; the forecast is of whole intervals from the next one on.

    beside: intervals to either side of one whose mean a forecast of it is held against
    """

    def __init__(self, ahead: int, beside: int = 0, tuning: Tuning = TUNING) -> None:
        self._tuning = tuning
        self.ahead = ahead
        self._beside = beside
        self._seen: deque[float] = deque(maxlen=max(tuning.windows))
        experts = len(tuning.windows) * len(tuning.dampings)
        self._errors = np.zeros(experts)
        self._weight = 0.0
        self._said: deque[Floats] = deque(maxlen=ahead + beside)
        self._levels = np.zeros(experts)
        self._slopes = np.zeros(experts)
        self._usual: deque[float] = deque(maxlen=ahead)
        self.jumped = False
        """Is the last rate the first one at a new level?"""
        self.surprise: float | None = None
        """The last rate less what had been forecast of it, events/s; None: nothing was yet."""
        self._dampings = np.tile(tuning.dampings, len(tuning.windows))

    def see(self, rate: float) -> None:
        """The rate of the interval that has just ended, events/s."""
        self.jumped = self._is_jump(rate)
        if self.jumped:
            self._seen.clear()  # what was before says nothing of the new level
        self._seen.append(rate)
        if len(self._said) == self._said.maxlen:
            level = np.array(self._seen)[-2 * self._beside - 1 :].mean()
            memory = self._tuning.forecast_memory
            self._errors = memory * self._errors + (self._said[0] - level) ** 2
            self._weight = memory * self._weight + 1.0
        self.surprise = rate - self._usual[0] if len(self._usual) == self.ahead else None
        self._fit()
        said = self._at(np.array([float(self.ahead)]))[:, 0]
        self._said.append(said)
        self._usual.append(float(self._weights() @ said))

    def _is_jump(self, rate: float) -> bool:
        """Is it further from the mean of the last rates than they are from each other?"""
        count = self._tuning.jump_intervals
        if len(self._seen) < count:
            return False
        last = np.array(self._seen)[-count:]
        offsets = np.arange(count) - (count - 1) / 2
        squares = float(offsets @ offsets)
        slope, next_one = float(offsets @ last) / squares, (count + 1) / 2
        around = last - last.mean() - slope * offsets
        # Two are taken by the line, and the line itself may be off where the next rate is.
        error = math.sqrt(float(around @ around) / (count - 2))
        error = max(error, self._tuning.jump_share * float(last.mean()))
        error *= math.sqrt(1 + 1 / count + next_one**2 / squares)
        return abs(rate - float(last.mean()) - slope * next_one) > self._tuning.jump_errors * error

    def _fit(self) -> None:
        seen = np.array(self._seen)
        row = 0
        for window in self._tuning.windows:
            part = seen[-window:]
            slope = 0.0
            level = float(part.mean())
            if len(part) > 2:  # of fewer, the slope would be noise
                middle = (len(part) - 1) / 2
                offsets = np.arange(len(part)) - middle
                slope = float(offsets @ part / (offsets @ offsets))
                level += slope * middle
            for _ in self._tuning.dampings:
                self._levels[row] = level
                self._slopes[row] = slope
                row += 1

    def _at(self, steps: Floats) -> Floats:
        """Every forecaster's rate `steps` intervals from now, shape (forecasters, steps)."""
        damping = self._dampings[:, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            reach = np.where(
                damping < 1.0, damping * (1 - damping**steps) / (1 - damping), steps[None, :]
            )
        return np.maximum(0.0, self._levels[:, None] + self._slopes[:, None] * reach)

    def _weights(self) -> Floats:
        if not self._weight:
            return np.full(len(self._levels), 1.0 / len(self._levels))
        mean_square = self._errors / self._weight
        weights: Floats = 1.0 / (mean_square + 1e-3 + 0.01 * mean_square.min()) ** 2
        weights /= weights.sum()
        return weights

    @property
    def level(self) -> float:
        """The rate now, without the noise, events/s."""
        return float(self._weights() @ np.maximum(0.0, self._levels))

    def rates(self, steps: int) -> Floats:
        """The forecast rates of the next `steps` intervals, events/s."""
        rates: Floats = self._weights() @ self._at(np.arange(1.0, steps + 1))
        return rates

    def errors(self, steps: int) -> Floats:
        """Standard error of each of them, events/s: the one measured at `ahead`, growing with the
        square root of the distance as the error of a sum does."""
        if not self._weight:
            return np.full(steps, self._tuning.first_error * self.level)
        measured = float(np.sqrt(self._weights() @ (self._errors / self._weight)))
        return measured * np.sqrt(np.arange(1.0, steps + 1) / self.ahead)
