"""The TB Adaptor in a real distributor: before made-up brokers, and before real gateways."""

import json
import threading
import time
from pathlib import Path

import pytest

from srtm.nsq.commands import pub
from tests.support.distributors import (
    DistributorProcess,
    FakeBroker,
    Starter,
    settle,
    srtm,
)
from tests.support.servers import GatewayProcess, Servers, http, wait_for
from tests.support.v2 import V2

RATE, BURST = 200.0, 20.0


def placed(distributor: DistributorProcess) -> list[FakeBroker]:
    brokers = distributor.placed(100.0, 100.0, publishers=16, policy="lb", rate=RATE, burst=BURST)
    assert [shares(each) for each in brokers] == [(100.0, 10.0), (100.0, 10.0)]
    return brokers


def shares(broker: FakeBroker) -> tuple[float, float]:
    return broker.shares["t"]["rate"], broker.shares["t"]["burst"]


def busy(broker: FakeBroker, rate: float, waiting: float) -> None:
    """A second's report: messages that came one by one, and those that wait."""
    count = int(rate)
    arrivals = [(1000 - 1000 * place / count, 1) for place in range(count)]
    broker.report("t", seconds=1.0, offered=rate, arrivals=arrivals, waiting=waiting)


def shifted(b1: FakeBroker, b2: FakeBroker, waiting: float = 60.0) -> None:
    """Once more: all traffic comes to b1."""
    busy(b1, 150, waiting)
    b2.report("t", seconds=1.0, offered=0.0)
    time.sleep(0.2)


def test_a_share_follows_the_traffic_and_is_explained(distributor: DistributorProcess) -> None:
    b1, b2 = placed(distributor)
    assert b1.shares["t"]["arrivals"] is True

    def follows() -> bool:
        shifted(b1, b2)
        assert shares(b1)[0] + shares(b2)[0] <= RATE
        assert shares(b1)[1] + shares(b2)[1] <= BURST
        return shares(b1)[0] > 150 and shares(b2)[0] < 50

    wait_for(follows, "b1 has most of r", 20)
    found = distributor.ok("GET", "/topics/t/adaptation")
    assert found["policy"] == "srtm"
    assert found["shares"]["b1"][0] > 150
    first = found["rescales"][-1]
    assert first["before"] == {"b1": [100, 10], "b2": [100, 10]}
    assert "somebody would wait" in first["reasons"][0]
    described = distributor.srtm("topic", "describe", "t")
    assert "shares since 20" in described.stdout.splitlines()[-1]
    assert "they follow the traffic: srtm" in described.stdout
    document = json.loads(distributor.srtm("topic", "describe", "t", "--json").stdout)
    later = distributor.ok("GET", "/topics/t/adaptation")
    assert document["adaptation"]["since"] in [each["at"] for each in later["rescales"]]
    explained = distributor.srtm("adaptor", "explain", "t")
    assert explained.returncode == 0, explained.stderr
    assert "b1 100/s and 10; b2 100/s and 10" in explained.stdout
    off = distributor.srtm("topic", "set", "t", "--adapt=off")
    assert off.returncode == 0
    still = distributor.ok("GET", "/topics/t/adaptation")
    assert still["resting"] == "it is off"
    same = ("rescales", "since", "shares")
    assert [still[key] for key in same] == [found[key] for key in same], "it stays explained"
    done = f"srtm_distributor_rescales_total {len(found['rescales'])}"
    assert done in http(distributor.address, "/metrics")[1]


def test_it_survives_a_kill_and_so_do_its_settings(start: Starter) -> None:
    first = start()
    first.wait_leading()
    b1, b2 = placed(first)
    changed = first.srtm("topic", "set", "t", "--adapt=paper", "--adapt-every=1s")
    assert changed.returncode == 0, changed.stderr
    assert "policy paper, window 10s, every 1s" in changed.stdout

    def follows() -> bool:
        shifted(b1, b2)
        return shares(b1)[0] > 190

    wait_for(follows, "r is by the offered rate", 20)
    before = [shares(b1), shares(b2)]
    first.process.kill()
    second = start()
    second.wait_leading()
    for each in (b1, b2):
        each.distributor = second
        each.report()
    settle(b1, b2)
    assert [shares(b1), shares(b2)] == before, "a restart takes nothing back"
    found = second.ok("GET", "/topics/t/adaptation")
    assert (found["policy"], found["window"], found["every"]) == ("paper", "10s", "1s")


