"""Correlation groups: precision and recall on planted groups, and time and memory as traces grow.

Each case of planted groups is a topic of one trace, and one run of the jobs judges them all. Large
traces are written by Spark as Parquet; time is from there to the groups, after Spark has started.
"""

import os
import time
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
from rich.table import Table

from benchmarks.correlation.plain import plain
from benchmarks.correlation.planted import (
    DRIFT,
    Case,
    Labels,
    Score,
    arrivals,
    drift_cases,
    independent_cases,
    large,
    large_label,
    pooled,
    quality_cases,
    score,
)
from benchmarks.harness.bars import Bar, judge, judge_worst
from benchmarks.harness.machine import cpu_seconds, load_average, peak_bytes
from benchmarks.harness.report import Picture, Report, number, tabulate
from benchmarks.harness.session import Session
from srtm.correlation.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEEDS, QUICK_SEEDS = 3, 1
_TEN_MINUTES, _DAY = 600.0, 86_400.0
_LARGE = (
    (10**5, _TEN_MINUTES / 10),
    (10**6, _TEN_MINUTES),
    (10**6, _DAY),
    (10**7, _TEN_MINUTES),
    (10**7, _TEN_MINUTES * 10),
    (10**7, _DAY),
)
_FULL = ((10**8, _TEN_MINUTES), (10**8, _TEN_MINUTES * 100))
"""of --full too: as many arrivals/s as 10^6 over ten minutes, and over as long"""
_QUICK_LARGE = ((10**6, _TEN_MINUTES),)
_QUICK_NEEDS = 20.0
"""seconds that have to be left for a large trace"""
_JUDGED_BURSTS = 20

Size = tuple[int, float]
"""arrivals, seconds"""


@dataclass(frozen=True)
class Large:
    """One large trace. cpu_seconds: of Spark and its workers, from reading to groups;
    plain_seconds: of the plain answer; nan: not tried. jvm_bytes: resident, at its highest until
    then."""

    arrivals: int
    span_seconds: float
    seconds: float
    cpu_seconds: float
    plain_seconds: float
    jvm_bytes: int
    score: Score
    plain_score: Score | None
    load: list[float]

    @property
    def name(self) -> str:
        return f"{self.arrivals:,} arrivals over {self.span_seconds:,.0f} s"


def run(session: Session) -> Report:
    seeds = QUICK_SEEDS if session.quick else SEEDS
    cases = quality_cases(session.quick) + independent_cases()
    cases += [] if session.quick else [each for each in drift_cases() if each not in cases]
    sizes = _QUICK_LARGE if session.quick else _LARGE + (_FULL if session.live else ())
    session.plan(seeds + len(sizes) + 1)
    session.step("starting Spark")
    with spark_session() as spark:
        scores: dict[Case, list[Score]] = {case: [] for case in cases}
        for seed in range(seeds):
            session.step(f"planted groups, seed {seed}")
            for case, found in _planted(spark, cases, seed).items():
                scores[case].append(found)
        grown = []
        for count, seconds in sizes:
            if session.quick and session.seconds_left < _QUICK_NEEDS:
                break
            session.step(f"{count:,} arrivals over {seconds:,.0f} s")
            grown.append(_large(spark, session.folder, count, seconds))
    return Report(
        settings={"seeds": seeds, "arrivals": [list(each) for each in sizes]},
        figures=_figures(scores, grown),
        bars=bars(scores, grown, session.quick),
        tables=[_quality_table(scores), _large_table(grown)],
        notes=_notes(grown),
        draw=lambda figure: _draw(figure, scores),
    )


def _groups(came: "DataFrame") -> dict[str, list[list[str]]]:
    """Members of the groups of each topic."""
    from srtm.correlation.groups.find import find_groups
    from srtm.correlation.groups.settings import Settings

    found: dict[str, list[list[str]]] = {}
    result = find_groups(came, Settings())
    for row in result.groups.select("topic", "publishers").toLocalIterator():
        found.setdefault(row.topic, []).append(row.publishers)
    return found


def _planted(spark: "SparkSession", cases: list[Case], seed: int) -> dict[Case, Score]:
    from srtm.correlation.groups.publishers import ARRIVALS

    rows, labels = arrivals(cases, seed)
    found = _groups(spark.createDataFrame(rows, ARRIVALS))
    return {
        case: score(labels[case.name], _labels(labels[case.name].size, found.get(case.name, [])))
        for case in cases
    }


