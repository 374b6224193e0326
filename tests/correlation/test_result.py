"""What a run leaves: whole or not at all, and read back as it was written."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from srtm.correlation.result import (
    JSON,
    NAMES,
    Group,
    GroupedTopic,
    Result,
    read_result,
    write_json,
)
from srtm.correlation.whole import whole_folder
from srtm.text.errors import SrtmError, UsageError
from tests.support.planted import group_row as group


def topic(name: str, publishers: int, ungrouped: int) -> dict[str, Any]:
    return {"topic": name, "publishers": publishers, "ungrouped": ungrouped}


def test_the_document_is_the_one_that_is_promised(tmp_path: Path) -> None:
    write_json(
        tmp_path,
        [topic("a", 5, 1), topic("b", 2, 2)],
        iter([group("a", "g1", "p1", "p2"), group("a", "g2", "p3", "p4")]),
    )
    kept = {"lift": 12.5, "q": 1e-9, "coincidences": 20}
    assert json.loads((tmp_path / JSON).read_text()) == {
        "topics": [
            {
                "topic": "a",
                "publishers": 5,
                "groups": [
                    {"name": "g1", "publishers": ["p1", "p2"], **kept},
                    {"name": "g2", "publishers": ["p3", "p4"], **kept},
                ],
                "ungrouped": 1,
            },
            {"topic": "b", "publishers": 2, "groups": [], "ungrouped": 2},
        ]
    }
    assert read_result(tmp_path) == Result(
        topics=(
            GroupedTopic(
                topic="a",
                publishers=5,
                groups=(
                    Group(name="g1", publishers=("p1", "p2"), **kept),
                    Group(name="g2", publishers=("p3", "p4"), **kept),
                ),
                ungrouped=1,
            ),
            GroupedTopic(topic="b", publishers=2, groups=(), ungrouped=2),
        )
    )


def test_no_topic_at_all(tmp_path: Path) -> None:
    write_json(tmp_path, [], iter([]))
    assert read_result(tmp_path) == Result(topics=())


def test_a_group_of_no_topic_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'z'"):
        write_json(tmp_path, [topic("a", 1, 1)], iter([group("z", "g1", "p1")]))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(None, "no result there", id="none"),
        pytest.param('{"topics": [', "JSON", id="cut"),
        pytest.param('{"topics": [{"topic": "a"}]}', "topics.0.publishers", id="another"),
    ],
)
def test_what_is_no_result_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / JSON).write_text(text)
    with pytest.raises(UsageError, match=said):
        read_result(tmp_path)


# --- whole or not at all ----------------------------------------------------------------------


def fill(place: Path, text: str) -> None:
    with whole_folder(place, NAMES) as folder:
        (folder / JSON).write_text(text)


def fail(place: Path, error: Exception) -> None:
    with whole_folder(place, NAMES) as folder:
        (folder / JSON).write_text("half")
        (folder / "groups.parquet").mkdir()
        raise error


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_a_result_replaces_the_one_before(tmp_path: Path) -> None:
    for text in ("one", "two"):
        fill(tmp_path / "out", text)
        assert (tmp_path / "out" / JSON).read_text() == text
    assert names(tmp_path) == ["out"]


def test_one_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    fill(tmp_path / "out", "one")
    with pytest.raises(RuntimeError):
        fail(tmp_path / "out", RuntimeError())
    assert (tmp_path / "out" / JSON).read_text() == "one"
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("kept", [True, False])
def test_a_killed_one_leaves_nothing_that_is_taken_for_a_result(tmp_path: Path, kept: bool) -> None:
    place = tmp_path / "out"
    if kept:
        fill(place, "one")
    child = os.fork()
    if not child:
        with whole_folder(place, NAMES) as folder:
            (folder / JSON).write_text("half")
            (folder / "groups.parquet").mkdir()
            os._exit(9)
    os.waitpid(child, 0)
    assert (place / JSON).exists() is kept
    fill(place, "whole")
    assert (place / JSON).read_text() == "whole"
    assert names(place) == [JSON]
    assert names(tmp_path) == ["out"]


def test_one_killed_between_its_two_moves_is_taken_back(tmp_path: Path) -> None:
    fill(tmp_path / "out", "one")
    (tmp_path / "out").rename(tmp_path / ".out.old")
    with pytest.raises(RuntimeError), whole_folder(tmp_path / "out", NAMES):
        raise RuntimeError
    assert (tmp_path / "out" / JSON).read_text() == "one"


def test_two_jobs_at_once_are_told(tmp_path: Path) -> None:
    with (
        whole_folder(tmp_path / "out", NAMES),
        pytest.raises(UsageError, match="another job"),
        whole_folder(tmp_path / "out", NAMES),
    ):
        pass


def test_a_folder_of_something_else_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match=r"thesis\.tex"), whole_folder(tmp_path / "out", NAMES):
        pass
    assert names(tmp_path / "out") == ["thesis.tex"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(UsageError, match="a file"), whole_folder(tmp_path / "out", NAMES):
        pass


def test_a_full_disk_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SrtmError, match="the disk is full; nothing was written"):
        fail(tmp_path / "out", OSError(errno.ENOSPC, "No space left on device"))
    assert names(tmp_path) == []
