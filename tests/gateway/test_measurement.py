"""Latency is measured, not guessed: the probe beside real channels, and counts that are exact."""

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from srtm.nsq.commands import dpub, message, pub
from srtm.nsq.names import PROBE_TOPIC
from tests.support.servers import GatewayProcess, Nsqd, Servers, http, wait_for
from tests.support.v2 import V2

SLO = "rate=500,burst=5000,slo=0.99@10ms"
"""At 500 messages a second and less the probe follows every one."""


@pytest.fixture(scope="module")
def gateway(shared: Servers) -> GatewayProcess:
    topics = [f"--topic={name},{SLO}" for name in ("latency", "first", "gone", "skips")]
    return shared.gateway(
        *topics,
        "--topic=held,rate=20,burst=1,slo=0.99@10ms",
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
    """nsqd's own list."""
    entry = nsqd.topic(topic)
    return sorted(channel["channel_name"] for channel in entry["channels"]) if entry else []


def wait_for_probe(gateway: GatewayProcess) -> None:
    def consumers() -> int:
        entry = gateway.nsqd.topic(PROBE_TOPIC.decode()) or {"channels": []}
        return sum(channel["client_count"] for channel in entry["channels"])

    wait_for(lambda: consumers() == 1, "the probe has its consumer")


def consume(consumer: V2, count: int) -> list[bytes]:
    return sorted(consumer.message().body for _ in range(count))


def test_broker_and_consumer_latency_of_a_topic_with_an_slo_appear(
    gateway: GatewayProcess, publisher: V2
) -> None:
    with V2(gateway.tcp) as consumer:
        consumer.identify(output_buffer_size=-1)
        consumer.subscribe("latency", "c")
        wait_for_probe(gateway)
        bodies = [b"%d" % number for number in range(100)]
        for body in bodies:
            publish(publisher, "latency", [body])
            assert consumer.message().body == body
        publish(publisher, "latency", bodies)
        consume(consumer, 100)

        def measured() -> Any:
            ours = gateway.ours("latency")
            counts = [ours[name]["count"] for name in ("broker_latency", "consumer_latency")]
            return ours if counts[0] == 200 and counts[1] > 50 else None

        ours = wait_for(measured, "each message has a broker latency, each read a consumer's")
        assert ours["unmatched"] == 0
        for name in ("token_wait", "gateway_time", "broker_latency", "consumer_latency"):
            assert 0 <= ours[name]["p50"] <= ours[name]["p95"] <= ours[name]["p99"] < 5, name
        assert ours["token_wait"]["count"] == ours["gateway_time"]["count"] == 200
        assert ours["broker_latency"]["p50"] > 0.00005, "not the time of some other instant"
        shown = http(gateway.http, "/stats?format=json&topic=latency")[1]["topics"][0]
        assert [channel["channel_name"] for channel in shown["channels"]] == ["c"]
        assert "srtm_probe" not in http(gateway.http, "/stats")[1]


def test_a_topic_keeps_what_comes_while_it_has_no_channel(
    gateway: GatewayProcess, publisher: V2
) -> None:
    """Whoever deletes the last one, by whichever port: messages are measured without one."""
    wait_for_probe(gateway)
    bodies = sorted(b"%03d" % number for number in range(150))
    publish(publisher, "first", bodies)
    for port in (gateway.http, gateway.nsqd.http, gateway.http):
        assert channels(gateway.nsqd, "first") == []
        with V2(gateway.tcp) as consumer:
            consumer.subscribe("first", "c")
            assert consume(consumer, 150) == bodies
        assert http(port, "/channel/delete?topic=first&channel=c", b"")[0] == 200
        publish(publisher, "first", bodies)
    wait_for(lambda: gateway.ours("first")["broker_latency"]["count"] == 600, "all are measured")


def test_its_topic_may_be_deleted_and_is_there_again(
    gateway: GatewayProcess, publisher: V2
) -> None:
    wait_for_probe(gateway)
    http(gateway.nsqd.http, f"/topic/delete?topic={quote(PROBE_TOPIC)}", b"")
    publish(publisher, "gone", [b"%d" % number for number in range(20)])
    wait_for_probe(gateway)
    before = gateway.ours("gone")
    publish(publisher, "gone", [b"x"])
    wait_for(
        lambda: gateway.ours("gone")["broker_latency"]["count"] > before["broker_latency"]["count"],
        "it measures again",
    )
    assert gateway.ours("gone")["unmatched"] <= 20


def test_deferred_requeued_and_foreign_messages_are_in_no_latency(
    gateway: GatewayProcess, publisher: V2
) -> None:
    with V2(gateway.tcp) as consumer:
        consumer.identify(output_buffer_size=-1)
        consumer.subscribe("skips", "c")
        wait_for_probe(gateway)
        time.sleep(0.6)  # after many reads only some are samples, for a fifth of a second
        # Straight to nsqd: delivered, but nobody knows when it arrived.
        assert http(gateway.nsqd.http, "/pub?topic=skips", b"foreign")[0] == 200
        assert consumer.message().body == b"foreign"
        wait_for(lambda: gateway.ours("skips")["consumer_latency"]["count"] == 1, "it is a sample")
        publish(publisher, "skips", [b"requeued"])
        first = consumer.message(finish=False)
        consumer.send(b"REQ %b 300\n" % first.id)
        publisher.send(dpub(b"skips", 300, message(b"deferred")))
        assert publisher.reply() == b"OK"
        later = {consumer.message(timeout=20).body for _ in range(2)}
        assert later == {b"requeued", b"deferred"}
        time.sleep(0.6)
        ours = gateway.ours("skips")
        assert ours["broker_latency"]["count"] == 1, "the one that was requeued later"
        assert ours["consumer_latency"]["count"] == 2, "that, and the foreign one by nsqd's time"
        assert ours["unmatched"] == 0


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


def _if(document: dict[str, Any], key: str) -> Any:
    return document if document[key] else None
