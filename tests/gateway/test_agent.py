"""The gateway's agent against a distributor that answers as each test says."""

import asyncio
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nsq
import pytest

from srtm.nsq.commands import message, mpub, pub
from tests.support.fake_distributor import FakeDistributor, fake_distributor
from tests.support.programs import run_srtm
from tests.support.servers import GatewayProcess, Servers, free_port, http, wait_for
from tests.support.v2 import V2


@pytest.fixture
def fake() -> Iterator[FakeDistributor]:
    with fake_distributor() as started:
        yield started


def share(topic: str, rate: float, burst: float, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "rate": rate, "burst": burst, "mode": "delay", **more}


def begin(servers: Servers, fake: FakeDistributor, *flags: str, **more: Any) -> GatewayProcess:
    return servers.gateway(f"--distributor-address={fake.address}", *flags, **more)


def distributor(gateway: GatewayProcess) -> dict[str, Any]:
    found = http(gateway.admin, "/topics")[1]["distributor"]
    assert isinstance(found, dict)
    return found


def rate_of(gateway: GatewayProcess, topic: str) -> float | None:
    found = gateway.inside(topic).get("rate")
    return None if found is None else float(found)


def reported(fake: FakeDistributor, topic: str) -> list[dict[str, Any]]:
    return [
        entry
        for report in list(fake.reports)
        for entry in report["topics"]
        if entry["topic"] == topic
    ]


def test_a_gateway_registers_and_has_its_shares_before_its_door_opens(
    servers: Servers, fake: FakeDistributor
) -> None:
    fake.desire(5, share("t", 500, 20, slo="0.99@5ms"), share("u", 7, 2, mode="reject"))
    gateway = begin(servers, fake, "--broker-name=b1", "--broker-capacity=9000")
    [broker] = fake.brokers
    told = {key: broker[key] for key in ("name", "tcp_address", "http_address", "capacity")}
    assert told == {
        "name": "b1",
        "tcp_address": gateway.tcp,
        "http_address": gateway.http,
        "capacity": 9000,
    }
    assert (broker["store"], broker["newest"], broker["held"], broker["names"]) == ("", 0, [], [])
    assert fake.reports[0]["applied_epoch"] == 0
    found = gateway.inside("t")
    assert (found["rate"], found["burst"], found["slo"]) == (500, 20, "0.99@5ms")
    assert gateway.inside("u")["mode"] == "reject"
    wait_for(
        lambda: [r["applied_epoch"] for r in fake.reports[-1:]] == [5], "epoch 5 is acknowledged"
    )
    shown = distributor(gateway)
    assert (shown["broker"], shown["contact"], shown["epoch"]) == ("b1", True, 5)
    assert 0 < shown["lease_left_seconds"] <= 10
    assert shown["safe_share"] is False
    assert gateway.metric("srtm_distributor_contact") == 1
    assert gateway.metric("srtm_share_epoch") == 5
    assert gateway.metric("srtm_distributor_lease_seconds") > 0
    assert "Distributor: " in http(gateway.http, "/stats")[1]


def test_stat_shows_contact_epoch_and_lease(servers: Servers, fake: FakeDistributor) -> None:
    fake.desire(5, share("t", 500, 20))
    gateway = begin(servers, fake)

    def stat(*more: str) -> str:
        where = f"--nsqd-http-address={gateway.http}"
        return run_srtm("stat", "--count=1", *more, where).stdout

    table = stat()
    assert fake.address in table
    assert "lease s" in table
    fake.stop()
    wait_for(lambda: distributor(gateway)["contact"] is False, "contact is lost")
    [row] = json.loads(stat("--json"))
    assert (row["distributor"]["epoch"], row["distributor"]["contact"]) == (5, False)
    assert "nothing listens there" in stat()


def test_without_a_name_a_broker_is_called_by_its_address(
    servers: Servers, fake: FakeDistributor
) -> None:
    gateway = begin(servers, fake)
    assert fake.brokers[0]["name"] == gateway.tcp
    assert fake.brokers[0]["capacity"] is None


def test_a_share_that_begins_is_empty_and_a_changed_one_gets_no_tokens(
    servers: Servers, fake: FakeDistributor
) -> None:
    """Or tokens would be spent here that another broker has spent already."""
    fake.desire(1, share("t", 0.001, 40))
    gateway = begin(servers, fake, "--topic=mine,rate=0.001,burst=9,mode=delay")
    assert gateway.inside("t")["tokens"] == pytest.approx(0, abs=0.1)
    fake.desire(2, share("t", 1000, 40))
    wait_for(lambda: gateway.inside("t")["tokens"] == 40, "it has filled")
    fake.desire(3, share("t", 0.001, 10))
    wait_for(lambda: rate_of(gateway, "t") == 0.001, "epoch 3 is applied")
    assert gateway.inside("t")["tokens"] == pytest.approx(10, abs=0.1)
    fake.desire(4, share("t", 0.001, 50))
    wait_for(lambda: gateway.inside("t")["burst"] == 50, "epoch 4 is applied")
    assert gateway.inside("t")["tokens"] == pytest.approx(10, abs=0.1)


