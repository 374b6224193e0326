"""The audit log: whole lines in files of bounded size, whatever the disk does."""

import json
import logging
import os
from pathlib import Path

import pytest

from srtm.host import audit_log
from srtm.host.audit_log import AuditLog
from srtm.text.errors import UsageError

LOG = logging.getLogger("test.audit")


def row(
    number: int, name: str = "a", path: str = "/v1/topics/t", status: int = 200
) -> dict[str, object]:
    return {
        "number": number,
        "name": name,
        "address": "h",
        "method": "PUT",
        "path": path,
        "asked": {},
        "status": status,
    }


def test_lines_are_kept_over_a_restart_for_this_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    for number in range(2):
        log = AuditLog(str(path), "--audit-log", LOG)
        log.write(row(number))
        log.close()
    assert [json.loads(each)["number"] for each in path.read_text().splitlines()] == [0, 1]
    assert path.stat().st_mode & 0o777 == 0o600


def test_files_are_bounded_in_size_and_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "FILE_BYTES", 300)
    log = AuditLog(str(tmp_path / "[audit]*"), "--audit-log", LOG)
    for number in range(200):
        log.write(row(number))
    files = sorted(tmp_path.iterdir(), key=lambda each: each.name)
    assert len(files) == audit_log.MOST_FILES
    assert all(each.stat().st_size <= 300 for each in files)
    kept = [json.loads(line)["number"] for each in files for line in each.open()]
    assert sorted(kept) == list(range(min(kept), 200))
    assert json.loads(files[0].read_text().splitlines()[-1])["number"] == 199


def test_a_full_disk_costs_lines_and_is_told_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, now = tmp_path / "audit", 0.0
    log = AuditLog(str(path), "--audit-log", LOG, lambda: now)
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, data[:5]))
    log.write(row(1))
    log.write(row(2))
    monkeypatch.setattr(os, "write", real)
    log.write(row(3))
    assert (log.lost, len(caplog.records)) == (2, 1)
    assert json.loads(path.read_text().splitlines()[-1]) == row(3)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        pytest.param("no/audit", "No such file", id="no-folder"),
        pytest.param("", "Is a directory", id="a-folder"),
        pytest.param("pipe", "No such device|a pipe or a device", id="a-pipe"),
    ],
)
def test_a_path_that_cannot_be_written_is_told_at_the_start(
    tmp_path: Path, name: str, sentence: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match=f"^--audit-log .*({sentence})"):
        AuditLog(str(tmp_path / name), "--audit-log", LOG)


def test_refusals_of_one_kind_are_two_lines_a_minute(tmp_path: Path) -> None:
    """The first one, and one for all others, when the minute is over or the log is closed."""
    path, now = tmp_path / "audit", 0.0
    log = AuditLog(str(path), "--audit-log", LOG, lambda: now)
    for number in range(1000):
        log.write(row(number, "reader", "/v1/topics/t", 403))
    log.write(row(1, "operator", status=409))
    log.write(row(2, "operator"))
    log.write(row(2, "operator"))
    now = 60.0
    log.write(row(3, "reader", "/v1/topics/t", 403))
    log.write(row(4, "reader", "/v1/topics/t", 403))
    log.close()
    rows = [json.loads(each) for each in path.read_text().splitlines()]
    assert [(each["number"], each.get("count")) for each in rows] == [
        (0, None), (1, None), (2, None), (2, None), (999, 999), (3, None), (4, 1),
    ]  # fmt: skip


def test_a_caller_hides_no_refusal_behind_its_own(tmp_path: Path) -> None:
    """Not one of another caller, and not one for something else; a flood of kinds is counted."""
    path = tmp_path / "audit"
    log = AuditLog(str(path), "--audit-log", LOG, lambda: 0.0)
    for number in range(1000):
        log.write(row(number, "bob", f"/topic/create/t{number}", 403))
    log.write(row(2000, "alice", "/topic/create/t5", 403))
    log.close()
    rows = [json.loads(each) for each in path.read_text().splitlines()]
    assert len(rows) < 40
    assert sum(each.get("count", 1) for each in rows) == 1001
    assert rows[-2]["number"] == 2000


def test_kinds_of_refusals_are_bounded(tmp_path: Path) -> None:
    log = AuditLog(str(tmp_path / "audit"), "--audit-log", LOG, lambda: 0.0)
    for number in range(5000):
        log.write(row(number, f"name-{number}", status=403))
    assert len(log._refusals) <= 1024
