"""What clients send: against a plain reading of nsqd's source, nsqd itself, any cut and mutation.

The fuzz test runs SRTM_FUZZ_STREAMS mutated streams; without it 1,000,000 with LONG=yes, or an
eighth of that.
"""

import gc
import os
import struct
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from srtm.gateway.run import Run
from srtm.nsq import commands
from srtm.nsq.commands import (
    CLS,
    MAGIC_V2,
    MAX_LINE_BYTES,
    NOP,
    Auth,
    CommandReader,
    Identify,
    Limits,
    Line,
    Publish,
    Subscribe,
    check_mpub,
    dpub,
    fin,
    identify,
    message,
    mpub,
    pub,
    rdy,
    split_messages,
    sub,
)
from srtm.nsq.errors import ProtocolError
from srtm.nsq.names import is_valid_topic_name
from tests.support.cases import cases
from tests.support.servers import Servers
from tests.support.v2 import V2

LIMITS = Limits(max_msg_size=64, max_body_size=256, max_req_timeout_ms=1000)
READ = 64
"""The largest read of these tests; a gateway's is kernel.stamps.READ_BYTES."""
BOUND = MAX_LINE_BYTES + 4 + LIMITS.max_body_size + READ


def expand(commands: list[Any]) -> list[Any]:
    """One entry for each thing that a client sent, however the reader grouped them."""
    single: list[Any] = []
    for command in commands:
        if isinstance(command, Publish):
            bodies = command.bodies()
            assert command.count == len(bodies) > 0
            if not command.atomic:
                assert command.defer_ms is None
                assert len(command.messages) == command.count
                single += [("PUB", command.topic, body) for body in bodies]
            elif command.defer_ms is None:
                assert len(command.messages) == 1
                single.append(("MPUB", command.topic, bodies))
            else:
                assert len(bodies) == 1
                single.append(("DPUB", command.topic, command.defer_ms, bodies[0]))
        elif isinstance(command, Line):
            lines = (
                command.raw.splitlines(keepends=True) if command.name in (b"FIN", b"NOP") else ()
            )
            single += [Line(command.name, line) for line in lines] or [command]
        else:
            single.append(command)
    return single


def read(parts: list[bytes], limits: Limits = LIMITS) -> list[Any]:
    """What comes of a stream that arrives in these parts."""
    reader = CommandReader(limits)
    return expand([command for part in parts for command in reader.feed(part)])


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[a:b] for a, b in pairwise(edges)]


# --- nsqd's own reading, line by line from protocol_v2.go --------------------------------------


class Incomplete(Exception):
    """io.ReadFull would wait for more."""


def nsqd_reads(stream: bytes, limits: Limits) -> list[Any]:
    """IOLoop, Exec and readMPUB of nsqd 1.3.0 as slowly as they stand there (state and TLS apart).

    It leaves nsqd where we mean to: an MPUB is taken by its body's size, a line that is too long
    is told so, and nothing that a client sent is repeated raw.
    """
    done: list[Any] = []
    at = 0

    def take(count: int) -> bytes:
        nonlocal at
        if at + count > len(stream):
            raise Incomplete
        at += count
        return stream[at - count : at]

    def read_len() -> int:
        return int(struct.unpack(">i", take(4))[0])

    def body(name: str, code: str, most: int) -> bytes:
        size = read_len()
        what = "message body" if code == "E_BAD_MESSAGE" else "body"
        if size <= 0:
            raise ProtocolError(code, f"{name} invalid {what} size {size}")
        if size > most:
            raise ProtocolError(code, f"{name} {what.split()[0]} too big {size} > {most}")
        return take(size)

    def topic(name: str, params: list[bytes], needed: int) -> bytes:
        if len(params) < needed:
            raise ProtocolError("E_INVALID", f"{name} insufficient number of parameters")
        if not is_valid_topic_name(params[1]):
            raise ProtocolError(
                "E_BAD_TOPIC", f"{name} topic name {quoted(params[1])} is not valid"
            )
        return params[1]

    def shown(given: bytes) -> str:
        text = given[:256].decode("latin-1")
        return "".join(one if one in "\"'" else ascii(one)[1:-1] for one in text)

    def quoted(given: bytes) -> str:
        return '"' + shown(given).replace('"', '\\"') + '"'

    def command() -> Any:
        nonlocal at
        newline = stream.find(b"\n", at, at + MAX_LINE_BYTES)
        if newline < 0:
            if len(stream) - at < MAX_LINE_BYTES:
                raise Incomplete
            raise ProtocolError("E_INVALID", f"command line longer than {MAX_LINE_BYTES} bytes")
        raw = take(newline + 1 - at)
        params = raw[:-1].removesuffix(b"\r").split(b" ")
        name = params[0].decode("latin-1")
        if name == "IDENTIFY":
            return Identify(body(name, "E_BAD_BODY", limits.max_body_size))
        if name in ("FIN", "RDY", "REQ", "NOP", "TOUCH", "CLS"):
            return Line(params[0], raw)
        if name == "PUB":
            return name, topic(name, params, 2), body(name, "E_BAD_MESSAGE", limits.max_msg_size)
        if name == "MPUB":
            to = topic(name, params, 2)
            content = body(name, "E_BAD_BODY", limits.max_body_size)
            check_mpub(content, 0, len(content), limits)  # has tests of its own
            return name, to, split_messages(content[4:])
        if name == "DPUB":
            to = topic(name, params, 3)
            if not all(b"0"[0] <= digit <= b"9"[0] for digit in params[2]) or len(params[2]) > 18:
                raise ProtocolError("E_INVALID", f"DPUB could not parse timeout {shown(params[2])}")
            timeout = int(params[2] or b"0")
            most = limits.max_req_timeout_ms
            if timeout > most:
                raise ProtocolError("E_INVALID", f"DPUB timeout {timeout} out of range 0-{most}")
            return name, to, timeout, body(name, "E_BAD_MESSAGE", limits.max_msg_size)
        if name == "SUB":
            to = topic(name, params, 3)
            if not is_valid_topic_name(params[2]):
                raise ProtocolError(
                    "E_BAD_CHANNEL", f"SUB channel name {quoted(params[2])} is not valid"
                )
            return Subscribe(to, params[2])
        if name == "AUTH":
            if len(params) != 1:
                raise ProtocolError("E_INVALID", "AUTH invalid number of parameters")
            return Auth(body(name, "E_BAD_BODY", limits.max_body_size))
        raise ProtocolError("E_INVALID", f"invalid command {shown(params[0])}")

    try:
        if not stream.startswith(MAGIC_V2[: len(stream)]) or (
            len(stream) >= 4 and take(4) != MAGIC_V2
        ):
            raise ProtocolError("E_BAD_PROTOCOL")
        if len(stream) >= 4:
            while at < len(stream):
                done.append(command())
    except Incomplete:
        pass
    except ProtocolError as error:
        done.append(error)
    return done


