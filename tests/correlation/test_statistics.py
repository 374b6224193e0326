"""Statistics of topics on small frames, against numpy."""

import numpy as np
import pytest
from pyspark.sql import SparkSession

from srtm.correlation import statistics
from tests.support.trace_frames import frame

MS = 1_000_000
S = 1_000 * MS
HOUR = 3600 * S


def test_totals(spark: SparkSession) -> None:
    rows = frame(
        spark,
        [
            (0, "t", "a", "b0", 3),
            (2 * S, "t", "a", "b1", 5),
            (4 * S, "t", "c", "b1", 4),
            (7, "u", "a", "b0", 2),
        ],
    )
    t, u = statistics.totals(rows).orderBy("topic").collect()
    assert (t["publishers"], t["brokers"], t["messages"], t["bytes"]) == (2, 2, 12, 120)
    assert (t["seconds"], t["rate"]) == (4.0, 3.0)
    assert (u["seconds"], u["rate"], u["messages"]) == (0.0, 0.0, 2)


def index(times: np.ndarray, messages: np.ndarray, scale_ns: int) -> float | None:
    windows = int((times.max() - times.min()) // scale_ns)
    if windows < 2:
        return None
    number = (times - times.min()) // scale_ns
    counts = np.bincount(number[number < windows], messages[number < windows], windows)
    return float(counts.var() / counts.mean())


def test_dispersion_is_variance_over_mean_of_all_windows(spark: SparkSession) -> None:
    rng = np.random.default_rng(2)
    poisson = np.sort(rng.integers(0, 30 * S, 3_000)) + 17
    clock = np.arange(600) * 50 * MS
    batches = rng.integers(1, 9, 600)
    rows = frame(
        spark,
        [
            *((int(at), "poisson", "p", "b0", 1) for at in poisson),
            *((int(at), "clock", "p", "b0", 2) for at in clock),
            *(
                (int(at), "batches", "p", "b0", int(n))
                for at, n in zip(clock, batches, strict=True)
            ),
            (5, "once", "p", "b0", 9),
        ],
    )
    found = {row["topic"]: row for row in statistics.dispersion(rows).collect()}
    ones, twos = np.ones(3_000), np.full(600, 2)
    for name, times, messages in (
        ("poisson", poisson, ones),
        ("clock", clock, twos),
        ("batches", clock, batches),
    ):
        for scale in statistics.SCALES_MS:
            wanted = index(times, messages, scale * MS)
            got = found[name][f"dispersion_{scale}ms"]
            assert got == (None if wanted is None else pytest.approx(wanted, abs=1e-9)), (
                name,
                scale,
            )
    assert found["clock"]["dispersion_100ms"] == pytest.approx(0, abs=1e-9)
    assert found["poisson"]["dispersion_10ms"] == pytest.approx(1, abs=0.1)
    assert set(found["once"].asDict().values()) == {"once", None}


def test_the_shape_of_a_day(spark: SparkSession) -> None:
    rows = frame(
        spark,
        [
            (5 * HOUR, "t", "a", "b0", 1),
            (29 * HOUR + 1, "t", "a", "b0", 2),
            (24 * HOUR - 1, "t", "a", "b0", 9),
        ],
    )
    found = [tuple(row) for row in statistics.hours(rows).orderBy("hour").collect()]
    assert found == [("t", 5, 3, 0.25), ("t", 23, 9, 0.75)]


@pytest.mark.parametrize(
    ("growth", "drift"),
    [pytest.param(0.0, 0.0, id="steady"), pytest.param(1.0, 2 / 3, id="twice-as-much-at-the-end")],
)
def test_drift_is_growth_in_an_hour(spark: SparkSession, growth: float, drift: float) -> None:
    """In an hour the rate grows from 1 to 1 + growth."""
    parts = (np.arange(1_000) + 0.5) / 1_000
    rows = frame(
        spark,
        [(int(part * HOUR), "t", "a", "b0", round(1e4 * (1 + growth * part))) for part in parts],
    )
    (row,) = statistics.drift(rows).collect()
    assert row["drift"] == pytest.approx(drift, abs=0.01)


def test_silence_counts_in_drift(spark: SparkSession) -> None:
    rows = frame(
        spark,
        [(0, "t", "a", "b0", 1), *((int(at), "t", "a", "b0", 1) for at in
         np.linspace(HOUR // 2, HOUR, 500).astype(int))],
    )  # fmt: skip
    (row,) = statistics.drift(rows).collect()
    assert row["drift"] == pytest.approx(3, rel=0.05)


def test_who_sends_most(spark: SparkSession) -> None:
    rows = frame(
        spark,
        [(n, topic, f"p{n}", "b0", n + 1) for topic in ("t", "u") for n in range(5)]
        + [(9, "t", "p0", "b0", 9)],
    )
    found = statistics.talkers(rows, 2).where("topic = 't'").orderBy("place").collect()
    assert [tuple(row)[1:] for row in found] == [
        (1, "p0", 10, pytest.approx(10 / 24)),
        (2, "p4", 5, pytest.approx(5 / 24)),
    ]


def test_late_by_cause(spark: SparkSession) -> None:
    rows = frame(
        spark,
        [
            (1, "t", "a", "b0", 5, 5 * MS, "admitted"),
            (2, "t", "a", "b0", 2, 5 * MS + 1, "admitted"),
            (3, "t", "a", "b0", 1, None, "rejected"),
            (4, "t", "a", "b0", 2, None, "closed"),
        ],
    )
    (row,) = statistics.late(rows, 0.005).collect()
    assert tuple(row) == ("t", 0.2, 0.1, 0.2)
