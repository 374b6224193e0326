"""What clients send: V2 commands, read at any cut and built. No I/O.

Reading is batch-minded. PUBs to one topic that stand in one read become one `Publish`, whose
`messages` are slices [size][body]: the very elements of an MPUB, so that coalescing is a join.
"""

import re
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from srtm.nsq.errors import ProtocolError
from srtm.nsq.names import is_valid_channel_name, is_valid_topic_name

MAGIC_V2 = b"  V2"
MAX_LINE_BYTES = 16 * 1024
"""nsqd reads a command's line with a buffer of this size (defaultBufferSize)."""

BIG_BODY_BYTES = 64 * 1024
"""What one read may bring (kernel/stamps.py). Only of a bigger body is it known before it is read
that it comes."""
_MAX_SHOWN = 256  # bytes of a client's own that an error repeats
_SIZE = struct.Struct(">i")
_INTEGER = re.compile(rb"[0-9]{0,18}")  # nsqd takes an empty one as 0
_FIN_RUN = re.compile(rb"(?:FIN [0-9a-f]{16}\n)+")
_NOP_RUN = re.compile(rb"(?:NOP\n)+")


@dataclass(frozen=True, slots=True)
class Limits:
    """nsqd's limits for what a client may send; the defaults are nsqd's own."""

    max_msg_size: int = 1024 * 1024
    max_body_size: int = 5 * 1024 * 1024
    max_req_timeout_ms: int = 3_600_000


class Publish:
    """PUBs of one read to one topic, or one MPUB, or one DPUB.

    messages: slices [size][body]; for an MPUB one slice that holds all of them
    count:    messages in them, and so the tokens they take
    atomic:   an MPUB or DPUB: taken whole, answered once
    defer_ms: of a DPUB, else None
    """

    __slots__ = ("atomic", "count", "defer_ms", "messages", "topic")

    def __init__(
        self,
        topic: bytes,
        messages: list[bytes],
        count: int,
        atomic: bool,
        defer_ms: int | None,
    ) -> None:
        self.topic = topic
        self.messages = messages
        self.count = count
        self.atomic = atomic
        self.defer_ms = defer_ms

    def bodies(self) -> list[bytes]:
        """The message bodies one by one."""
        return [body for chunk in self.messages for body in split_messages(chunk)]


@dataclass(frozen=True, slots=True)
class Identify:
    body: bytes


@dataclass(frozen=True, slots=True)
class Auth:
    body: bytes


@dataclass(frozen=True, slots=True)
class Subscribe:
    topic: bytes
    channel: bytes


@dataclass(frozen=True, slots=True)
class Line:
    """A command without a body: NOP, RDY, FIN, REQ, TOUCH, CLS; `raw` may hold a run of
    FINs or of NOPs."""

    name: bytes
    raw: bytes


@dataclass(frozen=True, slots=True)
class Body:
    """A big body that a client has begun to send, and of which not all has come."""

    topic: bytes
    size: int


Command = Publish | Identify | Auth | Subscribe | Line | ProtocolError
PublishType = Callable[[bytes, list[bytes], int, bool, "int | None"], Publish]

_NO_HEAD: tuple[()] = ()  # nothing starts with one of none
_LINES = frozenset([b"NOP", b"RDY", b"FIN", b"REQ", b"TOUCH", b"CLS"])


