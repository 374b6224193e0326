"""The whole path once: publish through the gateway, consume through it, from a real nsqd."""

from srtm.nsq.commands import message, mpub, pub
from tests.support.servers import Servers, http
from tests.support.v2 import V2


def test_what_is_published_through_the_gateway_is_consumed_through_it(servers: Servers) -> None:
    gateway = servers.gateway("--topic", "t,rate=100000,burst=1000")
    with V2(gateway.tcp) as publisher, V2(gateway.tcp) as consumer:
        assert publisher.identify(client_id="p", feature_negotiation=True)["version"]
        consumer.subscribe("t", "c")
        publisher.send(pub(b"t", b"one") + mpub(b"t", [message(b"two"), message(b"three")], 2))
        assert [publisher.reply(), publisher.reply()] == [b"OK", b"OK"]
        assert http(gateway.http, "/pub?topic=t", b"four")[:2] == (200, "OK")
        bodies = {consumer.message().body for _ in range(4)}
    assert bodies == {b"one", b"two", b"three", b"four"}
    assert gateway.ours("t")["admitted"] == 4