@pytest.mark.parametrize("reports", [True, False])
def test_it_rests_where_it_is_off_or_a_broker_does_not_report(
    distributor: DistributorProcess, reports: bool
) -> None:
    b1, b2 = placed(distributor)
    if reports:
        assert distributor.srtm("topic", "set", "t", "--adapt=off").returncode == 0
        assert distributor.ok("GET", "/topics/t/adaptation")["resting"] == "it is off"
    for _ in range(20):
        busy(b1, 150, 60.0)
        if reports:
            b2.report("t", seconds=1.0, offered=0.0)
        time.sleep(0.2)
    assert shares(b1) == (100.0, 10.0)
    if not reports:
        resting = distributor.ok("GET", "/topics/t/adaptation")["resting"]
        assert resting.startswith("broker b2 has not reported for")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param("topic set t --adapt-window=0s", "from 1s to 1h", id="too-short"),
        pytest.param("topic set t --adapt-every=soon", "'soon' is not a duration", id="no-time"),
        pytest.param("topic set t --adapt=fast", "'fast' is not one of", id="no-policy"),
        pytest.param("topic set nosuch --adapt=off", "nosuch is not registered", id="no-topic"),
        pytest.param("adaptor explain nosuch", "nosuch is not registered", id="none-to-explain"),
    ],
)
def test_a_mistake_is_one_line(distributor: DistributorProcess, words: str, said: str) -> None:
    distributor.topic()
    done = distributor.srtm(*words.split())
    assert done.returncode in (2, 4), done.returncode
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def rate_of(gateway: GatewayProcess) -> float:
    return float(gateway.inside("t").get("rate") or 0)


def test_real_gateways_follow_a_swap_and_the_contract_holds(
    servers: Servers, start: Starter, tmp_path: Path
) -> None:
    distributor = start()
    distributor.wait_leading()
    gateways = [
        servers.gateway(
            f"--distributor-address={distributor.address}",
            f"--broker-name={name}",
            "--broker-capacity=1000",
            f"--admission-log={tmp_path / name}",
            unix=True,
        )
        for name in ("b1", "b2")
    ]
    distributor.topic(rate=RATE, burst=BURST, slo=None)
    distributor.publishers(16)
    distributor.place(policy="lb")
    wait_for(lambda: [rate_of(each) for each in gateways] == [100, 100], "both have a share", 20)
    to, over = [0], threading.Event()

    def publish() -> None:
        """150 messages/s to one of them."""
        with V2(gateways[0].tcp) as first, V2(gateways[1].tcp) as second:
            number = 0
            while not over.wait(0.02):
                for _ in range(3):
                    (first, second)[to[0]].send(pub(b"t", b"%d" % number))
                    number += 1

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        wait_for(lambda: rate_of(gateways[0]) > 140, "b1 has most of r", 30)
        to[0] = 1
        wait_for(lambda: rate_of(gateways[1]) > 140, "b2 has it after the swap", 30)
        distributor.process.kill()
        again = start(address=distributor.address)
        again.wait_leading()
        to[0] = 0
        wait_for(lambda: rate_of(gateways[0]) > 140, "and b1 again, by another leader", 60)
    finally:
        over.set()
        publisher.join()
    waiting = lambda: sum(each.inside("t")["waiting"] for each in gateways)  # noqa: E731
    wait_for(lambda: waiting() == 0, "all are admitted", 20)
    for each in gateways:
        assert each.process.stop() == 0
    audited = srtm("audit", "t", str(tmp_path / "b1"), str(tmp_path / "b2"), "--json")
    document = json.loads(audited.stdout)
    assert (audited.returncode, document["excess"], document["unjudged"]) == (0, 0, 0)
    assert document["messages"] > RATE + BURST
