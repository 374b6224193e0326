"""Is the share of late messages below what the SLO allows, or above it? A sequential test, and how
much late messages cluster."""

from enum import StrEnum
from math import log

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


LOW, HIGH = 0.5, 1.5
"""Parts of the allowed late share: at and below LOW a broker is to be accepted, at and above HIGH
rejected, each with an error of at most 5 %. In between either answer will do."""
ERROR = 0.025
"""Nominal, of the test itself. Half of the 5 % it may err: dispersion is an estimate."""


MOST_ALLOWED = 1 / HIGH
"""Late share of an SLO that can be tested: HIGH times it is still a share."""


class Side(StrEnum):
    BELOW = "below"
    ABOVE = "above"
    UNSURE = "unsure"


def side(
    messages: Counts, late: Counts, allowed: float, together: float = 1.0, tests: int = 1
) -> Side:
    """Which side of `allowed` the late share is on, as far as these slots can tell.

    messages, late: counts of slots in order of time, shape (n,), all slots so far
    allowed:  share of late messages, 0 to 1
    together: messages that arrive at one instant (see `dispersion`)
    tests:    how many tests run at once of which one wrong ABOVE spoils the answer

    Wald's sequential probability ratio test of HIGH against LOW x allowed for counts whose variance
    is D times their mean: the log likelihood ratio of Poisson counts, over D. D is estimated by
    `dispersion` from the same slots, so one big cluster raises D along with the count. May be asked
    after each slot. Raises ValueError unless 0 < allowed < 2/3.
    """
    if not 0 < allowed < MOST_ALLOWED:
        raise ValueError(
            f"allowed late share is {allowed}; it must lie between 0 and {MOST_ALLOWED:g}"
        )
    if not messages.sum():
        return Side.UNSURE
    ratio = leaning(messages, late, allowed) / dispersion(messages, late, together)
    if ratio >= log(tests / ERROR):
        return Side.ABOVE
    if ratio <= -log(1 / ERROR):
        return Side.BELOW
    return Side.UNSURE


def leaning(messages: Counts, late: Counts, allowed: float) -> float:
    """The log likelihood ratio of HIGH against LOW x allowed for independent messages: above 0 the
    late share is nearer to HIGH. It is 0 at 0.91 x allowed: counts of a high share spread more."""
    expected = float(messages.sum()) * allowed
    return float(late.sum()) * log(HIGH / LOW) - expected * (HIGH - LOW)
