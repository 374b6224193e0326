"""An SLO over a chain of consumer groups, each of which feeds the next (CLOSER section 6, its
future work), in virtual time.

Every service has a mu and partitions of its own; all else is CLOSER's: start-up 2 s, heartbeat 3 s,
t_reb 50 ms, decisions every second. The whole chain has CLOSER's SLO, 99 % within w_sla = 500 ms.
What a service has served arrives at the next as its service ends, in a partition drawn anew and
evenly at random, as a new key would choose it. The policies get the SLO in three ways:

- whole: every service is given the SLO of the chain;
- equal: of n services, each is given an n-th of the target and of the share that may be late;
- planned: `srtm.journey.split` takes one of the SLOs that each service was simulated with, on other
  arrivals of the same kind, behind services with equal parts of the longest chain. Where it can
  promise no split, the equal parts stay.

`linear` takes no SLO and runs once. A service keeps its part (t, e) if at most e of the chain's
events take it longer than t. Arrivals are Poisson: a second's events at once, as the paper's
producers send them, take 350 ms with a consumer for each partition, more than any equal part.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from statistics import median

from rich.table import Table

from benchmarks.autoscaler.chain_runs import (
    SERVICES,
    WAYS,
    WHOLE,
    Case,
    Traffic,
    Trial,
    Way,
    trials,
)
from benchmarks.autoscaler.closer import PAPERS
from benchmarks.autoscaler.rivals import OURS
from benchmarks.autoscaler.scaling import workload
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import Picture, Report, span, tabulate
from benchmarks.harness.session import Session, side_by_side
from srtm.autoscaler.simulator.workload import iot_like, web_like

LENGTHS = (2, 3)
SEEDS, QUICK_SEEDS = (1, 2, 3), (1,)
WEB_SECONDS, WEB_QUICK_SECONDS = 210, 60
IOT_QUICK = slice(200, 320)
"""Seconds of the rise to the first peak."""
QUICK_JOB_SECONDS = 8.0
_SPLITS = (Way.EQUAL, Way.PLANNED)


def run(session: Session) -> Report:
    first = workload("iot-10min.csv", iot_like)
    quick = session.quick
    iot = first.rates[IOT_QUICK] if quick else first.rates
    web_seconds = WEB_QUICK_SECONDS if quick else WEB_SECONDS
    traffics = (
        Traffic("iot", lambda seed: iot),
        Traffic("web", lambda seed: web_like(web_seconds, seed=seed)),
    )
    found = list(_played(session, traffics))
    return Report(
        settings={
            "slo": str(WHOLE),
            "services": [{"mu": mu, "partitions": partitions} for mu, partitions in SERVICES],
            "startup_seconds": PAPERS.startup_seconds,
            "heartbeat_seconds": PAPERS.heartbeat_seconds,
            "rebalance_seconds": PAPERS.rebalance_seconds,
            "seeds": list(QUICK_SEEDS if quick else SEEDS),
        },
        figures={"trials": [asdict(each) for each in found]},
        bars=bars(found, "short runs of one seed" if quick else first.doubt),
        tables=[table_of(found)],
        notes=[
            first.note,
            f"web: generated, {web_seconds} s, peak 500 events/s, another for each seed; a seed "
            "also draws events, partitions and heartbeats",
            "late by service: of the chain's events, those over the service's part of the target; "
            "over an equal part where each is given the whole SLO",
        ],
        draw=lambda figure: draw(figure, found),
    )


def _played(session: Session, traffics: Sequence[Traffic]) -> Iterator[Trial]:
    """Every policy on every traffic; of a quick run as many as fit into its time."""
    lengths = LENGTHS[:1] if session.quick else LENGTHS
    seeds = QUICK_SEEDS if session.quick else SEEDS
    cases = [(traffic, policy) for traffic in traffics for policy in WAYS]
    session.plan(len(cases))
    jobs = [partial(trials, traffic, policy, lengths, seeds) for traffic, policy in cases]
    for done in side_by_side(jobs, session.processes):
        session.step(f"{done[0].traffic}: {done[0].policy}")
        yield from done
        if session.seconds_left < QUICK_JOB_SECONDS:
            break


def bars(found: Sequence[Trial], doubt: str = "") -> list[Bar]:
    """doubt: why a run cannot tell of SLOs and cost; the union bound holds in the shortest."""
    beyond = [each for each in found if each.late > sum(each.by_service) + 1e-9]
    keep_parts = [each for each in found if each.way in _SPLITS and each.keeps_parts]
    broken = [float(sum(not each.keeps for each in keep_parts))] if keep_parts else []
    return [
        judge(
            "union bound: runs later end to end than all services together",
            [float(len(beyond))] if found else [],
            at_most=0.0,
        ),
        judge(
            "union bound: runs that keep each part of a split, and not the whole",
            broken,
            at_most=0.0,
            doubt="" if keep_parts else "no run keeps each part",
        ),
        *(
            _kept([each for each in found if each.case == case], case, doubt)
            for case in dict.fromkeys(each.case for each in found)
            if case[2] == OURS and case[3] in _SPLITS
        ),
        judge(
            f"{OURS}: replica-minutes, planned over equal",
            _ratios(found),
            at_most=1.0,
            doubt=doubt or ("" if _ratios(found) else "no split is promised"),
        ),
    ]


def _kept(runs: Sequence[Trial], case: Case, doubt: str) -> Bar:
    traffic, services, policy, way = case
    kept = 100 * sum(each.keeps for each in runs) / len(runs)
    name = f"{traffic}, {services} services, {policy}, {way}: runs that keep the SLO, %"
    bar = judge(name, [kept], at_least=100.0, doubt=doubt)
    return replace(bar, why=runs[0].plan.note) if bar.met is False else bar


def _ratios(found: Sequence[Trial]) -> list[float]:
    """Planned over equal with ours, each seed, for the chains for which a split was promised."""
    ours = {(*each.case, each.seed): each for each in found if each.policy == OURS}
    pairs = [
        (each, ours.get((each.traffic, each.services, OURS, Way.EQUAL, each.seed)))
        for each in ours.values()
        if each.way is Way.PLANNED and not each.plan.note
    ]
    return [planned.minutes / equal.minutes for planned, equal in pairs if equal is not None]


def table_of(found: Sequence[Trial]) -> Table:
    """Medians over the seeds, and ranges."""
    cases: dict[Case, list[Trial]] = {}
    for each in found:
        cases.setdefault(each.case, []).append(each)

    def by_service(runs: Sequence[Trial]) -> str:
        columns = zip(*(each.by_service for each in runs), strict=True)
        return " + ".join(f"{100 * median(column):.2f}" for column in columns)

    return tabulate(
        f"{WHOLE} over chains of services",
        sorted(cases.values(), key=lambda runs: runs[0].case[:2]),
        ("traffic", lambda runs: runs[0].traffic),
        ("services", lambda runs: str(runs[0].services)),
        ("policy", lambda runs: runs[0].policy),
        ("SLO", lambda runs: runs[0].way if len(WAYS[runs[0].policy]) > 1 else "-"),
        ("late %", lambda runs: f"{100 * median(each.late for each in runs):.2f}"),
        ("range", lambda runs: span([100 * each.late for each in runs])),
        ("late by service %", by_service),
        ("runs that keep the SLO", lambda runs: f"{sum(r.keeps for r in runs)} of {len(runs)}"),
        ("each part", lambda runs: f"{sum(r.keeps_parts for r in runs)} of {len(runs)}"),
        ("replica-min", lambda runs: f"{median(each.minutes for each in runs):.2f}"),
        ("range", lambda runs: span([each.minutes for each in runs])),
        ("given", lambda runs: runs[0].plan.note or ", ".join(map(str, runs[0].plan.slos))),
    )


def draw(figure: Picture, found: Sequence[Trial]) -> None:
    """Draw the share of late events against replica-minutes, each traffic by itself."""
    names = list(dict.fromkeys(each.traffic for each in found))
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        for case in dict.fromkeys(each.case for each in found if each.traffic == name):
            runs = [each for each in found if each.case == case]
            _, services, policy, way = case
            axes.scatter(
                [each.minutes for each in runs],
                [100 * each.late for each in runs],
                s=14,
                marker="o" if services == LENGTHS[0] else "^",
                label=f"{policy}, {way}, {services} services",
            )
        axes.axhline(100 * WHOLE.allowed_late_share, color="grey")
        axes.set(xlabel="replica-minutes of all services", ylabel="late, %", title=name)
        axes.set_yscale("symlog", linthresh=0.1)
    panels[0].legend(fontsize="xx-small")
