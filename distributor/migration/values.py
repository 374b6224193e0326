"""What a decision about migration is made from, and what it is. Rates are messages/s."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Trouble:
    """What a broker has to be relieved of: more comes than it holds, or its messages are late even
    without the wait for their tokens. What waits for tokens is the TB Adaptor's. holds: the load
    that it holds, as far as is known"""

    load: float
    holds: float
    reason: str

    def excess(self, headroom: float) -> float:
        """How much has to leave, for the load to be `headroom` of what the broker holds."""
        return max(0.0, self.load - headroom * self.holds)


@dataclass(frozen=True, slots=True)
class Sender:
    """A registered publisher, with the rate at which its messages came to the broker where it is
    placed."""

    topic: str
    id: str
    key: str | None
    rate: float


@dataclass(frozen=True, slots=True)
class Source:
    """A broker in trouble. unknown: rates of those who sent there and cannot be moved, by name"""

    name: str
    trouble: Trouble
    senders: tuple[Sender, ...]
    unknown: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Target:
    """Another broker. load: the larger of what came to it and what is declared and promised to it;
    why_not: why nobody is moved to it; empty: somebody may be"""

    name: str
    capacity: float
    load: float
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """A topic with publishers at the source.

    brokers:      that serve it; most_brokers: as many as b allows
    publishers:   how many are registered
    groups:       correlation key -> broker -> declared rate of the group there
    by_itself:    moves are made, not only proposed
    """

    name: str
    brokers: frozenset[str]
    most_brokers: int
    publishers: int
    groups: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    by_itself: bool = False

    def spread(self, broker: str, key: str | None) -> float:
        """The part of the group's rate that is there; 0 for a publisher without a group."""
        group = self.groups.get(key, {}) if key else {}
        return group[broker] / sum(group.values()) if group.get(broker) else 0.0


@dataclass(frozen=True, slots=True)
class Move:
    topic: str
    publisher: str
    rate: float
    source: str
    target: str
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """moves: empty where nothing can be done; reasons: sentences for people
    by_itself: every topic that has moves allows them without a person"""

    moves: tuple[Move, ...]
    reasons: tuple[str, ...]
    by_itself: bool = False

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(each.topic for each in self.moves)
