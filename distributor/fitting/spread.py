"""The path of `sequential`: everybody over k brokers, and over k + 1 as soon as one fails."""

from collections.abc import Mapping
from dataclasses import dataclass

from distributor.fitting.capacity import CapacityModel
from distributor.fitting.topic import FittedTopic
from distributor.fitting.trial import End, Trial
from distributor.fitting.verdict import Answer, Verdict
from distributor.model import Broker, Placement
from distributor.placement.policies import POLICIES
from srtm.text.words import counted, some


def spread(topic: FittedTopic, count: int) -> Placement:
    """SRTM's placement over `count` brokers or, where the capacities ask for them, more. With
    publishers `unplaced` there is none.

    Nobody may take the fair share of count - 1 brokers: so concentration opens one more.
    """
    ceiling = float("inf") if count < 2 else topic.offered / (count - 1) * (1 - _BELOW)
    brokers = [
        Broker(each.name, each.allocated + min(max(each.rcap, 0.0), ceiling), each.allocated)
        for each in topic.brokers
    ]
    return POLICIES["srtm"](topic.contract, brokers, topic.publishers)


_BELOW = 1e-6
"""relative: enough for `count` - 1 brokers not to hold everybody"""


@dataclass(slots=True)
class Spread:
    """Looks for the fewest brokers, from where the model says or from the fewest that capacities
    allow. Brokers between two counts that were tried are all tried: from a violated k it goes to
    k + 1, from a held k to k - 1 where that has not been seen to fail."""

    topic: FittedTopic
    model: CapacityModel
    _count: int = 0
    _fewest: int = 0
    _failed: int = 0  # the most brokers that were violated
    _held: Mapping[str, str] | None = None
    last: Placement | None = None

    @property
    def impatient(self) -> bool:
        return True

    def first(self) -> Trial | End:
        placement = spread(self.topic, 1)
        if placement.unplaced:
            self.last = placement
            return End(None, placement.reasons)
        self._fewest = len(placement.brokers)
        self._failed = self._fewest - 1
        start, why = self._start(placement)
        return self._trial(start, why)

    def after(self, verdicts: Mapping[str, Verdict]) -> Trial | End:
        violated = sorted(name for name, each in verdicts.items() if each.answer is Answer.VIOLATED)
        if not violated:
            assert self.last is not None  # a verdict is on a trial
            self._held = self.last.assignment
            fewer = self._fewer()
            if fewer is None:
                return End(self._held, (f"all {counted(self._count, 'broker')} hold",))
            return self._trial(fewer, f"{self._count} hold; fewer were not tried yet")
        self._failed = max(self._failed, self._count)
        if self._held is not None:
            held = len(set(self._held.values()))
            return End(self._held, (f"{some(violated)} violated: back to the {held} that hold",))
        return self._trial(
            self._count + 1,
            f"{some(violated)} violated with {counted(self._count, 'broker')}: everybody again "
            "over one more, since the last broker's share is no smaller than the others'",
        )

    def _fewer(self) -> int | None:
        """The count below this one that has not failed; asked for some counts, unequal capacities
        give more brokers."""
        for count in range(self._count - 1, self._failed, -1):
            if len(spread(self.topic, count).brokers) < self._count:
                return count
        return None

    def _trial(self, count: int, why: str) -> Trial | End:
        placement = spread(self.topic, count)
        if placement.unplaced:
            return End(None, (why, f"out of brokers: no placement over {counted(count, 'broker')}"))
        self.last, self._count = placement, len(placement.brokers)
        judged = frozenset(share.name for share in placement.brokers)
        return Trial(placement.assignment, judged, (why, *placement.reasons))

    def _start(self, fewest: Placement) -> tuple[int, str]:
        """How many brokers to begin with, and why."""
        allowed = self.topic.slo.allowed_late_share
        placement, why = fewest, "the fewest brokers by capacity"
        count = self._fewest
        while not placement.unplaced:
            loads = self.topic.loads(placement.assignment)
            expected = [self.model.late_share(name, load) for name, load in loads.items()]
            known = [each for each in expected if each is not None]
            if len(known) < len(expected):
                return self._fewest, "the fewest brokers by capacity; too few rounds to learn from"
            if max(known) <= allowed:
                return count, (
                    f"{counted(count, 'broker')} by what {self.model.rounds} rounds have taught: "
                    f"late share {max(known):.2%} expected"
                )
            count = len(placement.brokers) + 1
            placement = spread(self.topic, count)
        return self._fewest, f"{why}; no number of them is expected to hold"
