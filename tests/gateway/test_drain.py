"""SIGTERM, the admin socket, and what a gateway keeps over its own restart."""

import json
import os
import signal
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from srtm.nsq.commands import pub
from tests.support.servers import GatewayProcess, Servers, http, wait_for
from tests.support.v2 import V2


def replies_of(client: V2, count: int) -> list[bytes | None]:
    return [client.reply() for _ in range(count)]


def is_draining(gateway: GatewayProcess) -> bool:
    return "draining" in gateway.process.text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["sigterm", "sigint"])
def test_what_was_taken_is_finished_and_nothing_new_is_taken(
    servers: Servers, number: signal.Signals
) -> None:
    gateway = servers.gateway("--topic=held,rate=40,burst=1")
    posted: list[int] = []
    with V2(gateway.tcp) as publisher, V2(gateway.tcp) as consumer, V2(gateway.tcp) as idle:
        consumer.subscribe("other", "c")
        consumer.send(pub(b"held", b"on a subscribed connection"))
        poster = threading.Thread(
            target=lambda: posted.append(http(gateway.http, "/mpub?topic=held", b"1\n2")[0])
        )
        poster.start()
        publisher.send(b"".join(pub(b"held", b"%d" % number) for number in range(20)))
        assert publisher.reply() == b"OK"
        gateway.process.signal(number)
        wait_for(lambda: is_draining(gateway), "the gateway drains")
        publisher.send(pub(b"held", b"too late"))
        with pytest.raises(OSError):
            V2(gateway.tcp)
        assert http(gateway.http, "/ping")[:2] == (500, "NOK - draining")
        assert http(gateway.http, "/pub?topic=free", b"x")[0] == 503
        assert replies_of(publisher, 19) == [b"OK"] * 19
        assert publisher.ended()
        assert consumer.reply() == b"OK"
        assert consumer.ended()
        assert idle.ended()
        poster.join(10)
        assert posted == [200]
    assert gateway.process.popen.wait(60) == 0
    assert gateway.nsqd.message_count("held") == 23
    assert "Traceback" not in gateway.process.text()


def test_what_is_not_finished_in_time_is_closed_without_an_answer(servers: Servers) -> None:
    gateway = servers.gateway("--topic=held,rate=0.01,burst=1", "--drain-timeout=400ms")
    with V2(gateway.tcp) as publisher, V2(gateway.tcp) as other:
        publisher.send(pub(b"held", b"waits"))
        other.send(pub(b"free", b"x"))
        assert other.reply() == b"OK"
        started = time.monotonic()
        gateway.process.signal(signal.SIGTERM)
        assert publisher.reply() is None
        assert gateway.process.popen.wait(60) == 0
        assert time.monotonic() - started > 0.3
    assert "1 messages were not finished" in gateway.process.text()
    assert gateway.nsqd.message_count("held") == 0


def test_it_ends_in_time_though_nsqd_is_frozen_and_the_signal_comes_twice(
    servers: Servers,
) -> None:
    gateway = servers.gateway("--drain-timeout=400ms")
    with V2(gateway.tcp) as publisher:
        publisher.send(pub(b"t", b"x"))
        assert publisher.reply() == b"OK"
        gateway.nsqd.process.freeze()
        publisher.send(pub(b"t", b"unknown"))
        time.sleep(0.1)
        gateway.process.signal(signal.SIGTERM)
        gateway.process.signal(signal.SIGTERM)
        assert publisher.reply() is None
    assert gateway.process.popen.wait(60) == 0


def test_its_door_stays_shut_when_nsqd_answers_late_and_a_hangup_ends_nothing(
    servers: Servers,
) -> None:
    gateway = servers.gateway("--topic=held,rate=0.01,burst=1", "--drain-timeout=5s")
    with V2(gateway.tcp) as publisher:
        publisher.send(pub(b"held", b"waits"))
        wait_for(lambda: gateway.inside("held")["waiting"] == 1, "it waits for its token")
        gateway.nsqd.process.freeze()
        time.sleep(1.2)  # it is asked every second how it is
        gateway.process.signal(signal.SIGTERM)
        wait_for(lambda: is_draining(gateway), "the gateway drains")
        gateway.nsqd.process.thaw()
        while gateway.process.alive:
            gateway.process.signal(signal.SIGHUP)
            with pytest.raises(OSError):
                V2(gateway.tcp)
            time.sleep(0.01)
        assert publisher.reply() is None
    assert gateway.process.popen.wait(60) == 0


