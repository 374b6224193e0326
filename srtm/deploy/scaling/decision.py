"""Whether another broker is started, or one of those that were started ends. Pure.

SRTM section 4.2: where the brokers run out, more are asked for. Here one is asked for at a time,
since a new one changes where all others stand; and one that the rest could carry ends again, after
a while, since a broker that comes and goes moves publishers twice.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import fsum

from srtm.text.words import counted, rate, some

ROOM_PART = 0.8
"""The part of what the others hold that may be placed on them once a broker has ended; what is left
is for publishers that come."""


class Step(StrEnum):
    NONE = "none"
    START = "start"
    PLACE = "place"
    DRAIN = "drain"
    KEEP = "keep"
    END = "end"


@dataclass(frozen=True, slots=True)
class BrokerRoom:
    """A broker as the Load Distributor shows it.

    state:               up, draining or lost
    capacity, allocated: messages/s; a capacity of 0 is not measured yet
    topics:              of which it may hold a sub-bucket
    waiting:             messages in its nsqd, of those that are about to end; None: not known
    """

    name: str
    state: str
    capacity: float
    allocated: float
    topics: tuple[str, ...] = ()
    waiting: int | None = None


@dataclass(frozen=True, slots=True)
class TopicNeed:
    """A placed topic. offered: messages/s of all its publishers; serving, most: brokers that have a
    share of it, and how many can have one (a message of b each)."""

    name: str
    publishers: int
    placed: int
    offered: float
    serving: int
    most: int

    @property
    def without(self) -> int:
        return self.publishers - self.placed

    @property
    def missing(self) -> float:
        """messages/s of those without a broker, as far as the mean of all tells."""
        return self.offered * self.without / max(1, self.publishers)


@dataclass(frozen=True, slots=True)
class Seen:
    """running: names of ours whose processes run, joined or not; known: of all that were started
    and not ended on purpose, or whose nsqd has messages left in its files."""

    at: float
    brokers: tuple[BrokerRoom, ...]
    topics: tuple[TopicNeed, ...]
    running: frozenset[str]
    known: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Bounds:
    """least, most: brokers of ours; unneeded_seconds: for how long one is not needed before it
    ends; join_seconds: a start may take, before the broker is in contact."""

    least: int
    most: int
    unneeded_seconds: float
    join_seconds: float


@dataclass(frozen=True, slots=True)
class Decision:
    """broker: which one; "" where none is meant or the runner names it."""

    step: Step
    broker: str
    reason: str


class Scaler:
    """What is decided each time something is seen. It remembers since when a broker is starting or
    not needed, and which could not be given up."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._starting: dict[str, float] = {}
        self._unneeded: tuple[str, float] | None = None
        self._refused: dict[str, float] = {}

    def refused(self, name: str, at: float) -> None:
        """The others could not take what this broker has: it is needed for a while longer."""
        self._refused[name] = at + self._bounds.unneeded_seconds
        self._unneeded = None

    def decide(self, seen: Seen) -> Decision:
        ours = [each for each in seen.brokers if each.name in seen.running]
        joined = {each.name for each in ours if each.state != "lost"}
        if late := self._late(seen, joined):
            return late
        others = {each.name for each in seen.brokers if each.state != "lost"}
        if away := sorted(seen.known - seen.running - others):
            return Decision(Step.START, away[0], "it ended by itself, or with messages left")
        needy = [each for each in seen.topics if each.without and each.serving < each.most]
        for each in ours:
            if each.state == "draining":
                return self._leaving(each, seen, needy)
        if waiting := sorted(seen.running - joined):
            return Decision(Step.NONE, waiting[0], f"{some(waiting)} is not in contact yet")
        if unmeasured := [each.name for each in ours if not each.capacity]:
            return Decision(Step.NONE, unmeasured[0], f"{some(unmeasured)} is not measured yet")
        if more := self._more(seen, ours, needy):
            return more
        return self._fewer(seen, ours, needy)

    def _late(self, seen: Seen, joined: set[str]) -> Decision | None:
        self._starting = {
            name: self._starting.get(name, seen.at) for name in sorted(seen.running - joined)
        }
        for name, since in self._starting.items():
            if seen.at - since > self._bounds.join_seconds:
                del self._starting[name]
                why = f"it was not in contact within {self._bounds.join_seconds:g} s"
                return Decision(Step.END, name, why)
        return None

    def _leaving(self, broker: BrokerRoom, seen: Seen, needy: list[TopicNeed]) -> Decision:
        if needy:
            return Decision(Step.KEEP, broker.name, _need(needy))
        if broker.allocated:  # whoever drained it did not come to placing them
            return Decision(Step.DRAIN, broker.name, "its publishers go to the others")
        in_use = {each.name for each in seen.topics if each.publishers}
        if in_use & set(broker.topics):
            return Decision(Step.NONE, broker.name, f"{broker.name} gives its shares back")
        if broker.waiting is None:
            why = f"what the nsqd of {broker.name} holds is not known"
            return Decision(Step.NONE, broker.name, why)
        if broker.waiting:
            held = f"{counted(broker.waiting, 'message')} for consumers"
            return Decision(Step.NONE, broker.name, f"the nsqd of {broker.name} holds {held}")
        return Decision(Step.END, broker.name, "it has no publishers, shares or messages left")

    def _more(self, seen: Seen, ours: list[BrokerRoom], needy: list[TopicNeed]) -> Decision | None:
        count, most = len(seen.running), self._bounds.most
        if not needy:
            if count < self._bounds.least:
                return Decision(Step.START, "", f"min = {self._bounds.least}")
            return None
        # Whoever fits on a broker that is there was placed before this is asked.
        for each in ours:
            if not each.allocated:
                why = f"{each.name} is empty, and none of them fits on it: {_need(needy)}"
                return Decision(Step.NONE, "", why)
        if count < most:
            return Decision(Step.START, "", _need(needy))
        return Decision(Step.NONE, "", f"{_need(needy)}; max = {most} allows no more brokers")

    def _fewer(self, seen: Seen, ours: list[BrokerRoom], needy: list[TopicNeed]) -> Decision:
        small = [each.name for each in seen.topics if each.without and each not in needy]
        besides = f"; b is too small for another broker: {some(small)}" if small else ""
        over = len(ours) > self._bounds.most
        candidates = [each for each in ours if self._refused.get(each.name, 0.0) <= seen.at]
        last = min(candidates, key=lambda each: (each.allocated, each.name), default=None)
        chosen = self._unneeded[0] if self._unneeded else ""
        last = next((each for each in candidates if each.name == chosen), last)
        if last is None or len(ours) <= self._bounds.least:
            self._unneeded = None
            said = "nobody else is without a broker" if small else "every publisher has a broker"
            return Decision(Step.NONE, "", said + besides)
        room = fsum(_room(each) for each in seen.brokers if each.name != last.name)
        said = (
            f"the others have room for {rate(room)}, up to {ROOM_PART:.0%} of their capacities, "
            f"and it has {rate(last.allocated)}"
        )
        if not over and last.allocated > room:
            self._unneeded = None
            return Decision(Step.NONE, last.name, f"{last.name} is needed: {said}{besides}")
        if self._unneeded is None or self._unneeded[0] != last.name:
            self._unneeded = (last.name, seen.at)
        left = self._bounds.unneeded_seconds - (seen.at - self._unneeded[1])
        if left > 0 and not over:
            why = f"{last.name} is not needed and is drained in {left:.0f} s{besides}"
            return Decision(Step.NONE, last.name, why)
        self._unneeded = None
        return Decision(Step.DRAIN, last.name, f"max = {self._bounds.most}" if over else said)


def _room(broker: BrokerRoom) -> float:
    """messages/s that may still be placed on it."""
    if broker.state != "up":
        return 0.0
    return max(0.0, ROOM_PART * broker.capacity - broker.allocated)


def _need(topics: Iterable[TopicNeed]) -> str:
    needy = list(topics)
    count = sum(each.without for each in needy)
    who = f"{counted(count, 'publisher')} of {some([each.name for each in needy])}"
    missing = rate(round(fsum(each.missing for each in needy)))
    return f"{who}, with about {missing}, {'has' if count == 1 else 'have'} no broker"
