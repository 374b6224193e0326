"""A change of a limit waits for the disk, and nobody else does."""

import json
import sys
import threading
from pathlib import Path

from srtm.nsq.commands import pub
from tests.support.servers import Servers, wait_for
from tests.support.v2 import V2

HELD_DISK = """
import os, pathlib, sys, time
held, asked, fsync = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), os.fsync

def slow(fd):
    while held.exists():
        asked.touch()
        time.sleep(0.01)
    fsync(fd)

os.fsync = slow
from srtm.cli import main
sys.argv = sys.argv[5:]  # behind the python that it stands before
main()
"""


def test_messages_go_on_while_a_limit_is_written(servers: Servers, tmp_path: Path) -> None:
    held, asked, state = tmp_path / "held", tmp_path / "asked", tmp_path / "state.json"
    gateway = servers.gateway(
        f"--state-file={state}",
        prefix=(sys.executable, "-c", HELD_DISK, str(held), str(asked)),
    )
    held.touch()
    answered = threading.Event()

    def change() -> None:
        gateway.set_limit("t", rate=1000, burst=50)
        answered.set()

    thread = threading.Thread(target=change)
    try:
        thread.start()
        wait_for(asked.exists, "the limit is being written")
        with V2(gateway.tcp) as publisher:
            publisher.send(pub(b"t", b"x") * 3 + pub(b"other", b"x"))
            publisher.oks(4)
        assert not answered.is_set()
        assert "t" not in json.loads(state.read_text())["topics"]
    finally:
        held.unlink()
        thread.join()
    assert answered.is_set()
    assert json.loads(state.read_text())["topics"]["t"]["limit"]["rate"] == 1000