class CommandReader:
    """One client's bytes in, commands out.

    An error ends the stream: it is the last command that `feed` gives, and what follows is
    ignored, as nsqd closes the connection there. At most one body of `max_body_size` (or one line)
    and the last read are held. `body` is the big one that is under way; another object for each.
    """

    __slots__ = (
        "_head",
        "_head_topic",
        "_limits",
        "_need",
        "_publish",
        "_started",
        "_tail",
        "body",
        "failed",
    )

    def __init__(self, limits: Limits, publish: PublishType = Publish) -> None:
        self._limits = limits
        self._publish = publish
        self._tail = bytearray()
        self._need = 4
        self._started = False
        # The last PUB's whole line, to recognise the next at C speed.
        self._head: bytes | tuple[()] = _NO_HEAD
        self._head_topic = b""
        self.body: Body | None = None
        self.failed = False

    @property
    def buffered(self) -> int:
        return len(self._tail)

    def follow(self, limits: Limits) -> None:
        """nsqd has other limits from now on; what has come in part is judged by them."""
        self._limits = limits
        self._need = 0

    def stop(self) -> None:
        """Stop reading: nothing more is taken, and what is incomplete is dropped."""
        self.failed = True
        self.body = None
        self._head = _NO_HEAD
        self._tail.clear()

    def drop(self) -> None:
        """Forget what has come behind the last command: the stream goes on with other bytes."""
        self.stop()
        self.failed = False

    def feed(self, data: bytes) -> list[Command]:
        tail = self._tail
        if not tail and data.startswith(self._head):
            # The commonest read by far: one PUB, to the topic of the last one.
            start = len(self._head)
            size = int.from_bytes(data[start : start + 4], "big")
            if len(data) == start + 4 + size and 0 < size <= self._limits.max_msg_size:
                return [self._publish(self._head_topic, [data[start:]], 1, False, None)]
        if self.failed:
            return []
        if tail:
            tail += data
            if len(tail) < self._need:
                return []
            data = bytes(tail)
            tail.clear()
        commands: list[Command] = []
        try:
            position = self._read(data, commands)
        except ProtocolError as error:
            self.stop()
            commands.append(error)
            return commands
        if position < len(data):
            tail += memoryview(data)[position:]
        return commands

    def _read(self, data: bytes, commands: list[Command]) -> int:
        """Append the whole commands of `data`; return where the first incomplete one begins."""
        position, length = 0, len(data)
        self.body = None
        self._need = 0  # where the incomplete command would end, as far as is known
        if not self._started:
            if length < 4:
                if not MAGIC_V2.startswith(data):
                    raise ProtocolError("E_BAD_PROTOCOL")
                self._need = 4
                return 0
            if not data.startswith(MAGIC_V2):
                raise ProtocolError("E_BAD_PROTOCOL")
            self._started = True
            position = 4
        while position < length:
            if data.startswith(self._head, position):
                after = self._read_pubs(data, position, commands)
            else:
                after = self._read_command(data, position, commands)
            if after == position:
                break
            position = after
        self._need -= position
        return position

    def _read_pubs(self, data: bytes, position: int, commands: list[Command]) -> int:
        """A run of PUBs to the topic of the last one: one Publish, at C speed where it can."""
        head, largest = self._head, self._limits.max_msg_size
        assert head
        head_length, length = len(head), len(data)
        messages: list[bytes] = []
        if not commands:
            # A pipelining publisher's read holds nothing else. A body may hold the line as well,
            # so each part is checked against its own size; and other commands may follow, so this
            # is tried once for each read, or many short runs would take quadratic time.
            for part in (data if position == 0 else data[position:]).split(head)[1:]:
                size = len(part) - 4
                if 0 < size <= largest and int.from_bytes(part[:4], "big") == size:
                    messages.append(part)
                    position += head_length + 4 + size
                else:
                    break
        while data.startswith(head, position):
            start = position + head_length
            size = int.from_bytes(data[start : start + 4], "big")
            end = start + 4 + size
            if not 0 < size <= largest or end > length:
                break
            messages.append(data[start:end])
            position = end
        if messages:
            commands.append(self._publish(self._head_topic, messages, len(messages), False, None))
        else:
            after = position + head_length
            self._message_end(data, after, "PUB")  # incomplete, or an error
            self._expect(self._head_topic, after)
        return position

    def _read_command(self, data: bytes, position: int, commands: list[Command]) -> int:
        newline = data.find(b"\n", position, position + MAX_LINE_BYTES)
        if newline < 0:
            if len(data) - position >= MAX_LINE_BYTES:
                raise ProtocolError("E_INVALID", f"command line longer than {MAX_LINE_BYTES} bytes")
            return position
        raw = data[position : newline + 1]
        line = raw[:-2] if raw.endswith(b"\r\n") else raw[:-1]
        params = line.split(b" ")
        name = params[0]
        after = newline + 1
        if name == b"FIN":
            run = _FIN_RUN.match(data, position)
            if run is not None:
                raw, after = run[0], run.end()
            commands.append(Line(name, raw))
            return after
        if name == b"NOP" and raw == NOP:
            # A flood of them costs its sender, and not all others.
            run = _NOP_RUN.match(data, position)
            assert run is not None
            commands.append(Line(name, run[0]))
            return run.end()
        if name in _LINES:
            commands.append(Line(name, raw))
            return after
        if name == b"PUB":
            topic = self._topic(name, params, 2)
            end = self._message_end(data, after, "PUB")
            if end < 0:
                self._expect(topic, after)
                return position
            commands.append(self._publish(topic, [data[after:end]], 1, False, None))
            self._head, self._head_topic = raw, topic
            return end
        if name == b"MPUB":
            return self._read_mpub(data, position, after, params, commands)
        if name == b"DPUB":
            return self._read_dpub(data, position, after, params, commands)
        if name == b"SUB":
            commands.append(_subscribe(params))
            return after
        if name in (b"IDENTIFY", b"AUTH"):
            if name == b"AUTH" and len(params) != 1:
                raise ProtocolError("E_INVALID", "AUTH invalid number of parameters")
            end = self._body_end(data, after, name.decode())
            if end < 0:
                return position
            body = data[after + 4 : end]
            commands.append(Identify(body) if name == b"IDENTIFY" else Auth(body))
            return end
        raise ProtocolError("E_INVALID", f"invalid command {_shown(name)}")

    def _read_mpub(
        self, data: bytes, position: int, after: int, params: list[bytes], commands: list[Command]
    ) -> int:
        topic = self._topic(b"MPUB", params, 2)
        end = self._body_end(data, after, "MPUB")
        if end < 0:
            self._expect(topic, after)
            return position
        count = check_mpub(data, after + 4, end, self._limits)
        commands.append(self._publish(topic, [data[after + 8 : end]], count, True, None))
        return end

    def _read_dpub(
        self, data: bytes, position: int, after: int, params: list[bytes], commands: list[Command]
    ) -> int:
        topic = self._topic(b"DPUB", params, 3)
        if not _INTEGER.fullmatch(params[2]):
            raise ProtocolError("E_INVALID", f"DPUB could not parse timeout {_shown(params[2])}")
        defer_ms = int(params[2] or b"0")
        if defer_ms > self._limits.max_req_timeout_ms:
            raise ProtocolError(
                "E_INVALID",
                f"DPUB timeout {defer_ms} out of range 0-{self._limits.max_req_timeout_ms}",
            )
        end = self._message_end(data, after, "DPUB")
        if end < 0:
            self._expect(topic, after)
            return position
        commands.append(self._publish(topic, [data[after:end]], 1, True, defer_ms))
        return end

    def _topic(self, name: bytes, params: list[bytes], needed: int) -> bytes:
        if len(params) < needed:
            raise ProtocolError("E_INVALID", f"{name.decode()} insufficient number of parameters")
        if not is_valid_topic_name(params[1]):
            raise ProtocolError(
                "E_BAD_TOPIC", f"{name.decode()} topic name {_quoted(params[1])} is not valid"
            )
        return params[1]

    def _expect(self, topic: bytes, start: int) -> None:
        """The body at `start` is incomplete; its size may be, too."""
        size = self._need - start - 4
        if size > BIG_BODY_BYTES:
            self.body = Body(topic, size)

    def _message_end(self, data: bytes, start: int, name: str) -> int:
        """Where the message [size][body] at `start` ends; -1 while it is incomplete."""
        return self._end(
            data, start, "E_BAD_MESSAGE", name, "message body", self._limits.max_msg_size
        )

    def _body_end(self, data: bytes, start: int, name: str) -> int:
        """Where the command body [size][bytes] at `start` ends; -1 while it is incomplete."""
        return self._end(data, start, "E_BAD_BODY", name, "body", self._limits.max_body_size)

    def _end(self, data: bytes, start: int, code: str, name: str, what: str, largest: int) -> int:
        if start + 4 > len(data):
            self._need = start + 4
            return -1
        size = _SIZE.unpack_from(data, start)[0]
        if size <= 0:
            raise ProtocolError(code, f"{name} invalid {what} size {size}")
        if size > largest:
            noun = what.split()[0]
            raise ProtocolError(code, f"{name} {noun} too big {size} > {largest}")
        end: int = start + 4 + size
        if end > len(data):
            self._need = end
            return -1
        return end