# --- streams -----------------------------------------------------------------------------------

HEAD = b"PUB t\n"
TOPICS = st.sampled_from([b"t", b"u", b"t#ephemeral"])
BODIES = st.one_of(
    st.sampled_from(
        [b"x", HEAD, HEAD + b"x", pub(b"t", b"x"), pub(b"t", b"x") * 2, b"\n\n", b"y" * 64]
    ),
    st.binary(min_size=1, max_size=LIMITS.max_msg_size),
)
IDS = st.sampled_from([b"0123456789abcdef", b"f" * 16])


@st.composite
def _mpubs(draw: st.DrawFn) -> bytes:
    bodies = draw(st.lists(st.sampled_from([b"x", HEAD, b"z" * 20]), min_size=1, max_size=6))
    return mpub(draw(TOPICS), map(message, bodies), len(bodies))


GOOD = st.one_of(
    st.builds(pub, TOPICS, BODIES),
    st.builds(pub, TOPICS, BODIES),
    st.builds(lambda body, n: pub(b"t", body) * n, BODIES, st.integers(1, 5)),
    st.builds(lambda body, n: pub(b"t\r", body) * n, BODIES, st.integers(1, 5)),
    _mpubs(),
    st.builds(lambda t, n, body: dpub(t, n, message(body)), TOPICS, st.integers(0, 1000), BODIES),
    st.builds(lambda ids: b"".join(map(fin, ids)), st.lists(IDS, min_size=1, max_size=4)),
    st.builds(identify, BODIES),
    st.builds(lambda body: b"AUTH\n" + message(body), BODIES),
    st.sampled_from(
        [
            NOP,
            CLS,
            rdy(10),
            sub(b"t", b"c"),
            b"NOP\r\n",
            b"FIN 0123456789abcdef\r\n",
            b"FIN\n",
            b"FIN short\n",
            b"REQ 0123456789abcdef 0\n",
            b"TOUCH 0123456789abcdef\n",
            b"SUB t c\r\n",
            b"PUB t and more\n" + message(b"x"),
            b"DPUB t \n" + message(b"x"),
        ]
    ),
)
BAD = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            b"\n\n" + message(b"x"),  # once taken for a PUB to the topic of nobody's last one
            b"\n",
            b"PUB\n",
            b"PUB t" + message(b"x"),
            HEAD + b"\0\0\0\0",
            HEAD + b"\xff\xff\xff\xff",
            HEAD + b"\0\0\0\x41" + b"x" * 65,
            b"MPUB t\n\0\0\0\x0b\0\0\0\2\0\0\0\3abc",
            b"MPUB t\n\0\0\1\1" + b"x" * 257,
            b"DPUB t 1001\n" + message(b"x"),
            b"pub t\n" + message(b"x"),
            b"SUB t\n",
        ]
    ),
)
STREAMS = st.builds(
    lambda good, bad, more: MAGIC_V2 + b"".join(good) + bad + b"".join(more),
    st.lists(GOOD, max_size=8),
    st.one_of(st.just(b""), st.just(b""), BAD),
    st.lists(GOOD, max_size=3),
)


@given(STREAMS, st.lists(st.integers(0, 1 << 16), max_size=12), st.integers(0, 1 << 16))
@settings(max_examples=cases(400))
@example(MAGIC_V2 + pub(b"t", HEAD) * 9, [], 0)
@example(MAGIC_V2 + pub(b"t", b"x") * 3 + NOP + pub(b"t", b"x") * 3, [], 0)
def test_any_cut_gives_what_nsqd_reads(stream: bytes, places: list[int], end: int) -> None:
    for whole in (stream, stream[: end % (len(stream) + 1)]):
        expected = nsqd_reads(whole, LIMITS)
        assert read([whole]) == expected
        assert read(cut(whole, places)) == expected


