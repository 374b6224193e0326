"""The writer without a gateway, time passed in: when files appear, become one, and go."""

import errno
import os
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from srtm.traces import files
from srtm.traces.compaction import NEIGHBOURS, choose
from srtm.traces.names import TraceFile, list_files, whole_trace
from srtm.traces.schema import SCHEMA
from srtm.traces.version import VERSION, VERSION_KEY
from srtm.traces.writer import Settings, Writer
from tests.support.traces import chunk_of, messages_by, parsed, rows_of

MIB = 1 << 20


def writer_in(folder: Path, broker: str = "b1", **changes: Any) -> Writer:
    values = {
        "file_seconds": 60.0,
        "file_bytes": 64 * MIB,
        "kept_seconds": 1e6,
        "kept_bytes": 1 << 40,
    }
    made = Writer(Settings(str(folder), broker, **{**values, **changes}))  # type: ignore[arg-type]
    made.begin()
    made.work(0.0)
    return made


def add(writer: Writer, now: float, *, count: int = 1, topic: str = "t") -> None:
    rows = [(1_000 + number, topic, f"p{number % 7}", 2, 18, 5, 0) for number in range(count)]
    for each in parsed(chunk_of(rows, anew=True)):
        writer.add(each, now)


def settle(writer: Writer, now: float) -> None:
    """Until there is nothing to do but wait."""
    while writer.seconds_left(now) == 0.0:
        writer.work(now)


def write_files(writer: Writer, count: int) -> None:
    """One after the other, each with one row."""
    for number in range(count):
        add(writer, 100.0 * number)
        settle(writer, 100.0 * number + 60)


