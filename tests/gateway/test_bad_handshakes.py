"""Bad input at the TLS doors: who is slow, silent, gone, or of another protocol harms nobody else,
and each that is refused is told why in one line."""

import contextlib
import random
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from srtm.host.certificates import TlsFiles, client_context
from srtm.nsq.commands import MAGIC_V2, identify, pub
from srtm.nsq.connection import Connection, Features, Refused
from tests.nsq.layers.test_fuzz import mutated
from tests.support.cases import LONG
from tests.support.certificates import Authority
from tests.support.records import Sealer
from tests.support.secure import Deflate, Packed, SecureV2, Snappy
from tests.support.servers import GatewayProcess, Servers, http, wait_for
from tests.support.v2 import V2

ASKS = MAGIC_V2 + identify(b'{"feature_negotiation": true, "tls_v1": true}')


@pytest.fixture(scope="module")
def flags(authority: Authority) -> list[str]:
    cert, key = authority.issue("localhost", dns=["localhost"])
    return [f"--tls-cert={cert}", f"--tls-key={key}", "--https-address="]


@pytest.fixture(scope="module")
def gateway(shared: Servers, flags: list[str]) -> Iterator[GatewayProcess]:
    gateway = shared.gateway(*flags)
    yield gateway
    assert gateway.process.alive
    assert "Traceback" not in gateway.process.text()
    assert gateway.metric("srtm_faults_total") == 0


def asked(gateway: GatewayProcess) -> socket.socket:
    """A connection that has been told to begin TLS."""
    host, port = gateway.tcp.split(":")
    wire = socket.create_connection((host, int(port)), 60)
    wire.sendall(ASKS)
    size = int.from_bytes(wire.recv(4, socket.MSG_WAITALL), "big")
    assert b'"tls_v1":true' in wire.recv(size, socket.MSG_WAITALL)
    return wire


def connections(gateway: GatewayProcess) -> int:
    return int(gateway.metric("srtm_connections"))


def served(gateway: GatewayProcess, trusting: ssl.SSLContext) -> None:
    """Others' handshakes and messages go on."""
    with SecureV2(gateway.tcp, trusting) as client, V2(gateway.tcp) as plain:
        for each in (client, plain):
            each.send(pub(b"others", b"x") * 3)
            each.oks(3, timeout=4)


def test_five_hundred_that_send_one_byte_of_a_hello_hold_up_nobody_and_are_closed_in_time(
    gateway: GatewayProcess, trusting: ssl.SSLContext
) -> None:
    process = psutil.Process(gateway.process.popen.pid)
    served(gateway, trusting)
    files = process.num_fds()
    sizes = []
    for _ in range(2):
        with contextlib.ExitStack() as stack:
            slow = [stack.enter_context(asked(gateway)) for _ in range(500)]
            for wire in slow:
                wire.sendall(b"\x16")
            for _ in range(5):
                served(gateway, trusting)
            for wire in slow:
                answer = b""
                while data := wire.recv(4096):
                    answer += data
                assert b"E_IDENTIFY_FAILED IDENTIFY failed: no TLS handshake came" in answer
        wait_for(lambda: connections(gateway) == 0, "all are gone")
        wait_for(lambda: process.num_fds() <= files, "their descriptors too")
        sizes.append(process.memory_info().rss)
    assert sizes[1] - sizes[0] < 8 << 20, "the second five hundred take what the first left"


def test_a_hello_without_an_end_is_closed(
    gateway: GatewayProcess, trusting: ssl.SSLContext
) -> None:
    """In crumbs, as fast as they go."""
    with asked(gateway) as wire, contextlib.suppress(ConnectionError):
        wire.settimeout(10)
        for _ in range(100):
            wire.sendall(b"\x16\x03\x01\0\x01\x01" * 1000)
            served(gateway, trusting)
        pytest.fail("it was not closed")


def test_key_updates_without_end_are_closed(
    gateway: GatewayProcess, authority: Authority, tmp_path: Path
) -> None:
    context = client_context(TlsFiles(root_ca=authority.ca_file))
    context.keylog_filename = str(tmp_path / "keys")
    with SecureV2(gateway.tcp, context) as client:
        sealer = Sealer.of_client(tmp_path / "keys")
        assert isinstance(client.socket, ssl.SSLSocket)
        wire = socket.socket(fileno=client.socket.detach())
        wire.settimeout(20)
        client.socket = wire
        with contextlib.suppress(ConnectionError):
            for _ in range(5000):
                wire.sendall(sealer.key_update(asks_for_one=True))
            while wire.recv(4096):
                pass
    served(gateway, ssl.create_default_context(cafile=authority.ca_file))


