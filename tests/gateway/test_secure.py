"""TLS, snappy and deflate at the TCP door: the same frames as nsqd, whatever carries them."""

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from srtm.nsq.commands import MAGIC_V2, NOP, identify, message, mpub, pub
from srtm.text.errors import Exit
from tests.support.auth_server import allowing, auth_server
from tests.support.certificates import Authority
from tests.support.secure import SecureV2
from tests.support.servers import GatewayProcess, Nsqd, Servers, free_port, http, wait_for
from tests.support.v2 import V2

BIG = b"0123456789abcdef" * 65_536  # 1 MiB, nsqd's largest message


@pytest.fixture(scope="module")
def flags(authority: Authority) -> list[str]:
    cert, key = authority.issue("localhost", dns=["localhost"], ip=["127.0.0.1"])
    return [f"--tls-cert={cert}", f"--tls-key={key}"]


@pytest.fixture(scope="module")
def nsqd(shared: Servers, flags: list[str]) -> Nsqd:
    return shared.nsqd(*flags, "--https-address=")


@pytest.fixture(scope="module")
def gateway(shared: Servers, flags: list[str]) -> GatewayProcess:
    return shared.gateway(*flags, "--https-address=")


FEATURES = {
    "tls": {"tls": True},
    "snappy": {"snappy": True},
    "deflate": {"deflate": True},
    "deflate-level-1": {"deflate": True, "deflate_level": 1},
    "tls-and-snappy": {"tls": True, "snappy": True},
    "tls-and-deflate": {"tls": True, "deflate": True},
}


@pytest.mark.parametrize(
    "features", [pytest.param(each, id=name) for name, each in FEATURES.items()]
)
def test_all_goes_both_ways_as_at_nsqd(
    gateway: GatewayProcess, nsqd: Nsqd, trusting: ssl.SSLContext, features: dict[str, Any]
) -> None:
    asked = dict(features)
    tls = trusting if asked.pop("tls", False) else None
    name = "-".join(features) + str(features.get("deflate_level", ""))
    told = []
    for address in (gateway.tcp, nsqd.tcp):
        with SecureV2(address, tls, **asked) as client:
            told.append(client.told)
            client.send(pub(name.encode(), b"small"))
            assert client.reply() == b"OK"
            client.send(pub(name.encode(), BIG) + pub(name.encode(), b"behind it"))
            client.oks(2)
            bodies = [b"%d" % number for number in range(1000)]
            client.send(mpub(name.encode(), map(message, bodies), 1000))
            assert client.reply() == b"OK"
            client.subscribe(name, "ch")
            came = [client.message().body for _ in range(1003)]
            assert sorted(came) == sorted([b"small", BIG, b"behind it", *bodies])
    assert told[0] == told[1]


def test_the_answers_of_many_connections_at_once_go_through_their_own_layers(
    gateway: GatewayProcess, trusting: ssl.SSLContext
) -> None:
    clients = [
        SecureV2(gateway.tcp, trusting),
        SecureV2(gateway.tcp, trusting, snappy=True),
        SecureV2(gateway.tcp, deflate=True),
        SecureV2(gateway.tcp, snappy=True),
        V2(gateway.tcp),
    ]
    for _ in range(50):
        for client in clients:
            client.send(pub(b"many", b"x") * 20)
        for client in clients:
            client.oks(20)
    for client in clients:
        client.close()


def test_what_stands_behind_identify_in_clear_never_runs(
    gateway: GatewayProcess, trusting: ssl.SSLContext
) -> None:
    asks = b'{"feature_negotiation": true, "tls_v1": true}'
    with socket.create_connection(gateway.tcp.rsplit(":", 1)) as wire:
        wire.sendall(MAGIC_V2 + identify(asks) + pub(b"injected", b"x"))
        assert b'"tls_v1":true' in wire.recv(65_536)
        with trusting.wrap_socket(wire, server_hostname="localhost") as inside:
            assert inside.recv(10) == b"\0\0\0\x06\0\0\0\0OK"
            inside.sendall(pub(b"after", b"y"))
            assert inside.recv(10) == b"\0\0\0\x06\0\0\0\0OK"
    assert gateway.nsqd.topic("after") is not None
    assert gateway.nsqd.topic("injected") is None


def test_identify_behind_messages_that_wait_is_answered_and_secured_in_its_turn(
    servers: Servers, flags: list[str], trusting: ssl.SSLContext
) -> None:
    gateway = servers.gateway(*flags, "--https-address=", "--topic=slow,rate=5,burst=1")
    asks = b'{"feature_negotiation": true, "tls_v1": true}'
    with V2(gateway.tcp) as client:
        client.send(pub(b"slow", b"1") + pub(b"slow", b"2") + identify(asks) + b"injected")
        client.oks(2)
        answer = client.reply()
        assert answer is not None
        assert b'"tls_v1":true' in answer
        client.socket = trusting.wrap_socket(client.socket, server_hostname="localhost")
        assert client.reply() == b"OK"
        client.send(pub(b"slow", b"3"))
        client.oks(1)


