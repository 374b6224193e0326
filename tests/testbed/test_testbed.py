"""A testbed with the real nsqd, nsqlookupd, gateway and distributor, on local hosts and in network
namespaces."""

import json
import os
import re
import shutil
import signal
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPSConnection
from pathlib import Path

import pytest

import srtm.testbed as testbeds
from srtm.deploy.topics import Topics
from srtm.deployment.document import find
from srtm.host.certificates import TlsFiles, server_context
from srtm.host.processes import is_alive
from srtm.http.client import get_json, request
from srtm.nsq.commands import pub
from srtm.testbed import open_testbed
from srtm.testbed.faults import processes
from srtm.testbed.network import namespaces_of
from srtm.testbed.status import UP
from srtm.testbed.testbed import Failed
from srtm.text.errors import Exit, SrtmError, UnavailableError, UsageError
from tests.support.deployments import need_nsq, wait_for
from tests.support.netns import need_namespaces
from tests.support.programs import SRTM, run_srtm
from tests.support.secure import SecureV2
from tests.support.testbeds import lab, quiet, short_folder, up
from tests.support.v2 import V2


@pytest.fixture(autouse=True)
def _real_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    need_nsq(monkeypatch)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


def srtm(*words: object) -> tuple[int, str, str]:
    done = run_srtm("testbed", *map(str, words), seconds=600)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("kind", ["local", "netns"])
def test_up_is_one_deployment_over_all_hosts(tmp_path: Path, kind: str) -> None:
    if kind == "netns":
        need_namespaces()
    file = lab(tmp_path, kind)
    said: list[str] = []
    with up(file) as found:
        inventory = found.inventory
        assert [each.state for each in found.status()] == ["up", "up", "up"]
        lookupd = inventory.lookupd_addresses
        assert lookupd
        nodes = get_json(str(lookupd[1]), "/nodes")["producers"]
        told = {(each["broadcast_address"], each["tcp_port"]) for each in nodes}
        brokers = [inventory.broker_address(each) for each in inventory.plan.brokers]
        assert told == {(each.host, each.port) for each in brokers}
        for broker in inventory.plan.brokers:
            address = str(inventory.broker_http_address(broker))
            assert request(address, "POST", "/pub?topic=even").status in (200, 400)

        # The even topic is split over both hosts, the placed one by the distributor.
        topics = {each.topic: each for each in Topics(find(tmp_path / "d" / "h1")).report().topics}
        assert topics["even"].brokers["b1"]["rate"] == 50
        assert topics["even"].contract["rate"] == 100
        assert topics["placed"].owner == "distributor"
        assert topics["placed"].placed
        assert topics["placed"].placed.placed == 2
        with pytest.raises(UsageError, match="several hosts"):
            Topics(find(tmp_path / "d" / "h1")).change("even", {"rate": 50.0})

        # Again: nothing happens.
        before = {name: host.status(UP) for name, host in found.hosts.items()}
        open_testbed(file).up(lambda host, line: said.append(f"{host}: {line}"))
        assert {"h1: runs already", "h2: runs already"} <= set(said)
        assert before == {name: host.status(UP) for name, host in found.hosts.items()}

        # An edit is refused before anything is put, and does not keep it from being taken down.
        file.write_text(file.read_text().replace("rate = 100", "rate = 101"))
        with pytest.raises(UsageError, match="was edited"):
            open_testbed(file).up(quiet)
        if kind == "netns":
            assert len(namespaces_of(found.names)) == 4
            _, out, _ = srtm("exec", file, "h2", "ip", "-4", "address", "show", "eth0")
            assert inventory.host("h2").address in out
    assert not (tmp_path / "d").exists()
    if kind == "netns":
        assert not namespaces_of(found.names)