@given(STREAMS)
@settings(max_examples=cases(100))
def test_byte_by_byte_gives_what_nsqd_reads(stream: bytes) -> None:
    assert read([stream[i : i + 1] for i in range(len(stream))]) == nsqd_reads(stream, LIMITS)


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=4))
def test_no_stream_begins_without_the_magic(stream: bytes, places: list[int]) -> None:
    commands = read(cut(stream, places))
    assert commands == nsqd_reads(stream, LIMITS)
    if not stream.startswith(MAGIC_V2):
        assert commands in ([], [ProtocolError("E_BAD_PROTOCOL")])


@given(STREAMS, STREAMS, st.lists(st.integers(0, 1 << 16), max_size=4))
@settings(max_examples=cases(100))
def test_an_error_ends_the_stream(before: bytes, after: bytes, places: list[int]) -> None:
    reader = CommandReader(LIMITS)
    given_ = [command for part in cut(before, places) for command in reader.feed(part)]
    assert reader.failed == any(isinstance(command, ProtocolError) for command in given_)
    assert all(isinstance(command, ProtocolError) <= (command is given_[-1]) for command in given_)
    if reader.failed:
        rest = [before, after, b"", b"\n\n" + message(b"x"), pub(b"t", b"x"), pub(b"u", b"x")]
        assert [command for part in rest for command in reader.feed(part)] == []
        assert reader.buffered == 0


@given(STREAMS, st.lists(st.integers(0, 1 << 16), max_size=6))
@settings(max_examples=cases(100))
def test_what_is_held_is_the_incomplete_command_alone(stream: bytes, places: list[int]) -> None:
    reader = CommandReader(LIMITS)
    fed = 0
    for part in cut(stream, places):
        reader.feed(part)
        fed += len(part)
        if not reader.failed:
            held = stream[fed - reader.buffered : fed]
            assert read([stream[: fed - reader.buffered]]) == read([stream[:fed]])
            assert not held or not nsqd_reads(MAGIC_V2 + held, LIMITS) or fed < 4


# --- each command --------------------------------------------------------------------------------

ID = b"0123456789abcdef"
FORMS = [
    pytest.param(pub(b"t", b"x"), [("PUB", b"t", b"x")], id="PUB"),
    pytest.param(b"PUB t\r\n" + message(b"x"), [("PUB", b"t", b"x")], id="PUB-with-CRLF"),
    pytest.param(pub(b"t", b"\r\n\0 \xff"), [("PUB", b"t", b"\r\n\0 \xff")], id="PUB-of-any-bytes"),
    pytest.param(b"PUB t u v\n" + message(b"x"), [("PUB", b"t", b"x")], id="PUB-with-more-words"),
    pytest.param(
        pub(b"t", HEAD) * 2, [("PUB", b"t", HEAD)] * 2, id="PUB-whose-body-is-its-own-line"
    ),
    pytest.param(
        pub(b"t", b"x") + pub(b"t", pub(b"t", b"x") * 2) + pub(b"t", b"y"),
        [("PUB", b"t", b"x"), ("PUB", b"t", pub(b"t", b"x") * 2), ("PUB", b"t", b"y")],
        id="PUB-whose-body-holds-PUBs",
    ),
    pytest.param(
        pub(b"t", b"a") + pub(b"u", b"b") + pub(b"t", b"c"),
        [("PUB", b"t", b"a"), ("PUB", b"u", b"b"), ("PUB", b"t", b"c")],
        id="PUBs-to-two-topics-in-order",
    ),
    pytest.param(
        mpub(b"t", [message(b"a"), message(HEAD)], 2), [("MPUB", b"t", [b"a", HEAD])], id="MPUB"
    ),
    pytest.param(
        b"MPUB t\r\n" + mpub(b"t", [message(b"a")], 1)[7:], [("MPUB", b"t", [b"a"])], id="MPUB-CRLF"
    ),
    pytest.param(dpub(b"t", 0, message(b"x")), [("DPUB", b"t", 0, b"x")], id="DPUB-at-once"),
    pytest.param(dpub(b"t", 1000, message(b"x")), [("DPUB", b"t", 1000, b"x")], id="DPUB-at-most"),
    pytest.param(b"DPUB t 007\r\n" + message(b"x"), [("DPUB", b"t", 7, b"x")], id="DPUB-zeros"),
    pytest.param(b"DPUB t \n" + message(b"x"), [("DPUB", b"t", 0, b"x")], id="DPUB-empty-is-0"),
    pytest.param(sub(b"t", b"c"), [Subscribe(b"t", b"c")], id="SUB"),
    pytest.param(b"SUB t c\r\n", [Subscribe(b"t", b"c")], id="SUB-with-CRLF"),
    pytest.param(b"SUB t c more\n", [Subscribe(b"t", b"c")], id="SUB-with-more-words"),
    pytest.param(identify(b"{}"), [Identify(b"{}")], id="IDENTIFY"),
    pytest.param(b"IDENTIFY x\n" + message(b"{}"), [Identify(b"{}")], id="IDENTIFY-with-words"),
    pytest.param(b"AUTH\n" + message(b"secret"), [Auth(b"secret")], id="AUTH"),
    pytest.param(NOP, [Line(b"NOP", NOP)], id="NOP"),
    pytest.param(b"NOP x\r\n", [Line(b"NOP", b"NOP x\r\n")], id="NOP-with-words"),
    pytest.param(CLS, [Line(b"CLS", CLS)], id="CLS"),
    pytest.param(rdy(3), [Line(b"RDY", b"RDY 3\n")], id="RDY"),
    pytest.param(fin(ID) * 3, [Line(b"FIN", fin(ID))] * 3, id="FIN-in-a-run"),
    pytest.param(
        fin(ID) + b"FIN " + ID + b"\r\n" + fin(ID),
        [Line(b"FIN", fin(ID)), Line(b"FIN", b"FIN " + ID + b"\r\n"), Line(b"FIN", fin(ID))],
        id="FIN-with-CRLF-between",
    ),
    pytest.param(b"FIN\n", [Line(b"FIN", b"FIN\n")], id="FIN-of-nothing-is-for-nsqd-to-judge"),
    pytest.param(
        b"REQ " + ID + b" 5\n", [Line(b"REQ", b"REQ " + ID + b" 5\n")], id="REQ-is-relayed"
    ),
    pytest.param(
        b"TOUCH " + ID + b"\n", [Line(b"TOUCH", b"TOUCH " + ID + b"\n")], id="TOUCH-is-relayed"
    ),
]