# --- admin socket -------------------------------------------------------------------------------


def put(gateway: GatewayProcess, topic: str, body: Any) -> tuple[int, Any]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return http(gateway.admin, f"/topics/{topic}", raw, "PUT")[:2]


def test_the_admin_socket_is_for_its_owner_alone_and_goes_with_the_gateway(
    servers: Servers,
) -> None:
    gateway = servers.gateway()
    admin = Path(gateway.admin)
    assert stat.S_IMODE(admin.stat().st_mode) == 0o600
    assert stat.S_ISSOCK(admin.stat().st_mode)
    assert gateway.process.stop() == 0
    assert not admin.exists()


def test_a_stale_admin_socket_is_replaced_but_no_other_file_and_none_that_is_served(
    servers: Servers,
) -> None:
    first = servers.gateway()
    first.process.kill()
    assert Path(first.admin).exists()
    servers.gateway(f"--admin-socket={first.admin}", nsqd=first.nsqd)
    assert http(first.admin, "/health")[0] == 200
    notes = servers.folder / "notes"
    notes.write_text("somebody's")
    told = {first.admin: "another gateway answers there", str(notes): "is not a socket"}
    failed = [
        servers.gateway(f"--admin-socket={path}", nsqd=first.nsqd, wait=False) for path in told
    ]
    for gateway, (path, sentence) in zip(failed, told.items(), strict=True):
        assert gateway.process.popen.wait(60) == 3
        line = gateway.process.text().splitlines()[-1]
        assert line.startswith(f"srtm: --admin-socket {path}: ")
        assert sentence in line
    assert http(first.admin, "/health")[0] == 200, "it was left to the one that has it"
    assert notes.read_text() == "somebody's"


def test_limits_are_set_changed_and_taken_away_while_messages_flow(servers: Servers) -> None:
    gateway = servers.gateway()
    with V2(gateway.tcp) as publisher:
        status, document = put(gateway, "t", {"rate": 1, "burst": 2, "max-wait": "1h"})
        assert status == 200
        assert (document["rate"], document["burst"], document["max-wait"]) == (1, 2, "1h")
        publisher.send(b"".join(pub(b"t", b"x") for _ in range(50)))
        assert replies_of(publisher, 2) == [b"OK"] * 2
        assert publisher.silent(0.2)
        # More rate: who waits goes on.
        assert put(gateway, "t", {"rate": 100, "burst": 2})[0] == 200
        assert replies_of(publisher, 10) == [b"OK"] * 10
        assert http(gateway.admin, "/topics/t")[1]["rate"] == 100
        assert http(gateway.admin, "/topics/t", method="DELETE")[0] == 200
        assert replies_of(publisher, 38) == [b"OK"] * 38
        assert "rate" not in http(gateway.admin, "/topics/t")[1]
        # A topic that nobody has published to yet, and an ephemeral one.
        assert put(gateway, "new", {"rate": 5, "burst": 5, "slo": "0.99@1ms"})[0] == 200
        assert put(gateway, "brief%23ephemeral", {"rate": 5, "burst": 5})[0] == 200
        names = [entry["topic"] for entry in http(gateway.admin, "/topics")[1]["topics"]]
        assert names == ["brief#ephemeral", "new", "t"]


BAD_BODIES = {
    "no-json": (b"rate", "not a JSON object"),
    "a-list": ([], "not a JSON object"),
    "nothing": ({}, "rate, burst: needed"),
    "rate-zero": ({"rate": 0, "burst": 1}, "rate: must be greater than"),
    "an-unknown-key": ({"rate": 1, "burst": 1, "brust": 2}, "brust: Extra inputs"),
}


@pytest.fixture(scope="module")
def gateway(shared: Servers) -> GatewayProcess:
    return shared.gateway("--max-topics=3", "--topic=a,rate=1,burst=1", "--topic=b,rate=1,burst=1")


@pytest.mark.parametrize(
    ("body", "message"), [pytest.param(*row, id=name) for name, row in BAD_BODIES.items()]
)
def test_a_bad_limit_is_refused_with_one_line(
    gateway: GatewayProcess, body: Any, message: str
) -> None:
    status, document = put(gateway, "a", body)
    assert status == 400
    assert message in document["message"]
    assert document["message"].startswith("topic a: ")
    assert "\n" not in document["message"]
    assert http(gateway.admin, "/topics/a")[1]["rate"] == 1


