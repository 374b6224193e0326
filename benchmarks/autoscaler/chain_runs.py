"""Services that feed one another, the SLO that each is given, and what comes of it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from benchmarks.autoscaler.closer import PAPERS
from benchmarks.autoscaler.rivals import OURS
from srtm.autoscaler.policies import POLICIES, Settings
from srtm.autoscaler.simulator.arrivals import ArrivalModel, arrivals_of, even_shares
from srtm.autoscaler.simulator.chain import Feed, end_to_end, feed
from srtm.autoscaler.simulator.run import ROUNDING_SECONDS, Run, simulate
from srtm.journey.frontier import Allowance, frontier_of
from srtm.journey.simulated import Simulated, sobered
from srtm.journey.split import Option, Split, split
from srtm.journey.summary import CONFIDENCE
from srtm.limits.bins import bins_of
from srtm.limits.slo import SLO

WHOLE = PAPERS.slo
SERVICES = ((200.0, 5), (150.0, 7), (300.0, 4))
"""mu in events/s and partitions; the first is CLOSER's."""
PLAN_SEED = 1000
"""A plan is made on other arrivals than those that it is judged on."""
_TARGETS, _LATE = (0.2, 0.5), (0.2, 0.5)
"""Parts of the chain's target and late share that services are planned with, beside equal ones."""
_NEVER_SECONDS = 3600.0
"""The latency, to the planner, of an event that nobody serves."""


class Way(StrEnum):
    """How the services of a chain are given its SLO."""

    WHOLE = "whole"
    EQUAL = "equal"
    PLANNED = "planned"


WAYS = {OURS: tuple(Way), "closer2": tuple(Way), "linear": (Way.WHOLE,)}
"""The policies, and the ways that make a difference to each."""


