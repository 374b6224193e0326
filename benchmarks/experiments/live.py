"""A panel of SRTM's figures on real brokers, in slow motion, beside its simulation.

Rates are s times SRTM's and times 1/s of its, so that it is the same experiment; s is the largest
at which this machine carries it and the generator is late by less than a tenth of the target.
Designs take turns, repetition by repetition. Independent publishers share connections; groups of
publishers stand on as many brokers as SRTM's design needs when simulated. All brokers share the
cores of one host, so that another broker brings its bucket and its connections, and no CPU.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean

from benchmarks.experiments.calibration import FULL_LADDER, LADDER, QUICK_LADDER, calibrated
from benchmarks.experiments.experiment import AT_SAME, Panel, Points, beside, draw
from benchmarks.experiments.paper import EXPERIMENTS
from benchmarks.experiments.point import Point, simulated_point
from benchmarks.experiments.scale import HEADROOM, Scale, paper_scale, scale_of
from benchmarks.experiments.scenario import BROKERS, Scenario
from benchmarks.experiments.simulated import Simulated, effort_for, estimate
from benchmarks.experiments.world import Measured, World, local_world, require_hosts, world_of
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import Report
from benchmarks.harness.session import Session

_REPETITIONS = 10
_SENDING_SECONDS = 450.0
"""of a whole run, shared by the designs and their repetitions"""
_FULL_SECONDS = 60.0  # of SRTM's rounds
_QUICK_SECONDS, _QUICK_REPETITIONS = 4.0, 2
_TRIAL_SECONDS, _TRIAL_SEED = 5.0, 30_000
_MOST_PUBLISHERS = 300
"""connections of one load; independent publishers are merged, each with the rate of several"""
_LAG_PART = 0.1
"""The part of the target by which a generator may be late at p99."""
_BETTER_SHARE = 0.9
"""of the repetitions, in which a design is to be better where SRTM says that it is"""
_SETTLE_SECONDS = 4.0  # for a topic's registration, shares and end


@dataclass(frozen=True, slots=True)
class Live:
    """What of a panel is measured.

    xs:      of the panel
    meets:   designs that SRTM has within the target; misses: those that it has over it
    better:  pairs of designs, the one that SRTM has the shorter p99 for first
    fades:   what the first of `better` gains is larger at the first x than at the last
    """

    panel: Panel
    xs: Sequence[float]
    designs: Sequence[str]
    meets: Sequence[str]
    misses: Sequence[str] = ()
    better: Sequence[tuple[str, str]] = ()
    fades: bool = False

    @property
    def scenarios(self) -> list[Scenario]:
        return [self.panel.scenarios[x] for x in self.xs]

    @property
    def offered(self) -> float:
        """The most messages/s at SRTM's scale, with what brokers carry already."""
        return max(each.offered + sum(each.initial) for each in self.scenarios)

    def every_x(self) -> "Live":
        return replace(self, xs=tuple(self.panel.scenarios))


def _concentration(panel: Panel) -> Live:
    xs = (8_000,) if panel.label in ("7a", "7b") else (4_000,)  # periodic ones keep their number
    better = (("conc", "lb"), ("srtm", "lb"))
    return Live(panel, xs, ("lb", "conc", "srtm"), ("conc", "srtm"), ("lb",), better)


def _max_min(panel: Panel) -> Live:
    xs = (6_000,) if panel.label == "8b" else (8_000,)
    return Live(panel, xs, ("conc", "max-min", "srtm"), ("max-min", "srtm"))


def _correlation(panel: Panel) -> Live:
    return Live(panel, (25,), (AT_SAME, "srtm"), ("srtm",), better=(("srtm", AT_SAME),))


def _noisy(panel: Panel) -> Live:
    return replace(_correlation(panel), xs=(0, 16), fades=True)