def test_a_bad_topic_name_too_many_topics_and_an_unknown_topic_are_refused(
    gateway: GatewayProcess,
) -> None:
    status, document = put(gateway, "a%20b", {"rate": 1, "burst": 1})
    assert status == 400
    assert "is not a topic name" in document["message"]
    assert http(gateway.admin, "/topics/unknown")[0] == 404
    assert put(gateway, "c", {"rate": 1, "burst": 1})[0] == 200
    status, document = put(gateway, "d", {"rate": 1, "burst": 1})
    assert status == 409
    assert "--max-topics" in document["message"]
    assert http(gateway.admin, "/topics/c", method="DELETE")[0] == 200


def test_sighup_reads_contracts_anew_and_keeps_the_old_ones_where_the_file_is_wrong(
    servers: Servers,
) -> None:
    config = servers.folder / "gateway.toml"
    config.write_text('topic = ["a,rate=1000,burst=10", "b,rate=5,burst=5"]')
    gateway = servers.gateway(f"--config={config}")

    def reload(content: str, says: str) -> None:
        config.write_text(content)
        gateway.process.signal(signal.SIGHUP)
        wait_for(lambda: says in gateway.process.text(), f"the log says {says}")

    with V2(gateway.tcp) as publisher:
        publisher.send(pub(b"a", b"x"))
        assert publisher.reply() == b"OK"
        reload('topic = ["a,rate=nan,burst=10"]', "SIGHUP: nothing is changed: ")
        assert gateway.ours("a")["rate"] == 1000
        reload('topic = ["a,rate=7,burst=10", "c,rate=9,burst=9"]', "contracts are read again")
        assert gateway.ours("a")["rate"] == 7
        assert "rate" not in gateway.ours("b")
        assert gateway.ours("c")["rate"] == 9
        assert "need a restart" not in gateway.process.text()
        reload("max-topics = 5\nlog-level = 'debug'", "need a restart: max-topics, log-level")
        publisher.send(pub(b"a", b"x"))
        assert publisher.reply() == b"OK"


# --- state --------------------------------------------------------------------------------------


def test_a_start_that_fails_leaves_the_kept_levels_as_they_are(servers: Servers) -> None:
    state = servers.folder / "state.json"
    flags = ("--topic=t,rate=0.001,burst=10", f"--state-file={state}")
    gateway = servers.gateway(*flags)
    assert http(gateway.http, "/mpub?topic=t", b"x\n" * 4)[0] == 200
    assert gateway.process.stop() == 0
    other = servers.gateway(nsqd=gateway.nsqd)
    failed = servers.gateway(*flags, f"--http-address={other.http}", nsqd=gateway.nsqd, wait=False)
    assert failed.process.popen.wait(60) == 3
    again = servers.gateway(*flags, nsqd=gateway.nsqd)
    assert again.ours("t")["tokens"] == pytest.approx(6, abs=0.1)


def test_a_crash_does_not_forget_the_debt_of_a_batch(servers: Servers) -> None:
    flags = ("--topic=t,rate=0.001,burst=10", f"--state-file={servers.folder / 'state.json'}")
    gateway = servers.gateway(*flags)
    assert http(gateway.http, "/mpub?topic=t", b"x\n" * 50)[0] == 200
    assert gateway.ours("t")["tokens"] == pytest.approx(-40, abs=0.1)
    for _ in range(2):
        gateway.process.kill()
        gateway = servers.gateway(*flags, nsqd=gateway.nsqd)
        assert gateway.ours("t")["tokens"] == pytest.approx(-50, abs=0.1), "1.25 times the debt"


def test_a_state_file_that_is_not_ours_is_refused_in_one_line(
    gateway: GatewayProcess, servers: Servers
) -> None:
    state = servers.folder / "state.json"
    state.write_text("[]")
    failed = servers.gateway(f"--state-file={state}", nsqd=gateway.nsqd, wait=False)
    assert failed.process.popen.wait(60) == 2
    [line] = failed.process.text().splitlines()
    assert line.startswith(f"srtm: --state-file {state}: not a gateway's state; remove it")
    assert state.read_text() == "[]"


def test_a_state_file_that_cannot_be_written_does_not_stop_the_gateway(
    servers: Servers,
) -> None:
    folder = servers.folder / "state"
    folder.mkdir()
    gateway = servers.gateway(f"--state-file={folder}/state.json")
    os.rename(folder, servers.folder / "gone")
    assert put(gateway, "t", {"rate": 1, "burst": 1})[0] == 200
    assert "No such file or directory" in gateway.process.text()
    assert gateway.process.stop() == 0
