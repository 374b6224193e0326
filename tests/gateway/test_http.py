"""The HTTP door is an allow-list, and what it allows answers as nsqd's own does."""

import math
import re
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from srtm.gateway.http.metrics import GATEWAY_METRICS, SOURCE_METRICS, TOPIC_METRICS
from srtm.gateway.measure.meter import SKETCHES
from srtm.http.metrics import BOUNDS
from srtm.nsq.commands import message, pub
from tests.support.servers import GatewayProcess, Nsqd, Servers, http, wait_for
from tests.support.v2 import V2

MSG_SIZE, BODY_SIZE = 1000, 5000


@pytest.fixture(scope="module")
def nsqd(shared: Servers) -> Nsqd:
    return shared.nsqd(f"--max-msg-size={MSG_SIZE}", f"--max-body-size={BODY_SIZE}")


@pytest.fixture(scope="module")
def gateway(shared: Servers, nsqd: Nsqd) -> GatewayProcess:
    return shared.gateway(nsqd=nsqd)


@pytest.fixture(scope="module")
def admin_gateway(shared: Servers, nsqd: Nsqd) -> GatewayProcess:
    return shared.gateway("--http-admin", nsqd=nsqd)


def binary(*bodies: bytes, count: int | None = None) -> bytes:
    number = len(bodies) if count is None else count
    return number.to_bytes(4, "big", signed=True) + b"".join(map(message, bodies))


