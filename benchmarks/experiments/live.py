"""Some of an experiment on real brokers, at the scale that they hold, beside its simulation."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from benchmarks.experiments.calibration import Calibration, calibrated
from benchmarks.experiments.point import Point, simulated_point
from benchmarks.experiments.scale import HEADROOM, Scale
from benchmarks.experiments.scenario import BROKERS, Scenario
from benchmarks.experiments.simulated import estimate
from benchmarks.experiments.world import Measured, World, local_world, require_hosts, world_of
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.session import Session
from srtm.text.errors import SrtmError

_SECONDS, _REPETITIONS = 15.0, 10
_FULL_SECONDS = 60.0  # of SRTM's rounds
_QUICK_SECONDS, _QUICK_REPETITIONS = 4.0, 2
_MOST_PUBLISHERS = 300
"""connections of one load; independent publishers are merged, each with the rate of several"""
_LAG_PART = 0.2
"""The part of the target by which a generator may be late at p99; one that is later decides
nothing."""
_LEAST_SECONDS = 25.0
"""Seconds that brokers need to start and be calibrated, and for one load of each design."""
_SETTLE_SECONDS = 4.0  # for a topic's registration, shares and end


@dataclass(frozen=True, slots=True)
class Case:
    """must_meet, must_miss: designs that are judged by the SLO. count: over so many brokers, where
    concentration alone does not say."""

    scenario: Scenario
    designs: Sequence[str]
    must_meet: Sequence[str] = ()
    must_miss: Sequence[str] = ()
    count: int | None = None

    @property
    def offered(self) -> float:
        return self.scenario.offered + sum(self.scenario.initial)


@dataclass(frozen=True, slots=True)
class Pairs:
    """points: measured, and simulated with the same messages."""

    settings: dict[str, Any] | None = None
    points: Sequence[tuple[Point, Point]] = ()
    bars: list[Bar] = field(default_factory=list)
    notes: Sequence[str] = ()
    scale: str = ""


def check_hosts(session: Session, cases: Sequence[Case]) -> None:
    """Check the hosts, before anything is simulated. Raises UsageError, UnavailableError."""
    if session.hosts is None:
        return
    cases = cases[:1] if session.quick else cases
    needed = (max(len(each.scenario.initial), each.count or 1) for each in cases)
    require_hosts(session.hosts, max(needed, default=1))


def measured(session: Session, cases: Sequence[Case]) -> Pairs:
    """Designs take turns, repetition by repetition. A quick run takes the first case alone, for as
    long as it has time."""
    cases = cases[:1] if session.quick else cases
    if not cases:
        return Pairs()
    if session.seconds_left < _LEAST_SECONDS:
        return _nothing(cases, session.quick, "the simulation took all of the time")
    session.step("real brokers start")
    with _world(session) as world:
        try:
            offered = max(each.offered for each in cases)
            found = calibrated(session, world.doors[0], offered)
        except SrtmError as error:
            return _nothing(cases, session.quick, str(error))
        points = [pair for case in cases for pair in measure(session, world, case, found.scale)]
    return Pairs(
        found.document(),
        points,
        _bars(cases, points, session.quick, found.doubt),
        _notes(found, points),
        f"rates x {found.scale.rate:g}",
    )


def _nothing(cases: Sequence[Case], quick: bool, why: str) -> Pairs:
    return Pairs(notes=[f"nothing was measured: {why}"], bars=_bars(cases, (), quick, why))


def measure(session: Session, world: World, case: Case, scale: Scale) -> list[tuple[Point, Point]]:
    """One case, each of its designs."""
    quick = session.quick
    seconds = _QUICK_SECONDS if quick else _FULL_SECONDS if session.live else _SECONDS
    scenario = case.scenario if session.live else few(case.scenario)
    capacity = estimate(case.scenario) * scale.rate
    if case.count is not None:
        # By their number alone: as many as hold the topic, and hardly more.
        capacity = 1.01 * scenario.offered * scale.rate / case.count
    seen: dict[str, list[Measured]] = {design: [] for design in case.designs}
    for number in range(_QUICK_REPETITIONS if quick else _REPETITIONS):
        for design in case.designs:
            if session.seconds_left < seconds + _SETTLE_SECONDS:
                continue
            session.step(f"measured: {scenario.name}, {design} ({number + 1})")
            one = world.measure(scenario, scale, design, capacity, seconds, number)
            seen[design].append(one)
    return [_points(scenario, design, scale, each) for design, each in seen.items() if each]


def _world(session: Session) -> AbstractContextManager[World]:
    if session.hosts is not None:
        return nullcontext(world_of(session.hosts))
    return local_world(session.folder / "brokers", BROKERS)


def few(scenario: Scenario) -> Scenario:
    """The scenario with no more connections than a generator keeps up well. The sum of independent
    Poisson publishers is one such process, whatever their number; of periodic ones it is not, and
    groups would be other groups, so those stay."""
    part = min(1.0, _MOST_PUBLISHERS / scenario.publishers)
    if scenario.arrivals != "poisson" or scenario.group_size > 1 or part == 1.0:
        return scenario
    return replace(scenario, publishers=_MOST_PUBLISHERS, rate=scenario.rate / part)


def _points(
    scenario: Scenario, design: str, scale: Scale, runs: Sequence[Measured]
) -> tuple[Point, Point]:
    """What was measured, and what the simulator makes of it."""
    last = runs[-1]
    seen = [each.seen for each in runs]
    worst = [each.worst(scale.slo.percentile) for each in seen]
    twin = simulated_point(scenario, design, scale, last.placement, last.contract, seen, worst)
    measured = replace(
        twin,
        p99=tuple(each.worst for each in runs),
        overall=tuple(each.overall for each in runs),
        late_share=fmean(each.late_share for each in runs),
        curve=last.curve,
        lag=max(each.lag for each in runs),
    )
    return measured, twin


def _bars(
    cases: Sequence[Case], points: Sequence[tuple[Point, Point]], quick: bool, why: str
) -> list[Bar]:
    """why: nothing is decided, if not empty."""
    found = []
    by_name = {(one.scenario.name, one.design): one for one, _ in points}
    for case in cases:
        for design in (*case.must_meet, *case.must_miss):
            point = by_name.get((case.scenario.name, design))
            ratios = [each / point.target for each in point.p99] if point else []
            doubt = why
            if not doubt and point and point.lag > _LAG_PART * point.target:
                doubt = (
                    f"the generator itself was {point.lag * 1e3:.0f} ms late at p99, of "
                    f"{point.target * 1e3:.0f}"
                )
            name = f"measured: {case.scenario.name}, {design}: p99 over the target"
            how: dict[str, float] = {"at_most" if design in case.must_meet else "at_least": 1.0}
            found.append(judge(name, ratios, **how, quick=quick, doubt=doubt, repeats=2))
    return found


def _notes(found: Calibration, points: Sequence[tuple[Point, Point]]) -> list[str]:
    notes = [f"measured: {found.words}"]
    if any(few(each.scenario) is each.scenario for each, _ in points):
        notes.append(
            f"measured: Poisson publishers are merged to at most {_MOST_PUBLISHERS} connections, "
            f"with the same sum; r is {HEADROOM:g} of it as ever"
        )
    return notes
