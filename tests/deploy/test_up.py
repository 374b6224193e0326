"""`srtm up` with the real nsqd, nsqlookupd, nsqadmin and gateway."""

import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import tempfile
from collections.abc import Iterator
from functools import partial
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from srtm.deploy.shown import addresses_table
from srtm.deploy.up import running
from srtm.http.client import get_json, request
from srtm.nsq.commands import pub
from srtm.text.address import free_addresses
from srtm.text.errors import Exit, SrtmError
from tests.support.certificates import Authority
from tests.support.deployments import (
    Spec,
    need_nsq,
    outside,
    processes_of,
    srtm,
    wait_for,
    write_file,
)
from tests.support.programs import run_srtm
from tests.support.secure import SecureV2
from tests.support.v2 import V2


@pytest.fixture(autouse=True)
def _real_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    need_nsq(monkeypatch)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Short, for the paths of unix sockets, and gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="srtm-") as folder:
        yield Path(folder)


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """One broker and one topic."""
    tcp, http = free_addresses(2)
    return {
        "deployment": {"data-path": str(tmp_path / "d")},
        "distributor": False,
        "broker": [{"tcp-address": str(tcp), "http-address": str(http)}],
        "topic": [{"name": "sensors", "rate": 1000, "burst": 40}],
    }


def listens(address: object) -> bool:
    host, _, port = str(address).rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_a_whole_deployment(tmp_path: Path, spec: Spec) -> None:
    tcp, http, lookupd_tcp, lookupd_http, nsqadmin = free_addresses(5)
    spec["broker"].append(
        {
            "tcp-address": str(tcp),
            "http-address": str(http),
            "http-admin": True,
            "nsqd-flags": ["--max-body-size=20971520", "--max-msg-size=20971520"],
        }
    )
    spec["lookupd"] = {"tcp-address": str(lookupd_tcp), "http-address": str(lookupd_http)}
    spec["nsqadmin"] = {"http-address": str(nsqadmin)}
    with running(spec) as deployment:
        assert [each.name for each in deployment.brokers] == ["broker-1", "broker-2"]
        assert sorted(deployment.pids) == [
            "broker-1-gateway",
            "broker-1-nsqd",
            "broker-2-gateway",
            "broker-2-nsqd",
            "nsqadmin",
            "nsqlookupd",
        ]
        saved = json.loads((tmp_path / "d" / "deployment.json").read_text())
        assert saved["pid"] == os.getpid()
        assert saved["brokers"][1]["tcp-address"] == str(tcp)

        first, second = (str(each.http_address) for each in deployment.brokers)
        assert request(first, "POST", "/topic/create?topic=sensors").status == 405
        assert request(second, "POST", "/topic/create?topic=sensors").status == 200
        big = "x" * 19_000_000  # more than a client of a gateway may have waiting by default
        assert request(second, "POST", "/pub?topic=sensors", document=big).status == 200

        nodes = get_json(str(lookupd_http), "/nodes")["producers"]
        ports = {(each["tcp_port"], each["http_port"]) for each in nodes}
        assert ports == {
            (each.tcp_address.port, each.http_address.port) for each in deployment.brokers
        }
        assert request(str(nsqadmin), "GET", "/ping").status == 200

        for broker in deployment.brokers:
            folder = Path(broker.admin_socket).parent
            assert folder.stat().st_mode & 0o777 == 0o700
            assert request(str(broker.http_address), "GET", "/ping").body == b"OK"
            share = get_json(broker.admin_socket, "/topics")["topics"][0]
            assert (share["topic"], share["rate"], share["burst"]) == ("sensors", 500, 20)
            info = get_json(broker.nsqd_http_socket, "/info")
            assert info["tcp_port"] == -1  # nsqd itself listens on no port
    assert not processes_of(spec)
    assert not (tmp_path / "d" / "deployment.json").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_in_order(tmp_path: Path, spec: Spec, number: signal.Signals) -> None:
    with outside(tmp_path, spec) as up:
        up.until("is up")
        assert "broker-1" in up.output
        assert spec["broker"][0]["tcp-address"] in up.output
        assert len(processes_of(spec)) == 2
        os.killpg(up.process.pid, number)  # as a terminal does: all in its foreground group
        code, lines = up.end()
        assert code == Exit.OK
        assert lines == [f"srtm up: deployment local is up (pid {up.process.pid}); Ctrl-C ends it"]
        assert not processes_of(spec)
    logs = tmp_path / "d" / "logs"
    assert "drained" in (logs / "broker-1-gateway.log").read_text()
    assert "NSQ: bye" in (logs / "broker-1-nsqd.log").read_text()
    assert (logs / "broker-1-gateway.log").stat().st_mtime_ns < (
        logs / "broker-1-nsqd.log"
    ).stat().st_mtime_ns