REQUESTS: dict[str, tuple[str, bytes | Iterator[bytes] | None]] = {
    "pub": ("/pub?topic=t", b"one"),
    "pub-without-a-topic": ("/pub", b"one"),
    "pub-to-an-empty-topic": ("/pub?topic=", b"one"),
    "pub-to-a-bad-topic": ("/pub?topic=a%20b", b"one"),
    "pub-to-a-topic-too-long": (f"/pub?topic={'x' * 65}", b"one"),
    "pub-to-a-topic-that-is-no-unicode": ("/pub?topic=%ff", b"one"),
    "pub-to-the-first-of-two-topics": ("/pub?topic=t&topic=a%20b", b"one"),
    "pub-with-a-broken-escape": ("/pub?topic=%zz", b"one"),
    "pub-with-a-semicolon": ("/pub?topic=t;x=1", b"one"),
    "pub-of-nothing": ("/pub?topic=t", b""),
    "pub-of-nothing-to-nowhere": ("/pub", b""),
    "pub-as-big-as-may-be": ("/pub?topic=t", b"x" * MSG_SIZE),
    "pub-a-byte-too-big": ("/pub?topic=t", b"x" * (MSG_SIZE + 1)),
    "pub-bigger-than-any-body": ("/pub?topic=t", b"x" * (BODY_SIZE + 1)),
    "pub-much-too-big": ("/pub?topic=t", b"x" * 200_000),
    "pub-in-chunks": ("/pub?topic=t", iter([b"one", b"two"])),
    "pub-in-chunks-too-big": ("/pub?topic=t", iter([b"x" * 900] * 2)),
    "pub-in-chunks-much-too-big": ("/pub?topic=t", iter([b"x" * 900] * 100)),
    "pub-deferred": ("/pub?topic=t&defer=1000", b"one"),
    "pub-deferred-by-nothing": ("/pub?topic=t&defer=0", b"one"),
    "pub-deferred-with-a-sign": ("/pub?topic=t&defer=%2B5", b"one"),
    "pub-deferred-longest": ("/pub?topic=t&defer=3600000", b"one"),
    "pub-deferred-too-long": ("/pub?topic=t&defer=3600001", b"one"),
    "pub-deferred-into-the-past": ("/pub?topic=t&defer=-1", b"one"),
    "pub-deferred-by-letters": ("/pub?topic=t&defer=soon", b"one"),
    "pub-deferred-by-nothing-given": ("/pub?topic=t&defer=", b"one"),
    "pub-deferred-by-a-fraction": ("/pub?topic=t&defer=1.5", b"one"),
    "pub-deferred-by-foreign-digits": ("/pub?topic=t&defer=%D9%A3", b"one"),
    "pub-deferred-for-ever": (f"/pub?topic=t&defer={'9' * 5000}", b"one"),
    "mpub": ("/mpub?topic=t", b"one\ntwo\n\nthree"),
    "mpub-of-nothing": ("/mpub?topic=t", b""),
    "mpub-of-line-breaks": ("/mpub?topic=t", b"\n\n\n"),
    "mpub-without-a-topic": ("/mpub", b"one"),
    "mpub-to-a-bad-topic": ("/mpub?topic=a%20b", b"one"),
    "mpub-of-a-message-too-big": ("/mpub?topic=t", b"one\n" + b"x" * (MSG_SIZE + 1)),
    "mpub-as-big-as-may-be": ("/mpub?topic=t", (b"x" * 499 + b"\n") * 10),
    "mpub-a-byte-too-big": ("/mpub?topic=t", (b"x" * 499 + b"\n") * 10 + b"x"),
    "mpub-of-many-tiny-ones": ("/mpub?topic=t", b"x\n" * 2500),
    "mpub-in-chunks": ("/mpub?topic=t", iter([b"on", b"e\ntw", b"o"])),
    "mpub-in-chunks-too-big": ("/mpub?topic=t", iter([b"x" * 499 + b"\n"] * 11)),
    "binary": ("/mpub?topic=t&binary=true", binary(b"one", b"two")),
    "binary-by-number": ("/mpub?topic=t&binary=1", binary(b"one", b"two")),
    "binary-by-another-word": ("/mpub?topic=t&binary=yes", binary(b"one", b"two")),
    "binary-by-no-word": ("/mpub?topic=t&binary", binary(b"one", b"two")),
    "binary-false-is-text": ("/mpub?topic=t&binary=false", b"one\ntwo"),
    "binary-of-nothing": ("/mpub?topic=t&binary=true", b""),
    "binary-of-no-messages": ("/mpub?topic=t&binary=true", binary()),
    "binary-of-less-than-none": ("/mpub?topic=t&binary=true", binary(b"x", count=-1)),
    "binary-of-too-many": ("/mpub?topic=t&binary=true", binary(b"x", count=5000)),
    "binary-cut-short": ("/mpub?topic=t&binary=true", binary(b"one", b"two")[:-1]),
    "binary-with-one-missing": ("/mpub?topic=t&binary=true", binary(b"one", b"two", count=3)),
    "binary-of-an-empty-message": ("/mpub?topic=t&binary=true", binary(b"one", b"")),
    "binary-of-a-message-too-big": ("/mpub?topic=t&binary=true", binary(b"x" * (MSG_SIZE + 1))),
    "binary-that-is-text": ("/mpub?topic=t&binary=true", b"one\ntwo\n"),
    "ping": ("/ping", None),
    "a-method-that-is-not-there": ("/ping", b""),
    "pub-by-get": ("/pub?topic=t", None),
    "stats-by-post": ("/stats", b""),
    "a-path-that-is-not-there": ("/nothing", None),
    "a-path-that-is-not-there-by-post": ("/nothing", b""),
    "the-root": ("/", None),
    "stats-with-a-broken-escape": ("/stats?topic=%zz", None),
    # What nsqd's router takes for another path (see `route`).
    "two-slashes": ("//pub?topic=t", b"one"),
    "three-slashes": ("///mpub?topic=t", b"one"),
    "a-slash-behind": ("/pub/?topic=t", b"one"),
    "two-slashes-behind": ("/pub//?topic=t", b"one"),
    "capitals": ("/PUB?topic=t", b"one"),
    "capitals-and-a-slash": ("/Pub/?topic=t", b"one"),
    "a-dot": ("/./pub?topic=t", b"one"),
    "two-dots": ("/a/../pub?topic=t", b"one"),
    "a-dot-behind": ("/pub/.?topic=t", b"one"),
    "two-dots-behind": ("/pub/..?topic=t", b"one"),
    "more-behind": ("/pub/x?topic=t", b"one"),
    "an-escaped-letter": ("/%70ub?topic=t", b"one"),
    "an-escaped-slash": ("/pub%2F?topic=t", b"one"),
    "a-slash-and-no-query": ("/pub/", b"one"),
    "a-slash-and-an-empty-query": ("/pub/?", b"one"),
    "a-whole-url": ("http://h/pub?topic=t", b"one"),
    "admin-and-a-slash": ("/topic/create/?topic=t", b""),
    "admin-and-slashes": ("//channel//create?topic=t", b""),
    "half-of-admin": ("/topic", b""),
    "half-of-admin-and-a-slash": ("/topic/", b""),
    "get-with-a-slash-behind": ("/ping/", None),
    "get-with-two-slashes": ("//info", None),
    "get-in-capitals": ("/Stats?format=json&x=<&>'", None),
    "pub-by-get-with-a-slash": ("/pub/", None),
}
METHODS = {
    f"{method}-{path}": (method, path)
    for method in ("HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "PROPFIND")
    for path in ("/ping", "/pub?topic=t", "/stats", "/nothing", "/pub/")
}


_OURS = re.compile(rb',"srtm":\{.*\}\}$')
"""what the gateway's /stats says besides nsqd's"""
HEADERS = ("Content-Type", "X-NSQ-Content-Type", "Location", "Allow")


def asked(
    address: str, path: str, body: Any, method: str = ""
) -> tuple[int, bytes, dict[str, Any]]:
    """Status, body and the headers that matter."""
    connection = HTTPConnection(address, timeout=10)
    try:
        connection.request(
            method or ("GET" if body is None else "POST"),
            path,
            body,
            {"Connection": "close"},
            encode_chunked=isinstance(body, Iterator),
        )
        response = connection.getresponse()
        headers = {name: response.getheader(name) for name in HEADERS}
        return response.status, _OURS.sub(b"}", response.read()), headers
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("path", "body"), [pytest.param(*request, id=name) for name, request in REQUESTS.items()]
)
def test_the_answer_is_nsqds_own(
    gateway: GatewayProcess, nsqd: Nsqd, path: str, body: bytes | Iterator[bytes] | None
) -> None:
    bodies = [list(body), []] if isinstance(body, Iterator) else None
    answers = [
        asked(address, path, iter(bodies[0]) if bodies else body)
        for address in (nsqd.http, gateway.http)
    ]
    assert answers[1] == answers[0]


