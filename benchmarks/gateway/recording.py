"""What it costs to record who came: CPU of a gateway that does over one that does not.

Both run all the time, each before an nsqd of its own, and trials take turns; which one is first
changes from round to round.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.table import Table

from benchmarks.harness.arms import Node, nodes
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.generator import Trial, trial
from benchmarks.harness.report import Report, number, table
from benchmarks.harness.session import Session
from srtm.limits.contract import Contract

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ARMS = ("plain", "recorded")
AT_MOST = 1.05
_OVERHEAD_SECONDS = 1.0  # of a trial beside its sending
_REPEATS = 2

Rounds = Sequence[Mapping[str, Trial]]
"""by arm"""


@dataclass(frozen=True, slots=True)
class Load:
    """contract: (r, b) of its topic"""

    topic: str
    flags: tuple[str, ...]
    contract: tuple[float, float]


_NEVER_REACHED = (1e6, 1e6)
LOADS = {
    "10,000 msg/s from 1,000 connections": Load(
        "singles", ("--publishers=1000", "--rate=10", "--drain=3s"), _NEVER_REACHED
    ),
    "50 connections, 20 outstanding": Load(
        "pipelined", ("--publishers=50", "--max-speed", "--outstanding=20"), _NEVER_REACHED
    ),
    # With b = 1 nine Poisson messages in ten wait for a token, and not for long.
    "5,000 msg/s, most wait": Load(
        "waiting", ("--publishers=50", "--rate=100", "--drain=3s"), (5_500.0, 1.0)
    ),
}


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of a trial's sending and of its warm-up; rounds."""

    seconds: float
    warmup: float
    rounds: int


FULL = Timing(6.0, 1.0, 5)
QUICK = Timing(1.6, 0.4, 2)


def measure(
    session: Session, flags: Sequence[str], recorded: Callable[[Sequence[str]], dict[str, Any]]
) -> Report:
    """flags: of the gateway that records; recorded: what it did, by topics, for the report."""
    timing = QUICK if session.quick else FULL
    session.plan(timing.rounds * len(LOADS) * len(ARMS))
    trials: dict[str, list[Mapping[str, Trial]]] = {name: [] for name in LOADS}
    contracts = [
        Contract(topic=load.topic, rate=load.contract[0], burst=load.contract[1])
        for load in LOADS.values()
    ]
    with nodes(session.folder, dict.fromkeys(ARMS, contracts), {"recorded": flags}) as started:
        for node in started.values():
            for load in LOADS.values():
                node.create(load.topic, "c")
        for turn in range(timing.rounds):
            for name, load in LOADS.items():
                found: dict[str, Trial] = {}
                for arm in ARMS if turn % 2 == 0 else ARMS[::-1]:
                    session.step(f"{name}: {arm} ({turn + 1}/{timing.rounds})")
                    if session.seconds_left > timing.seconds + _OVERHEAD_SECONDS:
                        found[arm] = _trial(started[arm], load, timing)
                if len(found) == len(ARMS):
                    trials[name].append(found)
    return Report(
        settings={
            "seconds": timing.seconds,
            "warmup_seconds": timing.warmup,
            "rounds": timing.rounds,
            "flags": [each.replace(str(session.folder), "FOLDER") for each in flags],
            "loads": {name: [*load.flags, load.contract] for name, load in LOADS.items()},
        },
        figures={
            "trials": {
                name: [{arm: each.as_json() for arm, each in found.items()} for found in rounds]
                for name, rounds in trials.items()
            },
            **recorded([load.topic for load in LOADS.values()]),
        },
        bars=bars(trials, session.quick),
        tables=[shown(trials)],
        draw=lambda figure: draw(figure, trials),
    )


def _trial(node: Node, load: Load, timing: Timing) -> Trial:
    node.empty(load.topic, "c")
    return trial(
        node,
        load.topic,
        load.flags,
        consume_from=None,
        seconds=timing.seconds,
        warmup=timing.warmup,
    )


def ratios(rounds: Rounds) -> list[float]:
    """Round by round: CPU of the gateway for a message, recorded over plain."""
    return [
        found["recorded"].cpu_us["gateway"] / found["plain"].cpu_us["gateway"] for found in rounds
    ]


def bars(trials: Mapping[str, Rounds], quick: bool) -> list[Bar]:
    return [
        judge(
            f"gateway's CPU of a message, {name}",
            ratios(rounds),
            at_most=AT_MOST,
            quick=quick,
            repeats=_REPEATS,
        )
        for name, rounds in trials.items()
    ]


def shown(trials: Mapping[str, Rounds]) -> Table:
    made = table("medians", "load", "figure", *ARMS)
    for name, rounds in trials.items():
        for figure, value in _FIGURES.items() if rounds else ():
            made.add_row(
                name if figure == next(iter(_FIGURES)) else "",
                figure,
                *(number(median(value(found[arm]) for found in rounds)) for arm in ARMS),
            )
    return made


_FIGURES: dict[str, Any] = {
    "gateway's CPU, us/msg": lambda found: found.cpu_us["gateway"],
    "gateway and nsqd, us/msg": lambda found: found.cpu_us_per_message,
    "acknowledged/s": lambda found: found.acknowledged,
}


def draw(figure: "Figure", trials: Mapping[str, Rounds]) -> None:
    """The ratios, a dot for each round."""
    axes = figure.subplots()
    for place, rounds in enumerate(trials.values()):
        values = ratios(rounds)
        axes.plot([place] * len(values), values, "o", alpha=0.7)
    axes.axhline(AT_MOST, linestyle="--", color="grey")
    axes.set_xticks(range(len(trials)), list(trials))
    axes.set(ylabel="gateway's CPU of a message, recorded over plain", ylim=(0.8, None))