def test_down_twice_keeps_the_data_and_a_second_file_cannot_have_them(tmp_path: Path) -> None:
    file = lab(tmp_path)
    with up(file):
        code, out, _ = srtm("status", file, "--json")
        assert (code, [row["state"] for row in json.loads(out)]) == (0, ["up"] * 3)
        assert all(row["links"] == [] for row in json.loads(out))
        code, out, _ = srtm("exec", file, "h1", "--", "sh", "-c", "srtm --version; exit 7")
        assert (code, out.startswith("srtm")) == (7, True)
        assert srtm("exec", file, "h1", "no-such-program", "--help")[0] == 127
        code, _, errors = srtm("exec", file, "h9", "true")
        assert (code, "no host h9; known: h1, h2, h3" in errors) == (Exit.USAGE, True)
        code, out, _ = srtm("logs", file, "h1", "--program", "b1-gateway", "--lines", 3)
        assert (code, bool(out)) == (0, True)
        other = tmp_path / "other.toml"
        shutil.copy(file, other)
        for command in ("up", "status", "logs", "heal", "down"):
            code, out, errors = srtm(command, other)
            assert (code, out) == (Exit.USAGE, "")
            assert f"is used by the testbed of {file}: give that file" in errors

        code, _, errors = srtm("down", file)
        assert (code, "h1: down; its data are kept" in errors) == (0, True)
        code, _, errors = srtm("down", file)
        assert (code, "h1: nothing ran" in errors) == (0, True)
        assert list((tmp_path / "d" / "h1" / "testbed").iterdir()) == [
            tmp_path / "d" / "h1" / "testbed" / "owner.json"
        ]
        assert srtm("status", file)[0] == Exit.FAILED

        # The data stay the first file's, whoever has the same name.
        with pytest.raises(Failed, match=r"has the data of the testbed of .*lab\.toml"):
            open_testbed(other).up(quiet)
        open_testbed(other).down(quiet, purge=True)
        assert (tmp_path / "d" / "h1" / "b1").exists()


def test_a_folder_with_somebodys_files_is_not_taken(tmp_path: Path) -> None:
    file = lab(tmp_path)
    (tmp_path / "d" / "h1").mkdir(parents=True)
    (tmp_path / "d" / "h1" / "thesis.tex").touch()
    with pytest.raises(Failed, match=r"h1: .*is not empty, and no testbed's"):
        open_testbed(file).up(quiet)
    open_testbed(file).down(quiet, purge=True)
    assert (tmp_path / "d" / "h1" / "thesis.tex").exists()
    assert not (tmp_path / "d" / "h2").exists()  # nothing was put before all hosts were looked at