def _labels(count: int, groups: list[list[str]]) -> Labels:
    found = -1 - np.arange(count)
    for place, members in enumerate(groups):
        found[[int(name[1:]) for name in members]] = place
    return found


def _large(spark: "SparkSession", folder: Path, count: int, seconds: float) -> Large:
    path = folder / f"{count}-{seconds:.0f}"
    large(spark, count, seconds).write.parquet(path.as_uri())
    load, me = load_average(), psutil.Process()
    began, used = time.perf_counter(), cpu_seconds(me, all_below=True)
    groups = _groups(spark.read.parquet(path.as_uri())).get("t", [])
    took = time.perf_counter() - began
    used = cpu_seconds(me, all_below=True) - used
    publishers = count // 100
    label = np.array([large_label(each, count) for each in range(publishers)])
    dense = count * count / seconds * 0.008
    theirs, theirs_took = None, float("nan")
    if dense <= _MOST_PLAIN:
        found, names, theirs_took = plain(path)
        theirs = score(np.array([label[int(name[1:])] for name in names]), found)
    return Large(
        arrivals=count,
        span_seconds=seconds,
        seconds=took,
        cpu_seconds=used,
        plain_seconds=theirs_took,
        jvm_bytes=_jvm_peak(spark),
        score=score(label, _labels(publishers, groups)),
        plain_score=theirs,
        load=load,
    )


_MOST_PLAIN = 3e9
"""Products of the sparse square: a minute, and past it memory is the limit."""


def _jvm_peak(spark: "SparkSession") -> int:
    from pyspark import SparkContext

    return peak_bytes(SparkContext._gateway.proc.pid)  # type: ignore[union-attr]


# --- what is claimed --------------------------------------------------------------------------


def bars(scores: dict[Case, list[Score]], grown: list[Large], quick: bool) -> list[Bar]:
    found = []
    for name, low, high, least in (("to 4 ms", 0, 4, 0.99), ("at 16 ms", 16, 16, 0.95)):
        judged = [
            each
            for case, each in scores.items()
            if case.groups
            and case.bursts > _JUDGED_BURSTS
            and low <= case.jitter_ms <= high
            and (case.kind == "poisson" or case.drift == DRIFT)
        ]
        by_seed = [pooled(list(each)) for each in zip(*judged, strict=True)]
        for what in ("precision", "recall"):
            values = [getattr(each, what) for each in by_seed]
            found.append(judge(f"{what}, jitter {name}", values, at_least=least, quick=quick))
    for kind in ("poisson", "periodic"):
        lone = [each for case, each in scores.items() if not case.groups and case.kind == kind]
        values = [max(seed.grouped_alone for seed in each) for each in zip(*lone, strict=True)]
        found.append(judge(f"independent {kind}: share in a group", values, at_most=0.01))
    for seconds, span in ((_TEN_MINUTES, "10 minutes"), (_DAY, "a day")):
        big = [e for e in grown if (e.arrivals, e.span_seconds) == (10**7, seconds)]
        loads = [each.load[0] for each in big if each.seconds > _MOST_SECONDS]
        crowded = [load for load in loads if load > _CROWDED * _CORES]
        doubt = f"load average {crowded[0]:g} on {_CORES} cores before" if crowded else ""
        took = [each.seconds for each in big]
        name = f"10^7 arrivals over {span}, s"
        found.append(judge(name, took, at_most=_MOST_SECONDS, doubt=doubt))
    found += [_growth(grown, *each) for each in _GROWTH]
    peaks = [each.jvm_bytes / 2**30 for each in grown]
    found.append(judge_worst("peak of the JVM, GiB", peaks, at_most=6))
    return found


_CORES = len(os.sched_getaffinity(0))
_CROWDED = 1.0
"""running processes for each core before a run, above which a long time tells nothing"""
_MOST_SECONDS = 180.0
_GROWTH = (
    ("10^6 to 10^7 over 10 minutes", (10**6, _TEN_MINUTES), (10**7, _TEN_MINUTES)),
    ("10^6 to 10^7 at as many a second", (10**6, _TEN_MINUTES), (10**7, _TEN_MINUTES * 10)),
    ("10^6 to 10^7 over a day", (10**6, _DAY), (10**7, _DAY)),
    ("10^6 to 10^8 over 10 minutes", (10**6, _TEN_MINUTES), (10**8, _TEN_MINUTES)),
    ("10^6 to 10^8 at as many a second", (10**6, _TEN_MINUTES), (10**8, _TEN_MINUTES * 100)),
)