@pytest.mark.parametrize(("stream", "commands"), FORMS)
def test_each_form_of_each_command(stream: bytes, commands: list[Any]) -> None:
    assert read([MAGIC_V2 + stream]) == commands
    assert read([MAGIC_V2 + stream * 2]) == commands * 2
    for place in range(len(stream)):
        assert read([MAGIC_V2, stream[:place], stream[place:] + NOP]) == [
            *commands,
            Line(b"NOP", NOP),
        ]


@pytest.mark.parametrize("ending", [pytest.param(b"\n", id="LF"), pytest.param(b"\r\n", id="CRLF")])
@pytest.mark.parametrize(
    ("body", "count"),
    [
        pytest.param(b"x", 100, id="small"),
        pytest.param(HEAD, 100, id="each-holding-the-line"),
        pytest.param(b"y" * 64, 30, id="largest"),
    ],
)
def test_a_pipelined_read_is_one_publish(body: bytes, count: int, ending: bytes) -> None:
    reader = CommandReader(LIMITS)
    reader.feed(MAGIC_V2 + b"PUB t" + ending + message(body))
    (publish,) = reader.feed((b"PUB t" + ending + message(body)) * count)
    assert isinstance(publish, Publish)
    assert (publish.count, publish.messages) == (count, [message(body)] * count)


def test_the_publish_type_is_the_callers() -> None:
    reader = CommandReader(LIMITS, Run)
    assert [type(command) for command in reader.feed(MAGIC_V2 + pub(b"t", b"x"))] == [Run]
    assert [type(command) for command in reader.feed(pub(b"t", b"x"))] == [Run]
    assert [type(command) for command in reader.feed(pub(b"t", b"x") * 2)] == [Run]
    assert [type(command) for command in reader.feed(mpub(b"t", [message(b"x")], 1))] == [Run]


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(pub(b"t", HEAD), id="bodies-that-hold-the-line"),
        pytest.param(pub(b"t", b"x") * 3 + NOP, id="short-runs-among-other-commands"),
        pytest.param(pub(b"t", b"x") * 3 + pub(b"u", b"x") * 3, id="short-runs-to-two-topics"),
    ],
)
def test_a_read_is_split_at_most_once(one: bytes) -> None:
    """Each look at all that is left would make the work quadratic: 0.3 s for a read of 64 KiB."""

    class Counted(bytes):
        splits = 0

        def split(self, *arguments: Any) -> list[bytes]:  # type: ignore[override]
            Counted.splits += arguments != (b" ",)
            return super().split(*arguments)

        def __getitem__(self, key: Any) -> Any:
            part = super().__getitem__(key)
            return Counted(part) if isinstance(part, bytes) else part

    reader = CommandReader(LIMITS)
    reader.feed(MAGIC_V2 + one)
    stream = Counted(one * 500)
    assert expand(reader.feed(stream)) == nsqd_reads(MAGIC_V2 + one * 500, LIMITS)
    assert Counted.splits <= 1


# --- errors: code and sentence, ours and nsqd's -----------------------------------------------


def mpub_of(content: bytes) -> bytes:
    return b"MPUB t\n" + message(content)


def count_of(number: int) -> bytes:
    return struct.pack(">i", number)


