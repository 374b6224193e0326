"""Latency is measured, not guessed: the probe's comings and goings, and counts that are exact."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from srtm.gateway.measure.probe import CHANNEL
from srtm.nsq.commands import dpub, message, mpub, pub
from tests.support.servers import GatewayProcess, Nsqd, Servers, http, wait_for
from tests.support.v2 import V2

SLO = "rate=500,burst=5000,slo=0.99@10ms"
"""At 500 messages a second and less the probe takes every message."""


@pytest.fixture(scope="module")
def gateway(shared: Servers) -> GatewayProcess:
    topics = [f"--topic={name},{SLO}" for name in ("latency", "first", "gone", "brief", "skips")]
    return shared.gateway(
        *topics,
        "--topic=held,rate=20,burst=1,slo=0.99@10ms",
        "--topic=refused,rate=0.001,burst=3,mode=reject",
        f"--state-file={shared.folder}/state.json",  # so that a new contract begins full
        "--http-admin",
        unix=True,
    )


@pytest.fixture
def publisher(gateway: GatewayProcess) -> Iterator[V2]:
    with V2(gateway.tcp) as client:
        yield client


def publish(publisher: V2, topic: str, bodies: list[bytes]) -> None:
    """One PUB each, all acknowledged."""
    publisher.send(b"".join(pub(topic.encode(), body) for body in bodies))
    assert [publisher.reply() for _ in bodies] == [b"OK"] * len(bodies)


def channels(nsqd: Nsqd, topic: str) -> list[str]:
    """nsqd's own list: the probe is in it."""
    entry = nsqd.topic(topic)
    return sorted(channel["channel_name"] for channel in entry["channels"]) if entry else []


def wait_for_probe(gateway: GatewayProcess, topic: str) -> None:
    wait_for(lambda: CHANNEL in channels(gateway.nsqd, topic), f"a probe on {topic}")


def consume(consumer: V2, count: int) -> list[bytes]:
    return sorted(consumer.message().body for _ in range(count))


def test_broker_and_consumer_latency_of_a_topic_with_an_slo_appear(
    gateway: GatewayProcess, publisher: V2
) -> None:
    with V2(gateway.tcp) as consumer:
        consumer.identify(output_buffer_size=-1)
        consumer.subscribe("latency", "c")
        wait_for_probe(gateway, "latency")
        bodies = [b"%d" % number for number in range(100)]
        for body in bodies:
            publish(publisher, "latency", [body])
            assert consumer.message().body == body
        publish(publisher, "latency", bodies)
        consume(consumer, 100)

        def measured() -> Any:
            ours = gateway.ours("latency")
            return ours if ours["broker_latency"]["count"] == 200 else None

        ours = wait_for(measured, "each of 200 messages has a broker latency")
        assert ours["unmatched"] == 0
        for name in ("token_wait", "gateway_time", "broker_latency", "consumer_latency"):
            assert 0 <= ours[name]["p50"] <= ours[name]["p95"] <= ours[name]["p99"] < 5, name
        assert ours["token_wait"]["count"] == ours["gateway_time"]["count"] == 200
        assert ours["broker_latency"]["p50"] > 0.00005, "not the time of some other instant"
        assert ours["consumer_latency"]["count"] > 50, "each read of the tunnel is a sample"
        shown = http(gateway.http, "/stats?format=json&topic=latency")[1]["topics"][0]
        assert [channel["channel_name"] for channel in shown["channels"]] == ["c"]
        assert "srtm_probe" not in http(gateway.http, "/stats")[1]


def test_the_first_channel_of_a_topic_gets_all_that_came_before_it(
    gateway: GatewayProcess, publisher: V2
) -> None:
    bodies = sorted(b"%d" % number for number in range(300))
    publish(publisher, "first", bodies[:150])
    time.sleep(2.2)  # two rounds of the gateway's looking for channels
    assert channels(gateway.nsqd, "first") == []
    publish(publisher, "first", bodies[150:])
    with V2(gateway.tcp) as consumer:
        consumer.subscribe("first", "late")
        assert consume(consumer, 300) == bodies
        wait_for_probe(gateway, "first")


def test_the_probe_leaves_before_the_last_channel_is_deleted_through_the_door(
    gateway: GatewayProcess, publisher: V2
) -> None:
    for round_ in range(2):
        with V2(gateway.tcp) as consumer:
            consumer.subscribe("gone", "c")
            wait_for_probe(gateway, "gone")
        assert http(gateway.http, "/channel/delete?topic=gone&channel=c", b"")[0] == 200
        bodies = sorted(b"%d-%d" % (round_, number) for number in range(100))
        publish(publisher, "gone", bodies)
        with V2(gateway.tcp) as consumer:
            consumer.subscribe("gone", "c")
            assert consume(consumer, 100) == bodies


def test_the_probe_leaves_within_seconds_of_a_channel_deleted_behind_the_gateways_back(
    gateway: GatewayProcess, publisher: V2
) -> None:
    with V2(gateway.tcp) as consumer:
        consumer.subscribe("brief", "c")
        wait_for_probe(gateway, "brief")
    http(gateway.nsqd.http, "/channel/delete?topic=brief&channel=c", b"")
    wait_for(lambda: channels(gateway.nsqd, "brief") == [], "the probe leaves", 4)


