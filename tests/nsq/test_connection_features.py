"""The client's end with TLS, compression and AUTH, against a server that the test plays.

Nothing of ours is in that server but frames: OpenSSL, cramjam and zlib are used as another program
would use them.
"""

import json
import random
import socket
import ssl
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtm.nsq.commands import MAGIC_V2, NOP, auth, identify, pub, rdy, sub
from srtm.nsq.connection import PLAIN, Connection, Features, Refused, _tell_of_clear_text
from srtm.nsq.frames import (
    ERROR,
    HEARTBEAT_FRAME,
    MESSAGE,
    OK_FRAME,
    RESPONSE,
    Frame,
    FrameError,
    build_frame,
)
from tests.nsq.layers.test_fuzz import mutated
from tests.nsq.layers.test_tls import Python, World, cut, world
from tests.support.cases import LONG, cases
from tests.support.secure import Deflate, Snappy
from tests.support.servers import Nsqd, Servers

__all__ = ["world"]
SECRET = "the secret"
HELD = [pub(b"t", b"first"), pub(b"t", b"x" * 3000), pub(b"t", b"last")]
FRAMES = [Frame(MESSAGE, b"m" * 40), Frame(ERROR, b"E_FIN_FAILED x"), Frame(MESSAGE, b"n" * 70_000)]
GIVEN: dict[str, dict[str, Any]] = {
    "plain": {},
    "auth": {"auth_required": True},
    "tls": {"tls_v1": True},
    "snappy": {"snappy": True},
    "deflate": {"deflate": True, "deflate_level": 3},
    "tls-and-snappy": {"tls_v1": True, "snappy": True},
    "tls-and-deflate": {"tls_v1": True, "deflate": True, "deflate_level": 6},
    "tls-and-snappy-and-auth": {"tls_v1": True, "snappy": True, "auth_required": True},
}
ALL_GIVEN = [pytest.param(given, id=name) for name, given in GIVEN.items()]


class Server:
    """Takes what a client sends and gives what it answers, as nsqd in the order of nsqd.

    clear, inside: what came before any layer, and the commands that came through all of them
    """

    def __init__(self, world: World, told: dict[str, Any], beats: bytes = b"") -> None:
        self._told = told
        self._beats = beats
        self._tls = Python(world.server, is_server=True) if told.get("tls_v1") else None
        self._packs = Snappy() if told.get("snappy") else Deflate() if told.get("deflate") else None
        self._awaits = "identify"
        self.clear = bytearray()
        self.inside = bytearray()
        self.answers: dict[str, bytes] = {}  # what it says in place of a right answer

    def take(self, data: bytes) -> bytes:
        if self._awaits == "identify":
            self.clear += data
            if not self.clear.endswith(b"}"):
                return b""
            self._awaits = "hello"
            document = json.dumps({"max_rdy_count": 7, **self._told}).encode()
            answer = self._beats + self.answers.get("identify", build_frame(RESPONSE, document))
            return answer if self._tls is not None else answer + self._pack()
        if self._awaits == "hello" and self._tls is not None:
            said = self._tls.handshake(data)
            if not self._tls.done:
                return said
            return said + self._tls.encode(self._answer("tls", OK_FRAME)) + self._pack()
        self.inside += self._plain(data)
        if self._awaits == "auth" and self.inside.endswith(auth(SECRET.encode())):
            self._awaits = "commands"
            return self.say(self._answer("auth", build_frame(RESPONSE, b'{"identity": "me"}')))
        return b""

    def _pack(self) -> bytes:
        """The last that it says by itself."""
        self._awaits = "auth" if self._told.get("auth_required") else "commands"
        return b"" if self._packs is None else self.say(self._answer("packed", OK_FRAME))

    def say(self, frames: bytes) -> bytes:
        if self._packs is not None:
            frames = self._packs.pack(frames)
        return frames if self._tls is None else self._tls.encode(frames)

    def _plain(self, data: bytes) -> bytes:
        if self._tls is not None:
            data = self._tls.decode(data)
        return data if self._packs is None else self._packs.unpack(data)

    def _answer(self, step: str, frame: bytes) -> bytes:
        return self._beats + self.answers.get(step, frame)


