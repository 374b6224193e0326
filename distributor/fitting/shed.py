"""The path of `paper`: violated brokers shed publishers, and those go to the next iteration."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import fsum

from distributor.fitting.topic import FittedTopic
from distributor.fitting.trial import End, Trial
from distributor.fitting.verdict import Answer, Verdict
from distributor.model import Placement, Publisher
from distributor.placement.srtm import SubBucket, extend
from srtm.text.words import counted, some


@dataclass(slots=True)
class _Search:
    """Over prefixes of `order`: the first `low` hold, the first `high` do not."""

    order: list[Publisher]
    low: int
    high: int
    tried: int = 0
    over: bool = False

    def step(self, tolerance: float) -> None:
        """The next length to try, or that it is over. tolerance: part of the rate of `high` that
        may be left unsearched."""
        low, high = (fsum(each.rate for each in self.order[:n]) for n in (self.low, self.high))
        if self.high - self.low < 2 or high - low <= tolerance * high:
            self.over = True
        else:
            self.tried = middle(self.order, self.low, self.high)

    @property
    def length(self) -> int:
        return self.low if self.over else self.tried


@dataclass(slots=True)
class Shed:
    """SRTM section 4.2: binary search on all violated brokers at once for how many of their
    publishers they hold; what is held stays, the rest is placed again (`extend`).

    placement: where everybody is at first
    near_ends: a search ends where p99 is just under the target (SRTM section 6.5)
    tolerance: and where no more than this part of the rate is left to search
    """

    topic: FittedTopic
    placement: Placement
    near_ends: bool
    tolerance: float
    judged_before: Mapping[str, Verdict] = field(default_factory=dict)
    _stays: dict[str, str] = field(default_factory=dict)  # held in earlier iterations
    _full: dict[str, SubBucket] = field(default_factory=dict)
    _searches: dict[str, _Search] = field(default_factory=dict)

    @property
    def impatient(self) -> bool:
        return False

    def first(self) -> Trial | End:
        if self.placement.unplaced:
            return End(None, self.placement.reasons)
        if self.judged_before:
            return self.after(self.judged_before)
        return self._whole(frozenset(share.name for share in self.placement.brokers))

    def after(self, verdicts: Mapping[str, Verdict]) -> Trial | End:
        if self._searches:
            self._searched(verdicts)
        else:
            violated = [n for n, each in verdicts.items() if each.answer is Answer.VIOLATED]
            if not violated:
                count = len(set(self.placement.assignment.values()))
                return End(self.placement.assignment, (f"all {counted(count, 'broker')} hold",))
            everywhere = set(violated) >= {broker.name for broker in self.topic.brokers}
            if everywhere:
                return End(None, ("every broker is violated: none has room for what others shed",))
            for name in sorted(violated):
                self._search(name)
        if any(not each.over for each in self._searches.values()):
            return self._trial()
        return self._next_iteration()

    def _search(self, name: str) -> None:
        mine = [p for p in self.topic.publishers if self.placement.assignment.get(p.id) == name]
        first = {each.id for each in mine if self._stays.get(each.id) == name}
        search = _Search(in_order(mine, first), len(first), len(mine))
        search.step(0.0)
        self._searches[name] = search

    def _searched(self, verdicts: Mapping[str, Verdict]) -> None:
        for name, verdict in verdicts.items():
            search = self._searches[name]
            if verdict.answer is Answer.HOLDS:
                search.low = search.tried
                search.over = self.near_ends and verdict.near
            else:
                search.high = search.tried
            if not search.over:
                search.step(self.tolerance if search.low else 0.0)

    def _trial(self) -> Trial:
        """Prefixes only: those not in one wait."""
        going = sorted(name for name, each in self._searches.items() if not each.over)
        lengths = ", ".join(
            f"{name} {self._searches[name].length} of {len(self._searches[name].order)}"
            for name in going[:3]
        )
        return Trial(
            self._assignment(),
            frozenset(going),
            (f"how many publishers do {counted(len(going), 'violated broker')} hold: {lengths}",),
        )

    def _assignment(self) -> dict[str, str]:
        found = dict(self.placement.assignment)
        for search in self._searches.values():
            for publisher in search.order[search.length :]:
                del found[publisher.id]
        return found

    def _next_iteration(self) -> Trial | End:
        topic, held = self.topic, self._assignment()
        buckets = {share.name: share for share in self.placement.brokers}
        for name, search in self._searches.items():
            rate = fsum(each.rate for each in search.order[: search.low])
            part = rate / buckets[name].rate
            self._full[name] = buckets[name].r * part, max(1.0, buckets[name].b * part)
        before = topic.rates(held)
        placement = extend(topic.contract, topic.brokers, topic.publishers, held, self._full)
        full = sorted(self._searches)
        self._searches = {}
        if placement.unplaced:
            return End(None, (f"{some(full)} full", *placement.reasons))
        self.placement, self._stays = placement, held
        changed = {s.name for s in placement.brokers if s.rate != before.get(s.name)}
        trial = self._whole(frozenset(changed))
        return Trial(trial.assignment, trial.judged, (f"{some(full)} full", *trial.reasons))

    def _whole(self, judged: frozenset[str]) -> Trial:
        return Trial(self.placement.assignment, judged, self.placement.reasons)


def in_order(publishers: Iterable[Publisher], first: Collection[str] = ()) -> list[Publisher]:
    """One fixed order of a broker's publishers, whose every prefix is proportional over groups.
    first: ids of those that stay whatever happens; they come before all others.

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