def test_sigint_ends_what_a_script_has_started_in_the_background(
    tmp_path: Path, spec: Spec
) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell without a terminal does
    try:
        started = outside(tmp_path, spec)
        up = started.__enter__()
    finally:
        signal.signal(signal.SIGINT, before)
    with contextlib.ExitStack() as stack:
        stack.push(started)
        up.until("is up")
        up.process.send_signal(signal.SIGINT)
        code, _ = up.end()
        assert code == Exit.OK
        assert not processes_of(spec)


def test_kill_9_leaves_no_child(tmp_path: Path, spec: Spec) -> None:
    with outside(tmp_path, spec) as up:
        up.until("is up")
        assert len(processes_of(spec)) == 2
        up.process.kill()
        wait_for(lambda: not processes_of(spec))


def test_a_start_at_once_after_kill_9_waits_for_what_is_left(tmp_path: Path, spec: Spec) -> None:
    with outside(tmp_path, spec) as killed:
        killed.until("is up")
        children = processes_of(spec)
        killed.process.kill()
        killed.process.wait()
        with outside(tmp_path, spec) as up:
            up.until("is up")
            assert not set(children) & set(processes_of(spec))


def test_a_second_one_on_the_same_data_path_is_refused(tmp_path: Path, spec: Spec) -> None:
    with outside(tmp_path, spec) as first:
        first.until("is up")
        second = run_srtm("up", tmp_path / "srtm.toml")
        assert second.returncode == Exit.UNAVAILABLE
        holder = first.process.pid
        assert (
            second.stderr == f"srtm: data-path {tmp_path}/d is in use by srtm up (pid {holder})\n"
        )
        assert len(processes_of(spec)) == 2


def test_a_port_in_use_is_one_line_and_nothing_is_started(tmp_path: Path, spec: Spec) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        spec["broker"][0]["http-address"] = address
        with outside(tmp_path, spec) as up:
            code, lines = up.end()
    assert code == Exit.UNAVAILABLE
    assert len(lines) == 1
    assert f"http-address of broker broker-1 {address} is in use by another process" in lines[0]
    assert not list((tmp_path / "d" / "logs").iterdir())


def test_flags_that_nsqd_does_not_take_are_one_line(tmp_path: Path, spec: Spec) -> None:
    spec["broker"][0]["nsqd-flags"] = ["--mem-queue-size=many"]
    with pytest.raises(SrtmError) as caught, running(spec):
        pass
    assert str(caught.value) == (
        'broker broker-1: nsqd-flags: invalid value "many" for flag -mem-queue-size: parse error'
    )
    assert not processes_of(spec)


