"""From a record to figures: counts, window, brokers, percentiles, verdict."""

from array import array
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from srtm.limits.slo import SLO
from srtm.load.latency import Latencies
from srtm.load.record import REFUSED, Received, Record
from srtm.load.result import Account, LoadResult, summarise
from srtm.load.settings import LoadSettings
from srtm.load.table import render

MS = 1_000_000
NS = 1_000_000_000
START = 500 * NS
TWO = ("127.0.0.1:1", "127.0.0.1:2")


def test_a_late_generator_is_told() -> None:
    """The messages of `summary` are sent 1 ms after their intended time."""
    result = summary([0, 10, 20], [2, 2, 2], [(0, 3), (1, 3), (2, 3)])
    assert "late with sending" not in text_of(result, SLO(0.99, 0.1))
    assert "the generator itself was 1.0 ms late with sending" in text_of(result, SLO(0.99, 0.004))


def text_of(result: LoadResult, slo: SLO) -> str:
    console = Console(width=200, record=True, file=StringIO())
    console.print(render(result, slo))
    return console.export_text()


def account(**changes: Any) -> Account:
    same: dict[str, Any] = {
        "start_ns": START,
        "end_ns": START + 2 * NS,
        "closed_publishers": (),
        "closed_consumers": (),
        "errors": {},
        "foreign": 0,
        "cpu_seconds": 0.001,
        "interrupted": False,
    }
    return Account(**(same | changes))


def summary(
    at_ms: list[int],
    answered_after_ms: list[int],
    received: list[tuple[int, int]],
    changes: dict[str, Any] | None = None,
    **accounts: Any,
) -> LoadResult:
    """Messages intended at_ms after the start, of publishers 0, 1, 0, ...; sent 1 ms later.

    answered_after_ms: 0 = not answered, -1 = refused; received: (message, ms after intended)
    """
    asked = LoadSettings(
        topic="t",
        publish_addresses=TWO,
        consume_addresses=TWO[:1],
        publishers=2,
        rate_per_second=1.0,
        **({"duration_seconds": 1.0} | (changes or {})),
    )
    record = Record(1, 1)
    intended = [START + at * MS for at in at_ms]
    record.intended_ns = array("q", intended)
    record.sent_ns = array("q", [at + MS for at in intended])
    record.publisher = array("q", [index % 2 for index in range(len(at_ms))])
    record.answered_ns = array(
        "q",
        [
            after if after <= 0 else at + after * MS
            for at, after in zip(intended, answered_after_ms, strict=True)
        ],
    )
    one = Received()
    for number, after in received:
        one.sequences.append(number)
        one.read_counts.append(1)
        one.read_at_ns.append(intended[number] + after * MS)
    record.received.append(one)
    return summarise(asked, record, account(**accounts))


def test_counts_tell_every_outcome() -> None:
    result = summary(
        [0, 1, 2, 3, 4], [2, 2, REFUSED, 0, 2], [(0, 5), (1, 6), (0, 90)], errors={"E_X": 1}
    )
    counts = result.total.counts
    assert (counts.planned, counts.sent, counts.acknowledged) == (5, 5, 3)
    assert (counts.refused, counts.unanswered) == (1, 1)
    assert (counts.received, counts.duplicates, counts.lost) == (2, 1, 1)
    assert result.problems == (
        "1 x E_X",
        "1 messages were sent and not answered",
        "1 acknowledged messages were not received: none came for 5 s",
    )


def test_a_second_receipt_does_not_count() -> None:
    result = summary([0], [2], [(0, 5), (0, 90)])
    assert result.latencies_ns.tolist() == [5 * MS]


def test_the_generators_own_lateness_is_told_apart() -> None:
    result = summary([0, 1], [2, 2], [(0, 5)])
    assert result.latencies_ns.tolist() == [5 * MS, np.iinfo(np.int64).max]
    assert result.since_sent_ns.tolist() == [4 * MS, np.iinfo(np.int64).max]