def _growth(grown: list[Large], name: str, few: Size, many: Size) -> Bar:
    """Against n log n. CPU seconds grow with the work alone, whoever else is on the machine."""
    used = {(each.arrivals, each.span_seconds): each.cpu_seconds for each in grown}
    ratio = [used[many] / used[few]] if few in used and many in used else []
    allowed = many[0] / few[0] * log(many[0]) / log(few[0])
    doubt = "" if ratio else "not run; --full runs 10^8"
    return judge(f"growth of CPU seconds, {name}", ratio, at_most=round(allowed, 2), doubt=doubt)


def _figures(scores: dict[Case, list[Score]], grown: list[Large]) -> dict[str, Any]:
    shares = ("precision", "recall", "adjusted_rand", "grouped_alone")
    sizes = ("arrivals", "span_seconds", "seconds", "cpu_seconds", "jvm_bytes")
    return {
        "planted": {
            case.name: [{name: getattr(each, name) for name in shares} for each in found]
            for case, found in scores.items()
        },
        "large": [
            {
                **{name: getattr(each, name) for name in sizes},
                "plain_seconds": each.plain_seconds if each.plain_score else None,
                "precision": each.score.precision,
                "recall": each.score.recall,
                "plain_precision": each.plain_score.precision if each.plain_score else None,
                "plain_recall": each.plain_score.recall if each.plain_score else None,
                "load_average": each.load,
            }
            for each in grown
        ],
    }


def _quality_table(scores: dict[Case, list[Score]]) -> Table:
    return tabulate(
        "planted groups",
        [(case, pooled(found)) for case, found in scores.items()],
        ("case", lambda row: row[0].name),
        ("precision", lambda row: number(row[1].precision, 4)),
        ("recall", lambda row: number(row[1].recall, 4)),
        ("adjusted Rand", lambda row: number(row[1].adjusted_rand, 4)),
        ("of no group, in one", lambda row: f"{row[1].grouped_alone:.2%}"),
    )


def _large_table(grown: list[Large]) -> Table:
    def plains(each: Large) -> str:
        theirs = each.plain_score
        return f"{theirs.precision:.3f}, {theirs.recall:.3f}" if theirs else "-"

    return tabulate(
        "large traces, one publisher for each 100 arrivals",
        grown,
        ("arrivals", lambda each: each.arrivals),
        ("span, s", lambda each: f"{each.span_seconds:,.0f}"),
        ("s", lambda each: each.seconds),
        ("CPU s", lambda each: each.cpu_seconds),
        ("plain, s", lambda each: each.plain_seconds if each.plain_score else None),
        ("JVM, GiB", lambda each: each.jvm_bytes / 2**30),
        ("precision", lambda each: number(each.score.precision, 4)),
        ("recall", lambda each: number(each.score.recall, 4)),
        ("plain's", plains),
    )


def _notes(grown: list[Large]) -> list[str]:
    slower = [each for each in grown if each.plain_score and each.plain_seconds < each.seconds]
    said = [f"load average before {each.name}: {each.load[0]:g}" for each in grown]
    if slower:
        times = (f"{each.name} ({each.seconds / each.plain_seconds:.1f} x)" for each in slower)
        said.append(f"the plain answer was faster at {', '.join(times)}")
    return said


def _draw(figure: Picture, scores: dict[Case, list[Score]]) -> None:
    axis = figure.subplots()
    shown = [
        (case, pooled(found))
        for case, found in scores.items()
        if case.groups and case.kind == "periodic" and case.bursts == 50 and case.jitter_ms == 4
    ]
    shown.sort(key=lambda each: each[0].drift)
    drifts = [max(case.drift, 1e-5) for case, _ in shown]
    axis.plot(drifts, [each.precision for _, each in shown], "o-", label="precision")
    axis.plot(drifts, [each.recall for _, each in shown], "o-", label="recall")
    axis.set_xscale("log")
    axis.set_xlabel("relative error of periodic clocks (0 at 1e-5)")
    axis.set_ylim(0, 1.05)
    axis.legend()
