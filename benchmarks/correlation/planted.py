"""Traces with planted groups: small ones by numpy, a topic for each case; large ones by Spark."""

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

DRIFT = 3e-3
_BEGINS_US = 1_700_000_000_000_000
_GROUPS = 12


@dataclass(frozen=True)
class Case:
    """bursts: of a group, one a second; lone: share of publishers that are in no group; own: other
    messages of a publisher for each burst; drift: standard deviation of periodic clocks' errors;
    groups: 0: independent traffic of 1,000 publishers"""

    kind: str
    jitter_ms: float
    bursts: int
    lone: float = 0.3
    own: float = 1.0
    drift: float = DRIFT
    groups: int = _GROUPS

    @property
    def name(self) -> str:
        size = f"{self.groups} groups" if self.groups else "independent"
        return (
            f"{self.kind} {self.jitter_ms:g}ms {self.bursts} bursts {self.lone:.0%} lone "
            f"drift {self.drift:g} {size}"
        )


def quality_cases(quick: bool) -> list[Case]:
    """The cases of the quality of groups, those of the bars first: 20 bursts and more."""
    judged = [
        Case(kind, jitter, bursts, lone)
        for kind, jitter, (bursts, lone) in product(
            ("poisson", "periodic"),
            (4.0, 16.0) if quick else (0.0, 1.0, 4.0, 16.0),
            ((25, 0.3), (50, 0.3)) if quick else ((25, 0.05), (35, 0.3), (50, 0.5)),
        )
    ]
    few = [
        Case(kind, 4.0, bursts)
        for kind, bursts in product(("poisson", "periodic"), (2, 5) if quick else (2, 5, 10))
    ]
    return judged + few


def drift_cases() -> list[Case]:
    return [Case("periodic", 4.0, 50, drift=drift) for drift in (0.0, 1e-4, 3e-4, 1e-3, 3e-3)]


def independent_cases() -> list[Case]:
    return [Case(kind, 4.0, 50, lone=1.0, groups=0) for kind in ("poisson", "periodic")]


def publishers(case: Case, random: np.random.Generator) -> tuple[list[Floats], Labels]:
    """Seconds of each publisher's arrivals, and its group; below 0: none."""
    times: list[Floats] = []
    labels: list[int] = []
    for group in range(case.groups):
        at = _triggers(case, random)
        size = int(random.integers(5, 31))
        times += [_member(case, at, random) for _ in range(size)]
        labels += [group] * size
    lone = 1_000 if not case.groups else round(len(times) * case.lone / (1 - case.lone))
    for each in range(lone):
        times.append(_member(case, _triggers(case, random), random))
        labels.append(-1 - each)
    return times, np.array(labels)


def _triggers(case: Case, random: np.random.Generator) -> Floats:
    if case.kind == "poisson":
        return np.sort(random.uniform(0, case.bursts, random.poisson(case.bursts)))
    period = 1 + random.normal(0, case.drift)
    return np.arange(random.uniform(0, period), case.bursts, period)


def _member(case: Case, at: Floats, random: np.random.Generator) -> Floats:
    late = at + random.uniform(0, case.jitter_ms / 1e3, at.size)
    other = random.uniform(0, case.bursts, random.poisson(case.own * at.size))
    return np.concatenate([late, other])


def arrivals(cases: list[Case], seed: int) -> tuple[pa.Table, dict[str, Labels]]:
    """Rows of the jobs' ARRIVALS, publisher n of a case being pn; labels by topic."""
    tables, labels = [], {}
    for number, case in enumerate(cases):
        times, labels[case.name] = publishers(case, np.random.default_rng([seed, number]))
        who = np.repeat(np.arange(len(times)), [each.size for each in times])
        tables.append(
            pa.table(
                {
                    "topic": pa.array([case.name] * who.size, pa.string()),
                    "window": np.zeros(who.size, np.int64),
                    "publisher": [f"p{each}" for each in who],
                    "broker": pa.array(["b0"] * who.size, pa.string()),
                    "time_us": np.rint(np.concatenate(times) * 1e6).astype(np.int64) + _BEGINS_US,
                }
            )
        )
    return pa.concat_tables(tables), labels


_EACH = 100
_SIZE = 17
_JITTER_US = 4_000


def large(spark: "SparkSession", count: int, seconds: float) -> "DataFrame":
    """ARRIVALS of one topic, by Spark: count / 100 publishers with 100 arrivals each. Half of them
    are in groups of 17 that burst 50 times within 4 ms, and send as much of their own."""
    from pyspark.sql import functions as f

    who, place = f.col("id") % (count // _EACH), f.expr(f"id div {count // _EACH}")
    in_group = (who < count // _EACH // 2) & (place < _EACH // 2)
    span = round(seconds * 1e6)
    burst = f.pmod(
        f.xxhash64(f.expr(f"({count // _EACH} + who) div {_SIZE}"), "place"), f.lit(span)
    )
    late = f.pmod(f.xxhash64("id", f.lit(1)), f.lit(_JITTER_US))
    alone = f.pmod(f.xxhash64("id", f.lit(2)), f.lit(span))
    rows = spark.range(count).withColumns({"who": who, "place": place, "grouped": in_group})
    return rows.select(
        f.lit("t").alias("topic"),
        f.lit(0).cast("long").alias("window"),
        f.concat(f.lit("p"), "who").alias("publisher"),
        f.lit("b0").alias("broker"),
        (f.when(f.col("grouped"), burst + late).otherwise(alone) + _BEGINS_US).alias("time_us"),
    )


def large_label(number: int, count: int) -> int:
    """The label of publisher pn of `large`, n being `number`: its group, or a number below 0 where
    it has none."""
    each = count // _EACH
    return (each + number) // _SIZE if number < each // 2 else -1 - number


@dataclass(frozen=True)
class Score:
    """Pairs of publishers in one group: true, said, and both; adjusted_rand (Hubert, Arabie 1985);
    grouped_alone: share of the publishers of no group that were put into one."""

    true: int
    said: int
    both: int
    adjusted_rand: float
    grouped_alone: float

    @property
    def precision(self) -> float:
        return self.both / self.said if self.said else 1.0

    @property
    def recall(self) -> float:
        return self.both / self.true if self.true else 1.0


def score(label: Labels, found: Labels) -> Score:
    """How well `found` matches `label`. Both are below 0 where a publisher is in no group, each
    with a number of its own."""
    true, said = _pairs(label), _pairs(found)
    both = _pairs(label * (found.max() - found.min() + 1) + found - found.min())
    possible = label.size * (label.size - 1) / 2
    expected = true * said / possible
    most = (true + said) / 2
    alone = label < 0
    return Score(
        true=true,
        said=said,
        both=both,
        adjusted_rand=(both - expected) / (most - expected) if most > expected else 1.0,
        grouped_alone=float((found[alone] >= 0).mean()) if alone.any() else 0.0,
    )


def _pairs(label: Labels) -> int:
    _, counts = np.unique(label, return_counts=True)
    return int((counts * (counts - 1) // 2).sum())


def pooled(scores: list[Score]) -> Score:
    """The score of all pairs together; adjusted_rand and grouped_alone are means over `scores`."""
    return Score(
        true=sum(each.true for each in scores),
        said=sum(each.said for each in scores),
        both=sum(each.both for each in scores),
        adjusted_rand=float(np.mean([each.adjusted_rand for each in scores])),
        grouped_alone=float(np.mean([each.grouped_alone for each in scores])),
    )
