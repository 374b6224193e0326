"""What a fitting tells its caller: measure this, or it is done; and which samples of it count."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from distributor.fitting.capacity import CapacityModel
from distributor.placement.srtm import SubBucket
from srtm.limits.contract import Contract

LONGEST_SECONDS = 30.0
"""The longest warm-up; a bucket that remembers for longer is emptied first."""

SHORTEST_SECONDS = 8.0
"""The shortest time of samples in favour of a broker. Late messages that come in stretches of a
second can be away for three or four; a wrong yes lasts, while a wrong no costs a broker."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """seconds, from when everybody has moved.

    memory:       b / (r - λ): how long a bucket remembers the level that it started with
    empty_first:  the round starts with empty buckets
    holds_from:   samples from here on may show that a broker holds its share
    holds_after:  and there are enough of them from here on
    violated_from: samples from here on may show that it does not, whatever made messages late;
                  what a broker is late with beside its bucket counts from the start
    """

    memory: float
    empty_first: bool
    holds_from: float
    holds_after: float
    violated_from: float


def warm_up(contract: Contract, offered: float) -> WarmUp:
    """offered: λ, messages/s of the whole topic; the sub-buckets (r λ_l / λ, b λ_l / λ) all have
    the memory of the contract. Raises ValueError unless λ < r.

    A bucket that starts with the level it had after another split says nothing until it has been
    able to fill up. What follows is measured for as long again: token waits come in clusters that
    are apart by that much. Where this takes too long, the bucket starts empty: then it is late too
    often at first and never too seldom, so that samples in favour of the broker count at once.
    """
    if not offered < contract.rate:
        raise ValueError(
            f"offered rate {offered:g} must be under r = {contract.rate:g}: waits grow without end"
        )
    memory = contract.burst / (contract.rate - offered)
    if memory > LONGEST_SECONDS:
        return WarmUp(memory, True, 0.0, SHORTEST_SECONDS, memory)
    return WarmUp(memory, False, memory, memory + max(memory, SHORTEST_SECONDS), memory)


@dataclass(frozen=True, slots=True)
class Round:
    """A trial to carry out, until `next` gives another.

    epoch:      number of the round; samples carry it
    assignment: publisher id -> broker name, of everybody who sends
    held:       ids of the publishers that stay connected and wait
    elsewhere:  ids of those in `assignment` that send through brokers outside the trial meanwhile
    shares:     (r_l, b_l) by broker; the part of those held is with nobody
    judged:     names of the brokers whose samples are asked for
    began_at:   seconds; look_again_at: when `next` is to be called at the latest
    settled_at: seconds; samples from before are left out, the moves are in them
    """

    epoch: int
    assignment: Mapping[str, str]
    held: tuple[str, ...]
    elsewhere: tuple[str, ...]
    shares: Mapping[str, SubBucket]
    judged: frozenset[str]
    began_at: float
    settled_at: float
    look_again_at: float
    warm_up: WarmUp
    reasons: tuple[str, ...]

    @property
    def helping(self) -> frozenset[str]:
        """Names of the brokers that those `elsewhere` send through."""
        return frozenset(self.assignment[each] for each in self.elsewhere)


class Result(StrEnum):
    MET = "met"  # a design that keeps the SLO
    BEST = "best"  # none does; the best of those measured
    TOO_SMALL = "contract too small"  # no design can, whatever the brokers
    OUT_OF_BROKERS = "out of brokers"  # not even by rate


@dataclass(frozen=True, slots=True)
class Done:
    """assignment: publisher id -> broker name, to be applied; empty where nothing was measured
    shares:     (r_l, b_l) by broker
    rounds, seconds: what it took
    rate, burst: of a contract too small, what would do (burst: None where no arrivals tell)
    model:      with what the rounds have taught, for the store
    """

    result: Result
    assignment: Mapping[str, str]
    shares: Mapping[str, SubBucket]
    rounds: int
    seconds: float
    reasons: tuple[str, ...]
    model: CapacityModel
    rate: float | None = None
    burst: int | None = None
