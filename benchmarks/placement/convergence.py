"""How long until a new topic's publishers are where they keep the SLO: SRTM Table 1.

In virtual time: `paper` (rounds of 60 s, binary search) and `sequential` replay the same arrivals
from an empty model, on brokers as `fitting_model` has them. The search itself is the product's
code, round by round. Beside it: how often the sequential test errs on late messages in clusters.
"""

from dataclasses import asdict
from functools import partial

from benchmarks.harness.report import Report
from benchmarks.harness.session import Session
from benchmarks.harness.side_by_side import side_by_side
from benchmarks.placement import fitting_model as model
from benchmarks.placement.convergence_live import live, live_table
from benchmarks.placement.convergence_report import (
    ARRIVALS,
    PAPER_SECONDS,
    RUNS,
    SIZES,
    Run,
    bars,
    draw,
    error_table,
    seconds_table,
)
from benchmarks.placement.fitting_errors import every_error
from distributor.fitting import CapacityModel, Done, Fitting, Mode, Result, Settings

_LESSONS, _QUICK_LESSONS = 3, 1  # of each size and kind of arrivals
_CLEAR = (0.005, 0.015)  # late share: below at k_ref, above at one broker less
_LESSON_SEED = 1_000
_SECONDS_KEPT = 4.0  # of a quick run, for the report


def run(session: Session) -> Report:
    quick = session.quick
    session.plan(2 + len(ARRIVALS) + (0 if quick else RUNS))
    session.step("errors of the sequential test")
    judged, harsher = every_error(quick)
    lessons: dict[str, CapacityModel] = {}
    for arrivals in ARRIVALS:
        session.step(f"lessons for the learnt starts, {arrivals}")
        lessons[arrivals] = _taught(arrivals, _QUICK_LESSONS if quick else _LESSONS)
    runs: list[Run] = []
    jobs = [partial(_seed, seed, lessons) for seed in range(RUNS)]
    before = session.seconds_left
    for seed, found in enumerate(side_by_side(jobs, session.processes)):
        session.step(f"{seed + 1} of {RUNS} topics of each kind")
        runs += found
        took, before = before - session.seconds_left, session.seconds_left
        if before < _SECONDS_KEPT + 1.5 * took:
            break
    lived = list(live(session, ARRIVALS)) if session.live else []
    return Report(
        settings={
            "group_sizes": SIZES,
            "arrivals": ARRIVALS,
            "publishers": model.PUBLISHERS,
            "rate_per_second": model.RATE,
            "batch": model.BATCH,
            "slo": str(model.TARGET),
            "token_rate_over_offered": model.HEADROOM,
            "burst": "2 x the smallest with zero p99 token wait",
            "base_seconds": model.BASE_SECONDS,
            "drain_per_second": model.DRAIN,
            "brokers": model.BROKERS,
            "trace_seconds": model.TRACE_SECONDS,
            "settle_seconds": Settings().settle_seconds,
        },
        figures={
            "runs": [asdict(each) for each in runs],
            "errors": [asdict(each) for each in judged],
            "errors_harsher_than_claimed": [asdict(each) for each in harsher],
            "paper_table_1_seconds": PAPER_SECONDS,
            "live": [asdict(each) for each in lived],
        },
        bars=bars(runs, judged, quick),
        tables=[
            *(seconds_table(runs, arrivals) for arrivals in ARRIVALS),
            error_table(judged, harsher),
            *([live_table(lived)] if lived else []),
        ],
        notes=_notes(quick),
        draw=partial(draw, runs),
    )


def _notes(quick: bool) -> list[str]:
    return [
        "virtual time: brokers are a model (latency "
        f"{model.BASE_SECONDS * 1e3:g} ms and the longer of token wait and a queue that drains "
        f"{model.DRAIN:,.0f} messages/s), with figures measured on a 2-core machine",
        f"the SLO is {model.TARGET}: SRTM's 1 ms is out of reach of such a broker, and with 2 ms "
        "the groups need about as many brokers as SRTM's did",
        "a round of `sequential` begins with "
        f"{Settings().settle_seconds:g} s for moves and a warm-up of b / (r - λ); both are in its "
        "seconds. A round of `paper` is 60 s, all in all",
        "late messages `in stretches` come and go by the second: harder than what is claimed, so "
        "shown and not judged",
        *(["fewer topics than 50 of each kind: range by resampling them"] if quick else []),
    ]


def _seed(seed: int, lessons: dict[str, CapacityModel]) -> list[Run]:
    return [_run(each, size, seed, lessons[each]) for each in ARRIVALS for size in SIZES]


def _run(arrivals: str, size: int, seed: int, learnt: CapacityModel) -> Run:
    load = model.workload(size, arrivals, seed)
    late = model.fewest(load)
    less = late[-2] if len(late) > 1 else None
    done = {
        "paper": _fitted(load, Mode.PAPER, CapacityModel()),
        "sequential": _fitted(load, Mode.SEQUENTIAL, CapacityModel()),
        "learnt": _fitted(load, Mode.SEQUENTIAL, learnt),
    }
    return Run(
        arrivals,
        size,
        seed,
        load.burst,
        len(late),
        late[-1],
        less,
        late[-1] < _CLEAR[0] and (less is None or less > _CLEAR[1]),
        {name: len(each.shares) for name, each in done.items()},
        {name: each.seconds for name, each in done.items()},
        {name: each.rounds for name, each in done.items()},
        all(each.result is Result.MET for each in done.values()),
    )


def _fitted(load: model.Workload, mode: Mode, learnt: CapacityModel) -> Done:
    fitting = Fitting(
        load.contract,
        model.brokers(),
        load.publishers,
        Settings(mode=mode),
        learnt,
        model.BATCH,
    )
    return model.carried_out(fitting, load)[0]


def _taught(arrivals: str, lessons: int) -> CapacityModel:
    """The model that was taught by topics of every size that are not among the judged ones."""
    learnt = CapacityModel()
    for lesson in range(lessons):
        for size in SIZES:
            load = model.workload(size, arrivals, _LESSON_SEED + lesson)
            learnt = _fitted(load, Mode.SEQUENTIAL, learnt).model
    return learnt
