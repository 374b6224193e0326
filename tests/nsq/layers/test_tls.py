"""TLS over memory, against OpenSSL as Python wraps it and against records of our own making."""

import contextlib
import ssl
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtm.host.certificates import TlsFiles, client_context, server_context
from srtm.nsq.layers import Layer, LayerError, TlsLayer
from tests.support.cases import cases
from tests.support.certificates import Authority
from tests.support.records import ALERT, DATA, HANDSHAKE, OldSealer, Sealer

VERSIONS = [
    pytest.param(ssl.TLSVersion.TLSv1_2, id="1.2"),
    pytest.param(ssl.TLSVersion.TLSv1_3, id="1.3"),
]
PIECES = st.lists(st.binary(min_size=1, max_size=40_000), max_size=4)
CUTS = st.lists(st.integers(0, 1 << 17), max_size=6)


class World:
    """Contexts of both sides, and the log of their keys.

    flags: of an nsqd with the server's certificate
    """

    def __init__(self, authority: Authority, folder: Path) -> None:
        cert, key = authority.issue("localhost", dns=["localhost"])
        self.server = server_context(TlsFiles(cert, key))
        self.key_log = folder / "keys"
        self.ca_file = authority.ca_file
        self.flags = [f"--tls-cert={cert}", f"--tls-key={key}"]

    def client(
        self, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3, logged: bool = True
    ) -> ssl.SSLContext:
        context = client_context(TlsFiles(root_ca=self.ca_file))
        context.maximum_version = version
        if logged:
            context.keylog_filename = str(self.key_log)
        return context

    def pair(
        self, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3, logged: bool = True
    ) -> tuple[TlsLayer, TlsLayer, bytes]:
        """Server, client, and the first that the server said; both have shaken hands."""
        server = TlsLayer(self.server)
        client = TlsLayer(self.client(version, logged), "localhost")
        first = flight = server.handshake(client.handshake(b""))
        while not (server.done and client.done):
            flight = server.handshake(client.handshake(flight))
        client.handshake(flight)
        return server, client, first