def test_a_testbed_is_the_same_however_its_file_is_named(tmp_path: Path) -> None:
    file = lab(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    other = tmp_path / "link" / ".." / tmp_path.name / file.name
    assert open_testbed(other).id == open_testbed(file).id
    assert open_testbed(other).inventory == open_testbed(file).inventory


def test_too_few_cores_is_said_before_anything_is_put(tmp_path: Path) -> None:
    file = lab(tmp_path, more="cores = 4000\n")
    code, _, errors = srtm("up", file)
    assert code == Exit.USAGE
    assert "h3: needs 4000 cores and has" in errors
    assert not (tmp_path / "d" / "h1").exists()


def test_up_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    file = lab(tmp_path)
    with up_process(file) as process:
        wait_for(lambda: (tmp_path / "d" / "h1" / "testbed" / "units" / "up.pid").exists())
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == Exit.UNAVAILABLE
        assert "interrupted; the same command goes on" in process.communicate()[1]
    with up(file) as found:
        assert [each.state for each in found.status()] == ["up", "up", "up"]


def test_a_second_signal_while_the_first_is_handled_is_no_deadlock(tmp_path: Path) -> None:
    found = open_testbed(lab(tmp_path))

    def ask() -> None:
        depth = 0

        def again(*_: object) -> None:
            nonlocal depth
            if depth < 3:  # a handler may be interrupted at each call
                depth += 1
                found.ask_stop()
                depth -= 1

        sys.setprofile(again)
        found.ask_stop()
        sys.setprofile(None)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(10)
    assert not asking.is_alive()


@pytest.fixture(scope="module")
def bed() -> Iterator[testbeds.Testbed]:
    """One that is up on local hosts, for tests that leave it so."""
    with pytest.MonkeyPatch.context() as patch, short_folder() as folder:
        need_nsq(patch)
        with up(lab(folder)) as found:
            yield found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_fault_that_is_ended_leaves_nothing(
    bed: testbeds.Testbed, number: signal.Signals
) -> None:
    words = ("fault", bed.inventory.file, "freeze", "h1", "--program", "b1-nsqd", "--for", "10m")
    with subprocess.Popen(
        [*SRTM, "testbed", *map(str, words)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "SIGSTOP of b1-nsqd on h1\n"
        process.send_signal(number)
        process.send_signal(number)
        assert process.wait(60) == Exit.OK
    stat = Path("/proc", str(processes(bed.hosts["h1"])["b1-nsqd"]), "stat").read_text()
    assert stat.rpartition(")")[2].split()[0] != "T"


def test_programs_are_named_in_a_narrow_terminal(
    bed: testbeds.Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")  # ps would end its lines there
    assert set(processes(bed.hosts["h1"])) == {UP, "nsqlookupd", "b1-nsqd", "b1-gateway"}


def test_a_host_whose_part_ends_is_named_and_brought_up_again(bed: testbeds.Testbed) -> None:
    unit = bed.hosts["h1"].status(UP)
    assert unit
    os.kill(unit.pid, signal.SIGKILL)
    wait_for(lambda: bed.status()[0].state == "ended")
    assert [each.state for each in bed.status()[1:]] == ["up", "up"]
    wait_for(lambda: not _listens(bed))
    open_testbed(bed.inventory.file).up(quiet)
    assert [each.state for each in bed.status()] == ["up", "up", "up"]


def _listens(found: testbeds.Testbed) -> bool:
    inventory = found.inventory
    try:
        request(str(inventory.broker_http_address(inventory.plan.brokers[0])), "GET", "/ping")
    except UnavailableError:
        return False
    return True


def test_a_disk_is_its_owners_alone_and_goes_with_its_host(tmp_path: Path) -> None:
    need_namespaces()
    file = lab(tmp_path, "netns", more='disk = "4m"\n')
    file.write_text(file.read_text().replace('name = "h1"\n', 'name = "h1"\ndisk = "64m"\n', 1))
    with up(file) as found:
        disk = tmp_path / "d" / "h3"
        assert disk.is_mount()
        assert disk.stat().st_mode & 0o7777 == 0o755
        said: dict[str, str] = {}
        found.down(said.__setitem__)
        assert said["h1"] == "down; its data went with its disk"
        assert said["h2"] == "down; its data are kept"
    assert not (tmp_path / "d").exists()


def up_process(file: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*SRTM, "testbed", "up", str(file)],
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("kind", ["local", "netns"])
def test_down_ends_what_a_killed_up_left_stopped(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In namespaces also where all files are gone: processes are found by their namespace."""
    if kind == "netns":
        need_namespaces()
    file = lab(tmp_path, kind)
    with up(file) as found:
        monkeypatch.setenv("COLUMNS", "80")  # of which ps makes its lines
        pids = processes(found.hosts["h1"])
        beside = processes(found.hosts["h2"])
        for name in ("b1-gateway", "b1-nsqd"):
            os.kill(pids[name], signal.SIGSTOP)
        os.kill(pids[UP], signal.SIGKILL)
        wait_for(lambda: found.status()[0].state == "ended")
        if kind == "netns":
            shutil.rmtree(tmp_path / "d")
    left = [*pids.values(), *beside.values()]
    wait_for(lambda: not any(map(is_alive, left)))


def test_a_torn_pid_file_is_no_hindrance(tmp_path: Path) -> None:
    file = lab(tmp_path)
    with up(file) as found:
        pids = processes(found.hosts["h1"])
        (tmp_path / "d" / "h1" / "testbed" / "units" / "up.pid").write_bytes(b"\xff\xfe")
        assert found.status()[0].state == "ended"
    wait_for(lambda: not any(is_alive(pid) for pid in pids.values()))


def test_two_commands_at_once(tmp_path: Path) -> None:
    file = lab(tmp_path)
    began, over = threading.Event(), threading.Event()

    def say(host: str, line: str) -> None:
        began.set()
        over.wait(60)

    first = open_testbed(file)

    def begin() -> None:
        with suppress(Failed):  # it is interrupted in the end
            first.up(say)

    worker = threading.Thread(target=begin)
    worker.start()
    try:
        assert began.wait(60)
        with pytest.raises(UnavailableError, match="another srtm testbed command"):
            open_testbed(file).up(quiet)
    finally:
        first.ask_stop()  # what it would still start is nobody's business here
        over.set()
        worker.join()
        open_testbed(file).down(quiet, purge=True)


def test_namespaces_that_a_crash_left_are_no_hindrance(tmp_path: Path) -> None:
    need_namespaces()
    file = lab(tmp_path, "netns")
    found = open_testbed(file)
    for name in (found.names.switch, found.names.host("h1"), found.names.host("h9")):
        subprocess.run(["ip", "netns", "add", name], check=True)
    with up(file) as again:
        assert [each.state for each in again.status()] == ["up", "up", "up"]
        # And once more, with the state lost while all of it runs.
        (tmp_path / "d" / "testbed" / "state.json").unlink()
        open_testbed(file).up(quiet)
        assert [each.state for each in open_testbed(file).status()] == ["up", "up", "up"]
    assert not namespaces_of(found.names)


def test_a_data_path_that_cannot_be_written_is_a_clear_line(tmp_path: Path) -> None:
    file = lab(tmp_path)
    (tmp_path / "d" / "testbed" / "lock").mkdir(parents=True)
    for command in ("up", "down"):
        code, _, errors = srtm(command, file)
        assert code == Exit.FAILED
        assert re.fullmatch(r"srtm: .*/d/testbed/lock: .*choose another data-path.*\n", errors)


def test_namespaces_need_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = lab(tmp_path, "netns")
    if shutil.which("ip") is None:
        pytest.skip("no ip")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SrtmError, match=r"netns hosts need root.*sudo, or make the hosts kind"):
        open_testbed(file).up(quiet)


def test_clients_of_a_secure_testbed_speak_tls(tmp_path: Path) -> None:
    file = lab(tmp_path)
    file.write_text(file.read_text().replace("[deployment]", "[deployment]\nsecure = true", 1))
    with up(file) as found:
        inventory = found.inventory
        pki = tmp_path / "d" / "testbed" / "pki"
        trusting = ssl.create_default_context(cafile=pki / "ca.pem")
        for broker in inventory.plan.brokers:
            address = str(inventory.broker_address(broker))
            with SecureV2(address, trusting) as client:
                client.send(pub(b"even", b"x"))
                assert client.reply() == b"OK"
            with V2(address) as plain:
                plain.send(pub(b"even", b"x"))
                assert b"TLS required" in plain.reply()
        address = str(inventory.distributor_address)
        with closing(HTTPSConnection(address, context=trusting)) as connection:
            connection.request("GET", "/v1/health")
            assert json.loads(connection.getresponse().read())["leading"]
        with pytest.raises(UnavailableError):
            get_json(address, "/v1/health")
        topics = {each.topic: each for each in Topics(find(tmp_path / "d" / "h1")).report().topics}
        assert topics["placed"].placed
        assert topics["placed"].placed.placed == 2
        own = tmp_path / "d" / "h1" / "testbed"
        assert stat.S_IMODE((own / "host.key").stat().st_mode) == 0o600
        assert not list((tmp_path / "d" / "h1").rglob("ca.key"))

        # A certificate is renewed where it is in use.
        (pki / "h1.key").unlink()
        open_testbed(file).up(quiet)
        assert (own / "host.key").read_bytes() == (pki / "h1.key").read_bytes()
        server_context(TlsFiles(str(own / "host.pem"), str(own / "host.key")))

        # The authority stays, and the hosts' copies go.
        before = (pki / "ca.pem").read_bytes()
        open_testbed(file).down(quiet)
        assert not list(own.glob("*.key"))
        open_testbed(file).up(quiet)
        assert (own / "ca.pem").read_bytes() == before
    assert not (tmp_path / "d").exists()