@pytest.mark.parametrize("packing", [Snappy, Deflate])
def test_what_stands_behind_identify_never_runs_where_packing_was_agreed_on(
    gateway: GatewayProcess, packing: type[Snappy] | type[Deflate]
) -> None:
    name = packing.__name__.lower()
    asks = identify(b'{"feature_negotiation": true, "%b": true}' % name.encode())
    with V2(gateway.tcp) as client:
        client.send(asks + pub(b"injected", b"x") + b"RDY")
        size = int.from_bytes(client.socket.recv(4, socket.MSG_WAITALL), "big")
        client.socket.recv(size, socket.MSG_WAITALL)
        client.socket = Packed(client.socket, packing())  # type: ignore[assignment]
        assert client.reply() == b"OK"
        client.send(pub(b"after", b"x"))
        client.oks(1)
    assert gateway.nsqd.topic("injected") is None


def test_the_last_word_of_tls_ends_the_connection_behind_what_came_before(
    gateway: GatewayProcess, trusting: ssl.SSLContext
) -> None:
    with SecureV2(gateway.tcp, trusting, deflate=True) as client:
        wire = client.socket._wire  # type: ignore[attr-defined]
        client.send(pub(b"last", bytes(1_000_000)) * 3)
        wire.settimeout(20)
        with contextlib.suppress(ssl.SSLError, TimeoutError):
            wire.unwrap()
        wait_for(lambda: gateway.nsqd.message_count("last") == 3, "all of them are stored")


def test_a_tls_hello_at_the_door_of_plain_text_is_told(gateway: GatewayProcess) -> None:
    with V2(gateway.tcp, magic=b"") as client:
        client.send(b"\x16\x03\x01\0\x05\x01\0\x01\xfc\x03")
        assert client.reply() == b"E_BAD_PROTOCOL"
        assert client.ended()


def refusal(address: str, asks: Features) -> str:
    """Why a client of ours does not go on with a gateway."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), 20) as wire:
        v2 = Connection(wire.sendall, {}, 1 << 20, asks)
        try:
            while data := wire.recv(65_536):
                v2.receive(data)
        except Refused as error:
            return str(error)
    return "it was taken"


@pytest.mark.parametrize(
    ("issue", "name", "why"),
    [
        pytest.param({"expired": True}, "localhost", "expired; renew it", id="expired"),
        pytest.param({}, "another.host", "use a name that is in it", id="of-another-name"),
        pytest.param(None, "localhost", "the file of its authority", id="of-another-authority"),
        pytest.param({"client": True}, "localhost", "issue one for this side", id="a-clients"),
    ],
)
def test_a_certificate_that_is_not_accepted_is_told_at_the_client(
    servers: Servers,
    authority: Authority,
    tmp_path: Path,
    issue: dict[str, Any] | None,
    name: str,
    why: str,
) -> None:
    issuer = authority if issue is not None else Authority(tmp_path / "other", "another")
    cert, key = issuer.issue("localhost", dns=["localhost"], **(issue or {}))
    if issue is None:  # the authority is shown, as openssl's own examples do
        with Path(cert).open("a") as chain:
            chain.write(Path(issuer.ca_file).read_text())
    gateway = servers.gateway(f"--tls-cert={cert}", f"--tls-key={key}", "--https-address=")
    trusts = client_context(TlsFiles(root_ca=authority.ca_file))
    text = refusal(gateway.tcp, Features(tls=trusts, server_name=name, auth_secret="secret"))
    assert text.startswith("TLS failed: its certificate is not accepted: ")
    assert why in text
    assert "\n" not in text
    wait_for(lambda: connections(gateway) == 0, "the gateway is done with it")
    assert gateway.metric("srtm_faults_total") == 0


def test_who_shows_no_certificate_of_the_authority_is_refused_where_one_must(
    servers: Servers, flags: list[str], authority: Authority, tmp_path: Path
) -> None:
    gateway = servers.gateway(
        *flags,
        f"--tls-root-ca-file={authority.ca_file}",
        "--tls-client-auth-policy=require-verify",
        "--tls-required=tcp-https",
    )
    other = Authority(tmp_path / "other", "another")
    for files in (
        (),
        other.issue("sensor", client=True),
        authority.issue("x", expired=True, client=True),
    ):
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = ssl.create_default_context(cafile=authority.ca_file)
            context.maximum_version = version
            if files:
                context.load_cert_chain(*files)
            with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
                SecureV2(gateway.tcp, context)
    wait_for(lambda: connections(gateway) == 0, "the gateway is done with them")
    assert gateway.metric("srtm_faults_total") == 0


def old(authority: Authority, version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.ca_file)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = min(version, context.minimum_version)
    context.maximum_version = version
    return context


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_versions_below_the_lowest_are_refused(
    servers: Servers, gateway: GatewayProcess, flags: list[str], authority: Authority
) -> None:
    newest = servers.gateway(*flags, "--tls-min-version=tls1.3")
    for address, version in (
        (gateway.tcp, ssl.TLSVersion.TLSv1_1),
        (newest.tcp, ssl.TLSVersion.TLSv1_2),
    ):
        with pytest.raises(ssl.SSLError, match=r"(?i)version|protocol"):
            SecureV2(address, old(authority, version))
    for address in (gateway.tcp, newest.tcp):
        with SecureV2(address, old(authority, ssl.TLSVersion.TLSv1_3)) as client:
            client.send(pub(b"t", b"x"))
            client.oks(1)


@pytest.mark.parametrize(
    ("tls", "packing"),
    [
        pytest.param(True, "", id="tls"),
        pytest.param(False, "snappy", id="snappy"),
        pytest.param(False, "deflate", id="deflate"),
        pytest.param(True, "snappy", id="tls-and-snappy"),
        pytest.param(True, "deflate", id="tls-and-deflate"),
    ],
)
def test_mutated_streams_are_no_fault_of_ours(
    gateway: GatewayProcess, trusting: ssl.SSLContext, tls: bool, packing: str
) -> None:
    """The outermost layer's bytes are mutated, with answers under way."""
    dice = random.Random(31)
    for _ in range(2000 if LONG else 60):
        asked = {packing: True} if packing else {}
        with SecureV2(gateway.tcp, trusting if tls else None, **asked) as client:
            commands = pub(b"fuzzed", b"x" * dice.randrange(1, 3000)) * dice.randrange(1, 9)
            client.send(commands)
            near: Any = client.socket
            packed = near._packing.pack(commands) if packing else commands
            wire = near._wire if packing else near
            with contextlib.suppress(OSError):
                if tls and dice.random() < 0.5:
                    with socket.socket(fileno=wire.detach()) as bare:
                        bare.sendall(mutated(b"\x17\x03\x03\0\x80" + bytes(128), dice))
                else:
                    wire.sendall(mutated(packed, dice))
    served(gateway, trusting)
    wait_for(lambda: connections(gateway) == 0, "all are let go")
    assert gateway.metric("srtm_faults_total") == 0


