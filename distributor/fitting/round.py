"""What a fitting tells its caller: measure this, or it is done."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from distributor.fitting.capacity import CapacityModel
from distributor.fitting.warm_up import WarmUp
from distributor.placement.srtm import SubBucket


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
