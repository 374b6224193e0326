"""Brokers, publishers and placements: the words of SRTM section 4.2 as values.

Rates are messages/s. A topic's contract is `limits.contract.Contract`: rate r, burst b and SLO.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any

from srtm.limits.contract import MAX_RATE, MIN_RATE


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker as one topic sees it.

    capacity:  messages/s that it holds within the topic's SLO (SRTM's mcap), by benchmark
    allocated: sum of the declared rates of all publishers there, of all other topics
    """

    name: str
    capacity: float
    allocated: float = 0.0

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a broker has an empty name")
        for what, value in (("capacity", self.capacity), ("allocated", self.allocated)):
            if not 0 <= value < inf:
                raise ValueError(
                    f"broker {self.name}: {what} is {value}; it must be 0 messages/s or more, "
                    "and finite"
                )

    @property
    def rcap(self) -> float:
        """Residual capacity in messages/s; negative where more is allocated than it holds."""
        return self.capacity - self.allocated


@dataclass(frozen=True, slots=True)
class Publisher:
    """One publisher. Publishers with the same key send together; without a key (None, or empty as
    a CSV file writes it) it is a group of one. rate: declared, in messages/s."""

    id: str
    key: str | None
    rate: float

    def __post_init__(self) -> None:
        if not self.id:
            raise ValueError("a publisher has an empty id")
        if not MIN_RATE <= self.rate <= MAX_RATE:
            raise ValueError(
                f"publisher {self.id}: rate is {self.rate}; it must be {MIN_RATE:g} to "
                f"{MAX_RATE:g} messages/s"
            )


@dataclass(frozen=True, slots=True)
class BrokerShare:
    """What one broker gets of the topic.

    rate:       messages/s of its publishers of this topic
    quota:      messages/s that it was meant to get; `rate` is as near as whole publishers come
    publishers: how many
    r, b:       its sub-bucket, in messages/s and messages
    """

    name: str
    rate: float
    quota: float
    publishers: int
    r: float
    b: float


@dataclass(frozen=True, slots=True)
class Placement:
    """Which publisher sends to which broker, and why.

    assignment:      publisher id -> broker name, for everybody who has one
    brokers:         those that serve the topic, biggest residual capacity first
    unplaced:        ids of the publishers that no broker has room for
    reasons:         sentences for people
    brokers_at_least: a lower bound: without overload, no placement of all that are placed here has
                     fewer brokers
    minimum_at_most: an upper bound, messages/s: without overload, no placement over as many brokers
                     gives its smallest one more
    """

    policy: str
    assignment: Mapping[str, str]
    brokers: tuple[BrokerShare, ...]
    unplaced: tuple[str, ...]
    reasons: tuple[str, ...]
    brokers_at_least: int
    minimum_at_most: float

    @property
    def minimum(self) -> float:
        """messages/s of the broker with the smallest share; 0 without brokers."""
        return min((share.rate for share in self.brokers), default=0.0)

    def because(self, reasons: Iterable[str]) -> "Placement":
        """The placement with these reasons before its own."""
        return replace(self, reasons=(*reasons, *self.reasons))

    def document(self) -> dict[str, Any]:
        """The placement as JSON; publishers in order of id."""
        return {
            "policy": self.policy,
            "assignments": [
                {"publisher": publisher, "broker": broker}
                for publisher, broker in sorted(self.assignment.items())
            ],
            "brokers": [asdict(share) for share in self.brokers],
            "unplaced": list(self.unplaced),
            "reasons": list(self.reasons),
        }
