"""What goes through the pipe: built, read whole, and read at any cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.traces import chunk
from srtm.traces.rows import Rows
from tests.support.traces import Row, chunk_of, parsed

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
ROWS = st.lists(
    st.tuples(
        st.integers(0, 1 << 60),
        NAMES,
        NAMES,
        st.integers(1, (1 << 31) - 1),
        st.integers(-1, 1 << 60),
        st.integers(0, 2),
    ).map(lambda row: (*row[:4], 7 * row[3], *row[4:])),
    min_size=1,
    max_size=8,
)
KINDS = ("admitted", "rejected", "closed")


def expected(rows: list[Row], offset_ns: int) -> list[dict[str, object]]:
    return [
        {
            "time": stamp + offset_ns,
            "topic": topic,
            "publisher": publisher,
            "broker": "b1",
            "messages": messages,
            "bytes": size - 4 * messages,
            "wait": None if wait == chunk.NO_WAIT else wait,
            "outcome": KINDS[outcome],
        }
        for stamp, topic, publisher, messages, size, wait, outcome in rows
    ]


@given(chunks=st.lists(ROWS, min_size=1, max_size=4), cut=st.integers(1, 50))
def test_rows_come_out_as_they_went_in_at_any_cut(chunks: list[list[Row]], cut: int) -> None:
    data = b"".join(chunk_of(rows, anew=True, offset_ns=1_000) for rows in chunks)
    buffer, rows_in_hand = bytearray(), Rows("b1")
    for place in range(0, len(data), cut):
        buffer += data[place : place + cut]
        for each in chunk.read(buffer):
            rows_in_hand.name(each)
            rows_in_hand.add(each)
    assert not buffer
    wanted = [row for rows in chunks for row in expected(rows, 1_000)]
    assert rows_in_hand.messages == sum(row["messages"] for row in wanted)  # type: ignore[misc]
    wanted.sort(key=lambda row: row["time"])  # type: ignore[arg-type, return-value]
    assert rows_in_hand.table().to_pylist() == wanted


def test_names_that_are_told_once_hold_until_they_are_told_anew() -> None:
    rows = Rows("b1")
    known = chunk.build(False, 0, ([], []), ([7], [0], [1], [1], [5], [0], [0]))
    first = chunk_of([(5, "t", "a", 1, 5, 0, 0), (6, "t", "b", 1, 5, 0, 0)], anew=True)
    second = chunk_of([(8, "u", "c", 1, 5, 0, 0)], anew=True)
    for each in parsed(first, known, second):
        rows.name(each)
        rows.add(each)
    found = [(row["topic"], row["publisher"]) for row in rows.table().to_pylist()]
    assert found == [("t", "a"), ("t", "b"), ("t", "b"), ("u", "c")]
    rows.clear()
    (again,) = parsed(chunk.build(False, 0, ([], []), ([9], [0], [0], [1], [5], [0], [0])))
    rows.name(again)
    rows.add(again)
    assert [row["publisher"] for row in rows.table().to_pylist()] == ["c"]


@pytest.mark.parametrize("missing", [1, 20])
def test_half_a_chunk_waits_for_the_rest(missing: int) -> None:
    data = chunk_of([(5, "t", "a", 1, 5, 0, 0)])
    buffer = bytearray(data[:-missing])
    assert list(chunk.read(buffer)) == []
    assert len(buffer) == len(data) - missing