def test_an_older_epoch_is_ignored(servers: Servers, fake: FakeDistributor) -> None:
    fake.desire(7, share("t", 70, 7))
    gateway = begin(servers, fake)
    assert rate_of(gateway, "t") == 70
    fake.desire(6, share("t", 60, 6))
    seen = len(fake.reports)
    wait_for(lambda: len(fake.reports) >= seen + 2, "two more reports")
    assert rate_of(gateway, "t") == 70
    assert distributor(gateway)["contact"] is False
    assert "answers with epoch 6, older than the known 7" in gateway.process.text()
    fake.desire(8, share("t", 80, 8))
    wait_for(lambda: rate_of(gateway, "t") == 80, "epoch 8 is applied")


def test_the_distributor_wins_for_the_topics_that_it_names(
    servers: Servers, fake: FakeDistributor
) -> None:
    fake.desire(1, share("both", 50, 5))
    gateway = begin(servers, fake, "--topic=both,rate=900,burst=90", "--topic=mine,rate=3,burst=3")
    assert rate_of(gateway, "both") == 50
    assert rate_of(gateway, "mine") == 3
    status, answer, _ = http(gateway.admin, "/topics/both", b'{"rate": 1, "burst": 1}', "PUT")
    assert status == 409
    assert f"the Load Distributor at {fake.address} gives its limit" in answer["message"]
    assert http(gateway.admin, "/topics/both", method="DELETE")[0] == 409
    assert rate_of(gateway, "both") == 50
    assert http(gateway.admin, "/topics/mine", b'{"rate": 4, "burst": 4}', "PUT")[0] == 200
    fake.desire(2)
    wait_for(lambda: rate_of(gateway, "both") == 900, "its own contract is back")
    assert http(gateway.admin, "/topics/both", b'{"rate": 2, "burst": 2}', "PUT")[0] == 200


def test_a_contract_that_is_read_anew_waits_behind_the_share(
    servers: Servers, fake: FakeDistributor
) -> None:
    config = servers.folder / "gateway.toml"
    config.write_text('topic = ["t,rate=900,burst=90"]')
    fake.desire(1, share("t", 50, 5))
    gateway = begin(servers, fake, f"--config={config}")
    config.write_text('topic = ["t,rate=800,burst=80"]')
    gateway.process.signal(signal.SIGHUP)
    wait_for(lambda: "contracts are read again" in gateway.process.text(), "SIGHUP")
    assert rate_of(gateway, "t") == 50
    fake.desire(2)
    wait_for(lambda: rate_of(gateway, "t") == 800, "its own contract has its turn")


def test_a_lease_that_ends_leaves_the_safe_share_until_the_next_answer(
    servers: Servers, fake: FakeDistributor
) -> None:
    fake.lease_seconds = 2.0
    fake.desire(1, share("t", 400, 8))
    gateway = begin(servers, fake)
    assert rate_of(gateway, "t") == 400
    fake.stop()
    wait_for(lambda: distributor(gateway)["contact"] is False, "contact is lost")
    assert rate_of(gateway, "t") == 400, "its share is its own until the lease ends"
    wait_for(lambda: rate_of(gateway, "t") == 50, "the safe share: 400/8")
    assert gateway.inside("t")["burst"] == 1
    assert distributor(gateway)["safe_share"] is True
    assert gateway.metric("srtm_distributor_lease_seconds") == 0
    with V2(gateway.tcp) as publisher:
        publisher.send(pub(b"t", b"x"))
        assert publisher.reply() == b"OK", "messages go on, at the safe share"
    assert "the lease has ended; topics with safe shares: 1" in gateway.process.text()
    fake.start()
    wait_for(lambda: rate_of(gateway, "t") == 400, "contact again")


