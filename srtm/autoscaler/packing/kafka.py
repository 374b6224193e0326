"""Kafka's own assignors for one topic, as functions: they count partitions and see no rate."""

from collections import deque
from collections.abc import Mapping, Sequence

Assignment = dict[str, tuple[int, ...]]
"""Consumer -> its partitions; every consumer is in it."""


def assign_range(partitions: Sequence[int], consumers: Sequence[str]) -> Assignment:
    """RangeAssignor: consumers by name take runs of the sorted partitions; the first n mod m take
    one more. Raises ValueError on no consumers and on one given twice."""
    ordered = _ordered(partitions)
    names = _names(consumers)
    least, more = divmod(len(ordered), len(names))
    assignment: Assignment = {}
    start = 0
    for number, name in enumerate(names):
        stop = start + least + (number < more)
        assignment[name] = tuple(ordered[start:stop])
        start = stop
    return assignment


def assign_sticky(
    partitions: Sequence[int], consumers: Sequence[str], current: Mapping[str, Sequence[int]]
) -> Assignment:
    """CooperativeStickyAssignor when all members subscribe to the same topic.

    Each consumer keeps what it has, in the order given, up to floor(n / m), and n mod m of them up
    to one more. What is left goes in turn to those that have less than floor(n / m), then one each
    to those that may have one more. current: consumer -> partitions; consumers and partitions that
    are gone do not count. This is the assignment in the end: Kafka's takes two rebalances to get
    there, a partition is revoked in the first and given in the second.

    Kafka walks through its members in the order of a hash map to find who keeps one more; here it
    is by name. Raises ValueError on no consumers, and where something is given twice.
    """
    ordered = _ordered(partitions)
    names = _names(consumers)
    there = set(ordered)
    owned = {name: [p for p in current.get(name, ()) if p in there] for name in names}
    if sum(map(len, owned.values())) > len({p for kept in owned.values() for p in kept}):
        raise ValueError("a partition is assigned to more than one consumer")
    least, more = divmod(len(ordered), len(names))
    lacking: deque[str] = deque()
    level: deque[str] = deque()
    for name in names:
        kept = owned[name]
        if len(kept) < least:
            lacking.append(name)
        elif len(kept) > least and more:
            del kept[least + 1 :]
            more -= 1
        else:
            del kept[least:]
            level.append(name)
    taken = {p for kept in owned.values() for p in kept}
    for partition in ordered:
        if partition in taken:
            continue
        name = (lacking or level).popleft()
        owned[name].append(partition)
        if len(owned[name]) < least:
            lacking.append(name)
        elif len(owned[name]) == least:
            level.append(name)
    return {name: tuple(kept) for name, kept in owned.items()}


def _ordered(partitions: Sequence[int]) -> list[int]:
    ordered = sorted(set(partitions))
    if len(ordered) < len(partitions):
        raise ValueError("a partition is given twice; give each partition once")
    return ordered


def _names(consumers: Sequence[str]) -> list[str]:
    names = sorted(set(consumers))
    if not names:
        raise ValueError("no consumers; at least one is needed to assign partitions to")
    if len(names) < len(consumers):
        raise ValueError("a consumer is given twice; give each consumer once")
    return names