def test_another_version_of_nsqd_is_warned_of(
    tmp_path: Path, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "bin" / "nsqd"
    script.parent.mkdir()
    script.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "nsqd v1.2.0" && exit\n'
        f'exec {shutil.which("nsqd")} "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
    said: list[str] = []
    with running(spec, say=said.append):
        assert said == [
            f"warning: {script} says 'nsqd v1.2.0', and SRTM is tested with nsqd v1.3.x only"
        ]


def test_nsqd_and_gateway_come_back_with_what_they_kept(tmp_path: Path, spec: Spec) -> None:
    said: list[str] = []
    with running(spec, say=said.append) as deployment:
        broker = deployment.brokers[0]
        http = str(broker.http_address)
        assert request(http, "POST", "/pub?topic=sensors", document=1).status == 200
        os.kill(deployment.pids["broker-1-nsqd"], signal.SIGTERM)
        wait_for(lambda: "broker-1-nsqd is back (restart 1)" in said)
        topics = get_json(broker.nsqd_http_socket, "/stats?format=json")["topics"]
        assert [(each["topic_name"], each["depth"]) for each in topics] == [("sensors", 1)]

        os.kill(deployment.pids["broker-1-gateway"], signal.SIGKILL)
        wait_for(lambda: "broker-1-gateway is back (restart 1)" in said)
        assert get_json(broker.admin_socket, "/topics")["topics"][0]["rate"] == 1000
        assert request(http, "POST", "/pub?topic=sensors", document=2).status == 200
    assert [line.partition(" (log")[0] for line in said if "ended" in line][-1].startswith(
        "broker-1-gateway was ended by SIGKILL"
    )


@pytest.mark.parametrize(
    "victim", ["broker-1-gateway", "broker-1-nsqd", "nsqlookupd", "distributor"]
)
def test_a_child_that_keeps_dying_takes_nobody_with_it(
    spec: Spec, victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srtm.deploy.restarts.DELAY_FACTOR", 1.0)  # 0.1 s each time
    tcp, http, lookupd_tcp, lookupd_http, distributor = free_addresses(5)
    spec["broker"].append({"tcp-address": str(tcp), "http-address": str(http)})
    spec["lookupd"] = {"tcp-address": str(lookupd_tcp), "http-address": str(lookupd_http)}
    spec["distributor"] = {"http-address": str(distributor)}
    said: list[str] = []
    with running(spec, say=said.append) as deployment:
        others = {name: pid for name, pid in deployment.pids.items() if name != victim}
        killed: list[int] = []
        for _ in range(5):
            wait_for(lambda: deployment.pids.get(victim) not in (None, *killed))
            killed.append(deployment.pids[victim])
            os.kill(killed[-1], signal.SIGKILL)
            answer = request(str(http), "POST", "/pub?topic=sensors", document=1)
            assert answer.status == 200
        wait_for(lambda: f"{victim} is back (restart 5)" in said)
        assert {name: pid for name, pid in deployment.pids.items() if name != victim} == others
        for broker in deployment.brokers:
            wait_for(partial(listens, broker.tcp_address))  # the one that is back lets them in
            pub = request(str(broker.http_address), "POST", "/pub?topic=sensors", document=1)
            assert pub.status == 200
    assert len([line for line in said if "keeps dying" in line]) == 1


def test_topics_of_run_time_are_kept_over_a_restart(tmp_path: Path, spec: Spec) -> None:
    where = f"--deployment={spec['deployment']['data-path']}"
    spec["topic"] += [
        {"name": "dropped", "rate": 1, "burst": 1},
        {"name": "left-out-later", "rate": 1, "burst": 1},
    ]

    def limits(deployment: Any) -> dict[str, float | None]:
        rows = get_json(deployment.brokers[0].admin_socket, "/topics")["topics"]
        return {row["topic"]: row["rate"] for row in rows if "rate" in row}

    with running(spec) as deployment:
        assert "rate=7 burst=40" in srtm("topic", "set", "sensors", "--rate=7", where)
        srtm("topic", "set", "new", "--rate=8", "--burst=8", where)
        srtm("topic", "delete", "dropped", where)
        assert limits(deployment) == {"sensors": 7, "new": 8, "left-out-later": 1}
    said: list[str] = []
    spec["topic"].pop()
    with running(spec, say=said.append) as deployment:
        assert limits(deployment) == {"sensors": 7, "new": 8}
    assert said == [
        "topic sensors keeps rate=7 burst=40 mode=delay, as set at run time, "
        "not the file's rate=1000 burst=40 mode=delay",
        "topic dropped stays deleted, as done at run time; srtm topic set brings it back",
    ]


def test_check_starts_nothing(tmp_path: Path, spec: Spec) -> None:
    with outside(tmp_path, spec, "--check") as up:
        assert up.end() == (Exit.OK, [])
        assert up.output == f"{tmp_path}/srtm.toml is correct: 1 broker, 1 topic\n"
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("flags", [[], ["--check"]])
def test_what_nsqd_would_refuse_is_said_before_anything_starts(
    tmp_path: Path, spec: Spec, flags: list[str]
) -> None:
    spec["broker"][0]["nsqd-flags"] = ["--mem-size=5"]
    with outside(tmp_path, spec, *flags) as up:
        assert up.end() == (
            Exit.USAGE,
            ["srtm: broker broker-1: nsqd-flags: flag provided but not defined: -mem-size"],
        )
    assert not (tmp_path / "d").exists()


def test_without_the_files_topics(tmp_path: Path, spec: Spec) -> None:
    with outside(tmp_path, spec, "--no-topics") as up:
        up.until("is up")
        listed = json.loads(
            srtm("topic", "list", "--json", f"--deployment={tmp_path / 'srtm.toml'}")
        )
        assert listed["topics"] == []


def test_a_failure_of_the_block_ends_the_children(spec: Spec) -> None:
    def fail() -> None:
        with running(spec) as deployment:
            assert listens(deployment.brokers[0].tcp_address)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not processes_of(spec)


@pytest.mark.parametrize(
    ("required", "plain_status"), [("tcp-https", 200), (True, 403)], ids=["but-for-http", "all"]
)
def test_brokers_whose_clients_have_to_speak_tls(
    authority: Authority, spec: Spec, required: str | bool, plain_status: int
) -> None:
    cert, key = authority.issue("broker", dns=("localhost",), ip=("127.0.0.1",))
    tcp, http, *https = free_addresses(4)
    spec["broker"].append({"tcp-address": str(tcp), "http-address": str(http)})
    for broker, address in zip(spec["broker"], https, strict=True):
        broker |= {"tls-cert": cert, "tls-key": key, "tls-required": required}
        broker["https-address"] = str(address)
    trusting = ssl.create_default_context(cafile=authority.ca_file)
    with running(spec) as deployment:
        with (console := Console(width=200)).capture() as shown:
            console.print(addresses_table(deployment.deployment))
        assert "HTTPS" in shown.get()
        for broker, address in zip(deployment.brokers, https, strict=True):
            assert str(address) in shown.get()
            with SecureV2(str(broker.tcp_address), trusting) as client:
                client.send(pub(b"sensors", b"x"))
                assert client.reply() == b"OK"
            with V2(str(broker.tcp_address)) as plain:
                plain.send(pub(b"sensors", b"x"))
                assert b"TLS required" in plain.reply()
            with contextlib.closing(HTTPSConnection(str(address), context=trusting)) as secure:
                secure.request("POST", "/pub?topic=sensors", b"x")
                assert secure.getresponse().read() == b"OK"
            assert request(str(broker.http_address), "GET", "/ping").status == plain_status


@pytest.mark.parametrize("case", ["another-key", "missing"])
def test_a_certificate_that_does_not_work_is_found_before_anything_is_started(
    authority: Authority, tmp_path: Path, spec: Spec, case: str
) -> None:
    cert, key = authority.issue("broker")
    given = {
        "another-key": (cert, authority.issue("other")[1], "is not the key of the certificate"),
        "missing": (str(tmp_path / "none.pem"), key, "none.pem: No such file or directory"),
    }
    spec["broker"][0] |= {"tls-cert": given[case][0], "tls-key": given[case][1]}
    done = run_srtm("up", "--check", write_file(tmp_path, spec))
    assert done.returncode == Exit.USAGE
    assert done.stderr.startswith("srtm up: tls-cert of broker broker-1: /")
    assert given[case][2] in done.stderr
    assert done.stderr.count("\n") == 1
