"""A trace through other buckets, against the product's own arithmetic."""

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from srtm.correlation import what_if
from srtm.limits.queueing import split_token_waits
from srtm.text.errors import UsageError
from tb_adaptor.share import Part
from tb_adaptor.simulator.judge import nearest_rank
from tests.support.trace_frames import frame

MS = 1_000_000


def test_waits_are_those_of_exact_buckets(spark: SparkSession) -> None:
    rng = np.random.default_rng(5)
    times = rng.integers(0, 10_000 * MS, 500)  # out of order
    brokers, messages = rng.integers(0, 2, 500), rng.integers(1, 4, 500)
    rows = frame(
        spark,
        [
            (int(at), "t", f"p{place % 9}", f"b{broker}", int(n))
            for place, (at, broker, n) in enumerate(zip(times, brokers, messages, strict=True))
        ]
        + [(5, "other", "p", "b0", 1)],
    )
    counts = what_if.messages_by_broker(rows)
    assert counts["t"] == {
        f"b{broker}": int(messages[brokers == broker].sum()) for broker in (0, 1)
    }
    split = what_if.shares({"t": Part(110.0, 20.0)}, counts)
    assert sum(part.rate for part in split["t"].values()) == pytest.approx(110)
    found = what_if.waits(rows, split)
    (whole,) = what_if.figures(found, ["topic"], 20_000).collect()
    order = np.argsort(times, kind="stable")
    at, who = (
        np.repeat(times[order] / 1e9, messages[order]),
        np.repeat(brokers[order], messages[order]),
    )
    parts = [split["t"][f"b{broker}"] for broker in (0, 1)]
    # Each bucket starts full at its first message, so the others' times do not matter.
    waits = split_token_waits(at, who, [p.rate for p in parts], [p.burst for p in parts])
    assert whole["messages"] == waits.size
    assert whole["mean_ms"] == pytest.approx(waits.mean() * 1e3, abs=1e-3)
    assert whole["p50_ms"] == pytest.approx(nearest_rank(waits, 0.5) * 1e3, abs=1e-3)
    assert whole["p99_ms"] == pytest.approx(nearest_rank(waits, 0.99) * 1e3, abs=1e-3)
    assert whole["worst_ms"] == pytest.approx(waits.max() * 1e3, abs=1e-3)
    assert whole["late_share"] == pytest.approx(np.mean(waits > 0.02), abs=1e-3)
    by_broker = what_if.figures(found, ["topic", "broker"], None).orderBy("broker").collect()
    for broker, row in enumerate(by_broker):
        assert row["p99_ms"] == pytest.approx(
            nearest_rank(waits[who == broker], 0.99) * 1e3, abs=1e-3
        )
        assert row["late_share"] is None


def test_moved_publishers_meet_their_new_broker_and_the_others_stay(spark: SparkSession) -> None:
    rows = frame(spark, [(n, "t", f"p{n}", "b0", 1) for n in range(3)])
    assert what_if.placed(rows, {}) is rows
    moved = what_if.placed(rows, {"p1": "b9", "nobody": "b7"})
    assert moved.columns == rows.columns
    assert {row["publisher"]: row["broker"] for row in moved.collect()} == {
        "p0": "b0", "p1": "b9", "p2": "b0",
    }  # fmt: skip


def test_splitting_a_group_saves_what_it_saves_on_a_broker(spark: SparkSession) -> None:
    """Ten publishers that burst together: on one broker with half of the bucket they wait."""
    bursts = [(second * 1_000 * MS, who) for second in range(20) for who in range(10)]
    together = frame(
        spark,
        [(at, "t", f"g{who}", "b0", 1) for at, who in bursts]
        + [(at + 500 * MS, "t", f"h{who}", "b1", 1) for at, who in bursts],
    )
    split = {"t": {"b0": Part(11.0, 5.0), "b1": Part(11.0, 5.0)}}
    apart = what_if.placed(together, {f"g{who}": "b1" for who in range(5)} | {
        f"h{who}": "b0" for who in range(5)
    })  # fmt: skip
    before, after = (
        what_if.figures(what_if.waits(each, split), ["topic"], None).collect()[0]["p99_ms"]
        for each in (together, apart)
    )
    assert before > 400
    assert after == 0


def test_a_split_with_less_than_a_message_is_refused() -> None:
    messages = {"t": {f"b{n}": 1 for n in range(5)}}
    with pytest.raises(UsageError, match="topic t: b = 4 leaves less than one message"):
        what_if.shares({"t": Part(10.0, 4.0)}, messages)
    even = what_if.shares({"t": Part(10.0, 5.0)}, {"t": {"a": 9, "b": 1}}, evenly=True)
    assert even["t"]["a"] == even["t"]["b"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("a,b\n", "line 1: the columns are a, b; write publisher,broker", id="header"),
        pytest.param("", "line 1: the columns are missing", id="empty"),
        pytest.param("publisher,broker\np,\n", "line 2: write a publisher", id="no-broker"),
        pytest.param("publisher,broker\np,a\np,b\n", "line 3: p has a broker already", id="twice"),
        pytest.param(b"publisher,broker\n\xff", "no CSV file", id="no-text"),
    ],
)
def test_a_placement_that_is_none(tmp_path: Path, text: str | bytes, said: str) -> None:
    path = tmp_path / "placement.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError, match=said):
        what_if.read_placement(path)


def test_a_placement_is_read(tmp_path: Path) -> None:
    path = tmp_path / "placement.csv"
    path.write_text("\ufeffpublisher,broker\np1,b1\n\np2, b1\n", "utf-8")
    assert what_if.read_placement(path) == {"p1": "b1", "p2": "b1"}