@pytest.fixture(scope="module")
def world(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(authority, tmp_path_factory.mktemp("tls"))


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = sorted(place % (len(stream) + 1) for place in places)
    return [stream[a:b] for a, b in zip([0, *edges], [*edges, len(stream)], strict=True)]


def all_of(layer: Layer, data: bytes) -> bytes:
    plain = layer.decode(data)
    while layer.more:
        plain += layer.decode(b"")
    return plain


class Python:
    """The other side: an SSLObject, and how a program reads it that knows no records."""

    def __init__(self, context: ssl.SSLContext, is_server: bool) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        name = None if is_server else "localhost"
        self.tls = context.wrap_bio(
            self.incoming, self.outgoing, server_side=is_server, server_hostname=name
        )
        self.done = False

    def handshake(self, data: bytes) -> bytes:
        self.incoming.write(data)
        try:
            self.tls.do_handshake()
            self.done = True
        except ssl.SSLWantReadError:
            pass
        return self.outgoing.read()

    def encode(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self.outgoing.read()

    def decode(self, data: bytes) -> bytes:
        self.incoming.write(data)
        plain = b""
        try:
            while piece := self.tls.read(1000):
                plain += piece
        except ssl.SSLWantReadError:
            pass
        return plain


@pytest.mark.parametrize("ours_is_server", [True, False], ids=["server", "client"])
@pytest.mark.parametrize("version", VERSIONS)
def test_all_comes_both_ways_at_any_cut(
    world: World, version: ssl.TLSVersion, ours_is_server: bool
) -> None:
    client = world.client(version)

    @settings(max_examples=cases(80))
    @given(PIECES, PIECES, CUTS, CUTS)
    def check(out: list[bytes], back: list[bytes], places: list[int], others: list[int]) -> None:
        ours = TlsLayer(world.server) if ours_is_server else TlsLayer(client, "localhost")
        theirs = Python(client if ours_is_server else world.server, not ours_is_server)
        to_us = theirs.handshake(b"") if ours_is_server else b""
        behind = b""
        for _ in range(4):
            answer = b"".join(map(ours.handshake, cut(to_us, places)))
            to_us = theirs.handshake(answer)
            if theirs.done and ours_is_server and not ours.done and out:
                behind = out[0]  # in the same bytes as the last of the handshake
                to_us += theirs.encode(behind)
        assert ours.done
        assert theirs.done
        assert theirs.tls.version() == ours.version
        assert ours.decode(b"") == behind
        wire = b"".join(map(theirs.encode, out[1:] if behind else out))
        plain = b"".join(map(ours.decode, cut(wire, others)))
        assert behind + plain == b"".join(out)
        assert ours.buffered == 0
        assert b"".join(theirs.decode(ours.encode(each)) for each in back) == b"".join(back)

    check()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_handshake_byte_by_byte(world: World, version: ssl.TLSVersion) -> None:
    server, client = TlsLayer(world.server), TlsLayer(world.client(version), "localhost")
    to_server = client.handshake(b"")
    for _ in range(3):
        to_client = b"".join(server.handshake(bytes([byte])) for byte in to_server)
        to_server = b"".join(client.handshake(bytes([byte])) for byte in to_client)
    assert server.done
    assert client.done
    assert server.version == client.version == version.name.replace("_", ".")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_last_word_ends_the_stream_and_nothing_behind_it_counts(
    world: World, version: ssl.TLSVersion
) -> None:
    server, client, _ = world.pair(version)
    assert server.decode(client.encode(b"before") + client.ending()) == b"before"
    assert server.ended
    assert server.decode(b"\x17\x03\x03\0\x05hello" * 1000) == b""
    assert server._in.pending == 0
    assert client.decode(server.ending()) == b""
    assert client.ended


def test_a_last_word_of_its_own_ends_the_stream(world: World) -> None:
    server, client, _ = world.pair()
    assert server.decode(client.ending()) == b""
    assert server.ended


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "in-one-read"])
def test_records_that_hold_nothing_for_us_are_passed_over(world: World, alone: bool) -> None:
    server, _, _ = world.pair()
    sealer = Sealer.of_client(world.key_log)
    records = [
        sealer.seal(DATA, b"a", padding=300),
        sealer.seal(DATA, b""),
        sealer.key_update(asks_for_one=False),
        sealer.seal(DATA, b"b"),
        sealer.key_update(asks_for_one=True),
        sealer.seal(DATA, b"c"),
    ]
    came = map(server.decode, records) if alone else [server.decode(b"".join(records))]
    assert b"".join(came) == b"abc"
    assert not server.ended


def test_who_asks_for_new_keys_and_nothing_else_is_bounded(world: World) -> None:
    server, client, _ = world.pair()
    sealer = Sealer.of_client(world.key_log)

    def ask() -> None:
        for _ in range(5000):
            server.decode(sealer.key_update(asks_for_one=True))

    with pytest.raises(LayerError, match="more new keys"):
        ask()
    assert server._out.pending < 32_768
    server, client, _ = world.pair()
    sealer = Sealer.of_client(world.key_log)
    for _ in range(2000):  # with an answer now and then it may go on
        server.decode(sealer.key_update(asks_for_one=True))
        assert client.decode(server.encode(b"x")) == b"x"


def test_a_hello_in_crumbs_takes_no_time_of_others(world: World) -> None:
    hello = TlsLayer(world.client(), "localhost").handshake(b"")[5:]
    server = TlsLayer(world.server)
    with pytest.raises(LayerError, match="128 records"):
        server.handshake(b"".join(b"\x16\x03\x01\0\x01" + bytes([byte]) for byte in hello))
    server = TlsLayer(world.server)
    some = [hello[at : at + 20] for at in range(0, len(hello), 20)]
    assert server.handshake(b"".join(b"\x16\x03\x01\0" + bytes([len(p)]) + p for p in some))