def test_the_warmup_is_left_out_of_samples_and_rates_and_not_of_counts() -> None:
    result = summary([0, 600, 700], [2, 2, 2], [(0, 500), (1, 5), (2, 6)], {"warmup_seconds": 0.5})
    assert result.latencies_ns.tolist() == [5 * MS, 6 * MS]
    assert result.total.publish.count == 2
    assert result.total.counts.sent == 3
    assert result.total.rates.offered == 4
    assert result.total.rates.acknowledged == 4
    assert result.total.rates.received == 6  # the first one came within the window
    assert result.send_lag.percentile_ms(50) == pytest.approx(1, rel=0.001)


def test_brokers_share_the_total() -> None:
    result = summary([0, 1, 2], [2, 3, 4], [(0, 5), (1, 50), (2, 6)])
    assert list(result.brokers) == list(TWO)
    first, second = result.brokers.values()
    assert (first.counts.sent, second.counts.sent) == (2, 1)
    assert second.end_to_end.percentile_ms(50) == pytest.approx(50, rel=0.001)
    assert second.publish.percentile_ms(50) == pytest.approx(3, rel=0.001)
    assert first.rates.offered == 2


def test_messages_that_never_came_are_late() -> None:
    result = summary([0, 1, 2, 3], [2, 2, 0, 2], [(0, 5), (1, 5), (3, 5)])
    assert result.late_share(SLO(0.99, 0.010)) == 0.25
    assert not result.meets(SLO(0.99, 0.010))
    assert result.meets(SLO(0.75, 0.010))
    assert not result.meets(SLO(0.75, 0.004))


def test_closed_connections_are_named_and_an_interrupted_run_is_cut() -> None:
    result = summary(
        [0, 900],
        [2, 0],
        [(0, 5)],
        closed_publishers=(1,),
        closed_consumers=(0,),
        interrupted=True,
        end_ns=START + NS // 2,
    )
    assert result.problems[:3] == (
        "interrupted after 0.5 s of 1 s",
        "127.0.0.1:2 closed 1 of its 1 publisher connections",
        "127.0.0.1:1 closed the consumer's connection",
    )
    assert result.latencies_ns.tolist() == [5 * MS]
    assert result.total.rates.offered == 2


def test_no_message_at_all(tmp_path: Path) -> None:
    result = summary([], [], [])
    result.total.end_to_end.write_distribution(tmp_path / "histogram")
    assert result.total.end_to_end.document() is None
    assert not result.meets(SLO(0.5, 1.0))
    assert result.document()["send_lag"] is None


def test_the_document_has_everything() -> None:
    result = summary([0, 1], [2, 2], [(0, 5), (1, 6)])
    document = result.document(SLO(0.99, 0.010))
    assert document["slo"] == {"slo": "0.99@10ms", "late_share": 0.0, "met": True}
    assert document["counts"]["received"] == 2
    assert document["end_to_end_latency"]["p99_ms"] == pytest.approx(6, rel=0.001)
    assert document["end_to_end_latency"]["mean_ms"] == pytest.approx(5.5, rel=0.001)
    assert set(document["brokers"]) == set(TWO)
    assert document["generator"]["cpu_us_per_message"] == pytest.approx(500)
    assert document["settings"]["topic"] == "t"
    assert document["problems"] == []


@settings(max_examples=25, deadline=None)  # a histogram's percentiles take milliseconds
@given(st.lists(st.integers(1, 10**12), min_size=1))
def test_bucketed_recording_is_recording_one_by_one(values: list[int]) -> None:
    histogram = HdrHistogram(1, 3600 * 10**9, 3)
    for value in values:
        histogram.record_value(value)
    latencies = Latencies(np.array(values, dtype=np.int64))
    for percentile in (0.1, 50, 90, 99, 100):
        expected = histogram.get_value_at_percentile(percentile) / MS
        assert latencies.percentile_ms(percentile) == expected
    document = latencies.document()
    assert document is not None
    assert document["mean_ms"] == pytest.approx(histogram.get_mean_value() / MS)
    assert document["max_ms"] == histogram.get_max_value() / MS
