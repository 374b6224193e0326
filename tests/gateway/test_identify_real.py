"""IDENTIFY is answered by the gateway as nsqd would answer it, and replayed at SUB."""

import json
from typing import Any

import pytest

from srtm.nsq.commands import MAGIC_V2, NOP, identify, message, pub, rdy, sub
from tests.support.servers import GatewayProcess, Nsqd, Servers, http, wait_for
from tests.support.v2 import V2

DECLINES = ("--deflate=false", "--snappy=false")


@pytest.fixture(scope="module")
def nsqd(shared: Servers) -> Nsqd:
    """An nsqd that declines compression, with limits other than the default."""
    return shared.nsqd(
        *DECLINES,
        "--max-rdy-count=1000",
        "--max-heartbeat-interval=50s",
        "--max-output-buffer-size=32768",
        "--max-output-buffer-timeout=20s",
        "--min-output-buffer-timeout=30ms",
        "--output-buffer-timeout=300ms",
        "--max-msg-timeout=10m",
        "--msg-timeout=50s",
        "--max-deflate-level=5",
        "--max-body-size=4000000",
    )


@pytest.fixture(scope="module")
def gateway(shared: Servers, nsqd: Nsqd) -> GatewayProcess:
    return shared.gateway(*DECLINES, nsqd=nsqd)


NEGOTIATED = {"feature_negotiation": True}

BODIES = {
    "an-empty-object": {},
    "null": None,
    "an-empty-object-with-features": NEGOTIATED,
    "who-it-is": {**NEGOTIATED, "client_id": "c", "hostname": "h", "user_agent": "a/1"},
    "heartbeat-shortest": {**NEGOTIATED, "heartbeat_interval": 1000},
    "heartbeat-longest": {**NEGOTIATED, "heartbeat_interval": 50_000},
    "heartbeat-none": {**NEGOTIATED, "heartbeat_interval": -1},
    "heartbeat-too-long": {**NEGOTIATED, "heartbeat_interval": 50_001},
    "buffer-biggest": {**NEGOTIATED, "output_buffer_size": 32_768},
    "buffer-none": {**NEGOTIATED, "output_buffer_size": -1},
    "buffer-too-big": {**NEGOTIATED, "output_buffer_size": 32_769},
    "buffer-timeout-shortest": {**NEGOTIATED, "output_buffer_timeout": 30},
    "buffer-timeout-longest": {**NEGOTIATED, "output_buffer_timeout": 20_000},
    "buffer-timeout-too-short": {**NEGOTIATED, "output_buffer_timeout": 29},
    "buffer-timeout-too-long": {**NEGOTIATED, "output_buffer_timeout": 20_001},
    "msg-timeout": {**NEGOTIATED, "msg_timeout": 5000},
    "msg-timeout-longest": {**NEGOTIATED, "msg_timeout": 600_000},
    "msg-timeout-too-long": {**NEGOTIATED, "msg_timeout": 600_001},
    "deflate-declined": {**NEGOTIATED, "deflate": True, "deflate_level": 3},
    "snappy-declined": {**NEGOTIATED, "snappy": True},
    "both-declined": {**NEGOTIATED, "snappy": True, "deflate": True},
    "tls-false": {**NEGOTIATED, "tls_v1": False},
    "deflate-level-negative": {**NEGOTIATED, "deflate": True, "deflate_level": -1},
    "deflate-level-too-high": {**NEGOTIATED, "deflate": True, "deflate_level": 99},
    "auth-is-no-field": {**NEGOTIATED, "auth_required": True, "auth": "secret"},
    "not-a-number": {**NEGOTIATED, "other": float("nan")},
    "tls-not-negotiated": {"tls_v1": True},
}  # fmt: skip
"""Of each kind, and of each limit that differs from nsqd's default; test_identify.py has all."""


def asked(address: str, sent: bytes) -> tuple[Any, bool]:
    """What is answered to `sent`, as JSON where it is, and whether the connection is closed."""
    with V2(address) as client:
        client.send(sent)
        reply = client.reply()
        try:
            answer = json.loads(reply or b"")
        except ValueError:
            answer = reply
        # Whoever is still served closes after CLS, which is not allowed now, with one more error.
        client.send(b"CLS\n")
        return answer, client.reply() is None


