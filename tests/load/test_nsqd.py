"""The load generator against the real nsqd. No test judges a time."""

import json
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from srtm.load import LoadResult, LoadSettings, Progress, run_load
from srtm.load.load_command import load
from srtm.text.errors import SrtmError, UnavailableError
from tests.support.servers import Nsqd, Servers


@pytest.fixture
def nsqd(servers: Servers) -> Nsqd:
    return servers.nsqd()


def settings(*brokers: Nsqd, **changes: Any) -> LoadSettings:
    addresses = tuple(broker.tcp for broker in brokers)
    same: dict[str, Any] = {
        "topic": "t",
        "publish_addresses": addresses,
        "consume_addresses": addresses,
        "publishers": 20,
        "duration_seconds": 0.5,
        "drain_seconds": 20.0,
    }
    return LoadSettings(**(same | changes))


def check_all_came(result: LoadResult) -> None:
    counts = result.total.counts
    assert result.problems == ()
    assert counts.planned == counts.sent == counts.acknowledged == counts.received > 0
    assert (counts.lost, counts.duplicates, counts.refused, counts.unanswered) == (0, 0, 0, 0)
    assert (result.latencies_ns > 0).all()
    document = result.document()
    for name in ("publish_latency", "end_to_end_latency"):
        assert 0 < document[name]["p50_ms"] <= document[name]["p99_ms"] <= document[name]["max_ms"]
    json.dumps(document)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"rate_per_second": 50.0}, id="open-loop"),
        pytest.param({"rate_per_second": 50.0, "arrivals": "periodic"}, id="periodic"),
        pytest.param({"rate_per_second": 200.0, "batch": 10}, id="batches-of-pubs"),
        pytest.param({"rate_per_second": 200.0, "batch": 10, "mpub": True}, id="mpubs"),
        pytest.param(
            {"rate_per_second": 50.0, "group_size": 10, "jitter_seconds": 0.01}, id="groups"
        ),
        pytest.param({"outstanding": 1}, id="closed-loop"),
        pytest.param({"outstanding": 1, "low_latency": False}, id="buffered-consumer"),
        pytest.param({"outstanding": 5, "message_bytes": 24}, id="closed-loop-of-five"),
        pytest.param({"outstanding": 2, "batch": 7, "mpub": True}, id="closed-loop-of-mpubs"),
        pytest.param({"trace": (200.0, 400.0), "duration_seconds": None}, id="trace"),
    ],
)
def test_every_message_is_acknowledged_and_received(nsqd: Nsqd, changes: dict[str, Any]) -> None:
    check_all_came(run_load(settings(nsqd, **changes)))


def test_two_brokers_are_shown_apart(servers: Servers) -> None:
    one, two = servers.nsqd(), servers.nsqd()
    assignment = tuple([0] * 5 + [1] * 15)
    result = run_load(settings(one, two, rate_per_second=50.0, assignment=assignment))
    check_all_came(result)
    first, second = (result.brokers[broker.tcp].counts for broker in (one, two))
    assert 0 < first.received < second.received
    assert first.received + second.received == result.total.counts.received


def test_what_another_run_left_is_ignored(nsqd: Nsqd) -> None:
    half = settings(nsqd, rate_per_second=50.0)
    check_all_came(run_load(half))
    left = run_load(settings(nsqd, rate_per_second=50.0, consume_addresses=()))
    assert left.problems == ()
    result = run_load(half)
    check_all_came(result)
    assert result.account.foreign == left.total.counts.acknowledged


def test_progress_is_told(nsqd: Nsqd) -> None:
    told: list[Progress] = []
    run_load(settings(nsqd, rate_per_second=10.0, duration_seconds=1.2), told.append)
    assert told
    assert all(0 <= progress.seconds <= progress.total_seconds == 1.2 for progress in told)


def when_running(act: Callable[[], None]) -> Callable[[Progress], None]:
    """Act once, when a message has come."""
    left = [act]

    def on_progress(progress: Progress) -> None:
        if left and progress.received:
            left.pop()()

    return on_progress


