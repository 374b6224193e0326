"""What is written to the state file waits for the disk, and nobody else does."""

import json
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from srtm.nsq.commands import message, mpub, pub
from tests.support.servers import GatewayProcess, Servers, wait_for
from tests.support.v2 import V2

SLOW = 0.001  # no token comes back during a test

HELD_DISK = """
import os, pathlib, sys, time
held, asked, fsync = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), os.fsync

def slow(fd):
    while held.exists():
        asked.touch()
        time.sleep(0.01)
    fsync(fd)

os.fsync = slow
from srtm.cli.main import main
sys.argv = sys.argv[5:]  # behind the python that it stands before
main()
"""


@dataclass
class Disk:
    held: Path
    asked: Path
    state: Path

    def begin(self, servers: Servers, *flags: str) -> GatewayProcess:
        command = (sys.executable, "-c", HELD_DISK, str(self.held), str(self.asked))
        return servers.gateway(f"--state-file={self.state}", *flags, prefix=command)

    def hold(self) -> None:
        self.asked.unlink(missing_ok=True)
        self.held.touch()

    def wait_until_asked(self) -> None:
        wait_for(self.asked.exists, "something is being written")

    def release(self) -> None:
        self.held.unlink(missing_ok=True)

    def topics(self) -> dict[str, dict[str, object]]:
        topics: dict[str, dict[str, object]] = json.loads(self.state.read_text())["topics"]
        return topics


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "held", tmp_path / "asked", tmp_path / "state.json")


def test_messages_go_on_while_a_limit_is_written(servers: Servers, disk: Disk) -> None:
    gateway = disk.begin(servers)
    disk.hold()
    answered = threading.Event()

    def change() -> None:
        gateway.set_limit("t", rate=1000, burst=50)
        answered.set()

    thread = threading.Thread(target=change)
    try:
        thread.start()
        disk.wait_until_asked()
        with V2(gateway.tcp) as publisher:
            publisher.send(pub(b"t", b"x") * 3 + pub(b"other", b"x"))
            publisher.oks(4)
        assert not answered.is_set()
        assert "t" not in disk.topics()
    finally:
        disk.release()
        thread.join()
    assert answered.is_set()
    assert disk.topics()["t"]["limit"]["rate"] == 1000  # type: ignore[index]


def batch(topic: bytes, count: int) -> bytes:
    return mpub(topic, [message(b"x")] * count, count)


def test_a_batch_waits_until_its_debt_is_written_and_only_its_own_topic_with_it(
    servers: Servers, disk: Disk
) -> None:
    gateway = disk.begin(servers, *(f"--topic={name},rate={SLOW},burst=5" for name in "tu"))
    with V2(gateway.tcp) as debtor, V2(gateway.tcp) as other:
        disk.hold()
        try:
            debtor.send(batch(b"t", 20))
            disk.wait_until_asked()
            other.send(pub(b"unlimited", b"x"))
            other.oks(1)
            # The file is being written: this debt is in the write after it.
            other.send(batch(b"u", 9))
            other.send(pub(b"unlimited", b"x"))
            wait_for(lambda: gateway.nsqd.message_count("unlimited") == 2, "nobody else waits")
            assert gateway.nsqd.message_count("t") == 0
            assert gateway.nsqd.message_count("u") == 0
        finally:
            disk.release()
        debtor.oks(1)
        other.oks(2)
    assert gateway.nsqd.message_count("t") == 20
    assert gateway.nsqd.message_count("u") == 9
    kept = disk.topics()
    assert kept["t"]["tokens"] <= -15  # type: ignore[operator]
    assert kept["u"]["tokens"] <= -4  # type: ignore[operator]


def test_a_batch_whose_debt_kill_9_finds_unwritten_has_not_gone_to_nsqd(
    servers: Servers, disk: Disk
) -> None:
    gateway = disk.begin(servers, f"--topic=t,rate={SLOW},burst=5")
    with V2(gateway.tcp) as debtor:
        disk.hold()
        debtor.send(batch(b"t", 20))
        disk.wait_until_asked()
        gateway.process.kill()
        assert debtor.reply() is None, "nobody was told OK"
    assert gateway.nsqd.message_count("t") == 0
