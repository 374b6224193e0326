"""`srtm gateway --admission-log`: what it writes, through kill -9, rotation and a full disk."""

import json
import resource
import signal
from pathlib import Path
from typing import Any

import pytest

from srtm.audit.folder import read_sessions
from srtm.audit.judge import judge
from srtm.audit.session import SUFFIX
from srtm.gateway.measure.admissions import FLUSH_NS, AdmissionLog
from srtm.gateway.measure.log_files import LogFiles
from srtm.nsq.commands import message, mpub, pub
from srtm.text.errors import UsageError
from tests.support.admission_logs import Disk, log_of, never, own
from tests.support.distributors import srtm
from tests.support.servers import GatewayProcess, Servers, wait_for
from tests.support.v2 import V2

NS = 1_000_000_000


def audit(topic: str, *arguments: str | Path) -> dict[str, Any]:
    answer = srtm("audit", topic, *map(str, arguments), "--json")
    assert answer.returncode in (0, 1), answer.stderr
    document: dict[str, Any] = json.loads(answer.stdout)
    assert answer.returncode == document["exceeded"]
    return document


def publish(gateway: GatewayProcess, topic: str, count: int, batches: tuple[int, ...] = ()) -> None:
    """Single messages and batches; returns with the last OK."""
    with V2(gateway.tcp) as client:
        for _ in range(count):
            client.send(pub(topic.encode(), b"x"))
        for size in batches:
            client.send(mpub(topic.encode(), [message(b"x")] * size, size))
        client.oks(count + len(batches))


def logged(folder: Path, topic: str) -> int:
    try:
        return sum(session.messages for session in read_sessions([folder], topic))
    except UsageError:
        return 0  # not yet


def kinds(document: dict[str, Any]) -> list[str]:
    return [gap["kind"] for gap in document["gaps"]]