def test_a_file_appears_when_it_is_due_and_says_its_version(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    assert writer.seconds_left(5.0) is None
    add(writer, 10.0)
    add(writer, 30.0)
    writer.work(69.9)
    assert not list(tmp_path.iterdir())
    assert writer.seconds_left(69.9) == pytest.approx(0.1)
    writer.work(70.0)
    (path,) = tmp_path.iterdir()
    assert path.name == "b1-0000000001.parquet"
    schema = pq.read_schema(path)
    assert schema.equals(SCHEMA)
    assert schema.metadata[VERSION_KEY.encode()] == str(VERSION).encode()
    assert writer.status.messages == 4
    assert writer.status.bytes == path.stat().st_size


def test_a_file_appears_when_its_rows_are_many(tmp_path: Path) -> None:
    writer = writer_in(tmp_path, file_bytes=64 * 1024)
    add(writer, 1.0, count=1000)
    writer.work(1.0)
    assert not list(tmp_path.iterdir())
    add(writer, 1.0, count=1000)
    writer.work(1.0)
    assert len(rows_of(tmp_path)) == 2000


def test_many_small_files_become_few_and_no_row_is_twice(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    written = NEIGHBOURS**2 + 3
    for number in range(written):
        add(writer, 100.0 * number, count=5, topic=f"t{number % 2}")
        settle(writer, 100.0 * number + 60)
        # Readers never see a row twice, nor too few, whenever they look.
        assert sum(messages_by(tmp_path, "topic").values()) == 10 * (number + 1)
    assert writer.status.untidy == ""
    assert len(whole_trace(tmp_path)) <= 2 * NEIGHBOURS
    merged = next(file for file in list_files(tmp_path, "b1") if file.last - file.first > 10)
    schema = pq.read_schema(merged.path)
    assert schema.equals(SCHEMA, check_metadata=False)
    assert schema.metadata[VERSION_KEY.encode()] == b"1"
    topics = pq.read_table(merged.path)["topic"].to_pylist()
    assert topics == sorted(topics)


def test_what_became_one_goes_after_a_while(tmp_path: Path, monkeypatch: Any) -> None:
    writer = writer_in(tmp_path)
    write_files(writer, NEIGHBOURS)
    assert len(list(tmp_path.iterdir())) == NEIGHBOURS + 1, "jobs that listed them go on"
    later = time.time() + files.GRACE_SECONDS + 1
    files.remove_old(tmp_path, "b1", later, 1e6, 1 << 40)
    (path,) = tmp_path.iterdir()
    assert path.name == "b1-0000000001..0000000008.parquet"
    assert len(rows_of(tmp_path)) == NEIGHBOURS


def test_old_files_go_by_age_and_the_oldest_by_bytes(tmp_path: Path) -> None:
    writer, other = writer_in(tmp_path), writer_in(tmp_path, "b2")
    for each in (writer, other):
        write_files(each, 4)
    paths = [each.path for each in list_files(tmp_path, "b1")]
    now = time.time()
    os.utime(paths[0], (now - 50, now - 50))
    files.remove_old(tmp_path, "b1", now, 40, 1 << 40)
    assert [each.path for each in list_files(tmp_path, "b1")] == paths[1:]
    two = sum(path.stat().st_size for path in paths[2:])
    files.remove_old(tmp_path, "b1", now, 40, two)
    assert [each.path for each in list_files(tmp_path, "b1")] == paths[2:]
    assert len(list_files(tmp_path, "b2")) == 4, "another gateway's are its own"


def test_compaction_keeps_the_age_of_the_rows(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    for number in range(NEIGHBOURS):
        add(writer, 100.0 * number)
        if number == NEIGHBOURS - 1:
            for each in list_files(tmp_path):
                os.utime(each.path, (time.time() - 1000, time.time() - 1000))
        writer.work(100.0 * number + 60)
    last = list_files(tmp_path)[-1].path.stat().st_mtime
    settle(writer, 1e4)
    merged = next(each for each in list_files(tmp_path) if each.last > each.first)
    assert merged.path.stat().st_mtime == pytest.approx(last)


def test_a_file_that_is_no_parquet_is_not_compacted_nor_touched(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    (tmp_path / "b1-0000000001.parquet").write_bytes(b"PAR1 cut short")
    write_files(writer, NEIGHBOURS)
    assert "b1-0000000001" in writer.status.untidy
    assert writer.status.failing == ""
    assert writer.status.messages == 2 * NEIGHBOURS
    assert [each.first for each in list_files(tmp_path) if each.last > each.first] == [2]
    assert (tmp_path / "b1-0000000001.parquet").read_bytes() == b"PAR1 cut short"


def test_two_processes_of_one_name_write_beside_each_other(tmp_path: Path) -> None:
    one, two = writer_in(tmp_path), writer_in(tmp_path)
    for each in (one, two, one):
        add(each, 0.0)
        each.work(60.0)
    assert [each.first for each in list_files(tmp_path)] == [1, 2, 3]
    assert len(rows_of(tmp_path)) == 3


def test_what_a_killed_process_had_under_way_is_removed_and_a_living_one_s_is_not(
    tmp_path: Path,
) -> None:
    (tmp_path / f".b1-1-ab{files.UNFINISHED}").write_bytes(b"half")
    (tmp_path / ".somebody-else").write_bytes(b"x")
    seen: list[list[str]] = []

    def write(file: Any) -> None:
        files.remove_unfinished(tmp_path)
        seen.append(sorted(each.name for each in tmp_path.iterdir()))
        with files.parquet_into(file) as made:
            made.write_table(SCHEMA.empty_table())

    assert files.publish(tmp_path, "b1", None, write) is not None
    ((mine, other),) = seen
    assert mine.endswith(files.UNFINISHED)
    assert other == ".somebody-else"
    assert not [each for each in tmp_path.iterdir() if each.name.endswith(files.UNFINISHED)]


def test_a_full_disk_loses_nothing_that_fits_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_in(tmp_path, file_bytes=64 * 1024)
    fsync = os.fsync

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    add(writer, 0.0, count=2000)
    writer.work(1.0)
    assert writer.status.failing == "No space left on device"
    assert not list(tmp_path.iterdir()), "half a file is not left"
    assert writer.seconds_left(1.0) == 1.0
    add(writer, 1.5, count=2000)
    add(writer, 1.6, count=100)
    assert writer.status.dropped == 200, "memory is bounded"
    monkeypatch.setattr(os, "fsync", fsync)
    writer.work(1.9)
    assert writer.status.failing, "it is tried once a second"
    writer.work(2.0)
    assert writer.status.failing == ""
    assert writer.status.messages == 8000
    assert len(rows_of(tmp_path)) == 4000


@pytest.mark.parametrize(
    ("sizes", "chosen"),
    [
        pytest.param([1] * 7, [], id="too-few"),
        pytest.param([1] * 9, list(range(8)), id="the-oldest"),
        pytest.param([1] * 4 + [60] + [1] * 4, [], id="big-ones-stand-between"),
        pytest.param([60] * 20, [], id="big-ones-stay"),
        pytest.param([7] * 9 + [1] * 8, list(range(9, 17)), id="the-smallest-first"),
        pytest.param([7] * 8, list(range(8)), id="middle-sized"),
        pytest.param([30] * 8, [], id="together-they-would-be-too-big"),
    ],
)
def test_which_files_become_one(sizes: list[int], chosen: list[int]) -> None:
    found = choose(
        [(TraceFile(Path("x"), "b", place, place), size) for place, size in enumerate(sizes)], 64
    )
    assert [each.first for each in found] == chosen