A65, LONG_LINE = b"a" * 65, b"PUB t " + b"x" * MAX_LINE_BYTES
SILENT, WAITS = "nsqd closes without a word", "nsqd reads on into the next command"
# what is sent | our error | nsqd's, where it is not the same
ERRORS = [
    pytest.param(b"  V1", "E_BAD_PROTOCOL", None, id="another-protocol"),
    pytest.param(b"GET / HTTP/1.1\r\n\r\n", "E_BAD_PROTOCOL", None, id="HTTP-at-the-wrong-port"),
    pytest.param(b"\n\n\0\0\0\1x", "E_BAD_PROTOCOL", None, id="no-magic-but-newlines"),
    pytest.param(b"  V2\n", "E_INVALID invalid command ", None, id="empty-line"),
    pytest.param(b"  V2\n\n\0\0\0\1x", "E_INVALID invalid command ", None,
                 id="newlines-and-a-body"),
    pytest.param(b"  V2pub t\n", "E_INVALID invalid command pub", None, id="lower-case"),
    pytest.param(b"  V2 PUB t\n", "E_INVALID invalid command ", None, id="leading-space"),
    pytest.param(b"  V2PUB\tt\n", r"E_INVALID invalid command PUB\tt",
                 "E_INVALID invalid command PUB\tt", id="tab-shown-escaped"),
    pytest.param(b"  V2\xff\n", r"E_INVALID invalid command \xff", SILENT, id="shown-as-ASCII"),
    pytest.param(b"  V2" + LONG_LINE, f"E_INVALID command line longer than {MAX_LINE_BYTES} bytes",
                 SILENT, id="line-too-long"),
    pytest.param(b"  V2PUB\n", "E_INVALID PUB insufficient number of parameters", None,
                 id="PUB-without-topic"),
    pytest.param(b"  V2PUB \n", 'E_BAD_TOPIC PUB topic name "" is not valid', None,
                 id="PUB-to-an-empty-name"),
    pytest.param(b"  V2PUB " + A65 + b"\n", f'E_BAD_TOPIC PUB topic name "{"a" * 65}" is not valid',
                 None, id="PUB-to-a-name-of-65"),
    pytest.param(b"  V2PUB a\"b\\\n", r'E_BAD_TOPIC PUB topic name "a\"b\\" is not valid', None,
                 id="PUB-to-quotes-and-a-backslash"),
    pytest.param(b"  V2PUB \xe9\n", r'E_BAD_TOPIC PUB topic name "\xe9" is not valid', None,
                 id="PUB-to-Latin-1"),
    pytest.param(b"  V2PUB t\r\r\n", r'E_BAD_TOPIC PUB topic name "t\r" is not valid', None,
                 id="PUB-with-two-returns"),
    pytest.param(b"  V2PUB t\n\0\0\0\0", "E_BAD_MESSAGE PUB invalid message body size 0", None,
                 id="PUB-of-nothing"),
    pytest.param(b"  V2PUB t\n\xff\xff\xff\xff", "E_BAD_MESSAGE PUB invalid message body size -1",
                 None, id="PUB-of-a-negative-size"),
    pytest.param(b"  V2PUB t\n\x80\0\0\0",
                 "E_BAD_MESSAGE PUB invalid message body size -2147483648", None,
                 id="PUB-of-the-smallest-size"),
    pytest.param(b"  V2PUB t\n\0\0\0\x41", "E_BAD_MESSAGE PUB message too big 65 > 64", None,
                 id="PUB-one-byte-too-big"),
    pytest.param(b"  V2PUB t\n\x7f\xff\xff\xff",
                 "E_BAD_MESSAGE PUB message too big 2147483647 > 64", None, id="PUB-of-2-GiB"),
    pytest.param(b"  V2MPUB\n", "E_INVALID MPUB insufficient number of parameters", None,
                 id="MPUB-without-topic"),
    # nsqd repeats the code in this one sentence.
    pytest.param(b"  V2MPUB a,b\n", 'E_BAD_TOPIC MPUB topic name "a,b" is not valid',
                 'E_BAD_TOPIC E_BAD_TOPIC MPUB topic name "a,b" is not valid', id="MPUB-name"),
    pytest.param(b"  V2MPUB t\n\0\0\0\0", "E_BAD_BODY MPUB invalid body size 0", None,
                 id="MPUB-of-no-bytes"),
    pytest.param(b"  V2MPUB t\n\xff\xff\xff\xfe", "E_BAD_BODY MPUB invalid body size -2", None,
                 id="MPUB-of-a-negative-size"),
    pytest.param(b"  V2MPUB t\n\0\0\1\1", "E_BAD_BODY MPUB body too big 257 > 256", None,
                 id="MPUB-one-byte-too-big"),
    pytest.param(b"  V2" + mpub_of(b"\0\0\0"),
                 "E_BAD_BODY MPUB failed to read message count", WAITS,
                 id="MPUB-too-short-for-a-count"),
    pytest.param(b"  V2" + mpub_of(count_of(0)), "E_BAD_BODY MPUB invalid message count 0", None,
                 id="MPUB-of-no-messages"),
    pytest.param(b"  V2" + mpub_of(count_of(-1)), "E_BAD_BODY MPUB invalid message count -1", None,
                 id="MPUB-of-a-negative-count"),
    pytest.param(b"  V2" + mpub_of(count_of(51)), "E_BAD_BODY MPUB invalid message count 51", None,
                 id="MPUB-of-more-than-can-be"),
    pytest.param(b"  V2" + mpub_of(count_of(2) + message(b"abc")),
                 "E_BAD_MESSAGE MPUB failed to read message(1) body size", WAITS,
                 id="MPUB-of-fewer-than-counted"),
    pytest.param(b"  V2" + mpub_of(count_of(1) + message(b"abc") + b"x"),
                 "E_BAD_BODY MPUB body of 12 bytes holds 1 messages of 11 bytes", WAITS,
                 id="MPUB-with-a-byte-left-over"),
    pytest.param(b"  V2" + mpub_of(count_of(1) + message(b"abc") * 2),
                 "E_BAD_BODY MPUB body of 18 bytes holds 1 messages of 11 bytes", WAITS,
                 id="MPUB-of-more-than-counted"),
    pytest.param(b"  V2" + mpub_of(count_of(1) + count_of(4) + b"abc"),
                 "E_BAD_MESSAGE MPUB failed to read message body", WAITS, id="MPUB-last-cut-short"),
    pytest.param(b"  V2" + mpub_of(count_of(3) + count_of(9) + b"abc"),
                 "E_BAD_MESSAGE MPUB failed to read message body", WAITS,
                 id="MPUB-first-cut-short"),
    pytest.param(b"  V2" + mpub_of(count_of(2) + message(b"abc") + count_of(0)),
                 "E_BAD_MESSAGE MPUB invalid message(1) body size 0", None,
                 id="MPUB-with-an-empty"),
    pytest.param(b"  V2" + mpub_of(count_of(1) + count_of(-7)),
                 "E_BAD_MESSAGE MPUB invalid message(0) body size -7", None,
                 id="MPUB-with-a-negative-one"),
    pytest.param(b"  V2" + mpub_of(count_of(1) + message(b"x" * 65)),
                 "E_BAD_MESSAGE MPUB message too big 65 > 64", None, id="MPUB-with-one-too-big"),
    pytest.param(b"  V2DPUB t\n", "E_INVALID DPUB insufficient number of parameters", None,
                 id="DPUB-without-timeout"),
    pytest.param(b"  V2DPUB t# 1\n", 'E_BAD_TOPIC DPUB topic name "t#" is not valid', None,
                 id="DPUB-name"),
    pytest.param(b"  V2DPUB t -1\n", "E_INVALID DPUB could not parse timeout -1", None,
                 id="DPUB-into-the-past"),
    pytest.param(b"  V2DPUB t 1.5\n", "E_INVALID DPUB could not parse timeout 1.5", None,
                 id="DPUB-of-a-fraction"),
    pytest.param(b"  V2DPUB t \xd9\xa3\n", r"E_INVALID DPUB could not parse timeout \xd9\xa3",
                 "E_INVALID DPUB could not parse timeout \u0663", id="DPUB-of-an-Arabic-digit"),
    pytest.param(b"  V2DPUB t 1001\n", "E_INVALID DPUB timeout 1001 out of range 0-1000", None,
                 id="DPUB-too-late"),
    # nsqd's number overflows here, and can come out anywhere.
    pytest.param(b"  V2DPUB t " + b"9" * 20 + b"\n",
                 f"E_INVALID DPUB could not parse timeout {'9' * 20}", WAITS, id="DPUB-20-digits"),
    pytest.param(b"  V2DPUB t 1\n\0\0\0\0", "E_BAD_MESSAGE DPUB invalid message body size 0", None,
                 id="DPUB-of-nothing"),
    pytest.param(b"  V2DPUB t 1\n\0\0\0\x41", "E_BAD_MESSAGE DPUB message too big 65 > 64", None,
                 id="DPUB-one-byte-too-big"),
    pytest.param(b"  V2SUB t\n", "E_INVALID SUB insufficient number of parameters", None,
                 id="SUB-without-channel"),
    pytest.param(b"  V2SUB t$ c\n", 'E_BAD_TOPIC SUB topic name "t$" is not valid', None,
                 id="SUB-topic-name"),
    pytest.param(b"  V2SUB t c/d\n", 'E_BAD_CHANNEL SUB channel name "c/d" is not valid', None,
                 id="SUB-channel-name"),
    pytest.param(b"  V2IDENTIFY\n\0\0\0\0", "E_BAD_BODY IDENTIFY invalid body size 0", None,
                 id="IDENTIFY-of-nothing"),
    pytest.param(b"  V2IDENTIFY\n\0\0\1\1", "E_BAD_BODY IDENTIFY body too big 257 > 256", None,
                 id="IDENTIFY-one-byte-too-big"),
    pytest.param(b"  V2AUTH x\n", "E_INVALID AUTH invalid number of parameters", None,
                 id="AUTH-with-a-word"),
    pytest.param(b"  V2AUTH\n\xff\xff\xff\xff", "E_BAD_BODY AUTH invalid body size -1", None,
                 id="AUTH-of-a-negative-size"),
    pytest.param(b"  V2AUTH\n\0\0\1\1", "E_BAD_BODY AUTH body too big 257 > 256", None,
                 id="AUTH-one-byte-too-big"),
]  # fmt: skip