@pytest.fixture(scope="module")
def nsqd(shared: Servers, world: World) -> Nsqd:
    return shared.nsqd(*world.flags, "--https-address=")


def features(world: World, told: dict[str, Any]) -> Features:
    return Features(
        tls=world.client(logged=False) if told.get("tls_v1") else None,
        server_name="localhost",
        auth_secret=SECRET,
        snappy=bool(told.get("snappy")),
        deflate=bool(told.get("deflate")),
    )


class Dialogue:
    """A client and a server, the server's bytes cut as `cuts` says."""

    def __init__(
        self, server: Server, asks: Features, cuts: Callable[[bytes], list[bytes]]
    ) -> None:
        self.server = server
        self.sent: list[bytes] = []
        self.frames: list[Frame] = []
        self._cuts = cuts
        self.client = Connection(self.sent.append, {"client_id": "one"}, 1 << 20, asks)

    def go_on(self, said: bytes = b"") -> None:
        """Until neither has more to say."""
        while self.sent or said:
            while self.sent:
                said += self.server.take(self.sent.pop(0))
            for part in self._cuts(said):
                self.frames += self.client.receive(part)
            said = b""


def single_bytes(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def run(server: Server, asks: Features, cuts: Callable[[bytes], list[bytes]]) -> Dialogue:
    """All of it: what is held, what comes later, and frames back."""
    dialogue = Dialogue(server, asks, cuts)
    for command in HELD[:2]:
        dialogue.client.send(command)
    dialogue.go_on()
    dialogue.client.send(HELD[2])
    dialogue.go_on()
    dialogue.go_on(b"".join(server.say(build_frame(*frame)) for frame in FRAMES))
    return dialogue


@pytest.mark.parametrize("told", ALL_GIVEN)
def test_commands_go_out_once_and_in_order_and_frames_come_whole(
    world: World, told: dict[str, Any]
) -> None:
    asks = features(world, told)
    expected = b"".join(HELD)
    if told.get("auth_required"):
        expected = auth(SECRET.encode()) + expected

    @settings(max_examples=cases(60))
    @given(st.lists(st.integers(0, 1 << 17), max_size=5))
    def check(places: list[int]) -> None:
        for cuts in (single_bytes, lambda data: cut(data, places)):
            if cuts is single_bytes and places:
                continue
            dialogue = run(Server(world, told), asks, cuts)
            assert dialogue.client.identified
            assert dialogue.client.told["max_rdy_count"] == 7
            assert dialogue.server.inside == expected
            assert dialogue.frames == FRAMES
            assert dialogue.client.buffered == 0

    check()


@pytest.mark.parametrize("told", ALL_GIVEN)
def test_beats_at_each_step_are_no_answer_and_break_no_layer(
    world: World, told: dict[str, Any]
) -> None:
    dialogue = run(Server(world, told, beats=HEARTBEAT_FRAME), features(world, told), single_bytes)
    assert dialogue.client.identified
    assert dialogue.frames == FRAMES
    inside = bytes(dialogue.server.inside)
    assert inside.replace(NOP, b"").endswith(b"".join(HELD))
    dialogue.go_on(dialogue.server.say(HEARTBEAT_FRAME))
    assert dialogue.server.inside.endswith(NOP), "once all is agreed on they are answered"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b'{"tls_v1": false, "auth_required": true}', id="says-no"),
        pytest.param(b'{"auth_required": true}', id="does-not-know-it"),
        pytest.param(b"OK", id="does-not-negotiate"),
    ],
)
def test_nothing_is_said_in_clear_to_a_server_without_the_tls_that_was_asked_for(
    world: World, answer: bytes
) -> None:
    server = Server(world, {})
    server.answers["identify"] = HEARTBEAT_FRAME + build_frame(RESPONSE, answer) + HEARTBEAT_FRAME
    dialogue = Dialogue(server, features(world, {"tls_v1": True}), single_bytes)
    dialogue.client.send(HELD[0])
    with pytest.raises(Refused, match="no TLS") as caught:
        dialogue.go_on()
    asked = {"client_id": "one", "tls_v1": True, "feature_negotiation": True}
    document = json.dumps(asked, separators=(",", ":")).encode()
    assert server.clear == MAGIC_V2 + identify(document)
    assert not dialogue.sent
    assert SECRET not in str(caught.value) + repr(features(world, {}))