@pytest.mark.parametrize(
    ("method", "path"), [pytest.param(*request, id=name) for name, request in METHODS.items()]
)
def test_the_answer_to_any_method_is_nsqds_own(
    gateway: GatewayProcess, nsqd: Nsqd, method: str, path: str
) -> None:
    answers = [asked(address, path, None, method) for address in (nsqd.http, gateway.http)]
    assert answers[1] == answers[0]


def test_a_body_too_big_is_answered_and_the_connection_goes_on(gateway: GatewayProcess) -> None:
    connection = HTTPConnection(gateway.http, timeout=10)
    for size, status in ((3_000_000, 413), (10, 200), (BODY_SIZE + 1, 413), (10, 200)):
        connection.request("POST", "/pub?topic=t", b"x" * size)
        response = connection.getresponse()
        response.read()
        assert response.status == status
    connection.close()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("PUT", "/config/nsqlookupd_tcp_addresses", id="put-config"),
        pytest.param("GET", "/config/nsqlookupd_tcp_addresses", id="get-config"),
        pytest.param("PUT", "/config/log_level", id="put-log-level"),
        pytest.param("GET", "/debug/pprof/", id="debug"),
        pytest.param("GET", "/debug/pprof/heap", id="heap"),
        pytest.param("PUT", "/debug/setblockrate?rate=1", id="block-rate"),
        pytest.param("POST", "/debug/freememory", id="free-memory"),
        pytest.param("GET", "/topics", id="the-admin-sockets-paths"),
        pytest.param("PUT", "/topics/t", id="limits"),
        pytest.param("GET", "/pub/../config/log_level", id="a-path-with-dots"),
        pytest.param("PUT", "//config/log_level", id="a-path-with-two-slashes"),
        pytest.param("PUT", "/config%2flog_level", id="an-escaped-path"),
        pytest.param("PUT", "/topic/create/../../config/log_level", id="behind-an-admin-path"),
    ],
)
def test_what_is_not_allowed_is_not_found_even_with_http_admin(
    gateway: GatewayProcess, admin_gateway: GatewayProcess, method: str, path: str
) -> None:
    for address in (gateway.http, admin_gateway.http):
        status, document, _ = http(address, path, b"[]" if method != "GET" else None, method)
        assert (status, document) == (404, {"message": "NOT_FOUND"})
    assert gateway.nsqd.get("/config/nsqlookupd_tcp_addresses") == []


