"""Gateways of a topic that is fair over keys are told the keys of the publishers there."""

from typing import Any

from srtm.nsq.commands import pub
from tests.support.distributors import DistributorProcess, FakeBroker, settle
from tests.support.servers import Servers, wait_for
from tests.support.v2 import V2


def keys(broker: FakeBroker, **has: str) -> Any:
    """What it is told that has these versions."""
    body = {"applied_epoch": broker.epoch, "process": broker.process, "keys": has}
    return broker.distributor.ok("POST", f"/brokers/{broker.name}/report", body)["keys"]


def test_a_gateway_is_told_the_keys_of_its_publishers_once(distributor: DistributorProcess) -> None:
    one, two = distributor.placed(100.0, 100.0, publishers=12, fair="key", keys=["k0", "k1", "k2"])
    [told] = keys(one)
    [others] = keys(two)
    placed = {name: distributor.where(name)["broker"] for name, _ in told["publishers"]}
    assert set(placed.values()) == {"b1"}
    everybody = sorted(told["publishers"] + others["publishers"])
    assert everybody == sorted([f"p{n}", f"k{n % 3}"] for n in range(12))
    assert keys(one, t=told["version"]) == []
    assert keys(one, t="another version") == [told]
    assert distributor.ok("GET", "/topics/t")["fair"] == "key"


def test_they_are_told_again_when_somebody_is_placed_there(distributor: DistributorProcess) -> None:
    [broker] = distributor.placed(1000.0, publishers=2, fair="key")
    [before] = keys(broker)
    row = {"id": "late", "key": "k0", "rate": 1.0}
    distributor.ok("POST", "/topics/t/publishers", {"publishers": [row]})
    distributor.place(keep=True)
    settle(broker)
    [after] = keys(broker, t=before["version"])
    assert after["publishers"] == sorted([*before["publishers"], ["late", "k0"]])
    distributor.ok("DELETE", "/topics/t/publishers/late")
    assert keys(broker) == [before]


def test_no_other_topic_has_keys_told(distributor: DistributorProcess) -> None:
    [broker] = distributor.placed(1000.0, publishers=2, fair="publisher")
    assert keys(broker) == []
    assert broker.report()["topics"][0]["fair"] == "publisher"


def test_a_gateway_shares_by_the_keys_that_it_is_told(
    distributor: DistributorProcess, servers: Servers
) -> None:
    gateway = servers.gateway(
        f"--distributor-address={distributor.address}", "--broker-capacity=1000"
    )
    distributor.topic(rate=20.0, burst=1.0, fair="key")
    names = ["a0", "a1", "a2", "a3", "b"]
    rows = [{"id": name, "key": name[0], "rate": 1.0} for name in names]
    distributor.ok("POST", "/topics/t/publishers", {"publishers": rows})
    distributor.place()
    wait_for(lambda: gateway.inside("t").get("rate") == 20, "it has its share")
    clients = [V2(gateway.tcp) for _ in names]
    for client, name in zip(clients, names, strict=True):
        client.identify(srtm_publisher=name)
        client.send(pub(b"t", name.encode()) * 20)
    clients[-1].oks(20)
    assert gateway.inside("t")["waiting"] >= 20, "four others had as many together"
    for client in clients:
        client.close()
