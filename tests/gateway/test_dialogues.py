"""The same dialogues with a real nsqd and with the gateway, with the same flags: the same frames.

A dialogue is made from its seed and a small model of what nsqd would do, so that it is known at
each step how many answers come and nobody waits for what does not. `LONG=yes` runs all 200 with
each set of options, else the first of them.
"""

import random
import re
import ssl
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from srtm.nsq.commands import identify, message, mpub, pub, rdy, sub
from srtm.nsq.frames import ERROR, MESSAGE, parse_message
from tests.support.auth_server import allowing, auth_server
from tests.support.cases import LONG
from tests.support.certificates import Authority
from tests.support.secure import SecureV2
from tests.support.servers import Servers
from tests.support.v2 import V2

DIALOGUES = 200 if LONG else 20
_ID = re.compile(rb"[0-9a-f]{16}")
_BOGUS = b"0123456789abcdef"


class Options(NamedTuple):
    """servers: of which flags; tls, packing: what the client asks for; secret: of its AUTH"""

    servers: str = "offering"
    tls: bool = False
    packing: dict[str, Any] = {}  # noqa: RUF012
    secret: bytes = b""


OPTIONS = {
    "plain": Options(),
    "tls": Options(tls=True),
    "snappy": Options(packing={"snappy": True}),
    "deflate": Options(packing={"deflate": True}),
    "tls-and-snappy": Options(tls=True, packing={"snappy": True}),
    "tls-and-deflate": Options(tls=True, packing={"deflate": True, "deflate_level": 3}),
    "tls-required": Options("requiring", tls=True),
    "tls-required-and-not-begun": Options("requiring"),
    "auth": Options("asking", secret=b"good"),
}


class Step(NamedTuple):
    """parts: sent one after the other, so that they may come in reads of their own
    replies: how many answers come, unless the connection ends before
    does: with the oldest message that is held (FIN, REQ, TOUCH), or "receive" for one more
    """

    parts: list[bytes] = []  # noqa: RUF012
    replies: int = 0
    does: str = ""


def _with(body: bytes) -> bytes:
    return message(body).replace(b"%", b"%%")


RELAYED = [
    b"RDY 2501\n", b"RDY x\n", b"RDY -1\n", b"FIN\n", b"FIN 0123\n", b"REQ %(id)b\n",
    b"REQ %(id)b x\n", b"TOUCH\n", b"TOUCH 0123\n", b"REQ\n",
]  # fmt: skip
BEFORE_SUB = [
    b"RDY 1\n", b"FIN %(id)b\n", b"REQ %(id)b 0\n", b"TOUCH %(id)b\n", b"CLS\n",
    b"SUB %(topic)b ch\nSUB %(topic)b ch\n", b"AUTH\n" + _with(b"bad"), b"AUTH\n" + _with(b"good"),
    b"SUB %(topic)b\n", b"SUB %(topic)b bad*name\n", b"SUB bad*name ch\n", b"SUB other-topic ch\n",
    b"AUTH\n\0\0\0\0", b"AUTH x\n",
]  # fmt: skip
BAD_IDENTIFY = [
    b"IDENTIFY\n\0\0\0\0",
    b"IDENTIFY\n" + _with(b"{"),
    b"IDENTIFY\n" + _with(b'{"heartbeat_interval": 1}'),
    b"IDENTIFY\n" + _with(b'{"msg_timeout": -1}'),
]
SLIPS = [
    b"PUB\n",
    b"PUB bad*name\n" + _with(b"x"),
    b"PUB " + b"n" * 65 + b"\n" + _with(b"x"),
    b"PUB %(topic)b\n\0\0\0\0",
    b"PUB %(topic)b\n\xff\xff\xff\xff",
    b"PUB %(topic)b\n\0\x10\0\1",
    b"MPUB\n",
    b"MPUB %(topic)b\n\0\0\0\0",
    b"MPUB %(topic)b\n\0\x50\0\1",
    b"MPUB %(topic)b\n\0\0\0\4\0\0\0\0",
    b"MPUB %(topic)b\n\0\0\0\x08\0\0\0\1\0\0\0\0",
    b"DPUB %(topic)b\n",
    b"DPUB %(topic)b x\n" + _with(b"x"),
    b"DPUB %(topic)b 3600001\n" + _with(b"x"),
    b"PUB other-topic\n" + _with(b"x"),
    b"  V2",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\n",
    b" \n",
    b"pub %(topic)b\n" + _with(b"x"),
]
"""What ends the connection; in DIFFERENCES stands what is left out."""


