"""The consumers of a group as policies know them: launched, joined, leaving. Pure.

A consumer keeps its id from the launch on, whatever name its process has taken; one that nobody
launched goes by its own name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from srtm.autoscaler.decision import Decision
from srtm.autoscaler.live.observe import LiveConsumer
from srtm.autoscaler.observation import ConsumerState
from srtm.consumer.wire import Report


def identified(live: Mapping[str, Report]) -> dict[str, str]:
    """Id -> member. Of two that say that they are the same launch the second goes by its name."""
    found: dict[str, str] = {}
    for name in sorted(live):
        launch = live[name].launch
        found[launch if launch and launch not in found else name] = name
    return found


@dataclass(slots=True)
class Roster:
    """parts: consumer -> the partitions that it has, or will have when what is under way ends
    launched: consumer -> when it was launched; it has not joined yet. Seconds
    leaving: consumers that are on their way out: policies do not see them
    """

    parts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    launched: dict[str, float] = field(default_factory=dict)
    leaving: set[str] = field(default_factory=set)
    members: dict[str, str] = field(default_factory=dict)
    startups: list[float] = field(default_factory=list)

    def begin(self, members: Mapping[str, str], told: Mapping[str, Iterable[int]]) -> None:
        """Take over a group as it is. members: consumer -> its name; told: name -> what it was told
        last, or has"""
        self.members = dict(members)
        self.parts = {id_: tuple(sorted(told[name])) for id_, name in self.members.items()}

    def follow(self, at: float, members: Mapping[str, str], claims: bool = False) -> list[str]:
        """Who is gone: what they had is nobody's. members: consumer -> its name, of all that have
        joined. claims: who joins takes the place of the oldest launch, as nobody knows which one
        it is"""
        self.members = dict(members)
        self.leaving &= self.members.keys()
        for id_ in self.leaving:
            self.parts.pop(id_, None)
        joined = [
            id_
            for id_ in sorted(self.members.keys() - self.leaving)
            if id_ in self.launched or id_ not in self.parts
        ]
        gone = [id_ for id_ in self.parts if id_ not in self.members and id_ not in self.launched]
        for id_ in joined:
            if claims and id_ not in self.launched and self.launched:
                oldest = next(iter(self.launched))
                self.launched[id_] = self.launched.pop(oldest)
                self.parts[id_] = self.parts.pop(oldest)
            self.parts.setdefault(id_, ())
            begun = self.launched.pop(id_, None)
            if begun is not None:
                self.startups.append(at - begun)
        for id_ in gone:
            del self.parts[id_]
        return gone

    def failed(self, id_: str) -> None:
        """Its launch came to nothing."""
        if self.launched.pop(id_, None) is not None:
            self.parts.pop(id_, None)

    def adopt(self, at: float, decision: Decision, names: Iterable[str]) -> list[str]:
        """Carry out `decision`: who is not in it leaves. Returns those to be launched, named by
        `names`."""
        fresh, parts, launches = iter(names), dict[str, tuple[int, ...]](), list[str]()
        for member in decision.members:
            id_ = member.consumer
            if id_ is None:
                id_ = next(fresh)
                launches.append(id_)
                self.launched[id_] = at
            parts[id_] = member.partitions
        for id_ in self.parts.keys() - parts.keys():
            self.launched.pop(id_, None)
            if id_ in self.members:
                self.leaving.add(id_)
        self.parts = parts
        return launches

    def reflect(self, live: Mapping[str, Report]) -> None:
        """What the broker has assigned, as members report it; of two reports of one partition in
        the middle of a rebalance one counts. Who has not joined has nothing, whatever was meant."""
        seen: set[int] = set()
        self.parts = dict.fromkeys(self.parts, ())
        for id_, name in self.members.items():
            if id_ in self.parts:
                self.parts[id_] = tuple(sorted(live[name].holds.keys() - seen))
                seen |= live[name].holds.keys()

    def wanted(self, told: Mapping[str, Iterable[int]]) -> dict[str, set[int]]:
        """Member -> partitions. What is meant for a consumer that has not joined stays until then
        with who has it, and what nobody has, as its consumer died, is with those that have fewest;
        told: member -> what it was told last, or has."""
        found = {name: set(self.parts.get(id_, ())) for id_, name in self.members.items()}
        waiting = {p for id_ in self.launched for p in self.parts.get(id_, ())}
        for name, partitions in told.items():
            if name in found:
                found[name] |= waiting.intersection(partitions)
        staying = sorted(name for id_, name in self.members.items() if id_ not in self.leaving)
        for partition in sorted(waiting.difference(*found.values())) if staying else ():
            found[min(staying, key=lambda name: len(found[name]))].add(partition)
        return found

    def consumers(self, learnt: Mapping[str, float | None]) -> tuple[LiveConsumer, ...]:
        """What policies see; learnt: consumer -> mu"""
        found = []
        for id_, part in self.parts.items():
            mu = learnt.get(id_) or None
            state = ConsumerState.STARTING if id_ in self.launched else ConsumerState.RUNNING
            found.append(LiveConsumer(id_, part, mu, state))
        return tuple(found)
