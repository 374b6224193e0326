"""A scenario in virtual time, at any scale; each design on the fewest brokers that it holds on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.experiments.point import Point, simulated_point
from benchmarks.experiments.scale import PAPER_ESTIMATES, Scale
from benchmarks.experiments.scenario import BROKERS, INITIAL_BATCH, SPARE, Scenario, initial_traffic
from distributor.model import Broker, Placement, Publisher
from distributor.placement.groups import blind, by_key
from distributor.placement.policies import POLICIES
from distributor.placement.request import request
from distributor.placement.srtm import concentrate
from distributor.simulator.run import Seen, SimulatedTopic, placed, simulate
from distributor.simulator.traffic import Traffic
from srtm.limits.contract import Contract


def place(
    policy: str,
    contract: Contract,
    brokers: Sequence[Broker],
    publishers: Sequence[Publisher],
    count: int = 1,
) -> Placement:
    """Over `count` brokers or, where the capacities ask for them, more. `lb` takes them all."""
    placement = POLICIES[policy](contract, brokers, publishers)
    if policy == "lb" or len(placement.brokers) >= count:
        return placement
    # One publisher stands on each of `count` brokers already, so that they all serve the topic.
    by_room = sorted(brokers, key=lambda each: (-each.rcap, each.name))[:count]
    first = dict(
        zip((each.id for each in publishers), (each.name for each in by_room), strict=False)
    )
    asked = request(contract, brokers, publishers, first)
    order = blind(asked.unassigned, contract.topic)
    groups = by_key(asked.unassigned) if policy == "srtm" else order
    return concentrate(policy, asked, groups, by_total_load=policy == "conc")


_WARMUP_PART = 0.1
_PROFILE_SEED = 10_000
_CHOOSING_SEED = 20_000
"""The first seed of the repetitions by which a number of brokers is chosen; others judge it."""
_MOST_SECONDS = 400.0  # at SRTM's scale, however few messages there are in it


@dataclass(frozen=True, slots=True)
class Effort:
    """messages: of each repetition, about."""

    repetitions: int
    messages: int


_FULL, _QUICK = Effort(10, 100_000), Effort(2, 25_000)
_IN_BATCHES, _IN_GROUPS = 2, 4
"""times as many messages, where few bursts of many come"""
PROFILE = 4
"""Batches in the trace that a contract of Poisson publishers is fitted to, for each message of a
repetition. Periodic ones keep their phases, so theirs is what they send."""


class Simulated:
    """One scenario, its repetitions' traffic made once for all designs."""

    def __init__(
        self, scenario: Scenario, scale: Scale, effort: Effort, spare: float = SPARE
    ) -> None:
        self._scenario, self._scale, self._effort = scenario, scale, effort
        self._seconds = scale.seconds(min(effort.messages / scenario.offered, _MOST_SECONDS))
        self._publishers = scenario.everybody(scale)
        self._brokers = scenario.brokers(scale, estimate(scenario))
        self._spare = spare
        self._sent: dict[int, Traffic] = {}
        self.contract = scenario.contract(scale, self._profile(0), spare)

    def point(self, design: str, count: int | None = None) -> Point:
        """count: of brokers; None: the fewest with which the mean meets the target, and where none
        does the best (SRTM section 6). They are chosen by repetitions of their own."""
        if count is not None or design == "lb":
            return self._measured(design, count or BROKERS)
        best, target = None, self._scale.slo.target_seconds
        for tried in range(1, BROKERS + 1):
            if best is not None and best.brokers >= tried:
                continue  # that many were needed by rate alone
            found = self._measured(design, tried, 2 * target, _CHOOSING_SEED)
            if found.met:
                return self._measured(design, tried)
            if best is None or found.mean < best.mean:
                best = found
        assert best is not None
        return self._measured(design, best.brokers)

    def seen(self, design: str, count: int) -> list[Seen]:
        """What the messages see on so many brokers: each repetition, without its warm-up."""
        placement = place(design, self.contract, self._brokers, self._publishers, count)
        return [self._seen(placement, number) for number in range(self._effort.repetitions)]

    def _measured(
        self, design: str, count: int, give_up: float = float("inf"), seed: int = 0
    ) -> Point:
        """give_up: a sum of p99s that no mean can make good ends the repetitions; seed: of the
        first of them."""
        placement = place(design, self.contract, self._brokers, self._publishers, count)
        repetitions, slo = self._effort.repetitions, self._scale.slo
        seen: list[Seen] = []
        worst: list[float] = []
        for number in range(seed, seed + repetitions):
            seen.append(self._seen(placement, number))
            worst.append(seen[-1].worst(slo.percentile))
            if sum(worst) > give_up * repetitions:
                break
        return simulated_point(
            self._scenario, design, self._scale, placement, self.contract, seen, worst
        )

    def _send(self, seed: int) -> Traffic:
        if seed not in self._sent:
            self._sent[seed] = self._scenario.traffic(self._scale, self._seconds, seed)
        return self._sent[seed]

    def _profile(self, seed: int) -> Traffic:
        """What a repetition's contract is fitted to."""
        if self._scenario.arrivals == "periodic":
            return self._send(seed)
        events = self._scenario.offered / self._scenario.batch
        seconds = self._scale.seconds(PROFILE * self._effort.messages / events)
        return self._scenario.traffic(self._scale, seconds, _PROFILE_SEED)

    def _burst(self, seed: int) -> float:
        """A placement's shares are in proportion to it."""
        if self._scenario.arrivals == "poisson":
            return self.contract.burst
        return self._scenario.contract(self._scale, self._profile(seed), self._spare).burst

    def _seen(self, placement: Placement, seed: int) -> Seen:
        sent = self._send(seed)
        names = [each.name for each in self._brokers]
        topic = placed(placement, self._publishers, names, sent)
        part = self._burst(seed) / self.contract.burst
        topics = [
            replace(
                topic, shares={n: (r, max(1.0, b * part)) for n, (r, b) in topic.shares.items()}
            )
        ]
        for number, broker in enumerate(self._brokers):
            if broker.allocated and number in topics[0].shares:
                other = initial_traffic(broker.allocated, self._seconds, seed * BROKERS + number)
                topics.append(SimulatedTopic(other, np.array([number]), {}))
        seen = simulate(topics, [self._scale.service] * BROKERS)[0]
        return seen.after(_WARMUP_PART * self._seconds)


def effort_for(scenario: Scenario, quick: bool) -> Effort:
    """The effort for a scenario: how many repetitions, and about how many messages in each."""
    found = _QUICK if quick else _FULL
    times = _IN_GROUPS if scenario.group_size > 1 else _IN_BATCHES if scenario.batch > 1 else 1
    return Effort(found.repetitions, times * found.messages)


def estimate(scenario: Scenario) -> float:
    """messages/s, at SRTM's scale, that the Load Distributor takes a broker to hold."""
    return PAPER_ESTIMATES[INITIAL_BATCH if scenario.initial else scenario.batch]
