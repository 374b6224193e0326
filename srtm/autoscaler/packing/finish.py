"""From groups of partitions to a Packing: what exceeds its bin, what moves, how good it is."""

from collections.abc import Sequence

from srtm.autoscaler.packing.bounds import lower_bound
from srtm.autoscaler.packing.model import Bins, Filled, Item, Packing
from srtm.autoscaler.packing.problem import fits, moved_rate


def finish(
    items: Sequence[Item],
    bins: Bins,
    filled: Sequence[Filled],
    *,
    bound: int | None = None,
    proved: bool = False,
) -> Packing:
    """bound: `lower_bound` where the caller has it; proved: fewer bins are known to be too few,
    as they are where the bound is reached."""
    by_id = {item.id: item for item in items}
    oversized = []
    for group in filled:
        if len(group.items) == 1:
            item = by_id[group.items[0]]
            if not fits(item.rate, item.lag, group.bin):
                oversized.append(item.id)
    if bound is None:
        bound = lower_bound(items, bins)
    return Packing(
        filled=tuple(filled),
        lower_bound=bound,
        moved_rate=moved_rate(filled, by_id),
        oversized=tuple(sorted(oversized)),
        exact=proved or len(filled) == bound,
    )