@pytest.mark.parametrize(("stream", "ours", "_"), ERRORS)
def test_each_error_has_its_code_and_sentence(stream: bytes, ours: str, _: str | None) -> None:
    (error,) = read([stream])
    assert isinstance(error, ProtocolError)
    assert str(error).strip() == ours.strip()
    assert error.fatal
    assert str(error).isprintable()
    for place in range(1, min(len(stream), 80)):
        assert read([stream[:place], stream[place:]]) == [error]
    assert read([stream + pub(b"t", b"x")]) == [error]


@pytest.mark.parametrize(
    ("stream", "ours", "theirs"), [row for row in ERRORS if row.values[2] not in (WAITS, SILENT)]
)
def test_nsqd_says_the_same(shared: Servers, stream: bytes, ours: str, theirs: str | None) -> None:
    with V2(_nsqd(shared), magic=b"") as client:
        client.send(stream)
        answer = client.reply()
        assert answer is not None
        assert answer.decode() == (theirs or ours)
        assert client.ended()


@pytest.mark.parametrize(("stream", "commands"), FORMS)
def test_nsqd_takes_each_form_that_we_take(
    shared: Servers, stream: bytes, commands: list[Any]
) -> None:
    """Or refuses it for its own reasons: what is in flight, what state it is in, its JSON."""
    with V2(_nsqd(shared)) as client:
        client.send(stream)
        answers = [client.reply() for command in commands if isinstance(command, tuple | Subscribe)]
        assert answers == [b"OK"] * len(answers)


_ADDRESSES: dict[int, str] = {}


