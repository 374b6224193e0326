"""Names of files: whose they are, and which of them hold each row once."""

from pathlib import Path

import pytest

from srtm.host.kept_files import make_room
from srtm.traces.names import file_name, parse, prefix_of, superseded, whole_trace


@pytest.mark.parametrize(
    "broker", ["b1", "127.0.0.1:4150", "[::1]:4150", "a-0000000001", "a%3A", "a~b", "a..b"]
)
def test_a_name_is_read_as_it_was_made(broker: str) -> None:
    prefix = prefix_of(broker)
    assert not set(prefix) & set(":%/*?[]{}\\ ")
    for first, last in ((7, 7), (7, 12)):
        found = parse(Path("x") / file_name(prefix, first, last))
        assert found is not None
        assert (found.prefix, found.first, found.last) == (prefix, first, last)


def test_brokers_of_different_names_have_different_files() -> None:
    names = ["a:1", "a~1", "a%1", "a~3A1", "a%3A1"]
    assert len({prefix_of(name) for name in names}) == len(names)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(".b-1-ab.parquet.unfinished", id="being-written"),
        pytest.param("b-1.parquet", id="another-program's"),
        pytest.param("b-0000000001.csv", id="no-parquet"),
        pytest.param("-0000000001.parquet", id="nobody's"),
        pytest.param("b-0000000001..x.parquet", id="no-number"),
    ],
)
def test_what_is_no_file_of_a_trace_is_left_alone(name: str) -> None:
    assert parse(Path(name)) is None


def test_a_merged_file_stands_for_those_that_it_was_made_of(tmp_path: Path) -> None:
    for name in (
        "a-0000000001.parquet",
        "a-0000000002.parquet",
        "a-0000000001..0000000002.parquet",
        "a-0000000001..0000000004.parquet",
        "a-0000000005.parquet",
        "b-0000000001.parquet",  # another broker's
        ".a-9-00.parquet.unfinished",
        "notes.txt",
    ):
        (tmp_path / name).write_bytes(b"x")
    assert [path.name for path in whole_trace(tmp_path)] == [
        "a-0000000001..0000000004.parquet",
        "a-0000000005.parquet",
        "b-0000000001.parquet",
    ]
    assert superseded([]) == set()


@pytest.mark.parametrize(
    ("kept_bytes", "most", "left"),
    [(100, 9, "abc"), (60, 9, "abc"), (59, 9, "bc"), (20, 9, ""), (100, 1, "c"), (30, 0, "")],
)
def test_the_oldest_files_make_room(tmp_path: Path, kept_bytes: int, most: int, left: str) -> None:
    files = []
    for place, name in enumerate("abc"):
        files.append(tmp_path / name)
        files[-1].write_bytes(b"x" * (10, 20, 30)[place])
    make_room([*files, tmp_path / "gone"][:3], kept_bytes, most)
    assert "".join(sorted(file.name for file in tmp_path.iterdir())) == left
