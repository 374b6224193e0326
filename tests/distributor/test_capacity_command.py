"""`srtm broker capacity` against a real nsqd behind a real gateway."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distributor.capacity.rounds import Rounds, judge, settings_for
from distributor.capacity.search import Outcome
from srtm.limits.slo import SLO
from srtm.load import LoadSettings
from srtm.load.latency import Latencies
from srtm.load.result import Account, LoadResult
from srtm.load.share import Counts, Rates, Share
from srtm.nsq.commands import pub
from tests.support.certificates import Authority
from tests.support.distributors import ROOT, DistributorProcess, distributors_in, srtm
from tests.support.programs import SRTM
from tests.support.servers import GatewayProcess, Process, Servers, free_port, http, wait_for
from tests.support.v2 import V2

MS = 1_000_000
NEVER = int(np.iinfo(np.int64).max)
QUICK = ("--publishers", "5", "--round", "200ms")


def result(latencies_ms: list[float], lag_ms: float = 0.0) -> LoadResult:
    """Of 1 s with these latencies since sending; every message was sent `lag_ms` late."""
    nothing = Latencies(np.array([], dtype=np.int64))
    since = np.array([min(int(each * MS), NEVER) for each in latencies_ms], dtype=np.int64)
    total = Share(Counts(0, 0, 0, 0, 0, 0, 0, 0), Rates(100, 100, 0), nothing, nothing)
    lag = Latencies(np.full(len(since), int(lag_ms * MS), dtype=np.int64))
    settings = LoadSettings(
        topic="t",
        publish_addresses=("a:1",),
        rate_per_second=1.0,
        duration_seconds=1.5,
        warmup_seconds=0.5,
    )
    account = Account(0, 1, (), (), {}, 0, 0.0, interrupted=False)
    return LoadResult(settings, total, {}, lag, since, since, account, ())


@pytest.mark.parametrize(
    ("run", "outcome", "latency", "late"),
    [
        pytest.param(result([0.5] * 9 + [7]), Outcome.HELD, 0.0005, 0.1, id="as-many-late-as-may"),
        pytest.param(result([0.5] * 8 + [7, 8]), Outcome.LATE, 0.007, 0.2, id="one-more"),
        pytest.param(result([1.0] * 10), Outcome.HELD, 0.001, 0.0, id="on-the-target"),
        pytest.param(result([0.5] * 8 + [1e30] * 2), Outcome.LATE, None, 0.2, id="never-received"),
        pytest.param(result([7.0] * 10, lag_ms=0.4), Outcome.LATE, 0.007, 1.0, id="a-little-lag"),
        pytest.param(result([7.0] * 10, lag_ms=0.6), Outcome.BEHIND, 0.007, 1.0, id="much-lag"),
        pytest.param(result([0.5] * 10, lag_ms=19), Outcome.HELD, 0.0005, 0.0, id="lag-and-held"),
        pytest.param(
            result([0.5] * 10, lag_ms=21),
            Outcome.BEHIND,
            0.0005,
            0.0,
            id="less-was-sent",
        ),
        pytest.param(result([]), Outcome.LATE, None, 1.0, id="no-message"),
    ],
)
def test_a_round_is_judged(
    run: LoadResult, outcome: Outcome, latency: float | None, late: float
) -> None:
    found = judge(run, SLO(0.9, 0.001), 100)
    assert (found.outcome, found.latency) == (outcome, latency)
    assert found.late == pytest.approx(late)


# --- with real servers ----------------------------------------------------------------------------


@pytest.fixture
def distributor(tmp_path: Path) -> Iterator[DistributorProcess]:
    with distributors_in(tmp_path) as start:
        running = start(tmp_path / "kept.db")
        running.wait_leading()
        yield running


def joined(servers: Servers, distributor: DistributorProcess, *flags: str, **more: Any) -> Any:
    return servers.gateway(
        f"--distributor-address={distributor.address}", "--broker-name=b1", *flags, **more
    )


def capacity_of(distributor: DistributorProcess) -> float:
    [broker] = distributor.ok("GET", "/brokers")["brokers"]
    return float(broker["capacity"])


def topics_of(gateway: GatewayProcess) -> list[Any]:
    found = gateway.nsqd.get("/stats?format=json&include_mem=false")["topics"]
    assert isinstance(found, list)
    return found


def test_the_figure_is_stored_and_survives_the_gateway_and_the_distributor(
    servers: Servers, tmp_path: Path
) -> None:
    with distributors_in(tmp_path) as start:
        first = start(tmp_path / "kept.db")
        first.wait_leading()
        gateway = joined(servers, first)
        done = first.srtm(
            "broker", "capacity", "b1", "--slo", "0.5@1s", "--most", "200", "--set", *QUICK
        )
        assert (done.returncode, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        assert lines[-1] == (
            "b1 holds 0.5@1s with at least 200 messages/s: no more was tried (--most); stored"
        )
        held = [line.split()[0] for line in lines[:-1] if " held" in line]
        assert held == ["100", "100", "200", "200"]
        assert topics_of(gateway) == []
        assert capacity_of(first) == 200
        gateway.process.stop()
        ports = int(gateway.tcp.rpartition(":")[2]), int(gateway.http.rpartition(":")[2])
        joined(servers, first, nsqd=gateway.nsqd, ports=ports)
        assert capacity_of(first) == 200
        first.process.kill()
        again = start(tmp_path / "kept.db", address=first.address)
        again.wait_leading()
        assert capacity_of(again) == 200
        wait_for(
            lambda: again.ok("GET", "/brokers")["brokers"][0]["state"] == "up",
            "the gateway is in contact again",
        )
        assert capacity_of(again) == 200


def test_an_slo_that_no_rate_keeps_is_said(servers: Servers) -> None:
    gateway = servers.gateway()
    done = srtm(
        *("broker", "capacity", "--slo", "0.9@1ns", "--json", *QUICK),
        *("--nsqd-tcp-address", gateway.tcp, "--nsqd-http-address", gateway.http),
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"srtm: {gateway.tcp} does not hold 0.9@1ns with 500 messages/s")
    document = json.loads(done.stdout)
    assert document["capacity"] is None
    assert {each["rate"] for each in document["rounds"]} == {500}
    assert all(each["late"] == 1.0 for each in document["rounds"])
    assert topics_of(gateway) == []


def test_messages_that_came_after_the_consumer_left_go_too(servers: Servers) -> None:
    gateway = servers.gateway()
    settings = settings_for(gateway.tcp, 1.0, 1)
    with Rounds(settings, gateway.http, SLO(0.5, 1.0)):
        with V2(gateway.tcp) as publisher:
            publisher.send(pub(settings.topic.encode(), b"left over"))
            publisher.oks(1)
        assert [each["topic_name"] for each in topics_of(gateway)] == [settings.topic]
    assert topics_of(gateway) == []


def test_the_measured_topic_is_not_shown_for_ever(servers: Servers) -> None:
    gateway = servers.gateway()
    settings = settings_for(gateway.tcp, 1.0, 1)
    with Rounds(settings, gateway.http, SLO(0.5, 1.0)) as rounds, V2(gateway.tcp) as publisher:
        rounds.measure(100, None)
        publisher.send(pub(b"kept", b"x") + pub(b"fleeting#ephemeral", b"x"))
        publisher.oks(2)

    def shown() -> set[str]:
        return {
            each["topic"] for each in http(gateway.http, "/stats?format=json")[1]["srtm"]["topics"]
        }

    assert settings.topic in shown()
    wait_for(lambda: shown() == {"kept"}, "nsqd has dropped them, and so has the gateway", 30)


def test_other_topics_are_told_with_the_figure(servers: Servers) -> None:
    gateway = servers.gateway()
    tcp = ("--nsqd-tcp-address", gateway.tcp)
    other = servers.process(
        "other",
        [
            *(*SRTM, "load", "--topic", "busy", "--publishers", "1"),
            *("--rate", "100", "--duration", "1m", *tcp),
        ],
    )
    wait_for(lambda: gateway.offered("busy"), "the other topic is there")
    done = srtm(
        *("broker", "capacity", "--slo", "0.5@1s", "--most", "200", *QUICK, *tcp),
        *("--nsqd-http-address", gateway.http),
    )
    assert other.alive
    assert done.returncode == 0
    assert done.stderr.startswith("warning: busy had ")
    assert done.stderr.endswith("meanwhile: the figure is what is left beside them\n")
    assert [each["topic_name"] for each in topics_of(gateway)] == ["busy"]


def test_an_interrupt_ends_it_and_leaves_no_topic(servers: Servers, tmp_path: Path) -> None:
    gateway = servers.gateway()
    command = Process(
        [
            *(*SRTM, "broker", "capacity", "--slo", "0.5@1s"),
            *("--nsqd-tcp-address", gateway.tcp, "--nsqd-http-address", gateway.http),
            *("--round", "1m", "--json"),
        ],
        tmp_path / "capacity.log",
        {"PYTHONPATH": str(ROOT)},
    )
    command.start()
    try:
        wait_for(lambda: any(each["message_count"] for each in topics_of(gateway)), "it runs")
        command.signal(signal.SIGINT)
        assert command.popen.wait(60) == 130
    finally:
        command.kill()
    assert command.text().strip() == ""
    assert topics_of(gateway) == []


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        pytest.param(["--slo", "1ms", "b1"], "--slo: '1ms' is not an SLO", id="slo"),
        pytest.param(["--slo", "0.9@1s", "--round", "3", "b1"], "--round: '3' is not", id="round"),
        pytest.param(["--slo", "0.9@1s"], "give NAME, or both --nsqd-tcp-address", id="no-broker"),
        pytest.param(
            ["--slo", "0.9@1s", "b1", "--nsqd-tcp-address", "a:1"], "give NAME, or both", id="both"
        ),
        pytest.param(
            ["--slo", "0.9@1s", "--nsqd-tcp-address", "a:1"], "give NAME, or both", id="half"
        ),
        pytest.param(
            ["--slo=0.9@1s", "--set", "--nsqd-tcp-address=a:1", "--nsqd-http-address=a:2"],
            "--set stores the figure of a broker by its NAME",
            id="nothing-to-set",
        ),
        pytest.param(["--slo", "0.9@1s", "b2"], "broker b2 is not registered", id="unknown"),
        pytest.param(
            ["--slo", "0.99@1s", "b1", "--most", "99"],
            "--most 99: with rounds of 10s and 0.99@1s it must be 100 to ",
            id="too-little",
        ),
        pytest.param(
            ["--slo", "0.99@1s", "b1", "--most", "9999999999"], "it must be 100 to", id="too-much"
        ),
        pytest.param(
            ["--slo", "0.9@1s", "b1", "--publishers", "0"], "publishers 0 is not over 0", id="none"
        ),
    ],
)
def test_bad_input_is_one_line(known: DistributorProcess, flags: list[str], said: str) -> None:
    done = known.srtm("broker", "capacity", *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DistributorProcess]:
    with distributors_in(tmp_path_factory.mktemp("distributor")) as start:
        running = start()
        running.wait_leading()
        running.broker("b1")
        yield running


def test_a_gateway_that_declares_its_capacity_is_not_measured_for_nothing(
    servers: Servers, distributor: DistributorProcess
) -> None:
    joined(servers, distributor, "--broker-capacity=900")
    done = distributor.srtm("broker", "capacity", "b1", "--slo", "0.5@1s", "--set", *QUICK)
    assert (done.returncode, done.stdout) == (2, "")
    assert "registers with a capacity of 900 of its own, which would stand over" in done.stderr
    assert capacity_of(distributor) == 900


def test_a_gateway_that_limits_every_topic_shows_nothing(servers: Servers) -> None:
    gateway = servers.gateway("--default-limit=rate=1000,burst=10")
    done = srtm(
        *("broker", "capacity", "--slo", "0.5@1s", *QUICK),
        *("--nsqd-tcp-address", gateway.tcp, "--nsqd-http-address", gateway.http),
    )
    assert done.returncode == 2
    assert "limits every topic (--default-limit)" in done.stderr
    assert topics_of(gateway) == []


def test_a_plain_nsqd_and_nobody_are_told_apart(servers: Servers) -> None:
    nsqd = servers.nsqd()
    plain = srtm(
        *("broker", "capacity", "--slo", "0.5@1s"),
        *("--nsqd-tcp-address", nsqd.tcp, "--nsqd-http-address", nsqd.http),
    )
    assert (plain.returncode, plain.stderr.count("\n")) == (2, 1)
    assert "is not the HTTP address of a gateway" in plain.stderr
    nobody = f"127.0.0.1:{free_port()}"
    gone = srtm(
        *("broker", "capacity", "--slo", "0.5@1s"),
        *("--nsqd-tcp-address", nobody, "--nsqd-http-address", nobody),
    )
    assert (gone.returncode, gone.stderr) == (3, f"srtm: {nobody}: nothing listens there\n")


def test_a_gateway_without_plain_text_is_told_with_the_remedy(
    servers: Servers, authority: Authority
) -> None:
    cert, key = authority.issue("b1", ip=["127.0.0.1"])
    flags = (f"--tls-cert={cert}", f"--tls-key={key}", "--tls-required=true")
    door = f"127.0.0.1:{free_port()}"
    gateway = servers.gateway(*flags, f"--https-address={door}")
    done = srtm(
        *("broker", "capacity", "--slo", "0.5@1s"),
        *("--nsqd-tcp-address", gateway.tcp, "--nsqd-http-address", gateway.http),
    )
    assert (done.returncode, done.stderr) == (
        3,
        f"srtm: {gateway.http} answers by HTTPS alone (TLS_REQUIRED), at port "
        f"{door.partition(':')[2]}: a capacity is measured in plain text: start it without "
        "--tls-required for the time\n",
    )