def test_the_probe_asks_anew_when_the_contract_has_changed_by_much(
    gateway: GatewayProcess,
) -> None:
    """It asks for 500 messages a second of what the contract lets through."""

    def sampled() -> list[int]:
        entry = gateway.nsqd.topic("changed") or {"channels": []}
        probes = [each for each in entry["channels"] if each["channel_name"] == CHANNEL]
        return [client["sample_rate"] for probe in probes for client in probe["clients"]]

    gateway.set_limit("changed", rate=1e6, burst=10, slo="0.99@10ms")
    with V2(gateway.tcp) as consumer:
        consumer.subscribe("changed", "c")
        wait_for(lambda: sampled() == [1], "the probe takes 2 percent")
        gateway.set_limit("changed", rate=1000, burst=10, slo="0.99@10ms")
        wait_for(lambda: sampled() == [49], "the probe takes half")


def test_an_ephemeral_channel_takes_the_probe_with_it(
    gateway: GatewayProcess, publisher: V2
) -> None:
    """What is published once the last consumer is gone waits for the next, as without a probe."""
    for round_ in range(2):
        with V2(gateway.tcp) as consumer:
            consumer.subscribe("brief", "c#ephemeral")
            wait_for_probe(gateway, "brief")
        wait_for(
            lambda: "c#ephemeral" not in channels(gateway.nsqd, "brief"), "the channel is gone"
        )
        assert channels(gateway.nsqd, "brief") == []
        bodies = sorted(b"%d-%d" % (round_, number) for number in range(50))
        publish(publisher, "brief", bodies)
        with V2(gateway.tcp) as consumer:
            consumer.subscribe("brief", "next")
            assert consume(consumer, 50) == bodies
        http(gateway.http, "/channel/delete?topic=brief&channel=next", b"")


def test_a_second_ephemeral_consumer_goes_on_and_the_probe_comes_back(
    gateway: GatewayProcess, publisher: V2
) -> None:
    with V2(gateway.tcp) as stays:
        with V2(gateway.tcp) as leaves:
            for client in (stays, leaves):
                client.subscribe("brief", "pair#ephemeral")
            wait_for_probe(gateway, "brief")
        wait_for(lambda: CHANNEL not in channels(gateway.nsqd, "brief"), "the probe steps aside")
        publish(publisher, "brief", [b"on"])
        assert stays.message().body == b"on"
        wait_for_probe(gateway, "brief")


def test_deferred_requeued_and_foreign_messages_are_in_no_latency(
    gateway: GatewayProcess, publisher: V2
) -> None:
    with V2(gateway.tcp) as consumer:
        consumer.identify(output_buffer_size=-1)
        consumer.subscribe("skips", "c")
        wait_for_probe(gateway, "skips")
        # Straight to nsqd: delivered, but nobody knows when it arrived.
        assert http(gateway.nsqd.http, "/pub?topic=skips", b"foreign")[0] == 200
        assert consumer.message().body == b"foreign"
        wait_for(lambda: gateway.ours("skips")["unmatched"] == 1, "an unmatched delivery is shown")
        publish(publisher, "skips", [b"requeued"])
        first = consumer.message(finish=False)
        consumer.send(b"REQ %b 300\n" % first.id)
        publisher.send(dpub(b"skips", 300, message(b"deferred")))
        assert publisher.reply() == b"OK"
        later = {consumer.message(timeout=20).body for _ in range(2)}
        assert later == {b"requeued", b"deferred"}
        time.sleep(0.6)
        ours = gateway.ours("skips")
        assert ours["broker_latency"]["count"] == 1, "the requeued one's first delivery"
        assert ours["consumer_latency"]["count"] == 2, "that, and the foreign one by nsqd's time"
        assert ours["unmatched"] == 1


def test_counts_are_exact_and_throttling_shows_while_it_lasts(
    gateway: GatewayProcess, publisher: V2
) -> None:
    publisher.send(b"".join(pub(b"held", b"%d" % number) for number in range(31)))
    ours = wait_for(lambda: _if(gateway.ours("held"), "throttled"), "the topic is throttled")
    assert ours["offered"] == 31
    assert ours["waiting"] > 0
    assert ours["tokens"] < 1
    assert ours["backlog_bytes"] > 0
    assert "THROTTLED" in http(gateway.http, "/stats?topic=held")[1]
    assert 'srtm_topic_throttled{topic="held"} 1.0' in http(gateway.http, "/metrics")[1]
    assert [publisher.reply() for _ in range(31)] == [b"OK"] * 31
    ours = gateway.ours("held")
    assert (ours["offered"], ours["admitted"], ours["waiting"]) == (31, 31, 0)
    assert not ours["throttled"]
    assert ours["backlog_bytes"] == 0
    # Thirty waited, 1/20 s after one another.
    assert ours["token_wait"]["count"] == 31
    assert ours["token_wait"]["p50"] == pytest.approx(0.75, abs=0.1)
    assert ours["token_wait"]["p99"] == pytest.approx(1.5, abs=0.15)


def test_every_message_is_in_exactly_one_count(gateway: GatewayProcess, publisher: V2) -> None:
    publisher.send(
        pub(b"refused", b"1")
        + mpub(b"refused", [message(b"2"), message(b"3")], 2)
        + pub(b"refused", b"4")
    )
    replies = [publisher.reply() for _ in range(3)]
    assert replies[:2] == [b"OK", b"OK"]
    assert replies[2] is not None
    assert replies[2].startswith(b"E_PUB_FAILED over the limit")
    assert http(gateway.http, "/mpub?topic=refused", b"5\n6")[0] == 429
    ours = gateway.ours("refused")
    parts = ("admitted", "rejected", "failed", "unknown", "waiting")
    assert [ours[name] for name in parts] == [3, 3, 0, 0, 0]
    assert ours["offered"] == sum(ours[name] for name in parts)
    assert gateway.nsqd.message_count("refused") == 3


def _if(document: dict[str, Any], key: str) -> Any:
    return document if document[key] else None
