"""The groups of the policy `srtm` as a packing, to stand beside the other packings."""

from collections.abc import Sequence

from srtm.autoscaler.observation import ConsumerSeen, Observation, PartitionSeen
from srtm.autoscaler.packing import Bins, Filled, Item, Packing, finish, lower_bound
from srtm.autoscaler.packing.problem import fits, split_oversized
from srtm.autoscaler.policies.srtm.groups import balanced


def balanced_packing(items: Sequence[Item], bins: Bins) -> Packing:
    """The balanced groups of the policy `srtm` (policies/srtm/groups.py), the smallest that fits.

    Raises ValueError for a partition that fits into no consumer: nothing fits beside it.
    """
    _, oversized = split_oversized(items, bins)
    if oversized:
        raise ValueError(f"partition {oversized[0].id} exceeds every consumer; take larger ones")
    had: dict[str | None, list[int]] = {room.consumer: [] for room in bins.existing}
    for item in items:
        if item.consumer in had and item.consumer is not None:
            had[item.consumer].append(item.id)
    seen = Observation(
        at=0.0,
        partitions=tuple(PartitionSeen(item.id, item.rate, item.lag) for item in items),
        consumers=tuple(
            ConsumerSeen(str(room.consumer), room.rate, tuple(had[room.consumer]))
            for room in bins.existing
        ),
        new_mu=bins.new.rate,
    )
    rooms = {room.consumer: room for room in bins.existing} | {None: bins.new}
    rates = {item.id: item.rate for item in items}
    bound = lower_bound(items, bins)
    filled: list[Filled] = []
    for consumers in range(max(1, bound), len(items) + 1):
        filled = [Filled(rooms[name], ids) for name, ids in balanced(rates, seen, consumers) if ids]
        if all(fits(sum(rates[p] for p in each.items), 0.0, each.bin) for each in filled):
            break
    return finish(items, bins, filled, bound=bound)
