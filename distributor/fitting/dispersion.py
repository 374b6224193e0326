"""How much late messages cluster: variance over mean of their counts, estimated high."""

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.float64]

CLUSTERED = 70.0
"""Variance over mean where little has been seen yet: the upper end of what batches of 10 messages
in groups of 5 to 30 publishers give near an SLO (30 to 70; `convergence` prints what it found)."""
_FEWEST_BATCHES = 4
"""An estimate from fewer sums has no meaning; from few it is noisy, and the largest is taken."""


def dispersion(messages: Counts, late: Counts, together: float = 1.0) -> float:
    """Variance over mean of late counts, over long times; never under CLUSTERED or `together`.

    messages, late: counts of slots in order of time, shape (n,)
    together: messages that arrive at one instant, as the mean message sees it: they can all be late
              together

    Late messages come in clusters, and clusters in clusters, so counts of neighbouring slots are
    not independent: slots are summed in batches of 1, 2, 4, ... (batch means), and the largest
    figure counts. Independent messages would give 1.
    """
    found = max(CLUSTERED, together)
    total, all_late = float(messages.sum()), float(late.sum())
    if not all_late:
        return found
    share = all_late / total
    width = 1
    while (batches := len(late) // width) >= _FEWEST_BATCHES:
        used = batches * width
        sums = late[:used].reshape(batches, width).sum(axis=1)
        expected = share * messages[:used].reshape(batches, width).sum(axis=1)
        mean = float(expected.sum())
        if mean > 0:
            squares = float(((sums - expected) ** 2).sum()) * batches / (batches - 1)
            found = max(found, squares / mean)
        width *= 2
    return found