@pytest.mark.parametrize(
    "body", [pytest.param(json.dumps(body).encode(), id=name) for name, body in BODIES.items()]
)
def test_the_answer_is_nsqds_own(gateway: GatewayProcess, nsqd: Nsqd, body: bytes) -> None:
    assert asked(gateway.tcp, identify(body)) == asked(nsqd.tcp, identify(body))


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"IDENTIFY\n\x00\x00\x00\x00", id="an-empty-body"),
        pytest.param(b"IDENTIFY\n" + (4_000_001).to_bytes(4, "big"), id="a-body-too-big"),
        pytest.param(b"IDENTIFY anything here\n" + message(b"{}"), id="parameters-are-ignored"),
        pytest.param(b"AUTH\n" + message(b"secret"), id="auth-without-auth"),
        pytest.param(b"RDY 1\n", id="rdy-before-sub"),
        pytest.param(b"FIN 0123456789abcdef\n", id="fin-before-sub"),
        pytest.param(b"PUB t\n" + (1024 * 1024 + 1).to_bytes(4, "big"), id="pub-too-big"),
        pytest.param(b"DPUB t 3600001\n" + message(b"x"), id="dpub-too-late"),
        pytest.param(b"MPUB t\n" + (4_000_001).to_bytes(4, "big"), id="mpub-of-a-body-too-big"),
    ],
)
def test_the_error_is_nsqds_own(gateway: GatewayProcess, nsqd: Nsqd, sent: bytes) -> None:
    assert asked(gateway.tcp, sent) == asked(nsqd.tcp, sent)


@pytest.mark.parametrize("magic", [b"  V1", b"GET ", b"\x16\x03\x01\x02", b"V2  "])
def test_another_protocol_is_told_so_and_closed(
    gateway: GatewayProcess, nsqd: Nsqd, magic: bytes
) -> None:
    for address in (gateway.tcp, nsqd.tcp):
        with V2(address, magic=magic) as client:
            assert client.reply() == b"E_BAD_PROTOCOL"
            assert client.ended()


def test_an_identify_after_the_first_counts_from_then_on(
    gateway: GatewayProcess, nsqd: Nsqd
) -> None:
    """nsqd keeps what a later IDENTIFY leaves out, but not the sample rate."""
    first = {
        **NEGOTIATED,
        "sample_rate": 10,
        "msg_timeout": 5000,
        "output_buffer_size": 128,
        "output_buffer_timeout": 100,
    }
    answers = []
    for address in (gateway.tcp, nsqd.tcp):
        with V2(address) as client:
            client.identify(**first)
            answers.append([client.identify(**NEGOTIATED), client.identify(**first)])
    assert answers[0] == answers[1]


def test_tls_is_refused_and_the_connection_closed_rather_than_continued_in_clear_text(
    gateway: GatewayProcess,
) -> None:
    with V2(gateway.tcp) as client:
        client.send(
            identify(b'{"feature_negotiation": true, "tls_v1": true}') + pub(b"secret", b"secret")
        )
        reply = client.reply()
        assert reply is not None
        assert reply.startswith(b"E_IDENTIFY_FAILED TLS is not available here")
        assert client.ended()
    assert gateway.nsqd.topic("secret") is None


def entry_of(nsqd: Nsqd, topic: str, count: int = 1) -> list[dict[str, Any]]:
    """nsqd's own view of a channel's clients, once they are `count`."""

    def clients() -> Any:
        found = nsqd.topic(topic)
        channels = found["channels"] if found else []
        there = [client for channel in channels for client in channel["clients"] or []]
        return there if len(there) == count else None

    result: list[dict[str, Any]] = wait_for(clients, f"nsqd has {count} consumers of {topic}")
    return result


