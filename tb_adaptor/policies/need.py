"""How much of b a broker needs at each r, so that nobody waits longer than w.

With r, messages find unfinished work U and wait (U + n - b) / r, n being those that come with them
(SRTM Eq. 2). Those that have no token now, and who comes behind them, wait for what r brings,
whatever b is: growing b brings no tokens.
"""

from dataclasses import dataclass

import numpy as np

from srtm.limits.queueing import Floats
from tb_adaptor.policies.forecast import Forecast


@dataclass(frozen=True)
class Need:
    """rates: messages/s, rising, shape (m,)
    work:   the most messages, ahead and with, that anybody finds at each rate; shape (m,)
    behind: the same behind those that wait now, b and its tokens left aside; shape (m,)
    """

    rates: Floats
    work: Floats
    behind: Floats

    def bursts(self, wait: float) -> Floats:
        """The least b at each rate for waits of at most `wait` seconds; infinite where no b is
        enough. Shape (m,)."""
        needed = np.maximum(1.0, self.work - wait * self.rates)
        return np.where(self.behind <= wait * self.rates + 1e-9, needed, np.inf)

    def wait(self, rate: float, burst: float) -> float:
        """The longest wait in seconds at (rate, burst); between two rates that of the lower."""
        at = max(0, int(np.searchsorted(self.rates, rate * (1 + 1e-9), side="right")) - 1)
        return max(0.0, float(max(self.work[at] - burst, self.behind[at]))) / rate


def need_of(coming: Forecast, rates: Floats) -> Need:
    """What one broker needs, at each of `rates`."""
    if not coming.times.size:
        nothing = np.zeros(rates.size)
        return Need(rates, nothing + 1.0, nothing + coming.waiting)
    come = np.cumsum(coming.counts)
    served = rates[:, None] * coming.times[None, :]
    ahead = come - coming.counts - served  # of U, before what an idle bucket lets overflow
    least = np.minimum.accumulate(ahead, axis=1)
    work = np.max(come - served - least, axis=1)
    if not coming.waiting:
        return Need(rates, work, np.zeros(rates.size))
    behind = np.maximum(coming.waiting, np.max(coming.waiting + come - served, axis=1))
    return Need(rates, work, behind)
