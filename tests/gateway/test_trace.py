"""`srtm gateway --trace-dir`: what real publishers leave in it, and what it outlives."""

import asyncio
import json
import resource
import sys
from pathlib import Path
from typing import Any

import nsq
import pyarrow.parquet as pq
import pytest

from srtm.client import Publisher
from srtm.load import LoadSettings, run_load
from srtm.nsq.commands import identify, message, mpub, pub
from srtm.traces.names import UNFINISHED
from tests.support.servers import GatewayProcess, Servers, free_port, http, wait_for
from tests.support.traces import messages_by, rows_of, writer_process
from tests.support.v2 import V2

SOON = "--trace-file-age=100ms"


def written(gateway: GatewayProcess, messages: int) -> None:
    wait_for(
        lambda: gateway.metric("srtm_trace_written_messages_total") == messages,
        f"{messages} messages are in the trace",
    )


def stop(gateway: GatewayProcess) -> None:
    """With its writer, which on a busy machine is at work when the gateway has ended."""
    writer = writer_process(gateway.process.popen.pid)
    assert gateway.process.stop() == 0
    writer.wait(90)


def by_pynsq(gateway: GatewayProcess, topic: str, count: int) -> None:
    async def work() -> None:
        writer = nsq.Writer([gateway.tcp], hostname="sensor-7")
        while not any(conn.connected() for conn in writer.conns.values()):
            await asyncio.sleep(0.01)
        answered = asyncio.Queue[Any]()
        for _ in range(count):
            writer.pub(topic, b"12345", callback=lambda _, data: answered.put_nowait(data))
        for _ in range(count):
            assert await asyncio.wait_for(answered.get(), 10) == b"OK"
        for conn in writer.conns.values():
            conn.close()

    asyncio.run(work())


def by_our_client(gateway: GatewayProcess, topic: str, count: int) -> None:
    async def work() -> None:
        async with Publisher(topic, id="room-3/door", nsqd=gateway.tcp) as publisher:
            for _ in range(count):
                await publisher.publish(b"123")

    asyncio.run(work())