def test_a_topic_with_a_lease_grace_keeps_its_share(
    servers: Servers, fake: FakeDistributor
) -> None:
    fake.lease_seconds = 1.0
    fake.desire(1, share("kept", 400, 8, lease_grace=3600.0), share("t", 400, 8))
    gateway = begin(servers, fake)
    fake.stop()
    wait_for(lambda: rate_of(gateway, "t") == 50, "the safe share of the one without")
    assert rate_of(gateway, "kept") == 400
    shown = distributor(gateway)
    assert (shown["safe_share"], list(shown["kept_shares"])) == (True, ["kept"])
    assert 3500 < shown["kept_shares"]["kept"] < 3600
    assert re.search(r"kept by a lease grace: kept 3[56]\d\ds", http(gateway.http, "/stats")[1])
    left = gateway.metric('srtm_topic_lease_grace_seconds{topic="kept"}')
    assert 3500 < left <= shown["kept_shares"]["kept"]
    assert 'lease_grace_seconds{topic="t"}' not in http(gateway.http, "/metrics")[1]
    fake.start()
    wait_for(lambda: rate_of(gateway, "t") == 400, "contact again")
    assert distributor(gateway)["kept_shares"] == {}
    assert "srtm_topic_lease_grace_seconds{" not in http(gateway.http, "/metrics")[1]


def test_a_restart_without_the_distributor_begins_with_the_safe_share(
    servers: Servers, fake: FakeDistributor
) -> None:
    state = f"--state-file={servers.folder / 'state.json'}"
    fake.desire(1, share("t", 400, 8))
    gateway = begin(servers, fake, state)
    assert gateway.process.stop() == 0
    fake.stop()
    again = begin(servers, fake, state, nsqd=gateway.nsqd)
    found = again.inside("t")
    assert (found["rate"], found["burst"]) == (50, 1)
    assert distributor(again)["safe_share"] is True
    plain = servers.gateway(state, nsqd=gateway.nsqd)
    assert rate_of(plain, "t") is None, "a gateway without a distributor has nobody's shares"


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param({"status": 503}, id="not-leading"),
        pytest.param({"token": "other"}, id="a-wrong-token"),
        pytest.param({"topics": [{"topic": "t", "rate": -1, "burst": 1}]}, id="a-bad-share"),
        pytest.param({"topics": 5}, id="another-shape"),
    ],
)
def test_an_answer_of_no_use_changes_nothing_and_is_said_once(
    servers: Servers, fake: FakeDistributor, spoil: dict[str, Any]
) -> None:
    fake.desire(1, share("t", 400, 8))
    gateway = begin(servers, fake)
    for name, value in spoil.items():
        setattr(fake, name, value)
    wait_for(lambda: distributor(gateway)["contact"] is False, "contact is lost")
    assert rate_of(gateway, "t") == 400
    with V2(gateway.tcp) as publisher:
        publisher.send(pub(b"t", b"x"))
        assert publisher.reply() == b"OK"
    said = [line for line in gateway.process.text().splitlines() if "going on without it" in line]
    assert len(said) == len({line.partition("WARNING")[2] for line in said}) > 0


def test_a_gateway_starts_without_the_distributor_and_finds_it_later(
    servers: Servers, fake: FakeDistributor
) -> None:
    fake.stop()
    gateway = begin(servers, fake, "--topic=t,rate=9,burst=9")
    assert rate_of(gateway, "t") == 9
    assert distributor(gateway)["contact_age_seconds"] is None
    fake.desire(1, share("t", 400, 8))
    fake.start()
    wait_for(lambda: rate_of(gateway, "t") == 400, "it has found it")


def test_a_distributor_that_knows_the_broker_no_more_is_registered_with_again(
    servers: Servers, fake: FakeDistributor
) -> None:
    gateway = begin(servers, fake)
    fake.status = 404
    wait_for(lambda: distributor(gateway)["contact"] is False, "a report is answered with 404")
    assert len(fake.brokers) == 1
    fake.status = 200
    wait_for(lambda: distributor(gateway)["contact"], "it is in contact again")
    again = fake.brokers[-1]
    for same in ("name", "tcp_address", "http_address", "instance", "process"):
        assert again[same] == fake.brokers[0][same]
    assert again["applied_epoch"] == 1


