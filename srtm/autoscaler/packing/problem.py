"""What every packing asks: is the input sound, what fits where, what cannot fit at all."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from srtm.autoscaler.packing.model import Bin, Bins, Filled, Item

SLACK = 1e-9
"""Share of a room by which a sum may exceed it: rounding, 1e-11 for 100,000 rates."""


def check(items: Sequence[Item], bins: Bins) -> None:
    """Raises ValueError where a partition or a consumer is named twice, or has no fitting name."""
    if len({item.id for item in items}) < len(items):
        twice = Counter(item.id for item in items).most_common(1)[0][0]
        raise ValueError(f"partition {twice} is given twice; give each partition once")
    if bins.new.consumer is not None:
        raise ValueError(
            f"the consumer to be launched is called {bins.new.consumer}; its name must be None"
        )
    names = [room.consumer for room in bins.existing]
    if None in names:
        raise ValueError("an existing consumer has no name; only the one to be launched has none")
    if len(set(names)) < len(names):
        twice_named = Counter(names).most_common(1)[0][0]
        raise ValueError(f"consumer {twice_named} is given twice; give each consumer once")


def fits(rate: float, lag: float, room: Bin) -> bool:
    """Whether `rate` events/s and `lag` events are within `room`, but for rounding."""
    return rate <= room.rate * (1 + SLACK) and lag <= room.lag * (1 + SLACK)


def split_oversized(items: Iterable[Item], bins: Bins) -> tuple[list[Item], list[Item]]:
    """(those that fit a consumer of their own, those that exceed every consumer)."""
    rest: list[Item] = []
    oversized: list[Item] = []
    for item in items:
        fitting = fits(item.rate, item.lag, bins.new) or any(
            fits(item.rate, item.lag, room) for room in bins.existing
        )
        (rest if fitting else oversized).append(item)
    return rest, oversized


def moved_rate(filled: Iterable[Filled], items: Mapping[int, Item]) -> float:
    """events/s of the partitions that had a consumer and get another one."""
    moved = 0.0
    for group in filled:
        consumer = group.bin.consumer
        for number in group.items:
            item = items[number]
            if item.consumer != consumer and item.consumer is not None:
                moved += item.rate
    return moved


def largest_first(items: Iterable[Item]) -> list[Item]:
    """The items by rate, the largest first; among equals the larger lag, then the lower id."""
    return sorted(items, key=lambda item: (-item.rate, -item.lag, item.id))
