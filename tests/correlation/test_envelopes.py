"""r-b curves and smallest bursts: against brute force, however the trace is cut."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from srtm.correlation.bursts import smallest_bursts, smallest_split_bursts
from srtm.correlation.envelopes import MULTIPLES, Stretch, envelopes
from srtm.limits.queueing import smallest_burst, split_token_waits
from tests.support.trace_frames import frame

MS = 1_000_000
FEW = settings(
    max_examples=3,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
"""Each is a job of Spark, and has many topics."""

TRACES = st.lists(
    st.lists(
        st.tuples(st.integers(0, 2_000), st.sampled_from("abc"), st.integers(1, 5)),
        min_size=1,
        max_size=40,
    ),
    min_size=1,
    max_size=20,
)
"""(ms, publisher, messages) of each topic"""


def by_key(
    traces: list[list[tuple[int, str, int]]],
) -> dict[tuple[str, str], list[tuple[int, int]]]:
    """(ms, messages) in order, by topic and publisher"""
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for number, arrivals in enumerate(traces):
        for ms, who, n in sorted(arrivals):
            found.setdefault((f"t{number}", who), []).append((ms, n))
    return found


def frame_of(spark: SparkSession, traces: list[list[tuple[int, str, int]]]) -> DataFrame:
    return frame(
        spark,
        [
            (ms * MS, f"t{number}", who, "b0", n)
            for number, arrivals in enumerate(traces)
            for ms, who, n in arrivals
        ],
    )


def minimal_burst(times: list[float], messages: list[int], rate: float) -> float:
    """Over all pairs of arrivals."""
    order = np.argsort(times, kind="stable")
    t, n = np.array(times)[order], np.array(messages)[order]
    total = np.cumsum(n)
    return float(
        max(
            total[j] - total[i] + n[i] - rate * (t[j] - t[i])
            for i in range(len(t))
            for j in range(i, len(t))
        )
    )


@given(traces=TRACES, rows_per_slice=st.sampled_from([1, 3, 20, 1000]))
@example(traces=[[(0, "a", 2)], [(5, "a", 1), (5, "a", 4), (5, "b", 1)]], rows_per_slice=1)
@FEW
def test_curves_are_those_of_all_pairs_of_arrivals(
    spark: SparkSession, traces: list[list[tuple[int, str, int]]], rows_per_slice: int
) -> None:
    rows = frame_of(spark, traces)
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in envelopes(rows, ["topic", "publisher"], (1.1, 3.0), rows_per_slice).collect():
        key = row["topic"], row["publisher"]
        found.setdefault(key, []).append((row["rate"], row["burst"]))
    wanted = by_key(traces)
    assert found.keys() == wanted.keys()
    for key, curve in found.items():
        times, messages = [ms / 1e3 for ms, _ in wanted[key]], [n for _, n in wanted[key]]
        assert len(curve) == 2
        for rate, burst in curve:
            assert burst == pytest.approx(minimal_burst(times, messages, rate), abs=1e-6)


@given(
    figures=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), min_size=2, max_size=12),
    rate=st.floats(0, 100),
    data=st.data(),
)
def test_stretches_are_put_together_in_any_order(
    figures: list[tuple[int, int]], rate: float, data: st.DataObject
) -> None:
    """figures: (ms since the one before, messages)"""
    at = np.cumsum([gap for gap, _ in figures]) * MS
    rates = np.array([rate])
    parts = [
        Stretch(int(time), int(time), n, *(np.array([float(n)]) for _ in range(3)))
        for time, (_, n) in zip(at, figures, strict=True)
    ]
    while len(parts) > 1:
        place = data.draw(st.integers(0, len(parts) - 2))
        parts[place : place + 2] = [parts[place].then(parts[place + 1], rates)]
    (whole,) = parts
    wanted = minimal_burst(list(at / 1e9), [n for _, n in figures], rate)
    assert whole.most[0] == pytest.approx(wanted)
    assert whole.messages == sum(n for _, n in figures)


def test_a_curve_falls_with_the_rate_and_is_of_each_kind_of_key(spark: SparkSession) -> None:
    rng = np.random.default_rng(1)
    rows = frame(
        spark,
        [
            (int(at), topic, f"p{rng.integers(5)}", f"b{rng.integers(2)}", 1)
            for topic in ("t", "u")
            for at in np.sort(rng.integers(0, 10_000 * MS, 300))
        ],
    )
    for keys, count in ((["topic"], 2), (["topic", "broker"], 4), (["topic", "publisher"], 10)):
        curves: dict[tuple[str, ...], list[tuple[float, float]]] = {}
        for row in envelopes(rows, keys).orderBy("multiple").collect():
            key = tuple(row[each] for each in keys)
            curves.setdefault(key, []).append((row["rate"], row["burst"]))
        assert len(curves) == count
        for curve in curves.values():
            assert len(curve) == len(MULTIPLES)
            assert all(a[0] < b[0] and a[1] >= b[1] >= 1 for a, b in pairwise(curve))


@given(traces=TRACES, rows_per_slice=st.sampled_from([1, 4, 20, 1000]))
@FEW
def test_the_smallest_burst_is_that_of_the_product(
    spark: SparkSession, traces: list[list[tuple[int, str, int]]], rows_per_slice: int
) -> None:
    traces = [
        [(0, who, 1) for who in "abc"] + [(ms + 1, who, n) for ms, who, n in arrivals]
        for arrivals in traces
    ]
    found = smallest_bursts(
        frame_of(spark, traces), ["topic", "publisher"], 1.1, 0.9, rows_per_slice
    ).collect()
    wanted = by_key(traces)
    assert len(found) == len(wanted)
    for row in found:
        mine = wanted[row["topic"], row["publisher"]]
        times = np.repeat([ms / 1e3 for ms, _ in mine], [n for _, n in mine])
        assert row["messages"] == times.size
        if times[0] == times[-1]:
            assert (row["rate"], row["burst"]) == (0.0, 1)
            continue
        fit = smallest_burst(times, 1.1, 0.9)
        assert row["rate"] == pytest.approx(fit.rate)
        assert row["burst"] == fit.burst


def test_with_the_split_burst_nobody_waits_at_the_percentile_and_one_less_is_too_little(
    spark: SparkSession,
) -> None:
    rng = np.random.default_rng(3)
    times = np.sort(rng.integers(1, 20_000 * MS, 400))
    brokers = rng.choice(3, 400, p=[0.6, 0.3, 0.1])
    messages = rng.integers(1, 6, 400)
    rows = frame(
        spark,
        [
            (int(at), "t", "p", f"b{broker}", int(n))
            for at, broker, n in zip(times, brokers, messages, strict=True)
        ],
    )
    (row,) = smallest_split_bursts(rows, rows_per_slice=50).collect()
    assert (row["brokers"], row["messages"]) == (3, messages.sum())
    parts = np.bincount(brokers, messages) / messages.sum()
    at, who = np.repeat(times / 1e9, messages), np.repeat(brokers, messages)

    def late(burst: float) -> float:
        waits = split_token_waits(at, who, row["rate"] * parts, np.maximum(burst * parts, 1.0))
        return float(np.mean(waits > 0))

    assert late(row["burst"]) <= 0.01
    assert late(row["burst"] - 1) > 0.01