def test_who_got_tokens_and_what_passed_are_in_it_at_once(servers: Servers, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "log"
    gateway = servers.gateway(
        f"--admission-log={folder}", "--topic=t,rate=1000,burst=10", "--broadcast-address=host"
    )
    publish(gateway, "t", 50, (5, 25))
    publish(gateway, "free", 30)
    # It runs on, and all is there.
    wait_for(lambda: logged(folder, "t") == 80, "all admissions of t are in the log")
    wait_for(lambda: logged(folder, "free") == 30, "what has no limit is in it too")
    document = audit("t", folder)
    assert document["messages"] == 80
    assert kinds(document) == ["open"]
    assert document["complete"]
    (limit,) = document["contract"]
    assert (limit["source"], limit["rate"], limit["burst"]) == ("gateways", 1000.0, 10.0)
    assert document["largest_batch_over_share"] == 25
    assert document["excess"] == 0
    assert not document["exceeded"]
    assert audit("t", folder, "--rate", "100", "--burst", "10")["exceeded"]
    free = audit("free", folder)
    assert free["unjudged"] == 30
    assert free["interval"] is None
    assert [file.name for file in folder.iterdir()] == [
        f"host%3A{gateway.tcp.rpartition(':')[2]}-00000001{SUFFIX}"
    ]
    assert gateway.metric("srtm_admission_log_written_bytes_total") > 0
    assert gateway.metric("srtm_admission_log_dropped_messages_total") == 0
    assert gateway.metric("srtm_admission_log_failing") == 0
    assert gateway.process.stop() == 0
    assert kinds(audit("t", folder)) == []


def test_what_was_written_survives_kill_9(servers: Servers, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    flags = (
        f"--admission-log={folder}",
        f"--state-file={tmp_path / 'state'}",
        "--topic=t,rate=1000,burst=20",
    )
    gateway = servers.gateway(*flags)
    publish(gateway, "t", 60)
    wait_for(lambda: logged(folder, "t") == 60, "all admissions are in the log")
    gateway.process.kill()
    assert logged(folder, "t") == 60
    (file,) = folder.iterdir()
    with file.open("ab") as torn:
        torn.write(b"\x20\0\0\0half of a block")  # as of a write that was cut
    ports = tuple(int(address.rpartition(":")[2]) for address in (gateway.tcp, gateway.http))
    again = servers.gateway(*flags, nsqd=gateway.nsqd, ports=ports)  # type: ignore[arg-type]
    publish(again, "t", 40)
    assert again.process.stop() == 0
    document = audit("t", folder)
    assert document["messages"] == 100
    assert not document["exceeded"]
    assert document["excess"] == 0
    (share,) = document["brokers"].values()
    assert share["processes"] == 2
    assert not document["complete"]
    (gap,) = document["gaps"]
    assert gap["kind"] == "cut"
    assert gap["at_most"] == pytest.approx(20 + 1000 * (gap["until"] - gap["since"]), rel=1e-3)
    shown = srtm("audit", "t", str(folder)).stdout
    assert "killed: what it admitted after" in shown
    assert "the contract was kept" in shown


def test_a_disk_that_takes_nothing_holds_up_nobody(servers: Servers, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    gateway = servers.gateway(f"--admission-log={folder}", "--topic=t,rate=1e6,burst=1000")
    publish(gateway, "t", 10)
    wait_for(lambda: logged(folder, "t") == 10, "all admissions are in the log")
    pid = gateway.process.popen.pid
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    publish(gateway, "t", 100)
    wait_for(lambda: gateway.metric("srtm_admission_log_failing") == 1, "it says that it fails")
    publish(gateway, "t", 100)
    assert logged(folder, "t") == 10
    resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
    wait_for(lambda: logged(folder, "t") == 210, "what waited for the disk is in the log")
    assert gateway.metric("srtm_admission_log_failing") == 0
    assert gateway.metric("srtm_admission_log_dropped_messages_total") == 0
    gateway.process.signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        pytest.param("--admission-log=/dev/null/x", "--admission-log /dev/null/x:", id="no-folder"),
        pytest.param("--admission-log-bytes=1", "--admission-log-bytes", id="too-few-bytes"),
    ],
)
def test_a_log_that_cannot_be_is_one_line(servers: Servers, flag: str, words: str) -> None:
    gateway = servers.gateway(flag, wait=False)
    assert gateway.process.popen.wait(60) == 2
    last = gateway.process.text().strip().splitlines()[-1]
    assert last.startswith("srtm: ")
    assert words in last


# --- without a gateway ------------------------------------------------------------------------


def test_the_oldest_files_make_room_and_the_rest_stands_alone(tmp_path: Path) -> None:
    kept = 80_000
    (tmp_path / f"other-00000001{SUFFIX}").write_bytes(b"of another broker")
    files = LogFiles(str(tmp_path), "b1", kept)
    log = AdmissionLog(files, never)
    log.say(b"quiet", own(5.0, 2.0), 0)
    log.say(b"t", own(5000.0, 10.0), 0)
    for second in range(1, 40):
        for number in range(1000):
            log.admit(b"t", second * NS + number, 1)
        log.flush(second * NS + NS // 2)
    log.flush(40 * NS, is_end=True)
    files.close()
    (tmp_path / f"other-00000001{SUFFIX}").unlink()
    found = sorted(tmp_path.iterdir())
    assert sum(file.stat().st_size for file in found) <= kept
    assert len(found) > 4
    for topic in ("t", "quiet"):  # each file tells the limits that held
        (session,) = read_sessions([tmp_path], topic)
        assert session.ended
        assert session.words[0][1] == own(*((5000.0, 10.0) if topic == "t" else (5.0, 2.0)))
    found_audit = judge("t", read_sessions([tmp_path], "t"))
    assert 5_000 < found_audit.messages < 39_000
    assert found_audit.messages % 1000 == 0
    assert [gap.kind for gap in found_audit.gaps] == ["rotated"]
    assert found_audit.worst is not None
    assert found_audit.worst.messages == 1000
    # Another process goes on behind it.
    LogFiles(str(tmp_path), "b1", kept).close()
    assert sorted(tmp_path.iterdir())[-1].name > found[-1].name


def test_what_the_thread_has_no_room_for_is_counted(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    log = log_of(disk)
    log.say(b"t", own(1000.0, 10.0), 0)
    log.admit(b"t", 5, 1)
    log.flush(10)
    disk.takes = False
    log.admit(b"t", 20, 3)
    log.admit_ramp(b"u", 20, 1e6, 4)
    log.flush(30)
    log.say(b"t", own(500.0, 5.0), 40)
    log.admit(b"t", 50, 2)
    log.flush(60)
    assert log.dropped == 9
    disk.takes = True
    log.admit(b"t", 70, 1)
    log.flush(80)
    (session,) = read_sessions([tmp_path], "t")
    assert session.messages == 2
    assert session.dropped == [(10, 80, 9)]
    assert [(at, word.rate) for at, word in session.words] == [(0, 1000.0), (40, 500.0)]
    (gap, still_open) = judge("t", [session]).gaps
    assert (gap.kind, gap.messages) == ("dropped", 9)
    assert still_open.kind == "open"
    log.flush(90)
    assert len(read_sessions([tmp_path], "t")[0].dropped) == 1  # told once


def test_it_is_handed_over_a_few_times_a_second(tmp_path: Path) -> None:
    alarms: list[int] = []
    log = AdmissionLog(Disk(tmp_path), lambda when, alarm: alarms.append(when))
    log.admit(b"t", 5, 1)
    log.stage(NS, NS)
    assert logged(tmp_path, "t") == 1  # nothing came for long
    log.admit(b"t", 6, 1)
    log.stage(NS + 1000, NS + 1000)
    log.stage(NS + 2000, NS + 2000)
    assert logged(tmp_path, "t") == 1
    assert alarms == [NS + FLUSH_NS]
    log.stage(NS + FLUSH_NS, NS + FLUSH_NS)
    assert logged(tmp_path, "t") == 2


def test_topics_that_come_and_go_leave_nothing_behind(tmp_path: Path) -> None:
    log = log_of(Disk(tmp_path, file_bytes=10_000))
    for number in range(2_000):
        name = b"t%d" % number
        log.say(name, own(1.0, 1.0), number)
        log.admit(name, number, 1)
        log.flush(number)
        log.forget(name)
    assert len(log._words) == 0
    assert len(log._numbers) < 200
    assert logged(tmp_path, "t1999") == 1


@pytest.mark.parametrize("count", [1, 65_535, 65_536, 1 << 31])
@pytest.mark.parametrize("first", [0, 1 << 62])
def test_what_does_not_fit_into_an_instant_is_kept_whole(
    tmp_path: Path, count: int, first: int
) -> None:
    log = log_of(Disk(tmp_path))
    log.admit(b"t", 7, 2)
    log.admit(b"t", first, count)
    log.admit_ramp(b"t", 9, 0.5, 3)
    log.flush(1 << 62)
    (session,) = read_sessions([tmp_path], "t")
    (block,) = session.admissions
    rows = zip(block.firsts, block.steps, block.counts, strict=True)
    assert sorted(rows) == sorted([(7, 0.0, 2), (first, 0.0, count), (9, 0.5, 3)])
