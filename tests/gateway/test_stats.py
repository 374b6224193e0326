"""/stats as nsqd writes it: to the byte, but for what differs between any two of them."""

import re
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from srtm.nsq.commands import pub
from tests.support.servers import GatewayProcess, Nsqd, Servers
from tests.support.v2 import V2

DIFFERS = (
    (rb"start_time \S+|uptime \S+", b"TIME"),
    (rb'"start_time":\d+', b"TIME"),
    (rb'"connect_ts":\d+|connected: \S+', b"SINCE"),
    (rb"127\.0\.0\.1:\d+|(attic):\d+", b"ADDRESS"),
    (rb'"memory":\{[^}]*\}', b"MEMORY"),
    (rb"(heap|gc|next)_(\w+) *\t\d+", rb"\1_\2"),
    (rb',"srtm":\{.*\}$', b"}"),
    (rb"\n\nSRTM:\n.*", b"\n"),
)


@pytest.fixture(scope="module", params=[False, True], ids=["tcp", "unix"])
def gateway(shared: Servers, request: pytest.FixtureRequest) -> GatewayProcess:
    return shared.gateway(unix=request.param)


@pytest.fixture(scope="module")
def nsqd(shared: Servers, gateway: GatewayProcess) -> Nsqd:
    """One for each gateway: both have the same clients."""
    return shared.nsqd("--e2e-processing-latency-percentile=0.99")


@pytest.fixture(scope="module")
def clients(gateway: GatewayProcess, nsqd: Nsqd) -> Iterator[None]:
    """A consumer and a publisher of each, with letters that Go escapes."""
    opened = []
    for address in (nsqd.tcp, gateway.tcp):
        consumer, publisher = V2(address), V2(address)
        opened += [consumer, publisher]
        consumer.identify(client_id="c", hostname="attic", user_agent="<ua>&/1")
        consumer.subscribe("t", "c")
        publisher.identify(client_id="p", hostname="attic", user_agent="p\u00e9/1")
        publisher.send(pub(b"u", b"x"))
        assert publisher.reply() == b"OK"
    yield
    for client in opened:
        client.close()


def told(address: str, query: str) -> tuple[int, str | None, bytes]:
    connection = HTTPConnection(address, timeout=10)
    connection.request("GET", f"/stats?{query}", headers={"Connection": "close"})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    for pattern, word in DIFFERS:
        body = re.sub(pattern, word, body, flags=re.DOTALL)
    return response.status, response.getheader("Content-Type"), body


QUERIES = {
    "all": "",
    "a-topic": "topic=t",
    "another-topic": "topic=u",
    "a-topic-that-is-not-there": "topic=nosuch",
    "a-channel": "topic=t&channel=c",
    "a-channel-that-is-not-there": "topic=t&channel=nosuch",
    "any-topics-channel": "channel=c",
    "a-channel-of-a-topic-that-is-not-there": "topic=nosuch&channel=nosuch",
    "a-topic-that-is-no-name": "topic=a%20b",
    "a-topic-that-is-no-unicode": "topic=%ff",
    "a-topic-that-is-half-a-character": "topic=%ed%a0%80",
    "a-topic-of-nothing": "topic=",
    "a-broken-escape": "topic=%zz",
    "a-semicolon": "topic=t;channel=c",
    "flags-that-are-no-flags": "topic=t&include_clients=x&include_mem=",
    "no-memory": "include_mem=false",
    "no-clients": "include_clients=0",
}


@pytest.mark.usefixtures("clients")
@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("query", [pytest.param(query, id=name) for name, query in QUERIES.items()])
def test_every_byte_is_nsqds(gateway: GatewayProcess, nsqd: Nsqd, query: str, form: str) -> None:
    own, ours = (told(server.http, f"format={form}&{query}") for server in (nsqd, gateway))
    if form == "text":  # ours has no percentiles to keep
        own = (*own[:2], re.sub(rb"e2e%: [^\n]*", b"e2e%: ", own[2]))
    else:
        own = (*own[:2], re.sub(rb'"percentiles":\[[^]]*\]', b'"percentiles":null', own[2]))
    assert ours == own