def _nsqd(shared: Servers) -> str:
    """One nsqd with LIMITS for this file."""
    if id(shared) not in _ADDRESSES:
        _ADDRESSES[id(shared)] = shared.nsqd(
            f"--max-msg-size={LIMITS.max_msg_size}",
            f"--max-body-size={LIMITS.max_body_size}",
            f"--max-req-timeout={LIMITS.max_req_timeout_ms}ms",
        ).tcp
    return _ADDRESSES[id(shared)]


# --- limits ------------------------------------------------------------------------------------


def line_of(length: int) -> bytes:
    """A PUB line of `length` bytes with its newline."""
    return b"PUB t " + b"x" * (length - 7) + b"\n"


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(pub(b"t", b"x" * 64), id="largest-message"),
        pytest.param(pub(b"t", b"x"), id="smallest-message"),
        pytest.param(pub(b"a" * 64, b"x"), id="longest-topic"),
        pytest.param(pub(b"a" * 54 + b"#ephemeral", b"x"), id="longest-ephemeral-topic"),
        pytest.param(identify(b"x" * 256), id="largest-body"),
        pytest.param(mpub(b"t", [message(b"x")] * 50, 50), id="most-messages"),
        pytest.param(
            mpub(b"t", [message(b"x" * 56)] * 4 + [message(b"x" * 8)], 5), id="fullest-MPUB"
        ),
        pytest.param(dpub(b"t", 1000, message(b"x" * 64)), id="latest-and-largest-DPUB"),
        pytest.param(line_of(MAX_LINE_BYTES) + message(b"x"), id="longest-line"),
    ],
)
def test_at_the_limit_is_within_it(command: bytes) -> None:
    assert nsqd_reads(MAGIC_V2 + command, LIMITS) == read([MAGIC_V2 + command])
    assert not isinstance(read([MAGIC_V2 + command])[0], ProtocolError)
    assert read([MAGIC_V2 + command[:-1]]) == []
    assert read([MAGIC_V2 + command[:-1], command[-1:]]) == read([MAGIC_V2 + command])
    assert read([MAGIC_V2 + command, command]) == read([MAGIC_V2 + command]) * 2


def test_a_line_one_byte_too_long_is_refused() -> None:
    (error,) = read([MAGIC_V2 + line_of(MAX_LINE_BYTES + 1)])
    assert error.code == "E_INVALID"


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(Limits(), id="nsqd's defaults"),
        pytest.param(Limits(max_msg_size=1, max_body_size=9), id="tiny"),
    ],
)
def test_sizes_around_each_limit(limits: Limits) -> None:
    def code(stream: bytes) -> str:
        commands = read([MAGIC_V2 + stream], limits)
        return commands[0].code if commands and isinstance(commands[0], ProtocolError) else ""

    size = struct.Struct(">i").pack
    for over, expected in ((0, ""), (1, "E_BAD_MESSAGE")):
        assert code(HEAD + size(limits.max_msg_size + over)) == expected
        assert code(b"DPUB t 0\n" + size(limits.max_msg_size + over)) == expected
    for over, expected in ((0, ""), (1, "E_BAD_BODY")):
        assert code(b"MPUB t\n" + size(limits.max_body_size + over)) == expected
        assert code(b"IDENTIFY\n" + size(limits.max_body_size + over)) == expected
        assert code(b"AUTH\n" + size(limits.max_body_size + over)) == expected


