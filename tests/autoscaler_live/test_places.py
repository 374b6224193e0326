"""Offsets, and what they are not: places of a topic known by its id, and counts of records."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.autoscaler.live.passed import Passed
from srtm.consumer.batch import Record
from srtm.consumer.places import Places
from srtm.kafka.place import Note, read_note


def record(offset: int, partition: int = 0) -> Record:
    return Record("t", partition, offset, 0, None, b"x", ())


@given(st.text("abcXYZ019_-", max_size=22), st.none() | st.integers(0, 10**18 - 1))
def test_a_note_is_read_as_it_was_written(topic_id: str, records: int | None) -> None:
    note = Note(topic_id, records)
    assert read_note(str(note)) == note


@pytest.mark.parametrize(
    "text",
    [None, "", "x", "srtm", "other:1:2", "srtm:id:many", "srtm:id:-1", "srtm:id:" + "9" * 5000],
)
def test_what_others_commit_says_nothing(text: str | None) -> None:
    assert read_note(text) in (Note(), Note("", None))


@pytest.mark.parametrize(
    ("committed", "now", "mine"),
    [
        pytest.param("one", "one", True, id="the-same"),
        pytest.param("one", "two", False, id="made-anew"),
        pytest.param("", "two", True, id="nobody-said-of-which"),
        pytest.param("one", "", True, id="nobody-says-which-it-is"),
    ],
)
def test_a_place_is_of_a_topic(committed: str, now: str, mine: bool) -> None:
    places = Places(topic_id=now)
    assert places.begin(0, 7, str(Note(committed, 7))) is mine
    assert places.offsets == {0: 7 if mine else 0}


def test_a_topic_made_anew_begins_at_its_beginning() -> None:
    places = Places("one")
    places.begin(0, 0)
    places.done([record(0), record(1)])
    places.begin_anew("two")
    assert places.offsets == {0: 0}
    assert read_note(places.moved()[0].note).topic_id == "two"


def test_markers_at_the_end_are_passed_once_all_before_them_is_done() -> None:
    """Two records, and the marker of their transaction at offset 2."""
    places = Places("one")
    places.begin(0, 0)
    places.reach(0, 3)
    assert places.offsets[0] == 0, "what was taken is not done"
    places.done([record(0), record(1)])
    assert places.offsets[0] == 3
    assert read_note(places.moved()[0].note).records == 2
    places.committed(places.moved())
    assert not places.moved()


def test_what_fails_is_read_again_and_no_end_is_committed() -> None:
    places = Places("one")
    places.begin(0, 0)
    places.reach(0, 3)
    places.rewind()
    places.done()
    assert places.offsets[0] == 0


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), min_size=1, max_size=30).map(
        lambda steps: [(offsets, min(records, offsets)) for offsets, records in steps]
    )
)
def test_between_two_commits_there_are_as_many_records_as_were_counted(
    steps: list[tuple[int, int]],
) -> None:
    passed = Passed()
    offset = records = 0
    points = [(0, 0)]
    for more, counted in steps:
        before = offset
        offset += more
        records += counted
        passed.see(before, offset, records)
        points.append((offset, records))
    for (low, done), (high, after) in pairwise(points):
        assert passed.between(low, high) == pytest.approx(after - done)
    assert passed.counts


def test_of_a_group_that_does_not_count_an_offset_is_a_record() -> None:
    passed = Passed()
    passed.see(0, 10, None)
    assert passed.between(3, 8) == 5
    assert not passed.counts


def test_what_is_to_come_is_as_dense_as_what_came() -> None:
    """Each transaction has one record and its marker."""
    passed = Passed()
    for at in range(0, 20, 2):
        passed.see(at, at + 2, at // 2 + 1)
    assert passed.between(20, 40) == pytest.approx(10)
