"""`srtm autoscale watch`: a group as it is, and what each policy would do; nothing is touched."""

import time
from pathlib import Path
from typing import Any

from srtm.autoscaler.decision import Decision, Policy
from srtm.autoscaler.live.bounds import possible
from srtm.autoscaler.live.choice import make_policy, watched
from srtm.autoscaler.live.observe import LiveConsumer, Phases, new_mu, observation
from srtm.autoscaler.live.probe import Probe
from srtm.autoscaler.live.roster import identified
from srtm.autoscaler.live.sampler import Sampler
from srtm.autoscaler.live.shown import NO_MU, document, show_looks
from srtm.autoscaler.observation import Observation
from srtm.consumer.file import GroupFile
from srtm.consumer.ledger import Ledger
from srtm.consumer.log import GroupLog
from srtm.consumer.topic import topic_is_there
from srtm.text.errors import UnavailableError

_FIRST_SECONDS = 10.0
_READ_SECONDS = 0.05


class Watch:
    """One group, looked at once an interval."""

    def __init__(self, file: GroupFile, names: tuple[str, ...]) -> None:
        self._file = file
        self._names = names
        self._probe = Probe(file)
        self._sampler = Sampler(file, self._probe)
        self._policies: dict[str, Policy] = {}
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
        self._read_on(self._words)
        members = self._ledger.members
        return {
            id_: (tuple(sorted(members[name].holds)), members[name].mu)
            for id_, name in identified(members).items()
        }

    def _read_on(self, words: GroupLog) -> None:
        """Read the group's topic to the end, as it is now. Raises UnavailableError."""
        until = time.monotonic() + _FIRST_SECONDS
        while True:
            found = words.read(_READ_SECONDS)
            for word in found:
                self._ledger.apply(word)
            if not found and words.caught_up:
                return
            if time.monotonic() > until:
                raise UnavailableError(f"{self._file.group.metadata} cannot be read to its end")

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
        notes = reading.notes if mu else (*reading.notes, NO_MU)
        decisions = self._decide(observation(reading, consumers, mu, Phases())) if mu else {}
        return document(reading, consumers, decisions, notes, self._file.group.weigh)

    def _decide(self, seen: Observation) -> dict[str, Decision]:
        group = self._file.group
        if not self._policies:
            self._policies = {name: make_policy(name, group, seen.new_mu) for name in self._names}
        return {
            name: possible(seen, policy.decide(seen), group.min, group.max)
            for name, policy in self._policies.items()
        }


def watch_group(
    file: GroupFile, names: tuple[str, ...], where: Path, count: int, as_json: bool
) -> None:
    """Print one look an interval; count 0: until it is stopped."""
    watch = Watch(file, watched(names, file.group.policy, str(where)))
    watch.begin()
    show_looks(watch, file.group.interval, count, as_json)
