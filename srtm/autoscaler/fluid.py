"""Late events of consumers that serve slotted arrivals: fluid queues, computed at once.

Work is counted in events. Of `a` events that come in a slot and find W waiting, event j ends its
service (W + j) / μ later, and is late when that is more than the target. All arrays have the shape
(..., slots, consumers); they are worked on slot by slot, all else at once.
"""

import numpy as np
from numpy.typing import NDArray

from srtm.autoscaler.observation import Observation

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


def slotted(seen: Observation, interval_seconds: float) -> Floats:
    """Events of one interval, shape (slots, partitions), however long ago the last observation was.
    Where slots are not known the interval is one, and what a partition's own do not tell is spread
    evenly."""
    lengths = {len(p.slots) for p in seen.partitions}
    events = np.array([[p.rate * interval_seconds for p in seen.partitions]])
    if len(lengths) != 1 or lengths == {0}:
        return events
    slots = np.array([p.slots for p in seen.partitions], dtype=np.float64).T
    sums = slots.sum(axis=0)
    evenly = np.full_like(slots, 1 / len(slots))
    found: Floats = np.divide(slots, sums, out=evenly, where=sums > 0) * events
    return found


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
    work = np.ascontiguousarray(np.moveaxis(arrivals, -2, 0))
    if joining is not None:
        work = work + np.moveaxis(joining, -2, 0)
    net = work - mu * slot_seconds
    found = np.empty((len(work) + 1, *work.shape[1:]))  # work found by each slot, and left
    found[0] = waiting
    for slot, change in enumerate(net):
        after = found[slot + 1]
        np.add(found[slot], change, out=after)
        np.maximum(after, 0.0, out=after)
    came = np.moveaxis(arrivals, -2, 0)
    late = np.clip(found[:-1] + work - mu * target, 0.0, came)
    return np.moveaxis(late, 0, -2), np.moveaxis(found[1:], 0, -2)


def late_by_stop(
    arrivals: Floats,
    moved: Floats,
    mu: Floats,
    slot_seconds: float,
    target: float,
    stop: Floats | float,
) -> Floats:
    """Late events of each consumer, summed over the slots, when part of the arrivals stands still
    for the first `stop` seconds and joins its consumer's queue then. Shape (..., consumers).

    moved: of the arrivals, those of partitions that stand still
    stop:  seconds, one for all or shape (consumers,)
    """
    slots, consumers = arrivals.shape[-2:]
    ends = np.minimum(np.round(np.asarray(stop) / slot_seconds).astype(int), slots - 1)
    still = np.broadcast_to(ends, (consumers,))
    place = np.arange(slots)[:, None]
    held = np.where(place < still, moved, 0.0)
    joining = np.where(place == still, held.sum(axis=-2, keepdims=True), 0.0)
    late, after = late_events(arrivals - held, mu, slot_seconds, target, joining=joining)
    total: Floats = late.sum(axis=-2)
    longest = int(still.max(initial=0))
    if longest:
        held, consumer = held[..., :longest, :], np.arange(consumers)
        before = np.where(still > 0, after[..., np.maximum(still - 1, 0), consumer], 0.0)
        ahead = np.cumsum(held, axis=-2) + before[..., None, :]
        waited = (still - place[:longest]) * slot_seconds
        total = total + np.clip(ahead - mu * (target - waited), 0.0, held).sum(axis=-2)
    return total
