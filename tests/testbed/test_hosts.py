"""What every kind of host does for `srtm testbed`: one suite for all of them."""

import os
import signal
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from srtm.deploy.host_tables import HostTable
from srtm.testbed.host import Host
from srtm.testbed.inventory import OWN_FOLDER, subnet_of
from srtm.testbed.local import LocalHost
from srtm.testbed.netns import NetnsHost
from srtm.testbed.network import SUBNETS, Names, free_subnet, make_network, remove_network
from srtm.testbed.ssh import SshHost
from srtm.text.errors import SrtmError
from srtm.units import Unit
from tests.support.deployments import wait_for
from tests.support.netns import need_namespaces
from tests.support.sshd import ALIAS, need_sshd, sshd_in

SLEEPER = Unit(
    "sleeper", [sys.executable, "-c", "import time; print('awake', flush=True); time.sleep(60)"]
)


@pytest.fixture(params=["local", "netns", "ssh"])
def host(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Host]:
    values = {"name": "h1", "kind": request.param, "address": "127.0.0.1"}
    values["data-path"] = str(tmp_path / "h1")
    with ExitStack() as stack:
        if request.param == "netns":
            need_namespaces()
            names = Names(uuid.uuid4().hex[:6])
            subnet = subnet_of(free_subnet(names, int(names.id, 16) % SUBNETS))
            make_network(names, subnet, [("h1", str(subnet[11]))])
            stack.callback(remove_network, names)
            found: Host = NetnsHost(HostTable.model_validate(values), names)
        elif request.param == "ssh":
            need_sshd()
            (tmp_path / "sshd").mkdir()
            sshd = stack.enter_context(sshd_in(tmp_path / "sshd", monkeypatch))
            values |= {"address": sshd.address, "login": ALIAS, "python": sys.executable}
            found = SshHost(HostTable.model_validate(values), "lab", tmp_path)
            stack.callback(found.release)
        else:
            found = LocalHost(HostTable.model_validate(values))
        found.open()
        yield found


def path(host: Host, name: str) -> str:
    return f"{host.table.data_path}/{name}"


def test_a_file_is_put_whole_and_read_again(host: Host) -> None:
    file = path(host, "some/folder/file")
    assert host.read(file) is None
    host.put(file, b"one\n")
    host.put(file, b"\0two", 0o600)
    assert host.read(file) == b"\0two"
    assert host.run(["stat", "-c", "%a", file]).output == b"600\n"
    assert list(host.list(path(host, "some/folder"))) == ["file"]
    assert list(host.list(path(host, "none"))) == []


def test_what_is_removed_is_gone_and_may_be_removed_again(host: Host) -> None:
    host.put(path(host, "some/file"), b"")
    for _ in range(2):
        host.remove(path(host, "some"))
        assert host.read(path(host, "some/file")) is None


def test_a_command_says_what_became_of_it(host: Host) -> None:
    done = host.run(["sh", "-c", 'cat; echo "$1" >&2; exit 3', "sh", "it's $HOME; *"], given=b"in")
    assert (done.code, done.output, done.errors) == (3, b"in", "it's $HOME; *")


def test_a_unit_runs_until_it_is_stopped(host: Host) -> None:
    assert host.status("sleeper") is None
    host.start(SLEEPER)
    try:
        first = host.status("sleeper")
        assert first
        assert first.alive
        host.start(SLEEPER)  # it runs: nothing to do
        assert host.status("sleeper") == first
        wait_for(lambda: host.log("sleeper", 5) == "awake")
        names = host.list(path(host, f"{OWN_FOLDER}/units"))
        assert {"sleeper.log", "sleeper.pid"} <= set(names)
    finally:
        assert host.stop("sleeper", 10)
    assert host.status("sleeper") is None
    assert not host.stop("sleeper", 10)


def test_a_unit_that_ended_is_told_from_one_that_never_ran(host: Host) -> None:
    host.start(Unit("short", ["sh", "-c", "echo over"]))
    wait_for(lambda: (found := host.status("short")) and not found.alive)
    assert host.log("short", 5) == "over"
    host.start(Unit("short", ["sh", "-c", "echo again"]))
    wait_for(lambda: host.log("short", 5) == "over\nagain")
    host.stop("short", 10)


def test_one_that_does_not_heed_sigterm_is_killed(host: Host) -> None:
    host.start(Unit("deaf", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"]))
    wait_for(lambda: host.log("deaf", 5) == "ready")
    found = host.status("deaf")
    assert host.stop("deaf", 0.1)
    assert host.status("deaf") is None
    assert found


def test_a_program_that_is_not_there_is_a_clear_line(host: Host) -> None:
    host.start(Unit("none", ["/no/such/program"]))
    wait_for(lambda: (found := host.status("none")) and not found.alive)
    assert "/no/such/program" in host.log("none", 5)
    host.stop("none", 1)


def test_facts(host: Host) -> None:
    facts = host.facts()
    assert facts.cores >= 1
    assert facts.nsqd.startswith("nsqd v")
    assert abs(facts.clock.offset) <= facts.clock.error


def test_the_pid_of_another_process_is_not_the_units(host: Host) -> None:
    """After a reboot, or many processes later."""
    host.start(SLEEPER)
    host.stop("sleeper", 10)
    stat = Path(f"/proc/{os.getpid()}/stat").read_text()
    fields = stat.split(" ")
    host.put(
        path(host, f"{OWN_FOLDER}/units/sleeper.pid"),
        " ".join([*fields[:21], "1", *fields[22:]]).encode(),
    )
    found = host.status("sleeper")
    assert found
    assert not found.alive
    host.stop("sleeper", 0)  # it would have ended us


def test_a_path_that_cannot_be_written_is_a_clear_line(host: Host) -> None:
    host.put(path(host, "file"), b"")
    with pytest.raises(SrtmError, match="file"):
        host.put(path(host, "file/in/it"), b"")


def test_units_are_no_children_of_a_session(host: Host) -> None:
    """Ctrl-C of our terminal does not reach them."""
    host.start(SLEEPER)
    try:
        found = host.status("sleeper")
        assert found
        assert os.getsid(found.pid) == found.pid
        os.kill(found.pid, signal.SIGCONT)
    finally:
        host.stop("sleeper", 10)
