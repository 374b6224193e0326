"""`srtm autoscale watch`: a group as it is, and what each policy would do; nothing is touched."""

from pathlib import Path
from typing import Any

from srtm.autoscaler.live.announced import Announced
from srtm.autoscaler.live.choice import Asked, make_policy, watched
from srtm.autoscaler.live.explain import read_on
from srtm.autoscaler.live.learnt import Learnt
from srtm.autoscaler.live.observe import LiveConsumer, Phases, new_mu, observation
from srtm.autoscaler.live.probe import Probe
from srtm.autoscaler.live.roster import identified
from srtm.autoscaler.live.sampler import Sampler
from srtm.autoscaler.live.shown import UNKNOWN_MU, document, show_looks
from srtm.consumer.file import GroupFile
from srtm.consumer.ledger import Ledger
from srtm.consumer.log import GroupLog
from srtm.consumer.topic import topic_is_there
from srtm.text.errors import UnavailableError

_FIRST_SECONDS = 10.0


class Watch:
    """One group, looked at once an interval."""

    def __init__(self, file: GroupFile, names: tuple[str, ...], where: Path) -> None:
        """Raises UsageError."""
        self._file = file
        self._asked = Asked(
            names,
            file.group,
            lambda name, mu: make_policy(name, file.group, mu),
            Announced(file.announced, where).now,
        )
        self._probe = Probe(file)
        self._sampler = Sampler(file, self._probe)
        self._words: GroupLog | None = None
        self._ledger = Ledger()

    def begin(self) -> None:
        """Raises UnavailableError."""
        self._probe.partitions()
        if topic_is_there(self._file):
            self._words = GroupLog(self._file, f"srtm-watch-{self._file.group.id}")
        self._sampler.start()
        if not self._sampler.wait_first(_FIRST_SECONDS):
            raise UnavailableError(self._sampler.fault or "Kafka gives no offsets")
        self._sampler.read()

    def close(self) -> None:
        self._sampler.close()
        if self._words is not None:
            self._words.close(0)

    def _members(self) -> dict[str, tuple[tuple[int, ...], float]]:
        """Consumer -> what it has and the mu that it says: those that subscribe, or those that a
        controller hands partitions to. Raises UnavailableError."""
        subscribed = self._probe.members()
        if subscribed or self._words is None:
            return {each.id: (each.partitions, 0.0) for each in subscribed}
        read_on(self._words, self._ledger, self._file)
        members = self._ledger.members
        return {
            id_: (tuple(sorted(members[name].holds)), members[name].mu)
            for id_, name in identified(members).items()
        }

    def look(self) -> dict[str, Any]:
        """What is seen now. Raises UnavailableError."""
        if self._sampler.fault:
            raise UnavailableError(self._sampler.fault)
        members = self._members()
        self._sampler.follow({id_: partitions for id_, (partitions, _) in members.items()})
        consumers = tuple(
            LiveConsumer(id_, partitions, self._sampler.mu(id_, mu))
            for id_, (partitions, mu) in members.items()
        )
        reading = self._sampler.read()
        mu = new_mu(consumers, self._file.group.mu)
        notes = reading.notes if mu else (*reading.notes, UNKNOWN_MU)
        would = self._asked.ask(observation(reading, consumers, mu, _usual())) if mu else {}
        return document(reading, consumers, would, notes, self._file.group.weigh)


def _usual() -> Phases:
    """What a controller takes changes to last before it has seen one."""
    learnt = Learnt()
    return Phases(learnt.startup, learnt.rebalance)


def watch_group(
    file: GroupFile, names: tuple[str, ...], where: Path, count: int, as_json: bool
) -> None:
    """Print one look an interval; count 0: until it is stopped."""
    watch = Watch(file, watched(names, file.group, str(where)), where)
    watch.begin()
    show_looks(watch, file.group.interval, count, as_json)