def test_nsqd_knows_a_consumer_by_what_it_said_of_itself(
    gateway: GatewayProcess, nsqd: Nsqd
) -> None:
    said = {
        "client_id": "sensor-7",
        "hostname": "attic.example",
        "user_agent": "test/1.0",
        "sample_rate": 42,
        "heartbeat_interval": 7000,
        "output_buffer_size": 256,
        "output_buffer_timeout": 40,
        "msg_timeout": 3000,
        "deflate": True,
        "snappy": True,
        "feature_negotiation": True,
    }
    with V2(gateway.tcp) as client, V2(nsqd.tcp) as straight:
        client.identify(client_id="an earlier IDENTIFY")
        client.identify(**said)
        client.subscribe("replayed", "c", ready=17)
        straight.identify(**said)
        straight.subscribe("direct", "c", ready=17)
        [through], [direct] = entry_of(nsqd, "replayed"), entry_of(nsqd, "direct")
    apart = {"remote_address", "connect_ts"}
    assert {key: value for key, value in through.items() if key not in apart} == {
        key: value for key, value in direct.items() if key not in apart
    }
    assert through["client_id"] == "sensor-7"


def test_behind_a_unix_socket_stats_show_a_consumers_own_address(servers: Servers) -> None:
    gateway = servers.gateway(unix=True)
    with V2(gateway.tcp) as client, V2(gateway.tcp) as nameless:
        client.identify(client_id="c")
        client.subscribe("t", "c")
        nameless.subscribe("t", "c")
        host, port = client.socket.getsockname()
        entry_of(gateway.nsqd, "t", count=2)
        channel = http(gateway.http, "/stats?format=json")[1]["topics"][0]["channels"][0]
        shown = {entry["remote_address"]: entry["client_id"] for entry in channel["clients"]}
        other = "{}:{}".format(*nameless.socket.getsockname())
        assert shown == {f"{host}:{port}": "c", other: host}


def test_the_message_timeout_that_a_client_asked_for_is_answered_and_passed_on(
    gateway: GatewayProcess, nsqd: Nsqd
) -> None:
    with V2(gateway.tcp) as client:
        assert client.identify(**NEGOTIATED, msg_timeout=4321)["msg_timeout"] == 4321
        client.subscribe("late", "c")
        assert "MsgTimeout:4321" in nsqd.process.text()


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(MAGIC_V2 + sub(b"TOPIC", b"c") + rdy(5), id="without-identify"),
        pytest.param(
            MAGIC_V2
            + identify(b'{"client_id": "c", "feature_negotiation": true}')
            + sub(b"TOPIC", b"c")
            + rdy(5),
            id="identify-sub-rdy-at-once",
        ),
        pytest.param(
            MAGIC_V2 + NOP + pub(b"TOPIC", b"before") + sub(b"TOPIC", b"c") + rdy(5),
            id="publish-sub-rdy-at-once",
        ),
        pytest.param(
            MAGIC_V2 + sub(b"TOPIC", b"c") + rdy(5) + pub(b"TOPIC", b"behind"),
            id="sub-rdy-publish-at-once",
        ),
    ],
)
@pytest.mark.parametrize("cut", [0, 1], ids=["in-one-segment", "byte-by-byte"])
def test_a_consumer_that_sends(
    gateway: GatewayProcess, sent: bytes, cut: int, request: pytest.FixtureRequest
) -> None:
    topic = f"t{abs(hash(request.node.name))}".encode()
    sent = sent.replace(b"TOPIC", topic)
    expected = sent.count(b"PUB")
    with V2(gateway.tcp, magic=b"") as client:
        for part in [sent] if not cut else [sent[i : i + 1] for i in range(len(sent))]:
            client.send(part)
        frames = []
        replies = 1 + expected + sent.count(b"IDENTIFY")
        for _ in range(replies + expected):
            frame = client.frame()
            assert frame is not None
            frames.append(frame)
        assert [frame.data for frame in frames if frame.data == b"OK"] == [b"OK"] * (expected + 1)
        assert http(gateway.http, f"/pub?topic={topic.decode()}", b"later")[0] == 200
        assert client.message().body == b"later"


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        pytest.param(sub(b"t", b"c"), b"E_INVALID cannot SUB in current state", id="sub-again"),
        pytest.param(
            identify(b"{}"), b"E_INVALID cannot IDENTIFY in current state", id="identify-after-sub"
        ),
        pytest.param(b"RDY 1001\n", b"E_INVALID RDY count 1001 out of range 0-1000", id="rdy"),
        pytest.param(b"FIN x\n", b"E_INVALID invalid message ID", id="fin-of-nonsense"),
        pytest.param(
            b"FIN 0123456789abcdef\n",
            b"E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight",
            id="fin-of-another",
        ),
        pytest.param(b"REQ 0123456789abcdef\n", b"E_INVALID REQ insufficient", id="req"),
        pytest.param(b"CLS\n", b"CLOSE_WAIT", id="cls"),
    ],
)
def test_a_subscribed_client_is_answered_as_nsqd_does(
    gateway: GatewayProcess, nsqd: Nsqd, sent: bytes, sentence: bytes
) -> None:
    for address in (nsqd.tcp, gateway.tcp):
        with V2(address) as client:
            client.subscribe("states", "c")
            client.send(sent)
            reply = client.reply()
            assert reply is not None
            assert reply.startswith(sentence)