def _subscribe(params: list[bytes]) -> Subscribe:
    if len(params) < 3:
        raise ProtocolError("E_INVALID", "SUB insufficient number of parameters")
    if not is_valid_topic_name(params[1]):
        raise ProtocolError("E_BAD_TOPIC", f"SUB topic name {_quoted(params[1])} is not valid")
    if not is_valid_channel_name(params[2]):
        raise ProtocolError("E_BAD_CHANNEL", f"SUB channel name {_quoted(params[2])} is not valid")
    return Subscribe(params[1], params[2])


def _shown(name: bytes) -> str:
    """A client's bytes in an error: printable, short, never a line break."""
    return name[:_MAX_SHOWN].decode("latin-1").encode("unicode_escape").decode("ascii")


def _quoted(name: bytes) -> str:
    """A client's bytes in quotes, as Go's %q writes them."""
    return '"' + _shown(name).replace('"', '\\"') + '"'


def check_mpub(data: bytes, start: int, end: int, limits: Limits) -> int:
    """Check [count] and [size][body]... in data[start:end]; return count. Raises ProtocolError.

    nsqd reads by count and never looks at the body's size again, so that a disagreement leaves it
    out of step with the stream; here it is an error.
    """
    if end - start < 4:
        raise ProtocolError("E_BAD_BODY", "MPUB failed to read message count")
    count: int = _SIZE.unpack_from(data, start)[0]
    if not 0 < count <= (limits.max_body_size - 4) // 5:
        raise ProtocolError("E_BAD_BODY", f"MPUB invalid message count {count}")
    position = start + 4
    unpack = _SIZE.unpack_from
    largest = limits.max_msg_size
    for index in range(count):
        if position + 4 > end:
            if position > end:
                break
            raise ProtocolError("E_BAD_MESSAGE", f"MPUB failed to read message({index}) body size")
        size = unpack(data, position)[0]
        if size <= 0:
            raise ProtocolError("E_BAD_MESSAGE", f"MPUB invalid message({index}) body size {size}")
        if size > largest:
            raise ProtocolError("E_BAD_MESSAGE", f"MPUB message too big {size} > {largest}")
        position += 4 + size
    if position > end:
        raise ProtocolError("E_BAD_MESSAGE", "MPUB failed to read message body")
    if position != end:
        raise ProtocolError(
            "E_BAD_BODY",
            f"MPUB body of {end - start} bytes holds {count} messages of {position - start} bytes",
        )
    return count


