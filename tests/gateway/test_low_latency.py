"""Rule 13: a consumer without nsqd's output buffer gets each message at once."""

import time

import pytest

from srtm.nsq.commands import pub
from tests.support.servers import GatewayProcess, Servers
from tests.support.v2 import V2


@pytest.fixture(scope="module")
def gateway(shared: Servers) -> GatewayProcess:
    return shared.gateway(unix=True)


def delays(gateway: GatewayProcess, topic: str, count: int = 5, **identity: object) -> list[float]:
    """Seconds from each of `count` PUBs until it is consumed; one message at a time, RDY 100."""
    taken = []
    with V2(gateway.tcp) as publisher, V2(gateway.tcp) as consumer:
        consumer.identify(**identity)
        consumer.subscribe(topic, "c", ready=100)
        for number in range(count):
            started = time.monotonic()
            publisher.send(pub(topic.encode(), b"%d" % number))
            assert publisher.reply() == b"OK"
            assert consumer.message().body == b"%d" % number
            taken.append(time.monotonic() - started)
    return taken


def test_a_single_message_arrives_at_once_though_ready_is_more(gateway: GatewayProcess) -> None:
    assert sorted(delays(gateway, "quick", output_buffer_size=-1))[2] < 0.1


def test_with_nsqds_buffer_it_arrives_when_the_buffers_timeout_is_over(
    gateway: GatewayProcess,
) -> None:
    """This is nsqd's own doing: it shows what the option is for, and that it passes through."""
    assert sorted(delays(gateway, "slow", count=3, output_buffer_timeout=400))[1] > 0.15


def test_a_consumer_that_reads_slowly_gets_everything_and_nobody_waits_for_it(
    gateway: GatewayProcess,
) -> None:
    body = b"x" * 100_000
    with (
        V2(gateway.tcp) as publisher,
        V2(gateway.tcp, receive_buffer=4096) as slow,
        V2(gateway.tcp) as quick,
    ):
        for client, channel in ((slow, "slow"), (quick, "quick")):
            client.identify(output_buffer_size=-1)
            client.subscribe("bulk", channel, ready=200)
        for _ in range(100):
            publisher.send(pub(b"bulk", body))
            assert publisher.reply() == b"OK"
            assert quick.message().body == body
        for _ in range(100):
            assert slow.message().body == body
