"""Does `srtm journey plan` keep a journey's SLO for less than the best equal split? On real
servers.

Each arm has a topic, contract, pool (or bridge, Kafka topic and group) and controller of its own.
`plan` looks at the arrivals of a warm-up with the equal split. Then all arms get the same messages,
others of the same shape: all at once, so that they share every stall of the machine, or in turns
where three are too much for two cores. Once the load has risen and settled, a window counts:
messages by the client, which writes the time into each body and reads it when the consumer's sink
has the message; consumers by the controller. Cost is broker- and replica-minutes; each arm has one
broker. The best equal split is the cheapest that kept the SLO in all runs.
"""

from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table

from benchmarks.harness.arms import nodes
from benchmarks.harness.bars import Bar, judge, judge_worst
from benchmarks.harness.report import Report, number, table
from benchmarks.harness.session import Session
from benchmarks.journey.parts import MOST
from benchmarks.journey.shapes import MU, SHAPES, Shape
from benchmarks.journey.splits import Arm
from benchmarks.journey.trial import Timing, Trial, play
from srtm.text.errors import UnavailableError

FULL = Timing(warm=90, settle=60, window=180, rounds=2)
QUICK = Timing(warm=60, settle=30, window=15, rounds=1)
_MOST_COST = 0.8
_EQUAL = (Arm.EQUAL, Arm.EQUAL_TARGET)


def run(session: Session) -> Report:
    timing = QUICK if session.quick else FULL
    shapes = SHAPES[:1] if session.quick else SHAPES
    session.plan(timing.rounds * len(shapes))
    trials: dict[Shape, list[Trial]] = {shape: [] for shape in shapes}
    failed: list[str] = []
    with nodes(session.folder, {"behind": []}) as started:
        for turn in range(timing.rounds):
            for place, shape in enumerate(shapes):
                session.step(f"{shape.name}, round {turn + 1}")
                folder = session.folder / f"{place}-{turn}"
                try:
                    trials[shape].append(play(shape, turn, started["behind"], folder, timing))
                except UnavailableError as error:
                    failed.append(f"{shape.name}, round {turn + 1}, does not count: {error}")
    return Report(
        settings={
            **asdict(timing),
            "mu": MU,
            "most_consumers": MOST,
            "slos": {shape.name: str(shape.slo) for shape in shapes},
        },
        figures={shape.name: [asdict(each) for each in found] for shape, found in trials.items()},
        bars=[
            bar
            for shape, found in trials.items()
            for bar in bars(shape, found, timing.rounds, session.quick)
        ],
        tables=[_table(shape, found) for shape, found in trials.items()],
        notes=[
            *failed,
            f"in slow motion: a consumer works {1 / MU:.3f} s on a message",
            "targets are 3 to 12 times as long: with more, every split costs about the same, "
            "because consumers have to keep up with what comes anyway",
        ],
    )


def bars(shape: Shape, trials: Sequence[Trial], rounds: int, quick: bool) -> list[Bar]:
    """What one shape is judged by."""
    may_be = shape.slo.allowed_late_share
    best, doubt = best_equal(shape, trials)
    failed = "" if len(trials) == rounds else f"{len(trials)} of {rounds} runs"
    return [
        judge_worst(
            f"{shape.name}: late over what may be, as planned, worst run",
            [each.outcomes[Arm.PLAN].late / may_be for each in trials],
            at_most=1.0,
            doubt=failed,
        ),
        judge(
            f"{shape.name}: cost over that of the best equal split",
            [each.outcomes[Arm.PLAN].cost / each.outcomes[best].cost for each in trials],
            at_most=_MOST_COST,
            quick=quick,
            doubt=failed or doubt,
            repeats=2,
        ),
        judge_worst(
            f"{shape.name}: messages lost",
            [float(found.lost) for each in trials for found in each.outcomes.values()],
            at_most=0.0,
            doubt=failed,
        ),
    ]


def best_equal(shape: Shape, trials: Sequence[Trial]) -> tuple[Arm, str]:
    """The cheapest equal split of those that kept the SLO in all runs; of all of them where none
    did, with the doubt that this is."""

    def cost(arm: Arm) -> float:
        return sum(each.outcomes[arm].cost for each in trials)

    may_be = shape.slo.allowed_late_share
    keeps = [arm for arm in _EQUAL if all(each.outcomes[arm].late <= may_be for each in trials)]
    return min(keeps or _EQUAL, key=cost), "" if keeps else "no equal split kept the SLO"


def _table(shape: Shape, trials: Sequence[Trial]) -> Table:
    made = table(
        f"{shape.name}: {shape.slo}",
        *("arm", "round", "SLO of the consumers", "late %", f"p{shape.slo.percentile * 100:g} s"),
        *("consumers", "cost/min", "last minute: p99 s", "shown", "late % shown", "promised %"),
    )
    for turn, trial in enumerate(trials):
        for arm, found in trial.outcomes.items():
            shown = found.shown
            made.add_row(
                str(arm),
                str(turn + 1),
                found.slos["consumer"],
                number(100 * found.late),
                number(found.kept),
                number(found.consumers),
                number(found.cost),
                number(found.p99),
                number(shown["p99_seconds"]),
                number(100 * shown["late_share"]),
                number(100 * shown["promised_share"]),
            )
    return made
