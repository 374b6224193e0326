"""Late events of consumers that serve slotted arrivals: fluid queues, computed at once.

Work is counted in events. Of `a` events that come in a slot and find W waiting, event j ends its
service (W + j) / μ later, and is late when that is more than the target. All arrays have the shape
(..., slots, consumers).
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def late_events(
    arrivals: Floats,
    mu: Floats,
    slot_seconds: float,
    target: float,
    waiting: Floats | float = 0.0,
    joining: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Late events of each slot, and the work left at its end.

    arrivals: events
    mu:       events/s of each consumer, shape (consumers,)
    target:   seconds that an event may take
    waiting:  work at the start, shape (consumers,); it is not counted as late
    joining:  work that comes before a slot's arrivals and is not counted as late either
    """
    work = arrivals if joining is None else arrivals + joining
    net = np.cumsum(work - mu * slot_seconds, axis=-2) + waiting
    # The work after a slot is the net sum less its lowest point so far (Lindley).
    after = net - np.minimum.accumulate(np.minimum(net, 0.0), axis=-2)
    first = np.broadcast_to(waiting, after[..., :1, :].shape)
    before = np.concatenate((first, after[..., :-1, :]), axis=-2)
    late: Floats = np.clip(before + work - mu * target, 0.0, arrivals)
    return late, after


def late_by_stop(
    arrivals: Floats, moved: Floats, mu: Floats, slot_seconds: float, target: float, stop: float
) -> Floats:
    """Late events, summed over slots and consumers, when part of the arrivals stands still for the
    first `stop` seconds and joins its consumer's queue then. Shape (...).

    moved: of the arrivals, those of partitions that stand still
    """
    slots = arrivals.shape[-2]
    still = min(round(stop / slot_seconds), slots - 1)
    served = arrivals.copy()
    served[..., :still, :] -= moved[..., :still, :]
    held = moved[..., :still, :]
    joining = np.zeros_like(arrivals)
    joining[..., still, :] = held.sum(axis=-2)
    late, after = late_events(served, mu, slot_seconds, target, joining=joining)
    total: Floats = late.sum(axis=(-1, -2))
    if still:
        ahead = np.cumsum(held, axis=-2) + after[..., still - 1 : still, :]
        waited = (still - np.arange(still))[:, None] * slot_seconds
        total = total + np.clip(ahead - mu * (target - waited), 0.0, held).sum(axis=(-1, -2))
    return total