class Script:
    """A dialogue as it is made up: steps, and what nsqd holds behind them.

    drains: all that was published is received before the end
    """

    def __init__(self, seed: int, options: Options) -> None:
        self._dice = random.Random(seed)
        self._topic = b"d%d" % seed
        self._waiting = self._held = 0
        self._ready = self._subscribed = self._closing = self._is_over = False
        self._is_layered = options.tls or bool(options.packing)
        self.drains = False
        self.steps: list[Step] = []
        if options.secret and self._dice.random() < 0.8:
            self._say(b"AUTH\n" + message(options.secret))
        for _ in range(self._dice.randrange(2, 24)):
            if not self._is_over:
                self._go_on()
        if not self._is_over:
            self._drain()
            self._say(b"FAREWELL\n")  # unknown, and so the last

    def _say(self, data: bytes, replies: int = 1) -> None:
        cuts = sorted(self._dice.randrange(len(data) + 1) for _ in range(self._dice.choice((0, 1))))
        edges = zip([0, *cuts], [*cuts, len(data)], strict=True)
        self.steps.append(Step([data[a:b] for a, b in edges], replies))

    def _go_on(self) -> None:
        kinds = [self._publish] * 8 + [self._consume] * 8 + [self._ask, self._slip]
        self._dice.choice(kinds)()

    def _body(self) -> bytes:
        dice = self._dice
        return dice.choice((b"x", b"body " * dice.randrange(1, 300), dice.randbytes(900))) + (
            b"%d" % dice.randrange(1 << 30)
        )

    def _publish(self) -> None:
        dice, topic = self._dice, self._topic
        kind = dice.randrange(5)
        if kind == 0:
            self._say(pub(topic, self._body()))
            self._waiting += 1
        elif kind == 1:
            bodies = [message(self._body()) for _ in range(dice.randrange(1, 12))]
            self._say(mpub(topic, bodies, len(bodies)))
            self._waiting += len(bodies)
        elif kind == 2:
            other = b"%b-later" % topic
            defer = dice.choice((b"0", b"1", b"50", b"3600000"))
            self._say(b"DPUB %b %b\n%b" % (other, defer, message(self._body())))
        elif kind == 3:
            count = dice.randrange(2, 6)
            self._say(b"".join(pub(topic, self._body()) for _ in range(count)), count)
            self._waiting += count
        else:
            self._say(b"NOP\n" + pub(topic, self._body() * 100) + b"NOP\n")
            self._waiting += 1

    def _consume(self) -> None:
        dice = self._dice
        if not self._subscribed:
            self._say(sub(self._topic, b"ch"))
            self._subscribed = True
        elif not self._ready and not self._closing:
            self._say(rdy(1), 0)
            self._ready = True
        elif self._held and dice.random() < 0.7:
            self._with_the_oldest(dice.choice(("FIN", "FIN", "REQ", "TOUCH")))
        elif self._waiting and not self._held and self._ready:
            self._receive()
        elif dice.random() < 0.3:
            name = dice.choice((b"FIN %b", b"REQ %b 0", b"TOUCH %b"))
            self._say(name % _BOGUS + b"\n")
        elif dice.random() < 0.1 and not self._closing and not self._held:
            self._say(b"CLS\n")
            self._closing, self._ready = True, False

    def _receive(self) -> None:
        self.steps.append(Step(does="receive"))
        self._waiting -= 1
        self._held += 1

    def _with_the_oldest(self, does: str) -> None:
        self.steps.append(Step(does=does))
        if does != "TOUCH":
            self._held -= 1
        if does == "REQ":
            self._waiting += 1

    def _ask(self) -> None:
        """IDENTIFY again, where that is not answered otherwise on purpose (see `DIFFERENCES`)."""
        if self._subscribed or self._is_layered:
            self._say(b"NOP\n", 0)
        else:
            asked = self._dice.choice((b"{}", b'{"client_id": "x", "msg_timeout": 2000}', b"null"))
            self._say(b"IDENTIFY\n" + message(asked))

    def _slip(self) -> None:
        """What ends the connection; what comes behind it is not answered."""
        topic, dice = self._topic, self._dice
        self._is_over = True
        if self._subscribed and dice.random() < 0.5:
            # Relayed: what stands behind it in the same bytes may be answered before.
            heeded = RELAYED[3 * self._closing :]  # no RDY behind a CLS
            self._say(dice.choice(heeded) % {b"id": _BOGUS})
            return
        bad = [*SLIPS, b"SUB %(topic)b ch\n"] if self._subscribed else SLIPS + BEFORE_SUB
        if not self._is_layered and not self._subscribed:
            bad = [*bad, *BAD_IDENTIFY]
        self._say(dice.choice(bad) % {b"topic": topic, b"id": _BOGUS} + b"FAREWELL\n", 3)

    def _drain(self) -> None:
        if not self._subscribed or self._closing:
            return
        self.drains = True
        if not self._ready:
            self._say(rdy(1), 0)
        while self._held or self._waiting:
            if not self._held:
                self._receive()
            self._with_the_oldest("FIN")


