"""What a policy answers: the group that it wants, and why."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from srtm.autoscaler.observation import Observation


class Action(StrEnum):
    NONE = "none"
    UP = "up"
    DOWN = "down"
    REASSIGN = "reassign"


class Handover(StrEnum):
    """How partitions change hands.

    EAGER        everybody stops, everything is assigned anew (Kafka's first protocol)
    COOPERATIVE  moved partitions stop for two rebalances, the others go on (KIP-429)
    DIRECT       moved partitions only: stop, acknowledge, start (Landau, section 4.4.7)
    """

    EAGER = "eager"
    COOPERATIVE = "cooperative"
    DIRECT = "direct"


@dataclass(frozen=True, slots=True)
class Member:
    """One consumer of the wanted group. consumer None: one to be launched."""

    consumer: str | None
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """The whole group wanted from now on.

    members: every consumer that stays or is launched, in order; who is not in it leaves. Empty
             when the action is NONE.
    handover: how; None leaves it to the group's own protocol
    late:    late events that the policy foretells of the hand-over; None: it foretells nothing
    reason:  one sentence for a person
    notes:   clamps that the policy's paper prescribes, and what cannot be met, with the remedy
    """

    action: Action
    members: tuple[Member, ...] = ()
    reason: str = ""
    notes: tuple[str, ...] = ()
    handover: Handover | None = None
    late: float | None = None


class Policy(Protocol):
    """Decides once for each decision interval. It may keep state; time comes with `seen.at`."""

    name: str

    def decide(self, seen: Observation) -> Decision: ...
