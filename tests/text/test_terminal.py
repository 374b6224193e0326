"""Tables: whatever the width, a value is shown whole or its column is named as left out."""

import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from distributor.cli.placement import _render
from srtm.deploy.shown import broker_table, topics_table
from srtm.deploy.topics import Report, TopicStatus
from srtm.stat.rows import Row
from srtm.stat.tables import (
    contract_table,
    distributor_table,
    penalties_table,
    queue_table,
    timestamps_table,
)
from srtm.text.terminal import Column, Table

ROOT = Path(__file__).parents[2]
WIDTHS = (80, 120, 200)


def shown(what: Any, width: int) -> str:
    out = StringIO()
    Console(file=out, width=width, color_system=None).print(what)
    return out.getvalue()


def is_whole(value: str, text: str) -> bool:
    """Not as a part of a longer figure."""
    return re.search(rf"(?<![\w.,-]){re.escape(value)}(?![\w.,…-])", text) is not None


def table(ranks: list[int], cells: list[str]) -> Table:
    made = Table(*(Column(f"column {number} ms", rank) for number, rank in enumerate(ranks)))
    made.add(*cells)
    return made


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10**15)), min_size=1, max_size=14),
    st.sampled_from([30, 60, *WIDTHS]),
)
def test_a_value_is_shown_whole_or_its_column_is_named(
    columns: list[tuple[int, int]], width: int
) -> None:
    ranks = [rank for rank, _ in columns]
    cells = [f"{value:,}" for _, value in columns]
    text = shown(table(ranks, cells), width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    body, _, left_out = " ".join(text.split()).partition("not shown for want of room: ")
    for number, (rank, cell) in enumerate(zip(ranks, cells, strict=True)):
        if f"column {number} ms" in left_out:
            assert rank > 0
        else:
            assert is_whole(cell, body)


def test_the_highest_rank_goes_first_and_headers_wrap() -> None:
    made = table([0, 2, 1], ["1", "2", "3"])
    assert shown(made, 37).startswith("column 0 ms  column 1 ms  column 2 ms")
    assert shown(made, 36).startswith("column  column  column\n")
    text = " ".join(shown(made, 15).split())
    assert text.endswith("not shown for want of room: column 1 ms")
    narrow = table([0, 0], ["123,456,789", "123,456,789"])
    assert [line.rstrip() for line in shown(narrow, 20).splitlines()] == [
        "column 0 ms:", "123,456,789", "column 1 ms:", "123,456,789",
    ]  # fmt: skip


def test_a_terminal_is_given_no_commands_by_a_cell() -> None:
    made = Table(Column("who", text=True))
    made.add("a\x1b[2J\x07b")
    assert "a?[2J?b" in shown(made, 80)


def test_a_sentence_goes_over_several_lines() -> None:
    made = Table(Column("name", text=True), Column("why", sentence=True))
    made.add("b1", Text("a reason that is far longer than the terminal is wide " * 3))
    text = shown(made, 80)
    assert text.count("reason") == 3
    assert len(text.splitlines()) > 3


OURS = {
    "topic": "sensors-of-the-northern-halls",
    "rate": 1_234_550.0,
    "burst": 123_456.0,
    "tokens": 123_456.0,
    "waiting": 12_345_678,
    "rejected": 98_765_432,
    "token_wait": {"p99": 12.3456},
    "broker_latency": {"p50": 12.3456, "p95": 23.4567, "p99": 34.5678},
    "slo": "0.99@5ms",
    "throttled": True,
    "offered": 123_456_789_012,
    "admitted": 123_456_789_011,
    "mode": "delay",
    "max-wait": "2s",
}
NSQ = dict.fromkeys(
    ("depth", "in_flight", "deferred", "requeued", "timed_out", "messages", "clients"), 987_654_321
)
ROW = Row(
    broker="broker-of-the-northern-halls:4151",
    topic="sensors-of-the-northern-halls",
    nsq=NSQ,
    srtm=OURS,
    timestamps={"source": "sockopt", "lost_records": 123_456_789, "degraded_bytes": 123_456_789,
                "reason": "ebpf: the kernel refuses the program: operation not permitted"},
    distributor={"address": "distributor.example:4180", "contact": False, "epoch": 1_234_567,
                 "lease_left_seconds": 1234.5, "topics": 12_345, "safe_share": False,
                 "error": "nothing listens there"},
    offered_per_second=1_234_567.0,
)  # fmt: skip
STATUS = TopicStatus(OURS["topic"], {"broker-1": OURS, "broker-2": OURS})  # type: ignore[arg-type]
PLAN = {
    "policy": "srtm",
    "brokers": [{"name": "broker-of-the-northern-halls", "publishers": 123_456,
                 "rate": 1_234_550.125, "quota": 1_234_550.125, "r": 1_234_550.125, "b": 123_456}],
    "unplaced": [],
    "reasons": [],
}  # fmt: skip


NOT_KNOWN = {
    "topic": "of-the-northern-halls",
    "unknown": "not all brokers have told their arrivals yet",
    **dict.fromkeys(("token_wait", "unsplit", "penalty", "error", "messages")),
}
"""as an older distributor tells it"""
STRANDED = NOT_KNOWN | {"stranded": {"seconds": 60.0, "least": 1_234.5, "most": 2_345.678}}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    ("made", "always"),
    [
        pytest.param(queue_table([ROW]), ["987,654,321"], id="stat-queues"),
        pytest.param(contract_table([ROW]), ["1,234,550", "123,456"], id="stat-contract"),
        pytest.param(timestamps_table([ROW]), ["sockopt"], id="stat-timestamps"),
        pytest.param(distributor_table([ROW]), ["1234.5"], id="stat-distributor"),
        pytest.param(penalties_table([NOT_KNOWN]), ["told"], id="stat-penalty-not-known"),
        pytest.param(penalties_table([STRANDED]), ["1,234.50"], id="stat-stranded"),
        pytest.param(topics_table(Report((STATUS,), {})), ["2,469,100", "246,912"], id="topics"),
        pytest.param(broker_table(STATUS), ["1,234,550", "2,469,100"], id="topic"),
        pytest.param(_render(PLAN), ["1,234,550.125", "123,456"], id="placement"),
    ],
)
def test_every_table_shows_contracts_and_names_whole(
    made: Any, always: list[str], width: int
) -> None:
    text = shown(made, width)
    assert "…" not in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert "northern-halls" in text
    for value in always:
        assert is_whole(value, text), text
    if width == 200:
        assert "not shown" not in text


def test_every_column_of_waits_has_its_unit_in_its_header() -> None:
    settings = {"max-wait", "worst window"}
    headers = {
        header
        for part in ("srtm", "distributor")
        for file in (ROOT / part).rglob("*.py")
        for header in re.findall(r'Column\(f?"([^"]*)"', file.read_text())
    }
    waits = {each for each in headers if re.search(r"\b(p\d+|mean|wait|worst)\b", each)} - settings
    assert len(waits) >= 10
    assert {each for each in waits if not each.endswith(" ms")} == set()
