"""What the forecast has been surprised by: rises that it did not see coming, remembered for long.

A forecast's usual error is measured over the last seconds, and says nothing of a crowd that comes
once in some minutes. So the errors of the last minutes are kept, and rises that stand out from the
usual ones make two futures: the largest third of them, and the others, each as likely as it was.
Before there is experience, a prior with a heavy tail stands in.
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

    def expected(self, level: float) -> tuple[Floats, Floats]:
        """Two futures: the rise of each, events/s, the rarer first, and how likely it is.

        level: the rate now, which the prior is a share of
        """
        tuning = self._tuning
        total = float(self._weights.sum())
        experience = total / (total + self._prior)
        usual = float(np.median(np.abs(self._rises))) if total else 0.0
        least = max(tuning.surge_errors * usual, tuning.surge_share * level)
        order = np.argsort(-self._rises)
        rises, weights = self._rises[order], self._weights[order]
        weights = weights[rises > least]
        rises = rises[: len(weights)]
        upto = np.concatenate(([0.0], np.cumsum(weights)))
        taken = np.concatenate(([0.0], np.cumsum(rises * weights)))
        edges = np.array([0.0, 1 / 3, 1.0]) * upto[-1]
        share = experience / max(total, 1.0)
        seen, sums = share * np.diff(edges), share * np.diff(np.interp(edges, upto, taken))
        prior = (1 - experience) * np.array(tuning.surge_weights)
        likely = seen + prior
        means = (sums + prior * np.array(tuning.surge_prior) * level) / np.maximum(likely, 1e-12)
        return means, likely * min(1.0, tuning.surge_most / max(float(likely.sum()), 1e-12))