@pytest.mark.parametrize(
    "endless",
    [
        pytest.param(b"x", id="a-line-without-end"),
        pytest.param(b" ", id="spaces"),
        pytest.param(b"IDENTIFY\n\0\0\1\0" + b"x" * 256, id="bodies"),
        pytest.param(b"AUTH\n\0\0\1\0" + b"x" * 255, id="a-body-out-of-step"),
        pytest.param(line_of(MAX_LINE_BYTES) + message(b"x" * 64), id="the-longest-lines"),
        pytest.param(
            b"MPUB t " + line_of(MAX_LINE_BYTES)[7:] + message(b"x" * 256), id="long-MPUBs"
        ),
        pytest.param(pub(b"t", HEAD), id="lines-in-bodies"),
        pytest.param(fin(ID), id="FINs"),
    ],
)
@pytest.mark.parametrize("step", [1, 7, READ])
def test_what_is_held_is_bounded(endless: bytes, step: int) -> None:
    reader = CommandReader(LIMITS)
    reader.feed(MAGIC_V2)
    stream = endless * (3 * BOUND // len(endless) + 1)
    most = 0
    for place in range(0, len(stream), step):
        reader.feed(stream[place : place + step])
        most = max(most, reader.buffered)
    assert most <= BOUND - READ


# --- building ----------------------------------------------------------------------------------


@given(st.lists(BODIES, min_size=1, max_size=8))
def test_what_is_built_is_read_back(bodies: list[bytes]) -> None:
    limits = Limits()
    elements = [message(body) for body in bodies]
    content = mpub(b"t", elements, len(bodies))
    assert read([MAGIC_V2 + content], limits) == [("MPUB", b"t", bodies)]
    start = len(b"MPUB t\n") + 4
    assert check_mpub(content, start, len(content), limits) == len(bodies)
    assert split_messages(b"".join(elements)) == bodies


@given(
    st.lists(BODIES, min_size=1, max_size=5),
    st.integers(-3, 8),
    st.integers(-9, 9),
    st.integers(0, 200),
)
def test_an_mpub_that_does_not_add_up_is_an_error(
    bodies: list[bytes], more: int, change: int, place: int
) -> None:
    """A wrong count, or any one byte changed: an error, or messages that fill the body exactly."""
    content = bytearray(count_of(len(bodies) + more) + b"".join(map(message, bodies)))
    content[place % len(content)] = (content[place % len(content)] + change) % 256
    padded = b"???" + bytes(content) + b"???"
    try:
        count = check_mpub(padded, 3, 3 + len(content), Limits(64, 4096))
    except ProtocolError as error:
        count, code = 0, error.code
    if not count:
        assert code in ("E_BAD_BODY", "E_BAD_MESSAGE")
        return
    found = split_messages(bytes(content[4:]))
    assert len(found) == count
    assert b"".join(map(message, found)) == content[4:]
    assert all(1 <= len(body) <= 64 for body in found)


# --- a million mutated streams ------------------------------------------------------------------

STREAM_COUNT = int(os.environ.get("SRTM_FUZZ_STREAMS", cases(1_000_000)))
COMPARED = 64  # one in so many is compared with the slow reading
SEEDS = [
    MAGIC_V2 + body
    for body in (
        pub(b"t", b"x") * 3,
        pub(b"t", HEAD) + pub(b"t", b"x" * 64),
        pub(b"t", b"a") + pub(b"u", b"b") + pub(b"t", b"c"),
        b"PUB t\r\n" + message(b"x") + b"PUB t\r\n" + message(b"y"),
        mpub(b"t", [message(b"a"), message(b"bc")], 2) + pub(b"t", b"x"),
        mpub(b"t", [message(b"x" * 56)] * 4, 4),
        dpub(b"t", 100, message(b"x")) + NOP,
        identify(b'{"client_id":"x"}') + sub(b"t", b"c") + rdy(1) + fin(ID) * 2 + CLS,
        identify(b"x" * 250) + NOP,
        b"AUTH\n" + message(b"secret") + b"REQ " + ID + b" 5\nTOUCH " + ID + b"\n",
        line_of(200) + message(b"x") + NOP,
    )
]  # fmt: skip
WORDS = [
    b"\n", b"\r\n", b" ", b"\0", b"\xff", b"\0\0\0\1", b"\0\0\0\0", b"\xff\xff\xff\xff",
    b"\0\0\0\x40", b"\0\0\1\0", b"\x7f\xff\xff\xff", b"PUB ", HEAD, pub(b"t", b"x"),
    b"MPUB t\n", b"DPUB t 1\n",
    b"SUB t c\n", b"IDENTIFY\n", b"FIN " + ID + b"\n", b"FIN ", b"#ephemeral", MAGIC_V2, b"\n\n",
    b"x" * 300,
]  # fmt: skip


def mutants(count: int, seed: int) -> Iterator[tuple[bytes, int]]:
    """(stream, where to cut it), the same ones for the same seed."""
    random = np.random.default_rng(seed)
    block = 8192
    for done in range(0, count, block):
        rows = random.integers(0, 1 << 30, (min(block, count - done), 8)).tolist()
        for which, kind, a, b, c, d, more, place in rows:
            stream = SEEDS[which % len(SEEDS)]
            at = 4 + a % (len(stream) - 3)
            if kind & 1:
                stream = stream[:at] + WORDS[b % len(WORDS)] + stream[at + c % 6 :]
            elif kind & 2:
                stream = stream[:at] + bytes((b & 255,)) + stream[at + 1 :]
            elif kind & 4:
                stream = stream[:at] + stream[at + c % 20 :]
            else:
                other = SEEDS[b % len(SEEDS)]
                stream = stream[:at] + other[4 + c % (len(other) - 4) :]
            if more & 1:
                at = d % (len(stream) + 1)
                stream = stream[:at] + WORDS[c % len(WORDS)] + stream[at + more % 3 :]
            yield stream, place % (len(stream) + 1)


@pytest.mark.timeout(600)
def test_mutated_streams_crash_nothing_and_stay_within_the_bound() -> None:
    kinds: set[str] = set()
    errors = 0
    for number, (stream, place) in enumerate(mutants(STREAM_COUNT, seed=1)):
        reader = CommandReader(LIMITS)
        feed = reader.feed
        commands = feed(stream[:place])
        # The tail is fed in one read: longer than READ, so the bound is that of this read.
        commands += feed(stream[place:])
        assert reader.buffered <= BOUND - READ, stream
        errors += reader.failed
        if number % COMPARED == 0:
            expanded = expand(commands)
            assert expanded == nsqd_reads(stream, LIMITS), stream
            kinds.update(type(command).__name__ for command in expanded)
    assert kinds == {"tuple", "Line", "Subscribe", "Identify", "Auth", "ProtocolError"}
    assert 0.2 < errors / STREAM_COUNT < 0.9, "the mutator has lost its edge"


def test_mutated_streams_leave_no_memory_behind() -> None:
    def held_after(seed: int) -> int:
        for stream, place in mutants(2_000, seed):
            reader = CommandReader(LIMITS)
            reader.feed(stream[:place])
            reader.feed(stream[place:])
        is_valid_topic_name.cache_clear()
        gc.collect()  # an error's traceback holds a frame, which holds the error
        # Threads of other tests allocate too; compiled modules' memory counts as their caller's.
        ours = [tracemalloc.Filter(True, file) for file in (commands.__file__, __file__)]
        found = tracemalloc.take_snapshot().filter_traces(ours).statistics("filename")
        return sum(each.size for each in found)

    tracemalloc.start()
    try:
        held = [held_after(seed) for seed in range(5)]
    finally:
        tracemalloc.stop()
    assert max(held[1:]) - held[0] < 2_000, held
