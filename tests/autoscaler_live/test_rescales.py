"""Changes in a day, and what the diary keeps of each."""

import pytest

from srtm.autoscaler.decision import Action, Decision, Member
from srtm.autoscaler.live.diary import Diary
from srtm.autoscaler.live.rescales import Rescales
from srtm.autoscaler.observation import ConsumerSeen, Observation, PartitionSeen
from srtm.consumer.wire import Note

SEEN = Observation(
    0.0,
    (PartitionSeen(0, 1.0, 0.0), PartitionSeen(1, 1.0, 0.0)),
    (ConsumerSeen("a", 10.0, (0,)), ConsumerSeen("b", 10.0, (1,))),
    10.0,
)
DOWN = Decision(Action.DOWN, (Member("a", (0, 1)),), "fewer")
UP = Decision(Action.UP, (Member("a", (0,)), Member("b", (1,)), Member(None, ())), "more")


def test_only_more_consumers_are_possible_once_the_day_is_used_up() -> None:
    rescales = Rescales(most=2)
    for hour in ("08", "09"):
        assert rescales.allowed(SEEN, DOWN, f"2026-11-29T{hour}:00:00Z") is DOWN
        rescales.add(f"2026-11-29T{hour}:00:00Z")
    refused = rescales.allowed(SEEN, DOWN, "2026-11-29T10:00:00Z")
    assert refused.action is Action.NONE
    assert refused.reason.endswith("nothing but more consumers before 2026-11-30T08:00:00Z")
    assert rescales.allowed(SEEN, UP, "2026-11-29T10:00:00Z") is UP
    assert rescales.allowed(SEEN, DOWN, "2026-11-30T08:00:01Z") is DOWN
    assert rescales.count("2026-11-30T08:00:01Z") == 1


def test_what_nobody_has_is_given_to_somebody_all_the_same() -> None:
    rescales = Rescales(most=1)
    rescales.add("2026-11-29T08:00:00Z")
    lonely = Observation(0.0, SEEN.partitions, SEEN.consumers[:1], 10.0)
    adopted = Decision(Action.REASSIGN, (Member("a", (0, 1)),))
    assert rescales.allowed(lonely, adopted, "2026-11-29T08:00:01Z") is adopted


def test_the_changes_before_a_restart_count_and_odd_stamps_do_not() -> None:
    rescales = Rescales(most=3)
    rescales.recall(["2026-11-29T09:00:00Z", "yesterday", "2026-11-29T08:00:00Z"])
    assert rescales.count("2026-11-29T10:00:00Z") == 2


@pytest.fixture
def written() -> list[dict[str, object]]:
    return []


@pytest.fixture
def diary(written: list[dict[str, object]]) -> Diary:
    return Diary(lambda note: written.append(dict(note.document)))


def test_what_was_late_is_written_beside_what_was_foretold(
    diary: Diary, written: list[dict[str, object]]
) -> None:
    diary.begin(100.0, at="2026-11-29T08:00:00Z", late_foretold=12.0)
    diary.see(101.0, 5)
    diary.end(102.0, [0.5])
    diary.see(110.0, 7)
    assert "late" not in written[-1]
    diary.see(118.0, 1)
    assert (written[-1]["late"], written[-1]["late_foretold"]) == (13, 12.0)
    diary.see(130.0, 9)
    assert [each["number"] for each in written] == [1, 1, 1]


def test_a_change_that_comes_soon_ends_what_is_counted(
    diary: Diary, written: list[dict[str, object]]
) -> None:
    diary.begin(100.0)
    diary.end(101.0, [])
    diary.see(102.0, 4)
    diary.begin(103.0)
    assert (written[-2]["number"], written[-2]["late"]) == (1, 4)
    assert written[-1]["number"] == 2


def test_decisions_that_others_took_are_remembered_once(diary: Diary) -> None:
    for number in (1, 1, 2):
        stamp = f"2026-11-29T0{number}:00:00Z"
        diary.read(Note(name=f"{number}", document={"number": number, "at": stamp}))
    assert list(diary.stamps) == ["2026-11-29T01:00:00Z", "2026-11-29T02:00:00Z"]
