"""The file of dead letters: a line is whole and on the disk before its message is finished."""

import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from srtm.bridge.dead_letter_file import DeadLetterFile, as_json

LARGE = 1 << 20


class Letters:
    """What is put into a file, and what of it was called stored."""

    def __init__(self, path: Path, max_bytes: int = LARGE) -> None:
        self.file = DeadLetterFile(str(path), max_bytes)
        self.stored: list[int] = []

    def put(self, number: int, body: str = "x") -> None:
        letter = {"number": number, "body": body}
        self.file.put(letter, lambda _, __: self.stored.append(number), 0.0)


def numbers(path: Path) -> list[int]:
    return [json.loads(line)["number"] for line in path.read_text().splitlines()]


def test_letters_are_appended_and_stored_once_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "dead"
    path.write_text('{"number": 0}\n')
    letters = Letters(path)
    letters.put(1)
    letters.put(2)
    assert letters.stored == []
    assert letters.file.flush(0.0)
    assert letters.stored == [1, 2]
    assert numbers(path) == [0, 1, 2]
    assert not letters.file.flush(0.0)
    path.rename(tmp_path / "moved")
    letters.put(3)
    assert letters.file.flush(0.0)
    assert numbers(path) == [3]
    assert path.stat().st_mode & 0o077 == 0  # bodies are nobody else's


def test_a_line_that_was_cut_off_stays_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "dead"
    path.write_text('{"number": 1}\n{"numb')
    letters = Letters(path)
    letters.put(2)
    letters.file.flush(0.0)
    assert path.read_text().splitlines()[1] == '{"numb'
    assert json.loads(path.read_text().splitlines()[2])["number"] == 2


def test_a_full_file_takes_what_has_room_and_goes_on_when_it_is_moved_away(tmp_path: Path) -> None:
    path = tmp_path / "dead"
    letters = Letters(path, max_bytes=1000)
    for number in range(5):
        letters.put(number, "x" * 300)
    assert letters.file.flush(0.0)
    assert letters.stored == [0, 1]
    assert not letters.file.flush(0.0)
    assert "of 1,000 bytes; move it away" in letters.file.fault
    path.rename(tmp_path / "moved")
    assert not letters.file.flush(0.0), "it is tried again later"
    assert letters.file.flush(10.0)
    assert letters.file.flush(0.0, at_once=True) is False
    path.unlink()
    assert letters.file.flush(20.0)
    assert letters.stored == [0, 1, 2, 3, 4]
    assert letters.file.fault == ""


@contextmanager
def room(size: int) -> Iterator[None]:
    """No file of this process can be longer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_in_the_middle_of_a_line_leaves_none_behind(tmp_path: Path) -> None:
    path = tmp_path / "dead"
    letters = Letters(path)
    letters.put(1)
    letters.file.flush(0.0)
    whole = path.read_bytes()
    letters.put(2, "x" * 5000)
    with room(4096):
        assert not letters.file.flush(0.0)
    assert letters.file.fault == f"{path}: File too large"
    assert path.read_bytes() == whole
    assert letters.stored == [1]
    assert letters.file.flush(0.0, at_once=True)
    assert numbers(path) == [1, 2]


def _folder(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _no_folder(path: Path) -> None:
    path.parent.rmdir()


@pytest.mark.parametrize(
    ("make", "says"),
    [(_folder, "Is a directory"), (_pipe, "no plain file"), (_no_folder, "No such file")],
)
def test_what_is_no_file_is_told(tmp_path: Path, make: object, says: str) -> None:
    path = tmp_path / "sub" / "dead"
    path.parent.mkdir()
    assert callable(make)
    make(path)
    letters = Letters(path)
    letters.put(1)
    assert not letters.file.flush(0.0)
    assert says in letters.file.fault
    assert letters.stored == []


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"text \xc3\xa9", {"body": "text \u00e9"}),
        (b"\xff", {"body-base64": "/w=="}),
        (b"", {"body": ""}),
        (None, {}),
    ],
)
def test_bytes_are_text_where_they_are(value: bytes | None, found: dict[str, str]) -> None:
    assert as_json("body", value) == found