def test_tls_1_2_is_not_negotiated_again(world: World) -> None:
    """A new hello inside is answered with a warning, no_renegotiation, and costs no handshake."""
    server, _, first = world.pair(ssl.TLSVersion.TLSv1_2)
    hello = TlsLayer(world.client(ssl.TLSVersion.TLSv1_2), "localhost").handshake(b"")[5:]
    sealer = OldSealer(world.key_log, first)
    assert server.decode(sealer.seal(DATA, b"the keys are right")) == b"the keys are right"
    try:
        assert server.decode(sealer.seal(HANDSHAKE, hello)) == b""
    except LayerError:
        pass
    else:
        assert server.decode(sealer.seal(DATA, b"x")) == b"x"
    assert len(server.ending()) < 200, "an alert, and no hello of the server's"


def test_a_server_cannot_make_a_client_negotiate_again(world: World) -> None:
    _, client, first = world.pair(ssl.TLSVersion.TLSv1_2)
    asks = OldSealer(world.key_log, first, of_server=True).seal(HANDSHAKE, bytes(4))
    with contextlib.suppress(LayerError):
        assert client.decode(asks) == b""
    assert len(client.ending()) < 200


def lying(size: int) -> bytes:
    return b"\x17\x03\x03" + size.to_bytes(2, "big")


BAD = {
    "plain-text": (b"PUB t\n\0\0\0\1x", "no TLS"),
    "one-byte-of-plain-text": (b"P", "no TLS"),
    "another-version": (b"\x17\x02", "no TLS"),
    "a-length-that-no-record-has": (lying(65_535), "65535 bytes"),
    "one-byte-too-many": (lying(16_384 + 2049), "18433 bytes"),
    "a-record-of-nothing": (lying(0), "TLS failed"),
    "shorter-than-its-seal": (lying(16) + bytes(16), "TLS failed"),
    "a-forged-record": (lying(40) + bytes(40), "TLS failed"),
    "a-hello": (b"\x16\x03\x01\0\x05\1\0\0\1x", "TLS failed"),
}


@pytest.mark.parametrize("behind", [b"", b"good"], ids=["alone", "behind-a-good-one"])
@pytest.mark.parametrize(
    ("sent", "why"), [pytest.param(*row, id=name) for name, row in BAD.items()]
)
def test_what_is_no_record_ends_it_and_nothing_more_is_raised(
    world: World, sent: bytes, why: str, behind: bytes
) -> None:
    server, client, _ = world.pair()
    before = client.encode(behind) if behind else b""
    with pytest.raises(LayerError, match=why) as caught:
        server.decode(before + sent)
    assert caught.value.is_foreign == (why == "no TLS")
    server.encode(b"an answer that is under way")
    server.ending()


def test_a_fatal_alert_is_told(world: World) -> None:
    server, _, _ = world.pair()
    with pytest.raises(LayerError, match="alert bad certificate"):
        server.decode(Sealer.of_client(world.key_log).seal(ALERT, b"\x02\x2a"))
    assert server.encode(b"x") == b""


def test_no_more_than_a_record_is_held(world: World) -> None:
    server, _, _ = world.pair()
    for _ in range(18_000):
        assert server.decode(b"" if server.buffered else lying(18_432)) == b""
        server.decode(b"x")
    assert server.buffered <= 18_437


@pytest.mark.parametrize(
    "name", ["x..y", ".x", "a" * 300, "a\0b", "\ud800"], ids=["empty", "dot", "long", "nul", "half"]
)
def test_a_name_that_no_certificate_has_is_a_reason_and_no_fault(world: World, name: str) -> None:
    with pytest.raises(LayerError, match="cannot be the name"):
        TlsLayer(world.client(), name)
