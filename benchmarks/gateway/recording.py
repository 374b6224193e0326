"""What it costs to record who came: CPU of a gateway that does over one that does not.

Both run all the time, each before an nsqd of its own, and trials take turns; which one is first
changes from round to round.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.table import Table

from benchmarks.harness.arms import nodes
from benchmarks.harness.bars import judge
from benchmarks.harness.report import Picture, Report, number, table
from benchmarks.harness.session import Session
from benchmarks.harness.trial import (
    Figure,
    Round,
    Timing,
    Trial,
    as_json,
    gateway_cpu,
    of_arm,
    ratios,
    take_turns,
    trial,
)
from srtm.audit.folder import read_sessions
from srtm.limits.contract import Contract
from srtm.traces.names import whole_trace

ARMS = ("plain", "recorded")
AT_MOST = 1.05
_REPEATS = 2


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


FULL = Timing(6.0, 1.0, 5)
QUICK = Timing(1.6, 0.4, 2)


def admission_log(session: Session) -> Report:
    """What `--admission-log` costs: CPU of a gateway that logs over one that does not."""
    folder = session.folder / "log"

    def logged(topics: Sequence[str]) -> dict[str, Any]:
        """What was measured did log."""
        messages = {
            topic: sum(each.messages for each in read_sessions([folder], topic)) for topic in topics
        }
        size = sum(file.stat().st_size for file in folder.iterdir())
        return {"logged_messages": messages, "log_bytes": size}

    return measure(session, [f"--admission-log={folder}"], logged)


def trace(session: Session) -> Report:
    """What `--trace-dir` costs, its own process included.

    A file is written every second, sixty times as often as by default, so that each trial has
    some.
    """
    folder = session.folder / "trace"

    def traced(topics: Sequence[str]) -> dict[str, Any]:
        """What was measured did trace."""
        rows = pq.read_table(whole_trace(folder))
        sums = rows.group_by("topic").aggregate([("messages", "sum")]).to_pylist()
        counts = {each["topic"]: each["messages_sum"] for each in sums}
        return {
            "traced_messages": {topic: counts.get(topic, 0) for topic in topics},
            "rows": rows.num_rows,
            "trace_bytes": sum(path.stat().st_size for path in whole_trace(folder)),
            "publishers": pc.count_distinct(rows["publisher"]).as_py(),
        }

    return measure(session, [f"--trace-dir={folder}", "--trace-file-age=1s"], traced)


def measure(
    session: Session, flags: Sequence[str], recorded: Callable[[Sequence[str]], dict[str, Any]]
) -> Report:
    """flags: of the gateway that records; recorded: what it did, by topics, for the report."""
    timing = QUICK if session.quick else FULL
    session.plan(timing.rounds * len(LOADS) * len(ARMS))
    contracts = [
        Contract(topic=load.topic, rate=load.contract[0], burst=load.contract[1])
        for load in LOADS.values()
    ]
    with nodes(session.folder, dict.fromkeys(ARMS, contracts), {"recorded": flags}) as started:
        for node in started.values():
            for load in LOADS.values():
                node.create(load.topic, "c")

        def run(load: Load, arm: str) -> Trial:
            return trial(
                started[arm],
                load.topic,
                load.flags,
                seconds=timing.seconds,
                warmup=timing.warmup_seconds,
                channel="c",
            )

        rounds: dict[str, list[Round]] = {name: [] for name in LOADS}
        for turn in range(timing.rounds):
            for name, load in LOADS.items():
                play = partial(run, load)
                found = take_turns(session, name, turn, ARMS, timing.seconds, play)
                rounds[name].append(found)
    return Report(
        settings={
            **asdict(timing),
            "flags": [each.replace(str(session.folder), "FOLDER") for each in flags],
            "loads": {name: [*load.flags, load.contract] for name, load in LOADS.items()},
        },
        figures={
            "trials": {name: as_json(found) for name, found in rounds.items()},
            **recorded([load.topic for load in LOADS.values()]),
        },
        bars=[
            judge(
                f"gateway's CPU of a message, {name}",
                _ratios(found),
                at_most=AT_MOST,
                quick=session.quick,
                repeats=_REPEATS,
            )
            for name, found in rounds.items()
        ],
        tables=[_shown(rounds)],
        draw=lambda figure: _draw(figure, rounds),
    )


def _ratios(rounds: Sequence[Round]) -> list[float]:
    return ratios(rounds, gateway_cpu, "recorded", "plain")


def _shown(rounds: Mapping[str, Sequence[Round]]) -> Table:
    made = table("medians", "load", "figure", *ARMS)
    figures: dict[str, Figure] = {
        "gateway's CPU, us/msg": gateway_cpu,
        "gateway and nsqd, us/msg": lambda found: found.cpu_us_per_message,
        "acknowledged/s": lambda found: found.acknowledged,
    }
    for name, found in rounds.items():
        for number_, (title, figure) in enumerate(figures.items()):
            if whole := [each for each in found if len(each) == len(ARMS)]:
                medians = (number(median(of_arm(whole, figure, arm))) for arm in ARMS)
                made.add_row("" if number_ else name, title, *medians)
    return made


def _draw(figure: Picture, rounds: Mapping[str, Sequence[Round]]) -> None:
    """The ratios, a dot for each round."""
    axes = figure.subplots()
    for place, found in enumerate(rounds.values()):
        values = _ratios(found)
        axes.plot([place] * len(values), values, "o", alpha=0.7)
    axes.axhline(AT_MOST, linestyle="--", color="grey")
    axes.set_xticks(range(len(rounds)), list(rounds))
    axes.set(ylabel="gateway's CPU of a message, recorded over plain", ylim=(0.8, None))
