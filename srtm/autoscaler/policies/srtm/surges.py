"""What the forecast has been surprised by: rises that it did not see coming, remembered for long.

A forecast's usual error is measured over the last seconds, and says nothing of a crowd that comes
once in some minutes. So the largest errors of the last minutes are kept apart, and two of them
stand for futures of their own. Before there is experience, a prior with a heavy tail stands in.
"""

import numpy as np
from numpy.typing import NDArray

from srtm.autoscaler.policies.srtm.tuning import TUNING, Tuning

Floats = NDArray[np.float64]


class Surges:
    """Unforecast rises, in events/s, each with the weight that time has left of it."""

    def __init__(self, interval_seconds: float, tuning: Tuning = TUNING) -> None:
        self._tuning = tuning
        self._keep = 0.5 ** (interval_seconds / tuning.surge_memory_seconds)
        self._prior = tuning.surge_prior_seconds / interval_seconds
        self._rises = np.zeros(0)
        self._weights = np.zeros(0)
        self._least = 1e-3  # of a weight; less is forgotten

    def see(self, rise: float) -> None:
        """A rate less what had been forecast of it."""
        weights = np.append(self._weights * self._keep, 1.0)
        kept = weights > self._least
        self._rises, self._weights = np.append(self._rises, rise)[kept], weights[kept]

    def expected(self, level: float) -> Floats:
        """The mean rise of each class of `Tuning.surge_weights`, the rarest first, events/s;
        level: the rate now, which the prior is a share of."""
        shares = self._tuning.surge_weights
        total = float(self._weights.sum())
        order = np.argsort(-self._rises)
        rises = np.maximum(0.0, self._rises[order])
        upto = np.concatenate(([0.0], np.cumsum(self._weights[order])))
        taken = np.concatenate(([0.0], np.cumsum(rises * self._weights[order])))
        edges = np.concatenate(([0.0], np.cumsum(shares))) * total
        sums = np.diff(np.interp(edges, upto, taken))
        prior = np.array(self._tuning.surge_prior) * level
        experience = total / (total + self._prior)
        means = sums / np.maximum(np.array(shares) * total, 1e-9)
        found: Floats = experience * means + (1 - experience) * prior
        return found