ADMIN = [
    ("/topic/create?topic=made", 200, ""),
    ("/topic/create?topic=a%20b", 400, {"message": "INVALID_TOPIC"}),
    ("/topic/create", 400, {"message": "MISSING_ARG_TOPIC"}),
    ("/channel/create?topic=made&channel=c", 200, ""),
    ("/channel/create?topic=missing&channel=c", 404, {"message": "TOPIC_NOT_FOUND"}),
    ("/topic/pause?topic=made", 200, ""),
    ("/topic/unpause?topic=made", 200, ""),
    ("/channel/pause?topic=made&channel=c", 200, ""),
    ("/channel/unpause?topic=made&channel=c", 200, ""),
    ("/channel/empty?topic=made&channel=c", 200, ""),
    ("/channel/empty?topic=made&channel=d", 404, {"message": "CHANNEL_NOT_FOUND"}),
    ("/topic/empty?topic=made", 200, ""),
    ("/channel/delete?topic=made&channel=c", 200, ""),
    ("/topic/delete?topic=made", 200, ""),
    ("/topic/delete?topic=made", 404, {"message": "TOPIC_NOT_FOUND"}),
]


def test_topics_and_channels_are_managed_with_http_admin_and_only_then(
    gateway: GatewayProcess, admin_gateway: GatewayProcess, nsqd: Nsqd
) -> None:
    for path, _, _ in ADMIN:
        status, document, _ = http(gateway.http, path, b"")
        assert status == 405, path
        assert "--http-admin" in document["message"]
        assert http(gateway.http, path)[0] == 405
    assert nsqd.topic("made") is None
    answers = [http(admin_gateway.http, path, b"")[:2] for path, _, _ in ADMIN]
    assert answers == [(status, document) for _, status, document in ADMIN]
    assert nsqd.topic("made") is None


def test_a_topic_deleted_through_the_door_is_published_to_again(
    admin_gateway: GatewayProcess, nsqd: Nsqd
) -> None:
    for _ in range(3):
        assert http(admin_gateway.http, "/pub?topic=again", b"x")[:2] == (200, "OK")
        assert nsqd.message_count("again") == 1
        assert http(admin_gateway.http, "/topic/delete?topic=again", b"")[0] == 200


def test_what_is_published_by_http_arrives_as_it_was_sent(
    gateway: GatewayProcess,
) -> None:
    with V2(gateway.tcp) as consumer:
        consumer.identify(output_buffer_size=-1)
        consumer.subscribe("arrives", "c")
        post = [
            ("/pub?topic=arrives", b"a\nb\0c"),
            ("/mpub?topic=arrives", b"d\n\ne\n"),
            ("/mpub?topic=arrives&binary=true", binary(b"f\ng", b"\xff\xfe")),
            ("/mpub?topic=arrives", b"\n".join([b"%d" % n for n in range(1100)])),
        ]
        for path, body in post:
            assert http(gateway.http, path, body)[:2] == (200, "OK")
        expected = [b"a\nb\0c", b"d", b"e", b"f\ng", b"\xff\xfe", *(b"%d" % n for n in range(1100))]
        got = [consumer.message().body for _ in expected]
        assert sorted(got) == sorted(expected)
        assert gateway.ours("arrives")["admitted"] == len(expected)
        assert http(gateway.http, "/pub?topic=arrives&defer=60000", b"later")[:2] == (200, "OK")

        def deferred() -> bool:
            entry = gateway.nsqd.topic("arrives")
            return entry is not None and entry["channels"][0]["deferred_count"] == 1

        wait_for(deferred, "nsqd keeps the deferred one for later")


def test_a_body_of_more_messages_than_a_topics_backlog_is_not_refused_for_ever(
    servers: Servers,
) -> None:
    gateway = servers.gateway("--max-topic-backlog=10")
    assert http(gateway.http, "/mpub?topic=t", b"x\n" * 50)[:2] == (200, "OK")