def test_who_waits_to_be_secured_is_not_taken_for_silent(
    servers: Servers, flags: list[str], trusting: ssl.SSLContext
) -> None:
    """It is not read meanwhile, and so its beats are not heard for more than two intervals."""
    gateway = servers.gateway(*flags, "--https-address=", "--topic=slow,rate=1,burst=1")
    with V2(gateway.tcp) as client:
        client.identify(heartbeat_interval=1000)
        asks = b'{"feature_negotiation": true, "tls_v1": true}'
        client.send(pub(b"slow", b"x") * 5 + identify(asks))
        client.oks(5)
        assert b'"tls_v1":true' in (client.reply() or b"")
        client.socket = trusting.wrap_socket(client.socket, server_hostname="localhost")
        assert client.reply() == b"OK"


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        pytest.param(NOP + pub(b"t", b"x"), b"E_IDENTIFY_FAILED", id="goes-on-in-clear-text"),
        pytest.param(b"\x16\x03\x01\xff\xff" + bytes(40), None, id="a-record-too-long"),
        pytest.param(b"\x16\x03\x01\x00\x05hello", None, id="nonsense-for-a-hello"),
    ],
)
def test_who_begins_no_tls_is_told_so(
    gateway: GatewayProcess, sent: bytes, code: bytes | None
) -> None:
    with V2(gateway.tcp) as client:
        client.send(identify(b'{"feature_negotiation": true, "tls_v1": true}'))
        assert b'"tls_v1":true' in (client.reply() or b"")
        client.send(sent)
        if code is None:  # an alert of TLS, or nothing
            while client.socket.recv(65_536):
                pass
        else:
            assert (client.reply() or b"").startswith(code)
            assert client.ended()


def test_a_second_identify_inside_is_refused(
    gateway: GatewayProcess, trusting: ssl.SSLContext
) -> None:
    with SecureV2(gateway.tcp, trusting) as client:
        client.send(identify(b'{"feature_negotiation": true, "tls_v1": true}'))
        assert client.reply() == b"E_INVALID cannot IDENTIFY in current state"
        assert client.ended()


def test_tls_that_is_required_is_asked_for_by_each_command(
    servers: Servers, flags: list[str], trusting: ssl.SSLContext
) -> None:
    required = [*flags, "--https-address=", "--tls-required=tcp-https"]
    gateway, nsqd = servers.gateway(*required), servers.nsqd(*required)
    commands = [
        pub(b"t", b"x"), mpub(b"t", [message(b"x")], 1), b"DPUB t 1\n" + message(b"x"),
        b"SUB t c\n", b"RDY 1\n", b"FIN 0123456789abcdef\n", b"NOP\n", b"CLS\n",
        b"AUTH\n" + message(b"secret"),
    ]  # fmt: skip
    for command in commands:
        answers = []
        for address in (gateway.tcp, nsqd.tcp):
            with V2(address) as client:
                client.send(command)
                answers.append((client.reply(), client.ended()))
        assert answers[0] == answers[1], command
    with SecureV2(gateway.tcp, trusting) as client:
        client.send(pub(b"t", b"x"))
        client.oks(1)


def test_a_client_without_a_certificate_of_the_authority_is_refused_where_it_must_show_one(
    servers: Servers, flags: list[str], authority: Authority
) -> None:
    gateway = servers.gateway(
        *flags,
        "--https-address=",
        f"--tls-root-ca-file={authority.ca_file}",
        "--tls-client-auth-policy=require-verify",
    )
    context = ssl.create_default_context(cafile=authority.ca_file)
    with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
        SecureV2(gateway.tcp, context)
    context.load_cert_chain(*authority.issue("sensor-7", client=True))
    with SecureV2(gateway.tcp, context) as client:
        client.send(pub(b"t", b"x"))
        client.oks(1)


@pytest.mark.parametrize("packing", ["snappy", "deflate"])
def test_a_bomb_is_read_in_parts(gateway: GatewayProcess, packing: str) -> None:
    """32 MiB of zeros are 32 KiB of deflate, which come in one read; of snappy 1.5 MiB."""
    with SecureV2(gateway.tcp, **{packing: True}) as client, V2(gateway.tcp) as other:
        client.send(pub(b"bomb", bytes(1 << 20)) * 32)
        other.send(pub(b"other", b"x"))
        other.oks(1)
        client.oks(32)


@pytest.mark.parametrize("packing", ["snappy", "deflate"])
def test_what_is_not_packed_ends_the_connection_and_no_other(
    gateway: GatewayProcess, packing: str
) -> None:
    with SecureV2(gateway.tcp, **{packing: True}) as client, V2(gateway.tcp) as other:
        client.socket._wire.sendall(b"\xff\xff\xff\xffPUB t\n")  # type: ignore[attr-defined]
        assert client.ended()
        other.send(pub(b"other", b"x"))
        other.oks(1)


@pytest.fixture
def wanting(servers: Servers, flags: list[str], authority: Authority) -> Iterator[Nsqd]:
    """An nsqd that takes only clients with TLS, a certificate of the authority, and a secret."""
    with auth_server() as asked:
        asked.answers["the-gateway"] = allowing("publish", "subscribe")
        yield servers.nsqd(
            *flags,
            f"--tls-root-ca-file={authority.ca_file}",
            "--tls-client-auth-policy=require-verify",
            "--tls-required=tcp-https",
            f"--https-address=127.0.0.1:{free_port()}",
            f"--auth-http-address={asked.address}",
        )