Case = tuple[str, int, str, Way]
"""Traffic, services, policy and way."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """rates: of a seed, events/s by second"""

    name: str
    rates: Callable[[int], list[float]]


class Chain:
    """The services in their order, with one policy and one seed. A service that was simulated
    behind the same services is not simulated again."""

    def __init__(self, policy: str, traffic: Traffic, seed: int) -> None:
        self._policy = policy
        self._rates = traffic.rates(seed)
        self._seed = seed
        self._known: dict[tuple[SLO, ...], tuple[Feed, Run]] = {}

    def last(self, slos: tuple[SLO, ...]) -> tuple[Feed, Run]:
        """The run of the last of the services that have these SLOs, and what fed it."""
        if slos not in self._known:
            mu, partitions = SERVICES[len(slos) - 1]
            setting = replace(
                PAPERS,
                slo=slos[-1],
                mu=mu,
                initial=math.ceil(float(np.mean(self._rates)) / mu),
                seed=self._seed * len(SERVICES) + len(slos),
            )
            shares = even_shares(partitions)
            if len(slos) > 1:
                fed = feed(self.last(slos[:-1])[1], shares, setting.seed)
            else:
                arrivals = arrivals_of(self._rates, shares, ArrivalModel.POISSON, self._seed)
                fed = Feed(arrivals, np.arange(arrivals.events))
            policy = POLICIES[self._policy](Settings(slos[-1], mu), None)
            self._known[slos] = fed, simulate(policy, fed.arrivals, setting)
        return self._known[slos]

    def played(self, slos: tuple[SLO, ...]) -> list[tuple[Feed, Run]]:
        """What `last` says of each service."""
        return [self.last(slos[: place + 1]) for place in range(len(slos))]


@dataclass(frozen=True, slots=True)
class Allotment:
    """What every service of a chain is given, and its part of the SLO, by which it is judged. note:
    why there is no split by plan, where there is none"""

    slos: tuple[SLO, ...]
    parts: tuple[Allowance, ...]
    note: str = ""


def equal_part(services: int) -> SLO:
    """An n-th of the target and of the share that may be late, in round numbers that allow no
    more."""
    late = math.floor(1e5 * WHOLE.allowed_late_share / services + 1e-6) / 1e5
    return SLO(1 - late, math.floor(1e4 * WHOLE.target_seconds / services + 1e-6) / 1e4)


def plans(traffic: Traffic, policy: str, lengths: Sequence[int]) -> dict[int, dict[Way, Allotment]]:
    """By length of the chain, and by way."""
    found = {services: _without_planning(services) for services in lengths}
    if Way.PLANNED not in WAYS[policy]:
        return found
    slos = {str(slo): slo for slo in (*_asked(policy), *map(equal_part, lengths))}
    chain, before = Chain(policy, traffic, PLAN_SEED), (equal_part(max(lengths)),)
    options = [
        _options({name: chain.last((*before * place, slo))[1] for name, slo in slos.items()})
        for place in range(max(lengths))
    ]
    for services, ways in found.items():
        made = split({str(place): options[place] for place in range(services)}, WHOLE)
        if isinstance(made, Split):
            chosen = tuple(slos[option.name] for option in made.options.values())
            ways[Way.PLANNED] = Allotment(chosen, tuple(made.parts.values()))
        else:
            note = f"no split is promised: {100 * made.late_share:.2f} % may be late"
            ways[Way.PLANNED] = replace(ways[Way.EQUAL], note=note)
    return found


def _without_planning(services: int) -> dict[Way, Allotment]:
    part = equal_part(services)
    parts = (Allowance(part.target_seconds, part.allowed_late_share),) * services
    return {
        Way.WHOLE: Allotment((WHOLE,) * services, parts),
        Way.EQUAL: Allotment((part,) * services, parts),
    }


def _asked(policy: str) -> list[SLO]:
    """The SLOs that make a difference to the policy: only ours takes the percentile."""
    return [
        SLO(1 - WHOLE.allowed_late_share * late, WHOLE.target_seconds * target)
        for late in (_LATE if policy == OURS else _LATE[-1:])
        for target in _TARGETS
    ]


def _options(runs: dict[str, Run]) -> list[Option]:
    """What each SLO costs a service, in replicas, and the latencies that would come of it."""
    seen = []
    for run in runs.values():
        latency = np.minimum(run.latency, _NEVER_SECONDS) * 1e9
        bins = bins_of(latency, np.ones(len(latency), dtype=np.int64))
        seen.append(Simulated(run.setting.slo, run.mean_replicas(), bins))
    sober = [sobered(each, seen) for each in seen]
    return [
        Option(name, each.consumers, frontier_of(each.latency, CONFIDENCE))
        for name, each in zip(runs, sober, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a chain. late: the share of its events over the target, end to end; by_service:
    over the service's part of it; minutes: replica-minutes of all services"""

    traffic: str
    policy: str
    way: Way
    seed: int
    plan: Allotment
    late: float
    by_service: tuple[float, ...]
    minutes: float

    @property
    def services(self) -> int:
        return len(self.by_service)

    @property
    def case(self) -> Case:
        return self.traffic, self.services, self.policy, self.way

    @property
    def keeps(self) -> bool:
        return self.late <= WHOLE.allowed_late_share + 1e-9

    @property
    def keeps_parts(self) -> bool:
        pairs = zip(self.by_service, self.plan.parts, strict=True)
        return all(late <= part.late_share for late, part in pairs)


def trials(
    traffic: Traffic, policy: str, lengths: Sequence[int], seeds: Sequence[int]
) -> list[Trial]:
    planned = plans(traffic, policy, lengths)
    found = []
    for seed in seeds:
        chain = Chain(policy, traffic, seed)
        for services in lengths:
            for way in WAYS[policy]:
                plan = planned[services][way]
                late, by_service, minutes = measured(chain, plan)
                found.append(
                    Trial(traffic.name, policy, way, seed, plan, late, by_service, minutes)
                )
    return found


def measured(chain: Chain, plan: Allotment) -> tuple[float, tuple[float, ...], float]:
    """What a trial has of late, by_service and minutes."""
    links = chain.played(plan.slos)
    runs = [run for _, run in links]
    events = max(1, len(runs[0].latency))
    late = [
        int(np.count_nonzero(run.latency > part.seconds + ROUNDING_SECONDS)) / events
        for run, part in zip(runs, plan.parts, strict=True)
    ]
    # What is in time at every service, but for its rounding, is so in all.
    target = WHOLE.target_seconds + len(runs) * ROUNDING_SECONDS
    whole = int(np.count_nonzero(end_to_end(runs[0], links[1:]) > target)) / events
    minutes = math.fsum(float(run.replica_minutes) for run in runs)
    return whole, tuple(late), minutes