class Talk:
    """One dialogue with one server, and all that it said."""

    def __init__(self, client: V2) -> None:
        self._client = client
        self._inbox: list[Any] = []
        self._held: list[bytes] = []
        self.replies: list[tuple[int, bytes]] = []
        self.bodies: list[bytes] = []
        self.attempts: list[int] = []
        self.is_over = False

    def run(self, steps: list[Step]) -> None:
        for step in steps:
            if self.is_over:
                return
            try:
                self._step(step)
            except TimeoutError:
                pytest.fail(f"no answer to {step} behind {self.replies}")
            except (ConnectionError, ssl.SSLError):
                self._read_to_the_end()
        self._read_to_the_end()  # an unknown command is the last

    def _step(self, step: Step) -> None:
        for part in step.parts:
            self._client.send(part)
        for _ in range(step.replies):
            self._reply()
        if step.does == "receive":
            while not self._inbox and not self.is_over:
                self._frame()
            if self._inbox:
                found = self._inbox.pop(0)
                self._held.append(found.id)
                self.bodies.append(found.body)
                self.attempts.append(found.attempts)
        elif step.does and self._held:
            oldest = self._held[0] if step.does == "TOUCH" else self._held.pop(0)
            end = b" 0\n" if step.does == "REQ" else b"\n"
            self._client.send(step.does.encode() + b" " + oldest + end)

    def _reply(self) -> None:
        before = len(self.replies)
        while len(self.replies) == before and not self.is_over:
            self._frame()

    def _frame(self) -> None:
        try:
            frame = self._client.frame(20)
        except ssl.SSLError:
            frame = None
        if frame is None:
            self.is_over = True
        elif frame.kind == MESSAGE:
            self._inbox.append(parse_message(frame.data))
        elif frame.data != b"_heartbeat_":
            self.replies.append((frame.kind, _ID.sub(b"ID", frame.data)))

    def _read_to_the_end(self) -> None:
        while not self.is_over:
            self._frame()


@pytest.fixture(scope="module")
def flags(authority: Authority) -> Iterator[dict[str, list[str]]]:
    cert, key = authority.issue("localhost", dns=["localhost"])
    secure = [f"--tls-cert={cert}", f"--tls-key={key}", "--https-address="]
    with auth_server() as asked:
        asked.answers["good"] = allowing("publish", "subscribe", topic="^d[0-9]")
        yield {
            "offering": secure,
            "requiring": [*secure, "--tls-required=tcp-https"],
            "asking": [f"--auth-http-address={asked.address}"],
        }


@pytest.fixture(scope="module")
def addresses(shared: Servers, flags: dict[str, list[str]]) -> dict[str, tuple[str, str]]:
    """By kind of servers: that of an nsqd, and that of a gateway with the same flags."""
    return {
        kind: (shared.nsqd(*each).tcp, shared.gateway(*each).tcp) for kind, each in flags.items()
    }