def test_stats_show_publishers_as_themselves_in_nsqds_own_shape(servers: Servers) -> None:
    gateway = servers.gateway("--topic=t,rate=1000,burst=10,slo=0.99@10ms")
    with V2(gateway.tcp) as named, V2(gateway.tcp) as nameless, V2(gateway.nsqd.tcp) as straight:
        for client in (named, straight):
            client.identify(client_id="p", hostname="attic", user_agent="x/1", sample_rate=5)
        for client in (named, nameless, straight):
            client.send(pub(b"t", b"1") + pub(b"t", b"2") + pub(b"u", b"3"))
            assert [client.reply() for _ in range(3)] == [b"OK"] * 3
        document = http(gateway.http, "/stats?format=json")[1]
        own = gateway.nsqd.get("/stats?format=json")
        assert set(document) - {"srtm"} == set(own)
        producers = {entry["remote_address"]: entry for entry in document["producers"]}
        addresses = ["{}:{}".format(*client.socket.getsockname()) for client in (named, nameless)]
        assert sorted(producers) == sorted(addresses), "not the gateway's own connections"
        [direct] = [entry for entry in own["producers"] if entry["client_id"] == "p"]
        shown = producers[addresses[0]]
        assert set(shown) == set(direct)
        apart = {"remote_address", "connect_ts", "state", "pub_counts"}
        assert {k: v for k, v in shown.items() if k not in apart} == {
            k: v for k, v in direct.items() if k not in apart
        }
        counts = {entry["topic"]: entry["count"] for entry in shown["pub_counts"]}
        assert counts == {"t": 2, "u": 1}
        assert producers[addresses[1]]["hostname"] == "127.0.0.1"

        [topic] = http(gateway.http, "/stats?format=json&topic=u")[1]["topics"]
        assert topic["topic_name"] == "u"
        only = http(gateway.http, "/stats?format=json&topic=u")[1]["producers"]
        assert [entry["pub_counts"] for entry in only] == [[{"topic": "u", "count": 1}]] * 2
        lean = http(gateway.http, "/stats?format=json&include_clients=false&include_mem=0")[1]
        assert not lean["producers"]
        assert "memory" not in lean
        assert not http(gateway.http, "/stats?format=json&topic=missing")[1]["topics"]
        text = http(gateway.http, "/stats")[1]
        assert "contract 1000/s burst 10" in text
        assert "attic" in text


def test_every_metric_of_the_tables_is_there_with_help_and_parses(
    servers: Servers,
) -> None:
    gateway = servers.gateway("--topic=t,rate=500,burst=100,slo=0.99@10ms")
    with V2(gateway.tcp) as consumer:
        consumer.identify(output_buffer_size=-1)
        consumer.subscribe("t", "c")
        wait_for(
            lambda: "client_count': 1" in str(gateway.nsqd.topic("srtm_probe#ephemeral")),
            "the probe is there",
        )
        for _ in range(20):
            http(gateway.http, "/pub?topic=t", b"x")
            http(gateway.http, "/pub?topic=free", b"x")
            consumer.message()

        def families() -> Any:
            status, text, headers = http(gateway.http, "/metrics")
            assert status == 200
            assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
            found = {family.name: family for family in text_string_to_metric_families(text)}
            counts = [
                sample.value
                for name in ("broker", "consumer")
                for sample in found[f"srtm_topic_{name}_latency_seconds"].samples
                if sample.name.endswith("_count") and sample.labels["topic"] == "t"
            ]
            return found if counts == [20, 20] else None

        found = wait_for(families, "the probe's latencies are in /metrics")
    rows = (*TOPIC_METRICS, *GATEWAY_METRICS, *SOURCE_METRICS)
    assert set(found) == {row.name.removesuffix("_total") for row in rows}
    assert all(family.documentation for family in found.values())

    def value(name: str, topic: str) -> float | None:
        samples = found[name].samples
        values = [s.value for s in samples if s.labels == {"topic": topic}]
        return values[0] if values else None

    assert value("srtm_topic_offered_messages", "t") == 20
    assert value("srtm_topic_admitted_messages", "free") == 20
    assert value("srtm_topic_rate_limit", "t") == 500
    assert value("srtm_topic_rate_limit", "free") is None
    for name in SKETCHES:
        family = found[f"srtm_topic_{name}_seconds"]
        of_t = [s for s in family.samples if s.labels["topic"] == "t"]
        counted = {s.name.removeprefix(family.name): s.value for s in of_t if len(s.labels) == 1}
        assert counted["_count"] == 20, name
        assert 0 <= counted["_sum"] < 20
        buckets = {s.labels["le"]: s.value for s in of_t if len(s.labels) == 2}
        assert list(map(float, buckets)) == [*BOUNDS, math.inf]
        assert sorted(buckets.values()) == list(buckets.values())
        assert buckets["+Inf"] == 20