def first_refused(publish: Publish, limits: Limits) -> tuple[int, ProtocolError] | None:
    """The first message of a command that was taken by other limits, and that nsqd refuses by
    these, with its error. None: it takes all."""
    size = len(publish.messages[0])
    if publish.defer_ms is not None:
        if publish.defer_ms > limits.max_req_timeout_ms:
            text = f"timeout {publish.defer_ms} out of range 0-{limits.max_req_timeout_ms}"
            return 0, ProtocolError("E_INVALID", f"DPUB {text}")
    elif publish.atomic:
        if size + 4 > limits.max_body_size:
            text = f"body too big {size + 4} > {limits.max_body_size}"
            return 0, ProtocolError("E_BAD_BODY", f"MPUB {text}")
        try:
            body = _SIZE.pack(publish.count) + publish.messages[0]
            check_mpub(body, 0, len(body), limits)
        except ProtocolError as error:
            return 0, error
        return None
    name = "PUB" if publish.defer_ms is None else "DPUB"
    for index, element in enumerate(publish.messages):
        if len(element) - 4 > limits.max_msg_size:
            text = f"message too big {len(element) - 4} > {limits.max_msg_size}"
            return index, ProtocolError("E_BAD_MESSAGE", f"{name} {text}")
    return None


def split_messages(chunk: bytes) -> list[bytes]:
    """The bodies of a chunk of [size][body]..."""
    return [element[4:] for element in elements(chunk)]


def elements(chunk: bytes) -> Iterator[bytes]:
    """[size][body] each, of a chunk of them."""
    position = 0
    while position < len(chunk):
        end = position + 4 + _SIZE.unpack_from(chunk, position)[0]
        yield chunk[position:end]
        position = end


# --- building ---------------------------------------------------------------------------------


def message(body: bytes) -> bytes:
    """One element of an MPUB."""
    return _SIZE.pack(len(body)) + body


def pub(topic: bytes, body: bytes) -> bytes:
    return b"PUB %b\n%b" % (topic, message(body))


def mpub(topic: bytes, messages: Iterable[bytes], count: int) -> bytes:
    """An MPUB of `count` elements [size][body] that stand in `messages`."""
    content = b"".join(messages)
    return b"MPUB %b\n%b%b%b" % (topic, _SIZE.pack(len(content) + 4), _SIZE.pack(count), content)


def dpub(topic: bytes, defer_ms: int, element: bytes) -> bytes:
    """A DPUB of one element [size][body]."""
    return b"DPUB %b %d\n%b" % (topic, defer_ms, element)


def identify(document: bytes) -> bytes:
    return b"IDENTIFY\n" + message(document)


def auth(secret: bytes) -> bytes:
    return b"AUTH\n" + message(secret)


def sub(topic: bytes, channel: bytes) -> bytes:
    return b"SUB %b %b\n" % (topic, channel)


def rdy(count: int) -> bytes:
    return b"RDY %d\n" % count


def fin(message_id: bytes) -> bytes:
    return b"FIN %b\n" % message_id


NOP = b"NOP\n"
CLS = b"CLS\n"
