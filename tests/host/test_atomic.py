"""A file that is replaced is the old or the new one, and nothing is left beside it."""

import stat
from pathlib import Path

import pytest

from srtm.host.atomic import read_json, replacing, write_json
from srtm.text.errors import SrtmError


def test_a_file_is_replaced_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with replacing(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("stop", [ValueError, KeyboardInterrupt])
def test_where_the_block_fails_the_old_one_stays(tmp_path: Path, stop: type[BaseException]) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise stop

    with pytest.raises(stop):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_meanwhile_can_be_named_and_may_have_been_left_by_a_crash(tmp_path: Path) -> None:
    path, partial = tmp_path / "file", tmp_path / "file.partial"
    partial.write_text("left, and longer than what comes")
    with replacing(path, partial) as file:
        assert partial.exists()
        file.write(b"new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_json_is_for_its_owner_alone_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    assert read_json(path) is None
    write_json(path, {"a": [1]})
    assert read_json(path) == {"a": [1]}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("{")
    with pytest.raises(SrtmError, match="is no JSON"):
        read_json(path)