PANELS = {
    panel.label: made(panel)
    for experiment, made in zip(
        EXPERIMENTS, (_concentration, _max_min, _correlation, _noisy), strict=True
    )
    for panel in experiment.panels
}


def run(session: Session, label: str) -> Report:
    """label: of the panel. Raises SrtmError where brokers do not come up or carry nothing."""
    live = PANELS[label]
    if session.live:
        live = live.every_x()
    if session.quick:
        live = replace(live, xs=live.xs[:1])
    if session.hosts is not None:
        require_hosts(session.hosts, max(map(_brokers, live.scenarios)))
    session.plan(2 + len(live.xs) * len(live.designs) * _REPETITIONS)
    session.step("real brokers start")
    with _world(session) as world:
        ladder = _ladder(session, world, live)
        found = calibrated(session, world.doors[0], live.offered, ladder)
        measured, twins = _measured(session, world, live, found.scale)
    pairs = [(each, twins[at]) for at, each in measured.items()]
    shown = replace(live.panel, designs=live.designs)
    return Report(
        settings={"burst": "2 b: twice SRTM's", "measured": found.document()},
        figures={
            "measured": [
                {
                    "x": x,
                    "measured": each.document(),
                    "simulated": twins[label, x, design].document(),
                }
                for (label, x, design), each in measured.items()
            ]
        },
        bars=bars(live, measured, session.quick, found.doubt),
        tables=[beside(pairs, f"rates x {found.scale.rate:g}")],
        notes=[
            "p99 is that of the broker where it is longest, from the intended time to receipt",
            f"measured: {found.words}",
            f"Poisson publishers without groups are merged to at most {_MOST_PUBLISHERS} "
            f"connections, with the same sum; r is {HEADROOM:g} of it as ever",
        ],
        draw=lambda figure: draw(figure, [shown], measured),
    )


def _ladder(session: Session, world: World, live: Live) -> Sequence[float]:
    """The scales to try, from the fastest on at which the generator itself is in time."""
    if session.quick or session.live:
        return QUICK_LADDER if session.quick else FULL_LADDER
    for place, rate in enumerate(LADDER[:-1]):
        scale = scale_of(rate)
        session.step(f"is the generator in time at {rate:g} of SRTM's rates?")
        lags = [
            _measure(world, scenario, scale, live.designs[0], _TRIAL_SECONDS, _TRIAL_SEED).lag
            for scenario in live.scenarios
        ]
        if max(lags) <= _LAG_PART * scale.slo.target_seconds:
            return LADDER[place:]
    return LADDER[-1:]


def _measured(session: Session, world: World, live: Live, scale: Scale) -> tuple[Points, Points]:
    """What was measured, and what the simulator makes of the same messages."""
    arms = [(x, design) for x in live.xs for design in live.designs]
    repetitions = _QUICK_REPETITIONS if session.quick else _REPETITIONS
    seconds = _SENDING_SECONDS / _REPETITIONS / len(arms)
    if session.quick or session.live:
        seconds = _QUICK_SECONDS if session.quick else _FULL_SECONDS
    seen: dict[tuple[float, str], list[Measured]] = {}
    for number in range(repetitions):
        for x, design in arms:
            if session.seconds_left < seconds + _SETTLE_SECONDS:
                continue
            session.step(f"{live.panel.label}, {x:g}: {design} ({number + 1})")
            scenario = live.panel.scenarios[x]
            if not session.live:
                scenario = few(scenario)
            one = _measure(world, scenario, scale, design, seconds, number)
            seen.setdefault((x, design), []).append(one)
    measured, twins = {}, {}
    for (x, design), runs in seen.items():
        at = (live.panel.label, x, design)
        measured[at], twins[at] = _points(live.panel.scenarios[x], design, scale, runs)
    return measured, twins