@pytest.mark.parametrize("pace", [{"rate_per_second": 20.0}, {"outstanding": 1}])
def test_a_killed_nsqd_ends_the_run_with_its_counts(nsqd: Nsqd, pace: dict[str, Any]) -> None:
    result = run_load(
        settings(nsqd, duration_seconds=60.0, **pace), when_running(nsqd.process.kill)
    )
    assert f"{nsqd.tcp} closed 20 of its 20 publisher connections" in result.problems
    assert f"{nsqd.tcp} closed the consumer's connection" in result.problems
    assert 0 < result.total.counts.received <= result.total.counts.sent
    assert result.account.end_ns - result.account.start_ns < 60e9


def test_ctrl_c_ends_the_run_with_its_counts(nsqd: Nsqd) -> None:
    assert threading.current_thread() is threading.main_thread()
    interrupt = when_running(lambda: signal.raise_signal(signal.SIGINT))
    result = run_load(settings(nsqd, rate_per_second=20.0, duration_seconds=60.0), interrupt)
    assert result.problems[0].startswith("interrupted after ")
    assert result.total.counts.received > 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def run_command(nsqd: Nsqd, *flags: str) -> tuple[str, BaseException | None]:
    shape = ["--nsqd-tcp-address", nsqd.tcp, "--publishers", "5", "--duration", "300ms"]
    outcome = CliRunner().invoke(load, [*shape, *flags])
    return outcome.stdout, outcome.exception


def test_the_command_prints_one_document(nsqd: Nsqd, tmp_path: Path) -> None:
    histogram = tmp_path / "histogram"
    flags = ["--json", "--rate", "100", "--slo", "0.99@1h", "--strict"]
    printed, error = run_command(nsqd, *flags, "--histogram", str(histogram))
    assert error is None
    document = json.loads(printed)
    assert document["counts"]["lost"] == 0
    assert document["slo"] == {"slo": "0.99@1h", "late_share": 0.0, "met": True}
    assert "Percentile" in histogram.read_text()


def test_the_command_prints_tables(nsqd: Nsqd) -> None:
    printed, error = run_command(nsqd, "--max-speed")
    assert error is None
    assert all(word in printed for word in ("acknowledged", "to receipt", "p99.9", "generator:"))


def test_a_missed_slo_fails_only_when_strict(nsqd: Nsqd) -> None:
    printed, error = run_command(nsqd, "--slo", "0.99@1ns")
    assert error is None
    assert "SLO 0.99@1ns: missed" in printed
    _, error = run_command(nsqd, "--slo", "0.99@1ns", "--strict")
    assert isinstance(error, SrtmError)
    assert str(error) == "the SLO 0.99@1ns was missed"


def test_a_refused_answer_is_said(nsqd: Nsqd) -> None:
    small = settings(nsqd, rate_per_second=50.0, message_bytes=2_000_000)
    result = run_load(small)
    assert result.account.errors == {"E_BAD_MESSAGE": 20}
    assert result.total.counts.refused == 20
    assert "20 x E_BAD_MESSAGE" in result.problems


@pytest.mark.parametrize(
    ("flags", "asked"),
    [
        pytest.param([], {"output_buffer_size": -1}, id="at-once"),
        pytest.param(["--consumer-buffer"], {}, id="nsqd-s-own-buffer"),
    ],
)
def test_how_a_consumer_is_buffered(flags: list[str], asked: dict[str, int]) -> None:
    said: list[Any] = []

    def answer() -> None:
        connection, _ = server.accept()
        with connection:
            command = connection.recv(10_000)
            said.append(json.loads(command[command.index(b"{") :]))

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(UnavailableError, match="closed the connection at IDENTIFY"):
            CliRunner().invoke(
                load,
                ["--nsqd-tcp-address", address, *flags],
                standalone_mode=False,
                catch_exceptions=False,
            )
        thread.join()
    buffering = {key: value for key, value in said[0].items() if key.startswith("output_buffer")}
    assert buffering == asked


def test_a_gateways_http_port_says_that_it_is_no_nsqd(servers: Servers) -> None:
    """Within a second or two: V2 never ends the head of a request, and is known by its magic."""
    address = servers.gateway().http
    asked = LoadSettings(topic="t", publish_addresses=(address,), rate_per_second=1.0)
    with pytest.raises(UnavailableError, match="the answer to IDENTIFY is not NSQ's"):
        run_load(asked)