NONSENSE = {
    "no-json": build_frame(RESPONSE, b"{"),
    "a-list": build_frame(RESPONSE, b"[]"),
    "a-message": build_frame(MESSAGE, b"x" * 30),
    "no-frame": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a-frame-too-long": (1 << 30).to_bytes(4, "big") + bytes(4),
    "another-word": build_frame(RESPONSE, b"CLOSE_WAIT"),
    "nested": build_frame(RESPONSE, b"[" * 60_000),
}
STEPS = [
    ("identify", GIVEN["plain"]),
    ("identify", GIVEN["tls"]),
    ("tls", GIVEN["tls"]),
    ("packed", GIVEN["snappy"]),
    ("packed", GIVEN["deflate"]),
    ("packed", GIVEN["tls-and-snappy"]),
    ("auth", GIVEN["auth"]),
    ("auth", GIVEN["tls-and-snappy-and-auth"]),
]
ALL_STEPS = [pytest.param(*row, id=f"{row[0]}-{'-'.join(row[1]) or 'plain'}") for row in STEPS]


@pytest.mark.parametrize("nonsense", [pytest.param(row, id=name) for name, row in NONSENSE.items()])
@pytest.mark.parametrize(("step", "told"), ALL_STEPS)
def test_nonsense_at_any_step_ends_it_and_what_is_held_stays(
    world: World, step: str, told: dict[str, Any], nonsense: bytes
) -> None:
    server = Server(world, told)
    server.answers[step] = nonsense
    dialogue = Dialogue(server, features(world, told), single_bytes)
    dialogue.client.send(HELD[0])
    with pytest.raises((FrameError, Refused)):
        dialogue.go_on()
    assert not dialogue.client.identified
    assert b"PUB" not in server.inside + server.clear


@pytest.mark.parametrize(("step", "told"), ALL_STEPS)
def test_an_error_at_any_step_is_told(world: World, step: str, told: dict[str, Any]) -> None:
    server = Server(world, told)
    server.answers[step] = build_frame(ERROR, b"E_SOMETHING is\nwrong")
    dialogue = Dialogue(server, features(world, told), single_bytes)
    with pytest.raises(Refused, match=r"^E_SOMETHING is wrong$"):
        dialogue.go_on()


@pytest.mark.parametrize("level", ["x", -1, 0, 10, 1e400, [], {}, None, 1.5, "6"])
def test_a_level_that_zlib_does_not_have_is_no_answer(world: World, level: object) -> None:
    server = Server(world, {"deflate": True, "deflate_level": level})
    dialogue = Dialogue(server, Features(deflate=True), single_bytes)
    with pytest.raises(FrameError):
        dialogue.go_on()


def test_compression_that_is_not_had_is_gone_without(world: World) -> None:
    asks = Features(snappy=True, deflate=True)
    dialogue = run(Server(world, {}), asks, single_bytes)
    assert dialogue.server.inside == b"".join(HELD)
    assert dialogue.frames == FRAMES


def test_an_answer_that_never_ends_is_not_kept(world: World) -> None:
    client = Connection(lambda _: None, {}, 1 << 30, Features(snappy=True))
    client.receive((1 << 29).to_bytes(4, "big") + bytes(4))
    with pytest.raises(FrameError):
        list(map(client.receive, [bytes(1000)] * 100))


