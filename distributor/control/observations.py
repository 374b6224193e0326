"""Reports of brokers while a topic is fitted: samples of a round, and the topic's arrivals."""

from collections import deque
from collections.abc import Iterable, Mapping

import numpy as np

from distributor.fitting import Arrivals, Sample
from distributor.gateway_api import Report, TopicReport

_ARRIVALS_SECONDS = 60.0
_MS = 1e-3
_MOST_ARRIVALS = 1_000_000
_ENOUGH = 100.0
"""messages that should have come before their absence tells anything: bursts are late together"""
_FEW, _MOST = 0.25, 0.75
"""of what should have come: so little at a broker, while so much comes at all of them together,
is no slip of the declared rates"""


class Observations:
    """What brokers report during one fitting. Times are monotonic seconds of the distributor."""

    def __init__(self, topic: str, others: Iterable[str]) -> None:
        """others: topics that the brokers serve beside it; they must keep their SLO too"""
        self._topic = topic
        self._topics = {topic, *others}
        self._epoch = 0
        self._from: dict[str, float] = {}
        self._judged: frozenset[str] = frozenset()
        self._calm: set[str] = set()
        self.interrupted: str | None = None
        """a judged broker that had another share than its own for a part of the round: its lease
        had ended, or its gateway was started again and its bucket with it"""
        self._answered: dict[str, int] = {}
        self._samples: list[Sample] = []
        self._arrivals: deque[tuple[int, float]] = deque(maxlen=_MOST_ARRIVALS)
        self._began_at = float("inf")
        self._offered: dict[str, float] = {}
        self._seconds: dict[str, float] = {}

    def move(self) -> None:
        """Publishers begin to move."""
        self._from = {}
        self._judged = frozenset()
        self.interrupted = None
        self._calm = set()

    def calm(self, brokers: Iterable[str]) -> bool:
        """Has each of them been without backlog since the move?"""
        return self._calm.issuperset(brokers)

    def begin(
        self, epoch: int, at: float, judged: Iterable[str], helping: Iterable[str] = ()
    ) -> None:
        """A round measured from `at` on, in which `judged` are judged and those outside the trial
        send through `helping`. What came before came as the moves let it, so it tells nothing of
        the topic's own arrivals."""
        self._epoch = epoch
        self._judged = frozenset(judged)
        self._from = dict.fromkeys([*self._judged, *helping], at)
        self._samples = []
        self._arrivals.clear()
        self._began_at, self._offered, self._seconds = at, {}, {}

    def deserted(self, rates: Mapping[str, float]) -> str | None:
        """A judged broker to which those who were placed there do not send, while as many messages
        come elsewhere. rates: declared messages/s of the round by broker."""
        due = {each: rates.get(each, 0.0) * self._seconds.get(each, 0.0) for each in self._judged}
        together = sum(rates.values()) * max(self._seconds.values(), default=0.0)
        if sum(self._offered.values()) < _MOST * together:
            return None
        for name, messages in sorted(due.items()):
            if messages >= _ENOUGH and self._offered.get(name, 0.0) < _FEW * messages:
                return name
        return None

    def receive(self, broker: str, report: Report, now: float, lapsed: bool = False) -> None:
        """A report that came at `now`; lapsed: after the lease of the one before."""
        began_at = now - report.seconds
        before = self._answered.get(broker)
        # A report whose answer was lost is made again, with what has come since.
        repeated = report.answered is not None and report.answered == before
        restarted = report.answered is not None and before is not None and report.answered < before
        if lapsed or restarted:
            self._interrupt(broker)
        if report.answered is not None:
            self._answered[broker] = report.answered
        own = [each for each in report.topics if each.topic == self._topic]
        if not any(each.backlog for each in own):
            self._calm.add(broker)
        if repeated:
            return
        if self._began_at <= began_at < now:
            self._seconds[broker] = self._seconds.get(broker, 0.0) + report.seconds
            for each in own:
                count = each.offered * report.seconds
                self._offered[broker] = self._offered.get(broker, 0.0) + count
        if began_at >= min(self._from.values(), default=float("inf")):
            for each in own:
                self._keep_arrivals(each, now)
        if self._from.get(broker, float("inf")) <= began_at < now:
            self._samples += [
                self._sample(broker, each, began_at, now)
                for each in report.topics
                if each.topic in self._topics and each.served
            ]

    def _interrupt(self, broker: str) -> None:
        """The round has to be measured again; of a broker that only helps it tells nothing more."""
        if broker in self._judged:
            self.interrupted = broker
        else:
            self._from.pop(broker, None)

    def take_samples(self) -> list[Sample]:
        """Take the samples that came since the last call."""
        taken, self._samples = self._samples, []
        return taken

    def arrivals(self, now: float) -> Arrivals | None:
        """The topic's arrivals of the last minute, at all brokers together; None without any."""
        oldest = int((now - _ARRIVALS_SECONDS) / _MS)
        counts: dict[int, float] = {}
        for at, count in self._arrivals:
            if at >= oldest:
                counts[at] = counts.get(at, 0.0) + count
        if not counts:
            return None
        times = sorted(counts)
        return Arrivals(np.array(times) * _MS, np.array([counts[each] for each in times]))

    def _keep_arrivals(self, found: TopicReport, now: float) -> None:
        at = int(now / _MS)
        self._arrivals.extend((at - int(ago), count) for ago, count in found.arrivals if count)
        oldest = at - int(_ARRIVALS_SECONDS / _MS)
        while self._arrivals and self._arrivals[0][0] < oldest:
            self._arrivals.popleft()

    def _sample(self, broker: str, found: TopicReport, began_at: float, now: float) -> Sample:
        # The counts come from a sketch, which may put one message on either side of a bound.
        messages = int(found.served)
        near = min(int(found.near), messages)
        late = min(int(found.late), near)
        return Sample(
            broker=broker,
            topic=found.topic,
            epoch=self._epoch,
            began_at=began_at,
            ended_at=now,
            messages=messages,
            late=late,
            late_at_broker=min(int(found.late_at_broker), late),
            near=near,
        )
