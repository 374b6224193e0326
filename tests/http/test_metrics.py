"""/metrics: what Prometheus reads off the tables, and what it may not find in them."""

import asyncio
import math
from collections import Counter
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from srtm.gateway.http.metrics import exposition
from srtm.http.metrics import BOUNDS, Labels, Row, Text, latencies
from srtm.limits.bins import RELATIVE_ACCURACY, bins_of
from tests.docs.generated import PROGRAMS, metrics_of


def read(text: Text) -> dict[str, dict[tuple[str, ...], float]]:
    """By sample's name: values by those of the labels."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text.encode().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


@pytest.mark.parametrize("program", PROGRAMS)
def test_names_are_as_prometheus_wants_them(program: str) -> None:
    rows = metrics_of(PROGRAMS[program])
    assert max(Counter(row.name for row in rows).values()) == 1
    for row in rows:
        assert row.name.startswith("srtm_"), row.name
        assert row.name.endswith("_total") == (row.kind == "counter"), row.name
        assert not row.name.endswith(("_sum", "_bucket")), row.name
        assert row.kind != "histogram" or row.name.endswith("_seconds"), row.name
        assert row.help.endswith("."), row.name


COUNTED: tuple[Row[int], ...] = (
    Row("a_total", "counter", "What is counted.", lambda n: n),
    Row("b", "gauge", "None where it is odd.", lambda n: None if n % 2 else n),
)


def test_a_text_of_many_pieces_has_each_head_once() -> None:
    text = Text()
    text.add(COUNTED, [])
    for first in range(0, 100, 7):
        text.add(COUNTED, [({"n": str(n)}, n) for n in range(first, min(first + 7, 100))])
    assert text.encode().count(b"# TYPE") == text.encode().count(b"# HELP") == 2
    found = read(text)
    assert found["a_total"] == {(str(n),): n for n in range(100)}
    assert found["b"] == {(str(n),): n for n in range(0, 100, 2)}


@given(st.text(), st.text())
def test_any_text_may_be_a_label(one: str, two: str) -> None:
    one, two = (each.encode(errors="ignore").decode() for each in (one, two))
    text = Text()
    labels: Labels = {"one": one, "two": two}
    text.add(COUNTED, [(labels, 2)])
    assert read(text) == {"a_total": {(one, two): 2}, "b": {(one, two): 2}}


DURATIONS = st.lists(st.integers(0, 100_000_000_000), max_size=50)


def counted(durations: list[int]) -> tuple[Counter[int], float]:
    values = np.array(durations, dtype=np.float64)
    return bins_of(values, np.ones(len(values), dtype=np.int64)), sum(durations) / 1e9


@given(DURATIONS)
def test_a_bucket_has_all_that_are_at_most_its_bound(durations: list[int]) -> None:
    found = latencies(*counted(durations))
    assert [float(bound) for bound, _ in found.buckets] == [*BOUNDS, math.inf]
    assert found.sum == sum(durations) / 1e9
    for bound, count in found.buckets:
        limit = float(bound) * 1e9
        surely = sum(each <= limit * (1 - 1e-9) for each in durations)
        perhaps = sum(each <= limit * (1 + 2.1 * RELATIVE_ACCURACY) for each in durations)
        assert surely <= count <= perhaps


@given(DURATIONS, DURATIONS)
def test_histograms_of_two_brokers_add_up(one: list[int], two: list[int]) -> None:
    of_one, of_two, of_both = (latencies(*counted(each)) for each in (one, two, one + two))
    assert [n + m for (_, n), (_, m) in zip(of_one.buckets, of_two.buckets, strict=True)] == [
        count for _, count in of_both.buckets
    ]


def test_a_scrape_that_nobody_waits_for_is_given_up() -> None:
    class Touched(Exception):
        """A topic was looked at."""

    class Names:
        def decode(self) -> str:
            raise Touched

    of_gateway = {
        "agent": None, "admissions": None, "trace_process": None, "tls": None, "clients": [],
        "tcp": Mock(refused=0), "http": Mock(connections=0), "watch": Mock(is_open=True),
        "reactor": Mock(faults=0), "wall": Mock(steps=0), "handshakes": Mock(done=0, failed=0),
        "audit": None,
        "stamps": Mock(degraded_bytes=0, lost_records=0, reason=""),
        "topics": Mock(by_name={b"t": Mock(name=Names())}),
    }  # fmt: skip
    host: Any = SimpleNamespace(**of_gateway)
    host.stamps.name = "clock"
    host.topics.by_name[b"t"].name = Names()
    with pytest.raises(Touched):
        asyncio.run(exposition(host, lambda: False))
    assert asyncio.run(exposition(host, lambda: True)) is None