def test_a_client_without_heartbeats_may_publish_and_not_subscribe(
    gateway: GatewayProcess, nsqd: Nsqd
) -> None:
    for address in (nsqd.tcp, gateway.tcp):
        with V2(address) as client:
            client.identify(heartbeat_interval=-1)
            client.send(pub(b"quiet", b"one"))
            assert client.reply() == b"OK"
            client.send(sub(b"quiet", b"c"))
            assert client.reply() == b"E_INVALID cannot SUB with heartbeats disabled"
            assert client.ended()


def test_a_channel_that_is_full_refuses_through_the_gateway_too(servers: Servers) -> None:
    nsqd = servers.nsqd("--max-channel-consumers=1")
    gateway = servers.gateway(nsqd=nsqd)
    with V2(gateway.tcp) as first, V2(gateway.tcp) as second:
        first.subscribe("t", "c")
        second.send(sub(b"t", b"c"))
        reply = second.reply()
        assert reply is not None
        assert reply.startswith(b"E_SUB_FAILED")
        assert second.ended()
        first.send(pub(b"t", b"still served"))
        assert {frame.data[-12:] for frame in (first.frame(), first.frame()) if frame} == {
            b"OK",
            b"still served",
        }


@pytest.mark.parametrize(
    "commands",
    [
        pytest.param([b"CLS\n", pub(b"order", b"x")], id="close-then-publish"),
        pytest.param([pub(b"order", b"x"), b"CLS\n"], id="publish-then-close"),
        pytest.param(
            [pub(b"order", b"x"), b"CLS\n", pub(b"order", b"y"), b"NOP\n"], id="between-publishes"
        ),
        pytest.param([b"CLS\n", pub(b"order", b"x"), b"CLS\n"], id="close-twice"),
        pytest.param([pub(b"order", b"x"), b"RDY x\n"], id="publish-then-nonsense"),
        pytest.param([b"CLS\n", pub(b"order", b"x"), b"FIN x\n"], id="then-nonsense"),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_answers_of_a_closing_consumer_keep_the_order_of_its_commands(
    gateway: GatewayProcess, nsqd: Nsqd, commands: list[bytes], together: bool
) -> None:
    """Some are nsqd's, some the gateway's. Up to the first error, behind which nothing runs. Each
    has a channel of its own: nsqd deletes an ephemeral one a little after its last consumer has
    left, with whoever has come meanwhile."""
    found = []
    for number, address in enumerate((nsqd.tcp, gateway.tcp)):
        with V2(address) as client:
            sent = [sub(b"order", b"order-%d#ephemeral" % number), *commands]
            for data in [b"".join(sent)] if together else sent:
                client.send(data)
            expected = 1 + sum(not each.startswith((b"RDY", b"NOP")) for each in commands)
            replies: list[bytes] = []
            while len(replies) < expected and (reply := client.reply()) is not None:
                replies.append(reply)
                if reply.startswith(b"E_"):
                    break
            found.append(replies)
    assert found[1] == found[0]