def test_the_certificate_is_that_of_the_name(world: World) -> None:
    for name, why in (("another.host", "not accepted: Hostname mismatch"), ("x..y", "cannot be")):
        asks = Features(tls=world.client(logged=False), server_name=name, auth_secret=SECRET)
        server = Server(world, {"tls_v1": True, "auth_required": True})
        with pytest.raises(Refused, match=why):
            Dialogue(server, asks, lambda data: [data]).go_on()
        assert not server.inside


def test_what_comes_behind_the_end_of_a_layer_is_an_error(world: World) -> None:
    server = Server(world, {"tls_v1": True})
    dialogue = run(server, features(world, {"tls_v1": True}), lambda data: [data])
    assert server._tls is not None
    with pytest.raises(ssl.SSLWantReadError):
        server._tls.tls.unwrap()
    assert dialogue.client.receive(server._tls.outgoing.read()) == []
    with pytest.raises(FrameError, match="ended the stream"):
        dialogue.client.receive(b"x")


def test_a_bomb_ends_the_connection() -> None:
    client = Connection(lambda _: None, {}, 2 << 20, Features(deflate=True))
    client.receive(build_frame(RESPONSE, b'{"deflate": true}'))
    packs = Deflate()
    client.receive(packs.pack(OK_FRAME))
    assert client.identified
    assert len(client.receive(packs.pack(build_frame(MESSAGE, bytes(1 << 20)) * 20))) == 20
    with pytest.raises(FrameError, match="64 MiB"):
        client.receive(packs.pack(build_frame(MESSAGE, bytes(1 << 20)) * 80))


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("told", ALL_GIVEN)
def test_any_bytes_give_frames_or_an_error_of_ours(world: World, told: dict[str, Any]) -> None:
    """A flight of the server's is mutated before the client reads it."""
    dice = random.Random(31)
    asks = features(world, told)
    ended = 0
    number = 20_000 if LONG else 150
    for _ in range(number):
        flights, when = [0], dice.randrange(5)

        def cuts(data: bytes, flights: list[int] = flights, when: int = when) -> list[bytes]:
            flights[0] += 1
            data = mutated(data, dice) if flights[0] > when else data
            return cut(data, [dice.randrange(1 << 17) for _ in range(3)])

        server = Server(world, told)
        try:
            run(server, asks, cuts)
        except (FrameError, Refused) as error:
            assert SECRET not in str(error)  # noqa: PT017
            ended += 1
        except ssl.SSLError:
            pass  # the server's: it was sent an alert
    assert ended > number // 4


def test_a_secret_in_clear_text_to_other_hosts_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _tell_of_clear_text.cache_clear()
    secret = Features(auth_secret="of-a-client")
    for host in ("127.0.0.1", "localhost", "::1"):
        secret.towards(host)
    PLAIN.towards("192.0.2.1")
    assert not caplog.records
    for _ in range(2):
        assert secret.towards("192.0.2.1") is secret
    [record] = caplog.records
    assert "give tls-v1" in record.getMessage()
    assert "of-a-client" not in record.getMessage()


@pytest.mark.parametrize("name", [name for name in GIVEN if "auth" not in name])
def test_a_real_nsqd_reads_what_we_write_and_we_what_it_writes(
    world: World, nsqd: Nsqd, name: str
) -> None:
    """Go's readers: one that waits for more than was written would never answer."""
    topic, told = name.encode(), GIVEN[name]
    host, port = nsqd.tcp.split(":")
    with socket.create_connection((host, int(port)), 20) as wire:
        client = Connection(wire.sendall, {}, 2 << 20, features(world, told))

        def frame() -> Frame:
            while not frames:
                frames.extend(client.receive(wire.recv(65_536)))
            return frames.pop(0)

        frames: list[Frame] = []
        bodies = [b"x", b"y" * 1023, b"z" * 1024, bytes(range(256)) * 4096, b"end"]
        for body in bodies:
            client.send(pub(topic, body))
            assert frame() == (RESPONSE, b"OK")
        client.send(sub(topic, b"ch") + rdy(len(bodies)))
        assert frame() == (RESPONSE, b"OK")
        assert sorted(frame().data[26:] for _ in bodies) == sorted(bodies)
        assert all(client.told[each] for each in told)