def test_an_nsqd_that_wants_tls_a_certificate_and_auth_is_served(
    servers: Servers, wanting: Nsqd, authority: Authority
) -> None:
    secret = servers.folder / "secret"
    secret.write_text("the-gateway\n")
    secret.chmod(0o600)
    cert, key = authority.issue("gateway-1", client=True)
    gateway = servers.gateway(
        f"--nsqd-tls-root-ca-file={authority.ca_file}",
        f"--nsqd-tls-cert={cert}",
        f"--nsqd-tls-key={key}",
        f"--nsqd-auth-secret-file={secret}",
        "--topic=t,rate=1000,burst=100,slo=0.99@100ms",
        nsqd=wanting,
    )
    with V2(gateway.tcp) as client:
        client.send(pub(b"t", b"x") * 3 + pub(b"new", BIG))
        client.oks(4)
        client.subscribe("t", "ch")
        assert [client.message().body for _ in range(3)] == [b"x"] * 3
    with V2(gateway.tcp) as client:
        client.subscribe("new", "ch")
        assert client.message().body == BIG
    assert "the-gateway" not in gateway.process.text()


def test_an_nsqd_that_wants_what_the_gateway_was_not_given_is_told_with_the_remedy(
    servers: Servers, wanting: Nsqd, authority: Authority
) -> None:
    for flags, remedy in (
        ([], "requires TLS: give --nsqd-tls-root-ca-file"),
        ([f"--nsqd-tls-root-ca-file={authority.ca_file}"], "requires AUTH: give --nsqd-auth-se"),
    ):
        gateway = servers.gateway(*flags, nsqd=wanting, wait=False)
        assert gateway.process.popen.wait(60) == Exit.UNAVAILABLE
        assert remedy in gateway.process.text()


@pytest.mark.parametrize(
    "features", [{"tls": True}, {"snappy": True}, {"tls": True, "deflate": True}]
)
@pytest.mark.parametrize("connections", [60, 1])
def test_a_frozen_gateway_delays_no_conformant_publisher(
    servers: Servers,
    flags: list[str],
    trusting: ssl.SSLContext,
    features: dict[str, Any],
    connections: int,
) -> None:
    """Rule 7 through layers: messages 12 ms apart come while the gateway is stopped, each in a
    record of its own, and have the stamp of its last byte. On one connection each segment's time
    is only known by eBPF."""
    asked = dict(features)
    tls = trusting if asked.pop("tls", False) else None
    gateway = servers.gateway(*flags, "--https-address=", "--timestamps=auto")
    source = http(gateway.http, "/stats?format=json")[1]["srtm"]["timestamps"]["source"]
    if connections == 1 and source != "ebpf":
        pytest.skip("this kernel gives no stamp of each segment (eBPF)")
    gateway.set_limit("t", rate=100, burst=3)
    with ExitStack() as stack:
        clients = [
            stack.enter_context(SecureV2(gateway.tcp, tls, **asked)) for _ in range(connections)
        ] * (60 // connections)
        gateway.process.freeze()
        for client in clients:
            client.send(pub(b"t", b"x"))
            time.sleep(0.012)
        gateway.process.thaw()
        for client in clients:
            client.oks(1)
    wait = gateway.ours("t")["token_wait"]
    assert (wait["count"], wait["p99"]) == (60, 0)


def test_the_end_in_the_segment_of_a_message_is_heeded(
    gateway: GatewayProcess, trusting: ssl.SSLContext
) -> None:
    """close_notify, and the final block of deflate, while the TCP connection stays open."""
    inbound, outbound = ssl.MemoryBIO(), ssl.MemoryBIO()
    with socket.create_connection(gateway.tcp.rsplit(":", 1)) as wire:
        wire.settimeout(20)  # less than the time to the first heartbeat
        wire.sendall(MAGIC_V2 + identify(b'{"feature_negotiation": true, "tls_v1": true}'))
        assert b'"tls_v1":true' in wire.recv(65_536)
        tls = trusting.wrap_bio(inbound, outbound, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        wire.sendall(outbound.read())
        while True:
            inbound.write(wire.recv(65_536))
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                continue
        tls.write(pub(b"ended", b"x"))
        with pytest.raises(ssl.SSLWantReadError):
            tls.unwrap()
        wire.sendall(outbound.read())
        while wire.recv(65_536):
            pass
    assert gateway.nsqd.topic("ended") is not None


def test_a_reset_right_behind_identify_is_no_fault(gateway: GatewayProcess) -> None:
    for _ in range(50):
        client = V2(gateway.tcp)
        client.send(identify(b'{"feature_negotiation": true, "tls_v1": true}') * 2)
        client.reset()
    wait_for(lambda: gateway.metric("srtm_connections") == 0, "all have gone")
    assert gateway.metric("srtm_faults_total") == 0
