"""One fixed order of a broker's publishers, whose every prefix is proportional over groups."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate

from distributor.model import Publisher


def in_order(publishers: Iterable[Publisher], first: Collection[str] = ()) -> list[Publisher]:
    """first: ids of those that stay whatever happens; they come before all others.

    A publisher's place is the middle of its part of its group, 0 to 1: a prefix takes the same part
    of every group, within one publisher. Ties by key and id; the same publishers in any order give
    the same order.
    """
    groups: dict[tuple[bool, str], list[Publisher]] = {}
    for each in sorted(publishers, key=lambda publisher: publisher.id):
        kept = each.id in first
        groups.setdefault((not kept, each.key or f"{each.id}\0"), []).append(each)
    placed = []
    for (late, key), members in groups.items():
        members.sort(key=lambda publisher: -publisher.rate)
        total = sum(publisher.rate for publisher in members)
        before = 0.0
        for publisher in members:
            placed.append((late, (before + publisher.rate / 2) / total, key, publisher))
            before += publisher.rate
    placed.sort(key=lambda each: (each[0], each[1], each[2], each[3].id))
    return [publisher for *_, publisher in placed]


def middle(order: Sequence[Publisher], low: int, high: int) -> int:
    """The length of a prefix between those of `low` and `high` publishers, halfway by rate.

    Raises ValueError unless high >= low + 2.
    """
    if high < low + 2:
        raise ValueError(f"there is no prefix between {low} and {high} publishers")
    sums = list(accumulate((each.rate for each in order), initial=0.0))
    found = bisect_left(sums, (sums[low] + sums[high]) / 2)
    if found > 0 and sums[found] + sums[found - 1] > sums[low] + sums[high]:
        found -= 1
    return min(max(found, low + 1), high - 1)