def test_plain_clients_are_counted_whatever_their_library(
    servers: Servers, fake: FakeDistributor
) -> None:
    """pynsq's Writer, bare V2 (as go-nsq sends it) and HTTP; one topic is not the distributor's."""
    fake.desire(1, share("t", 1000, 100))
    gateway = begin(servers, fake)

    async def by_pynsq() -> None:
        writer = nsq.Writer([gateway.tcp])
        while not [conn for conn in writer.conns.values() if conn.connected()]:
            await asyncio.sleep(0.01)
        answered = asyncio.Event()
        writer.mpub("t", [b"1", b"2", b"3"], callback=lambda conn, data: answered.set())
        await asyncio.wait_for(answered.wait(), 10)
        for conn in list(writer.conns.values()):
            conn.close()

    asyncio.run(by_pynsq())
    with V2(gateway.tcp) as publisher:
        publisher.send(pub(b"t", b"4") + mpub(b"t", [message(b"5"), message(b"6")], 2))
        publisher.oks(2)
        publisher.send(pub(b"other", b"x"))
        publisher.oks(1)
    assert http(gateway.http, "/pub?topic=t", b"7")[0] == 200

    wait_for(lambda: gateway.offered("t") == 7, "the gateway has counted them")
    wait_for(lambda: reported(fake, "other"), "the other topic is reported")
    wait_for(
        lambda: [row["offered"] for row in reported(fake, "t")[-1:]] == [0], "nothing came any more"
    )
    for name in ("offered", "admitted"):
        assert any(entry[name] > 0 for entry in reported(fake, "t"))
        assert sum(entry[name] > 0 for entry in reported(fake, "other")) == 1
    assert len(reported(fake, "other")) <= 2, "an idle topic of nobody is left out"


def test_a_bucket_is_emptied_when_the_distributor_asks(
    servers: Servers, fake: FakeDistributor
) -> None:
    fake.desire(1, share("t", 1000, 40))
    gateway = begin(servers, fake)
    wait_for(lambda: gateway.inside("t")["tokens"] == 40, "it has filled")
    fake.desire(2, share("t", 0.001, 40, emptied=2))
    wait_for(lambda: rate_of(gateway, "t") == 0.001, "epoch 2 is applied")
    wait_for(lambda: gateway.inside("t")["tokens"] < 1, "it is empty")
    fake.desire(3, share("t", 1000, 40, emptied=2))
    wait_for(lambda: gateway.inside("t")["tokens"] == 40, "it fills, and is not emptied again")


def test_arrivals_are_told_while_the_distributor_asks_for_them(
    servers: Servers, fake: FakeDistributor
) -> None:
    fake.desire(1, share("t", 1000, 10, arrivals=True))
    gateway = begin(servers, fake)
    with V2(gateway.tcp) as publisher:
        publisher.send(pub(b"t", b"x") * 3)

        def told() -> list[list[int]]:
            return [pair for row in reported(fake, "t") for pair in row.get("arrivals", [])]

        wait_for(told, "arrivals are told")
        assert sum(count for _, count in told()) == 3
        fake.desire(2, share("t", 1000, 10))
        wait_for(lambda: fake.reports[-1]["applied_epoch"] == 2, "nobody asks any more")
        publisher.send(pub(b"t", b"x"))
        wait_for(lambda: reported(fake, "t")[-1]["offered"], "one more has come")
        assert sum(count for _, count in told()) == 3


def test_a_report_has_backlog_offered_and_the_late_of_those_measured(
    servers: Servers, fake: FakeDistributor
) -> None:
    fake.desire(1, share("held", 0.001, 1), share("late", 1000, 10, slo="0.99@1us"))
    gateway = begin(servers, fake)
    with V2(gateway.tcp) as publisher, V2(gateway.tcp) as consumer:
        consumer.subscribe("late", "c")
        publisher.send(pub(b"held", b"x") * 4)
        wait_for(
            lambda: [row["backlog"] for row in reported(fake, "held")[-1:]] == [4],
            "the backlog is reported",
        )
        sender = V2(gateway.tcp)

        def measured() -> float:
            sender.send(pub(b"late", b"x"))
            sender.oks(1)
            return sum(entry["served"] for entry in reported(fake, "late"))

        wait_for(measured, "the probe has measured some", 20)
        entries = reported(fake, "late")
        assert [entry["late"] for entry in entries] == [entry["served"] for entry in entries]
        sender.close()


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        pytest.param(
            ["--distributor-address=h:1", "--tcp-address=127.0.0.1:0"],
            "the gateway needs a fixed port",
            id="no-port",
        ),
        pytest.param(["--broker-name=b"], "give --distributor-address too", id="a-name-alone"),
        pytest.param(
            ["--distributor-address=nowhere"], "'nowhere' is not an address", id="no-address"
        ),
        pytest.param(
            ["--distributor-address=h:1", "--broker-name=a/b"], "is not a broker's name", id="name"
        ),
        pytest.param(
            ["--distributor-address=h:1", "--distributor-token-file=/nonexistent"],
            "--distributor-token-file /nonexistent: No such file",
            id="no-token",
        ),
    ],
)
def test_a_slip_in_the_options_ends_the_start_in_one_line(
    shared: Servers, tmp_path: Path, flags: list[str], sentence: str
) -> None:
    gateway = shared.gateway(*flags, wait=False, ports=(free_port(), free_port()))
    assert gateway.process.popen.wait(60) == 2
    assert sentence in gateway.process.text().splitlines()[-1]
