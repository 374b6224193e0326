"""Logs as they lie there: cut, damaged, hostile, from several hosts."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.audit import blocks
from srtm.audit.blocks import Kind
from srtm.audit.folder import read_sessions
from srtm.audit.judge import Audit, judge
from srtm.audit.session import SUFFIX
from srtm.text.errors import UsageError
from tests.support.admission_logs import Disk, log_of, own, share

NS = 1_000_000_000
DAY = 86_400 * NS


def written(
    folder: Path,
    broker: str = "b1",
    process: str = "p1",
    number: int = 1,
    boot: str = "one",
    at: int = NS,
    messages: int = 5,
    offset: int = 0,
    error: int = 0,
    ended: bool = False,
) -> Disk:
    """Half of a contract of 100/s and burst 10, and one block of messages at one instant."""
    disk = Disk(folder, broker, process, number, boot)
    log = log_of(disk)
    log.clock(offset, error)
    log.say(b"t", share(50.0, 5.0, (100.0, 10.0)), at)
    log.admit(b"t", at, messages)
    log.flush(at + 1000, is_end=ended)
    return disk


def audited(*folders: Path, stated_error_ns: int | None = None) -> Audit:
    return judge("t", read_sessions(folders, "t"), None, stated_error_ns)


def gaps(*folders: Path) -> list[tuple[str, str]]:
    return [(gap.broker, gap.kind) for gap in audited(*folders).gaps]


# --- whole and broken files -------------------------------------------------------------------


@given(st.integers(0, 2_000))
def test_every_whole_block_of_a_cut_file_is_read(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    disk = Disk(folder)
    log = log_of(disk)
    log.say(b"t", own(100.0, 10.0), 0)
    ends = []
    for turn in range(1, 8):
        for k in range(turn):
            log.admit(b"t", turn * NS + k, 1)
        log.flush(turn * NS + 100)
        ends.append(disk.path.stat().st_size)
    data = disk.path.read_bytes()
    disk.path.write_bytes(data[: min(cut, len(data))])
    whole = [turn for turn, end in enumerate(ends, 1) if end <= cut]
    try:
        (session,) = read_sessions([folder], "t")
    except (UsageError, ValueError):
        assert not whole  # there is not one beat in it
        return
    # Of a chunk that was cut, the admissions can be whole and the beat behind them not.
    assert session.messages in (sum(whole), sum(whole) + len(whole) + 1)
    assert session.until == (whole[-1] * NS + 100 if whole else 0)
    assert not session.ended


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_what_a_changed_bit_takes_away_is_said(
    tmp_path_factory: pytest.TempPathFactory, place: int, bit: int
) -> None:
    folder = tmp_path_factory.mktemp("changed")
    first = written(folder, messages=3, ended=True)
    written(folder, process="p2", number=2, at=3 * NS, messages=4, ended=True)
    data = bytearray(first.path.read_bytes())
    data[place % len(data)] ^= 1 << bit
    first.path.write_bytes(data)
    if place % len(data) < len(blocks.header("b1", "one", "p1", 1)):
        with pytest.raises(UsageError, match="not an admission log") as error:
            audited(folder)
        assert str(first.path) in str(error.value)
        return
    found = audited(folder)
    assert found.messages in (4, 7)
    assert not found.is_complete
    assert [gap.kind for gap in found.gaps] == ["cut"]


def test_a_file_that_cannot_be_read_to_its_end_before_another_is_said(tmp_path: Path) -> None:
    disk = Disk(tmp_path, file_bytes=600)
    log = log_of(disk)
    for turn in range(1, 30):
        log.admit(b"t", turn * NS, 1)
        log.flush(turn * NS + 1, is_end=turn == 29)
    first = tmp_path / f"b1-00000001{SUFFIX}"
    first.write_bytes(first.read_bytes()[:-10])
    assert gaps(tmp_path) == [("b1", "damaged")]
    assert audited(tmp_path).messages in (27, 28, 29)
    assert not audited(tmp_path).is_complete


@given(st.binary(max_size=300))
def test_no_bytes_are_a_traceback(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    head = blocks.header("b1", "one", "p1", 1)
    for number, content in enumerate(
        (
            data,
            head + data,
            head + blocks.frame(Kind.WORD, data),
            head + blocks.frame(Kind.BEAT, data),
        ),
    ):
        file = folder / f"b1-{number:08d}{SUFFIX}"
        file.write_bytes(content)
        with pytest.raises(UsageError):
            read_sessions([folder], "t")
        file.unlink()


@pytest.mark.parametrize("kind", [Kind.WORD, Kind.ADMISSIONS, Kind.BEAT, Kind.DROPPED, Kind.HEADER])
@pytest.mark.parametrize("payload", [b"", b"x", b"\xff" * 16, b"\xff" * 200])
def test_a_block_with_a_right_checksum_and_nonsense_in_it(
    tmp_path: Path, kind: Kind, payload: bytes
) -> None:
    head = blocks.header("b1", "one", "p1", 1) if kind is not Kind.HEADER else b""
    (tmp_path / f"b1-00000001{SUFFIX}").write_bytes(head + blocks.frame(kind, payload))
    with pytest.raises(UsageError):
        read_sessions([tmp_path], "t")


def test_a_block_of_a_later_version_is_passed_over(tmp_path: Path) -> None:
    disk = written(tmp_path)
    with disk.path.open("ab") as file:
        file.write(blocks.frame(77, b"what is this"))  # type: ignore[arg-type]
    later = log_of(disk)
    later.admit(b"t", 2 * NS, 1)
    later.flush(2 * NS)
    assert audited(tmp_path).messages == 6


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(lambda folder: folder / "none", "No such file or directory", id="no-folder"),
        pytest.param(lambda folder: folder, "no admission log", id="nothing-in-it"),
        pytest.param(
            lambda folder: written(folder).path.parent, "topic x is in none", id="another-topic"
        ),
        pytest.param(lambda folder: written(folder).path, "Not a directory", id="a-file"),
    ],
)
def test_what_is_not_there_is_one_line(tmp_path: Path, make: object, words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        read_sessions([make(tmp_path)], "x")  # type: ignore[operator]
    assert "\n" not in str(error.value)


# --- gaps -------------------------------------------------------------------------------------


def test_gaps_of_a_row_of_processes(tmp_path: Path) -> None:
    written(tmp_path, process="p1", number=3, at=1 * NS)
    written(tmp_path, process="p2", number=4, at=3 * NS, ended=True)
    written(tmp_path, process="p3", number=6, at=5 * NS)
    assert gaps(tmp_path) == [("b1", "rotated"), ("b1", "missing"), ("b1", "cut"), ("b1", "open")]
    cut = audited(tmp_path).gaps[2]
    assert (cut.since, cut.until) == (NS + 1000, 3 * NS)
    assert cut.at_most == pytest.approx(5 + 50 * 2, rel=1e-5)


def test_the_same_folder_twice_counts_once(tmp_path: Path) -> None:
    written(tmp_path, ended=True)
    found = audited(tmp_path, tmp_path / ".", tmp_path)
    assert found.messages == 5
    assert found.gaps == []


# --- clocks -----------------------------------------------------------------------------------


def test_brokers_of_one_host_are_compared_exactly_however_its_wall_clock_is_stepped(
    tmp_path: Path,
) -> None:
    """Both let five go at one instant; an hour of the wall clock lies between the logs."""
    written(tmp_path, "b1", "p1", offset=0, error=16 * NS)
    written(tmp_path, "b2", "p2", offset=3600 * NS, error=16 * NS)
    found = audited(tmp_path)
    assert found.clock_error_ns == 0
    assert found.clock_stepped_ns == 3600 * NS
    assert found.worst is not None
    assert (found.worst.messages, found.worst.ends - found.worst.begins) == (10, 0)
    assert found.excess == 0


def test_those_of_two_hosts_by_their_wall_clocks_with_both_errors(tmp_path: Path) -> None:
    """Hosts were started a day apart. One message more than the contract, all at one instant."""
    ms = 1_000_000
    written(tmp_path / "1", "b1", "p1", boot="one", at=DAY, offset=DAY, error=2 * ms)
    written(
        tmp_path / "2", "b2", "p2", boot="two", at=NS, offset=2 * DAY - NS, error=8 * ms, messages=6
    )
    folders = tmp_path / "1", tmp_path / "2"
    found = audited(*folders)
    assert found.clock_error_ns == 10 * ms
    assert found.worst is not None
    assert (found.worst.messages, found.worst.begins) == (11, 2 * DAY)
    assert found.excess == pytest.approx(1.0)
    assert found.clock_messages == pytest.approx(1.0)
    assert not found.is_exceeded
    assert found.batch == 6, "in a bucket of five"
    assert audited(*folders, stated_error_ns=NS).clock_messages == pytest.approx(200.0)


def test_an_excess_within_the_error_of_the_clocks_is_none_for_sure(tmp_path: Path) -> None:
    for number, boot in enumerate(("one", "two")):
        disk = Disk(tmp_path / boot, f"b{number}", boot, boot=boot)
        log = log_of(disk)
        log.clock(0, 10_000_000)
        log.say(b"t", share(50.0, 5.0, (100.0, 10.0)), 0)
        for k in range(6):
            log.admit(b"t", NS + k, 1)
        log.flush(2 * NS)
    folders = tmp_path / "one", tmp_path / "two"
    found = audited(*folders)
    assert found.excess == pytest.approx(2.0, abs=1e-6)
    assert found.batch == 0
    assert found.clock_messages == pytest.approx(2.0)
    assert not found.is_exceeded
    assert audited(*folders, stated_error_ns=1_000_000).is_exceeded