def _measure(
    world: World, scenario: Scenario, scale: Scale, design: str, seconds: float, seed: int
) -> Measured:
    capacity = estimate(scenario) * scale.rate
    if scenario.group_size > 1:
        # By their number alone: as many as hold the topic, and hardly more.
        capacity = 1.01 * scenario.offered * scale.rate / _brokers(scenario)
    policy = "max-min" if design == AT_SAME else design
    return world.measure(scenario, scale, policy, capacity, seconds, seed)


@cache
def _brokers(scenario: Scenario) -> int:
    """The brokers that a scenario asks for: those that carry others, and for groups the fewest on
    which SRTM's design holds them, simulated with twice its b."""
    if scenario.group_size == 1:
        return max(1, len(scenario.initial))
    effort = effort_for(scenario, quick=True)
    return Simulated(scenario, paper_scale(), effort).point("srtm").brokers


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


def bars(live: Live, points: Points, quick: bool, doubt: str) -> list[Bar]:
    """doubt: why nothing is decided, if not empty."""
    label = live.panel.label
    found = []
    for x in live.xs:
        here = {design: points.get((label, x, design)) for design in live.designs}
        name = f"measured: {label}, {x:g}: "
        for design in (*live.meets, *live.misses):
            meets = design in live.meets
            found.append(_over_target(f"{name}{design}", here[design], meets, quick, doubt))
        found += [
            _better(name, (one, here[one]), (other, here[other]), doubt)
            for one, other in live.better
        ]
    if live.fades:
        found.append(_fades(live, points, quick, doubt))
    return found


def _over_target(name: str, point: Point | None, meets: bool, quick: bool, doubt: str) -> Bar:
    """A late generator makes latencies from the intended time longer, never shorter: what is within
    the target in spite of it is decided."""
    ratios = [each / point.target for each in point.p99] if point else []
    judged = judge(
        f"{name}: p99 over the target",
        ratios,
        at_most=1.0 if meets else None,
        at_least=None if meets else 1.0,
        quick=quick,
        repeats=2,
    )
    if not doubt and point and not (meets and judged.met):
        doubt = _late(point)
    return replace(judged, met=None, why=doubt) if doubt else judged


def _better(
    name: str, one: tuple[str, Point | None], other: tuple[str, Point | None], doubt: str
) -> Bar:
    """The share of the repetitions in which one design has the shorter p99."""
    better, worse = one[1], other[1]
    shares: list[float] = []
    if better and worse:
        pairs = list(zip(better.p99, worse.p99, strict=False))
        shares = [fmean(first < second for first, second in pairs)]
        if not doubt and len(pairs) < _REPETITIONS:
            doubt = f"{len(pairs)} of {_REPETITIONS} repetitions"
        doubt = doubt or _late(better) or _late(worse)
    title = f"{name}share of repetitions in which {one[0]} is better than {other[0]}"
    return judge(title, shares, at_least=_BETTER_SHARE, doubt=doubt)


def _fades(live: Live, points: Points, quick: bool, doubt: str) -> Bar:
    """What the better design gains at the first x, over what it gains at the last."""
    (better, worse), *_ = live.better
    gains = []
    for x in (live.xs[0], live.xs[-1]):
        pair = [points.get((live.panel.label, x, design)) for design in (worse, better)]
        if pair[0] is None or pair[1] is None:
            return judge(_FADES, [], at_least=1.0, doubt=doubt)
        doubt = doubt or _late(pair[0]) or _late(pair[1])
        gains.append([a / b for a, b in zip(pair[0].p99, pair[1].p99, strict=False)])
    ratios = [first / last for first, last in zip(*gains, strict=False)]
    return judge(_FADES, ratios, at_least=1.0, quick=quick, doubt=doubt, repeats=2)


_FADES = "measured: gain of knowing the groups, at 0 ms over at 16 ms"


def _late(point: Point) -> str:
    if point.lag <= _LAG_PART * point.target:
        return ""
    return (
        f"the generator itself was {point.lag * 1e3:.0f} ms late at p99, of "
        f"{point.target * 1e3:.0f}"
    )