def test_rows_add_up_to_what_was_sent_by_whomever(servers: Servers, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "trace"
    ports = free_port(), free_port()
    gateway = servers.gateway(
        f"--trace-dir={folder}",
        SOON,
        "--topic=t,rate=1000,burst=10",
        "--broadcast-address=host",
        f"--http-address=[::]:{ports[1]}",  # where IPv4 comes as a part of IPv6
        ports=ports,
    )
    gateway.set_limit("strict", rate=0.001, burst=2, mode="reject")  # it begins full
    by_pynsq(gateway, "t", 30)
    by_our_client(gateway, "t", 20)
    assert http(gateway.http, "/pub?topic=t", b"12")[0] == 200
    assert http(gateway.http, "/mpub?topic=t", b"1\n12\n123")[0] == 200
    with V2(gateway.tcp) as client:  # says not who it is
        client.send(mpub(b"free", [message(b"abc")] * 4, 4))
        client.oks(1)
    with V2(gateway.tcp) as client:
        client.identify(client_id="c", srtm_publisher="p-1")
        client.send(pub(b"strict", b"1") * 2)
        client.oks(2)
        client.send(pub(b"strict", b"1"))
        assert (client.reply() or b"").startswith(b"E_PUB_FAILED")
    assert http(gateway.http, "/mpub?topic=strict", b"1\n1")[0] == 429
    written(gateway, 30 + 20 + 1 + 3 + 4 + 3 + 2)
    assert messages_by(folder, "topic", "publisher", "outcome") == {
        ("t", "sensor-7@127.0.0.1", "admitted"): 30,
        ("t", "room-3/door", "admitted"): 20,
        ("t", "@127.0.0.1", "admitted"): 4,
        ("free", "@127.0.0.1", "admitted"): 4,
        ("strict", "p-1", "admitted"): 2,
        ("strict", "p-1", "rejected"): 1,
        ("strict", "@127.0.0.1", "rejected"): 2,
    }
    rows = rows_of(folder)
    assert {row["broker"] for row in rows} == {f"host:{gateway.tcp.rpartition(':')[2]}"}
    assert sum(row["bytes"] for row in rows if row["topic"] == "t") == 30 * 5 + 20 * 3 + 2 + 6
    for row in rows:
        assert (row["wait"] is None) == (row["outcome"] != "admitted")
    assert {row["wait"] for row in rows if row["topic"] == "free"} == {0}
    assert max(row["wait"] for row in rows if row["topic"] == "t") > 1_000_000, "they waited"
    assert gateway.metric("srtm_trace_dropped_messages_total") == 0
    assert gateway.metric("srtm_trace_failing") == 0
    shown = json.loads(json.dumps(http(gateway.http, "/stats?format=json")[1]))["srtm"]["trace"]
    assert (shown["written_messages"], shown["dropped_messages"]) == (63, 0)
    assert "63 messages written, 0 dropped" in http(gateway.http, "/stats")[1]


def test_the_load_generator_is_traced_by_its_registered_ids(
    servers: Servers, tmp_path: Path
) -> None:
    folder = tmp_path / "trace"
    gateway = servers.gateway(f"--trace-dir={folder}", SOON)
    for ids in (None, ("room-1", "room-2")):
        settings = LoadSettings(
            "t", (gateway.tcp,), publishers=2, ids=ids, rate_per_second=20.0, duration_seconds=0.5
        )
        sent = run_load(settings).total.counts.acknowledged
        assert sent
    stop(gateway)
    assert set(messages_by(folder, "publisher")) == {
        "srtm-load-0@127.0.0.1", "srtm-load-1@127.0.0.1", "room-1", "room-2",
    }  # fmt: skip


def test_a_gateway_that_is_killed_leaves_whole_files_only(servers: Servers, tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    gateway = servers.gateway(f"--trace-dir={folder}")  # a file is due after a minute
    writer = writer_process(gateway.process.popen.pid)
    with V2(gateway.tcp) as client:
        client.send(pub(b"t", b"x") * 100)
        client.oks(100)
    (folder / f".gone-1-00{UNFINISHED}").write_bytes(b"half of another gateway's")
    wait_for(lambda: gateway.metric("srtm_trace_handed_messages_total") == 100, "handed over")
    gateway.process.kill()
    writer.wait(90)
    assert messages_by(folder, "topic") == {"t": 100}, "its process has outlived it"
    ports = tuple(int(address.rpartition(":")[2]) for address in (gateway.tcp, gateway.http))
    again = servers.gateway(f"--trace-dir={folder}", SOON, nsqd=gateway.nsqd, ports=ports)  # type: ignore[arg-type]
    with V2(again.tcp) as client:
        client.send(pub(b"t", b"x") * 10)
        client.oks(10)
    written(again, 10)
    assert messages_by(folder, "topic") == {"t": 110}
    assert not [each for each in folder.iterdir() if each.name.startswith(".")]


def test_a_writer_that_is_killed_disturbs_nobody_and_is_said_once(
    servers: Servers, tmp_path: Path
) -> None:
    folder = tmp_path / "trace"
    gateway = servers.gateway(f"--trace-dir={folder}", "--trace-file-age=1h")
    pid = gateway.process.popen.pid
    with V2(gateway.tcp) as client:
        client.send(pub(b"t", b"x") * 10)
        client.oks(10)
        wait_for(lambda: gateway.metric("srtm_trace_handed_messages_total") == 10, "handed over")
        writer_process(pid).kill()
        wait_for(lambda: gateway.metric("srtm_trace_failing") == 1, "it says that it fails")
        client.send(pub(b"t", b"x") * 10)
        client.oks(10)
        first = wait_for(
            lambda: gateway.metric("srtm_trace_dropped_messages_total"), "it counts them"
        )
        assert first >= 10
        wait_for(lambda: _has_writer(pid), "it is started again")
        client.send(pub(b"t", b"x") * 5)
        client.oks(5)
    kept = 20 + 5 - gateway.metric("srtm_trace_dropped_messages_total")
    stop(gateway)
    assert messages_by(folder, "topic")["t"] == kept
    assert gateway.process.text().count("the process that writes it ended (signal 9)") == 1


def _has_writer(pid: int) -> bool:
    try:
        return writer_process(pid).is_running()
    except ValueError:
        return False


def test_a_full_disk_disturbs_nobody_and_is_said_once(servers: Servers, tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    gateway = servers.gateway(f"--trace-dir={folder}", SOON)
    with V2(gateway.tcp) as client:
        client.send(pub(b"t", b"x") * 10)
        client.oks(10)
        written(gateway, 10)
        pid = writer_process(gateway.process.popen.pid).pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        client.send(pub(b"t", b"x") * 10)
        client.oks(10)
        wait_for(lambda: gateway.metric("srtm_trace_failing") == 1, "it says that it fails")
        client.send(pub(b"t", b"x") * 10)
        client.oks(10)
        assert messages_by(folder, "topic") == {"t": 10}
        assert not [each for each in folder.iterdir() if each.name.startswith(".")]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        written(gateway, 30)
    assert messages_by(folder, "topic") == {"t": 30}
    assert gateway.metric("srtm_trace_dropped_messages_total") == 0
    assert gateway.metric("srtm_trace_failing") == 0
    assert gateway.process.text().count("File too large") == 1


def test_gateways_share_a_folder(servers: Servers, tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    gateways = [servers.gateway(f"--trace-dir={folder}", SOON) for _ in range(2)]
    for number, gateway in enumerate(gateways, 1):
        with V2(gateway.tcp) as client:
            client.send(identify(b"{}") + pub(b"t", b"x") * number)
            client.oks(1 + number)
    for number, gateway in enumerate(gateways, 1):
        written(gateway, number)
    assert messages_by(folder, "broker") == {
        gateway.tcp: number for number, gateway in enumerate(gateways, 1)
    }


def test_it_can_be_read_while_it_is_written(servers: Servers, tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    gateway = servers.gateway(f"--trace-dir={folder}", "--trace-file-age=20ms")
    sent = 0
    with V2(gateway.tcp) as client:
        for _ in range(60):
            client.send(pub(b"t", b"x") * 20)
            client.oks(20)
            sent += 20
            for path in folder.glob("*.parquet"):
                assert pq.read_metadata(path).num_rows > 0, "each is whole"
        written(gateway, sent)
    assert messages_by(folder, "topic") == {"t": sent}


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        pytest.param("--trace-dir=/dev/null/x", "--trace-dir /dev/null/x: Not a d", id="no-folder"),
        pytest.param("--trace-dir=/proc/1", "--trace-dir /proc/1: ", id="nothing-can-be-written"),
        pytest.param("--trace-bytes=1", "--trace-bytes", id="too-few-bytes"),
        pytest.param("--trace-file-age=0s", "--trace-file-age", id="no-time"),
    ],
)
def test_a_trace_that_cannot_be_is_one_line(servers: Servers, flag: str, words: str) -> None:
    gateway = servers.gateway(flag, wait=False)
    assert gateway.process.popen.wait(60) == 2
    last = gateway.process.text().strip().splitlines()[-1]
    assert last.startswith("srtm: ")
    assert words in last


WITHOUT = """
import sys
sys.modules["pyarrow"] = None
sys.argv = sys.argv[3:]
from srtm.cli.main import main
main()
"""


def test_without_pyarrow_the_remedy_is_told_and_the_rest_works(
    servers: Servers, tmp_path: Path
) -> None:
    prefix = (sys.executable, "-c", WITHOUT)
    gateway = servers.gateway(f"--trace-dir={tmp_path / 'trace'}", wait=False, prefix=prefix)
    assert gateway.process.popen.wait(60) == 2
    last = gateway.process.text().strip().splitlines()[-1]
    assert last.startswith(f"srtm: --trace-dir {tmp_path / 'trace'} needs pyarrow; pip install")
    assert not (tmp_path / "trace").exists()
    servers.gateway(prefix=prefix)


def test_metrics_and_stats_have_no_trace_and_no_log_where_there_is_none(servers: Servers) -> None:
    gateway = servers.gateway()
    metrics = http(gateway.http, "/metrics")[1]
    assert "srtm_trace" not in metrics
    assert "srtm_admission_log" not in metrics
    assert http(gateway.http, "/stats?format=json")[1]["srtm"]["trace"] is None
    assert "Trace:" not in http(gateway.http, "/stats")[1]