def begun(address: str, options: Options, trusting: ssl.SSLContext, seed: int) -> V2:
    if not options.tls and not options.packing and seed % 2:
        return V2(address)  # and no IDENTIFY at all
    return SecureV2(address, trusting if options.tls else None, **options.packing)


def kinds(replies: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    return [(kind, b"" if kind == ERROR else data) for kind, data in replies]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("name", "options"), [pytest.param(name, each, id=name) for name, each in OPTIONS.items()]
)
def test_nsqd_and_gateway_say_the_same(
    addresses: dict[str, tuple[str, str]], trusting: ssl.SSLContext, name: str, options: Options
) -> None:
    place = list(OPTIONS).index(name)
    for seed in range(DIALOGUES):
        script = Script(seed * len(OPTIONS) + place, options)
        steps = script.steps
        talks = []
        for address in addresses[options.servers]:
            with begun(address, options, trusting, seed) as client:
                talks.append(Talk(client))
                talks[-1].run(steps)
        nsqds, ours = talks
        if name == "tls-required-and-not-begun":
            # As in DIFFERENCES: what is wrong in itself is told first.
            ours.replies, nsqds.replies = map(kinds, (ours.replies, nsqds.replies))
        assert ours.replies == nsqds.replies, (seed, steps)
        assert len(ours.bodies) == len(nsqds.bodies), (seed, steps)
        if script.drains:
            # A requeued message comes before or behind a new one: which of them is requeued again,
            # and so comes a third time, is chance.
            assert set(ours.bodies) == set(nsqds.bodies), (seed, steps)
            assert sorted(ours.attempts) == sorted(nsqds.attempts), (seed, steps)


class Difference(NamedTuple):
    """why: of the gateway's answer"""

    options: str
    sent: bytes
    nsqds: bytes
    ours: bytes
    why: str


AGAIN = identify(b'{"feature_negotiation": true, "tls_v1": true, "snappy": true}')
DIFFERENCES = {
    "a-pub-without-a-topic-before-tls": Difference(
        "tls-required-and-not-begun", b"PUB\n",
        b"E_INVALID cannot PUB in current state (TLS required)",
        b"E_INVALID PUB insufficient number of parameters",
        "a command is read before it is known whether it may run",
    ),
    "bytes-that-nobody-prints": Difference(
        "plain", b"\xff\x00\n",
        b"E_INVALID invalid command \xff\x00", b"E_INVALID invalid command \\xff\\x00",
        "what a client sent is shown so that it can stand in a log",
    ),
    "a-second-sub-without-a-channel": Difference(
        "plain", b"SUB t c\nSUB t\n",
        b"E_INVALID cannot SUB in current state", b"E_INVALID SUB insufficient",
        "the same",
    ),
    "identify-inside-tls": Difference(
        "tls", AGAIN, b"{", b"E_INVALID cannot IDENTIFY in current state",
        "nsqd begins TLS within TLS; no client does",
    ),
    "identify-inside-snappy": Difference(
        "snappy", AGAIN, b"{", b"E_INVALID cannot IDENTIFY in current state",
        "the same with compression",
    ),
    "an-mpub-whose-size-is-not-that-of-its-messages": Difference(
        "plain", b"MPUB t\n\0\0\0\x0b\0\0\0\1\0\0\0\1xyz", b"OK", b"E_BAD_BODY MPUB body of 11",
        "nsqd never looks at the size again, and reads the rest as a command",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENCES)
def test_what_is_answered_otherwise_on_purpose(
    addresses: dict[str, tuple[str, str]], trusting: ssl.SSLContext, name: str
) -> None:
    row = DIFFERENCES[name]
    options = OPTIONS[row.options]
    for address, expected in zip(addresses[options.servers], row[2:4], strict=True):
        with begun(address, options, trusting, 0) as client:
            client.send(row.sent)
            reply = client.reply()
            if row.sent.startswith(b"SUB"):
                assert reply == b"OK"
                reply = client.reply()
            assert (reply or b"").startswith(expected)