HALF = """
import socket, sys
host, port = sys.argv[1].split(":")
wire = socket.create_connection((host, int(port)))
wire.sendall(bytes.fromhex(sys.argv[2]))
wire.recv(65536)
wire.sendall(b"\\x16\\x03\\x01\\x02")
print("half", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["kill", "stop"])
def test_a_client_that_is_killed_or_stopped_in_its_handshake_is_let_go(
    gateway: GatewayProcess, trusting: ssl.SSLContext, number: signal.Signals
) -> None:
    before = connections(gateway)
    client = subprocess.Popen(
        [sys.executable, "-c", HALF, gateway.tcp, ASKS.hex()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert client.stdout is not None
        assert client.stdout.readline() == b"half\n"
        assert connections(gateway) == before + 1
        client.send_signal(number)
        served(gateway, trusting)
        wait_for(lambda: connections(gateway) == before, "it is let go", 20)
    finally:
        client.kill()
        client.communicate()


def test_no_secret_stands_in_an_argument_in_the_log_or_in_the_configuration(
    servers: Servers, flags: list[str], authority: Authority, tmp_path: Path
) -> None:
    secret_file = tmp_path / "secret"
    secret_file.write_text("never-shown\n")
    secret_file.chmod(0o600)
    gateway = servers.gateway(*flags, f"--nsqd-auth-secret-file={secret_file}")
    with V2(gateway.tcp) as client:
        client.send(b"AUTH\n\0\0\0\x0bnever-shown")
        assert (client.reply() or b"").startswith(b"E_AUTH")
    arguments = " ".join(psutil.Process(gateway.process.popen.pid).cmdline())
    shown = [gateway.process.text(), arguments]
    shown += [
        str(http(gateway.http, path)[1]) for path in ("/config", "/info", "/stats", "/metrics")
    ]
    key = Path(flags[1].partition("=")[2]).read_text().splitlines()[1]
    for text in shown:
        assert "never-shown" not in text
        assert key not in text
