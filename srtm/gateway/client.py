"""One client connection: a publisher, until SUB makes it a consumer too.

Each read is parsed into commands. PUBs go to their topic as runs; nsqd stores them, and `settle`
says so. Replies keep the order of the commands, whatever topics they went to: go-nsq and pynsq
match each answer to the oldest command of theirs. So whatever is not answered stands in `_pending`,
and only the oldest there may write; what comes behind it earlier waits for its turn. SUB begins a
tunnel to nsqd, which relays all that is a consumer's.

    securing                   after IDENTIFY, where TLS was agreed on: its handshake
       |
    reading <----> paused      a bound is reached: its own, its topic's, or replies are not read
       |              |
       +------+-------+        it ends its side, sends what is wrong, or is refused
              v
           ending              no more commands are taken; what came before is answered
              |
              v
            ended              `Farewells` closes the connection once the last reply is read

From anywhere it is closed at once where it is broken or silent, or an outcome is unknown.
"""

import logging
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from errno import EAGAIN
from typing import NamedTuple, Protocol

from kernel.stamps import Pieces, Reader, StampSource
from srtm.gateway.auth import AuthServers
from srtm.gateway.authorization import DISABLED, Authorization
from srtm.gateway.backlog import Backlog
from srtm.gateway.farewells import Farewells
from srtm.gateway.guard import Guard
from srtm.gateway.handshakes import Handshakes
from srtm.gateway.heartbeats import Heartbeats
from srtm.gateway.layered import NOTHING, LayeredReader
from srtm.gateway.outbox import Outbox
from srtm.gateway.reactor import BROKEN, EDGE, ENDED, READABLE, WRITABLE
from srtm.gateway.run import Gone, Run
from srtm.gateway.securing import Securing
from srtm.gateway.topics import Topics
from srtm.gateway.tunnel import Tunnel, TunnelHost
from srtm.host.certificates import Renewed
from srtm.host.clock import monotonic_ns
from srtm.nsq import identify
from srtm.nsq.commands import Body, CommandReader, Identify, Limits, Line, Subscribe
from srtm.nsq.errors import ProtocolError
from srtm.nsq.frames import ERROR, HEARTBEAT_FRAME, OK_FRAME, RESPONSE, build_frame
from srtm.nsq.layers import Layer, LayerError, TlsLayer

log = logging.getLogger("srtm.gateway")

MAX_UNREAD_BYTES = 256 * 1024
"""Replies that a client has not read; past it the gateway reads no more from it."""
_TURN_BYTES = 256 * 1024
"""of a client that sends faster than it is read; then the others have their turn"""
_MOST_REPLIES = 64
"""answers of ours, to IDENTIFY, that wait behind unanswered messages"""

_ASK_THE_KERNEL = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),  # seconds
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""Socket options for a client without heartbeats. The kernel of a client that has gone answers for
it for another minute (tcp_fin_timeout), so its descriptor comes back after 75 s."""


class ConnectionBounds(NamedTuple):
    """Unanswered messages of one client; past either the gateway stops reading it."""

    messages: int
    bytes: int


class ClientHost(TunnelHost, Protocol):
    """What a client sees of the gateway."""

    stamps: StampSource
    limits: Limits
    server: identify.Server
    connection_bounds: ConnectionBounds
    topics: Topics
    farewells: Farewells
    handshakes: Handshakes
    heartbeats: Heartbeats
    tls: Renewed | None
    auth: AuthServers | None
    outbox: Outbox
    clients: "set[Client]"


class _Reply:
    """An answer that waits for its turn behind unanswered commands."""

    __slots__ = ("agreed", "frame", "last")

    def __init__(self, frame: bytes, last: bool, agreed: identify.Agreed | None) -> None:
        self.frame = frame
        self.last = last  # and then the connection ends
        self.agreed = agreed  # and then what follows goes through other layers


class _Closing:
    """A consumer's CLS, which nsqd answers: it goes there in its turn, so that its CLOSE_WAIT comes
    in its turn too. What the consumer says of messages meanwhile does not wait for that."""

    __slots__ = ("is_sent", "line")

    def __init__(self, line: Line) -> None:
        self.line = line
        self.is_sent = False

    def send(self, tunnel: Tunnel) -> None:
        if not self.is_sent:
            self.is_sent = True
            tunnel.forward(self.line)


class Client:
    __slots__ = (
        "_body",
        "_body_backlog",
        "_bounds",
        "_came_ill",
        "_closing",
        "_ends",
        "_fd",
        "_gateway",
        "_guard",
        "_layer",
        "_layered",
        "_out",
        "_outbox",
        "_pauses",
        "_pending",
        "_reader",
        "_replies",
        "_securing",
        "_send",
        "_slot",
        "_socket",
        "_topics",
        "_turn",
        "address",
        "agreed",
        "beat_serial",
        "closed",
        "connected_at",
        "heartbeat_ns",
        "host",
        "identity",
        "last_read",
        "published",
        "publisher",
        "reads",
        "stuck_since",
        "tls",
        "tunnel",
        "unanswered",
        "unanswered_bytes",
    )

    def __init__(self, gateway: ClientHost, connection: socket.socket, address: str) -> None:
        self._gateway = gateway
        self._socket = connection
        self._fd = connection.fileno()
        self._send = connection.send
        self.reads = gateway.stamps.reader(connection)
        self._reader = CommandReader(gateway.limits, Run)
        self._pending: deque[Run | _Reply | Tunnel | _Closing] = deque()
        self._replies = 0  # of `_pending`
        self._closing: _Closing | None = None  # its first CLS
        self._pauses: set[object] = set()
        self._outbox = gateway.outbox
        self._turn = 0  # of the outbox, when it last had an answer of ours in `_slot`
        self._slot = 0
        self._out = bytearray()
        self._body: Body | None = None  # a big one that is under way, and for which topic
        self._body_backlog: Backlog | None = None
        self._ends = False  # no more commands are taken; closed when all is answered
        self._layer: Layer | None = None  # TLS, compression, or both
        self._layered: LayeredReader | None = None  # reads through it
        self._securing: Securing | None = None  # until its layers are there
        self.address = address
        self.host = address.rpartition(":")[0].strip("[]")
        self.beat_serial = 0
        self.closed = False
        self.connected_at = self.last_read = monotonic_ns()
        self.heartbeat_ns = gateway.server.heartbeat_interval * 1_000_000
        self.identity = identify.Identity()
        self.publisher = self._publisher_name()
        self.published: dict[bytes, int] = {}
        self.stuck_since = 0
        self.agreed = identify.Agreed()
        self.tls: TlsLayer | None = None
        self._guard: Guard | None = None  # of one who may not do everything (yet)
        if gateway.server.requires_tls or gateway.auth is not None:
            self._guard = Guard(self, gateway.auth, gateway.server.requires_tls)
        self.tunnel: Tunnel | None = None
        self.unanswered = 0
        self.unanswered_bytes = 0
        self._topics = gateway.topics.by_name
        self._came_ill = not gateway.topics.is_open  # nsqd was: its messages go elsewhere
        self._bounds = gateway.connection_bounds
        gateway.reactor.watch(self._fd, self._on_event, READABLE | EDGE, self.close)

    # --- reading ------------------------------------------------------------------------------

    def read(self) -> None:
        self._on_event(READABLE)

    def _on_event(self, mask: int) -> None:
        if mask & BROKEN and self._layered is not None:
            self.close()  # what the layers hold is nobody's any more
        elif mask & READABLE and not self._ends:
            if self._securing is None:
                self._read(until_end=mask & ENDED != 0)
            else:
                self._securing.readable()
        elif mask & BROKEN:
            self.close()
        if mask & ENDED and self._pauses and not self.closed:
            self._is_it_there()
        if mask & WRITABLE and not self.closed:
            self.flush()

    def _read(self, until_end: bool) -> None:
        """Read until a read comes short, or until the end of what it has sent; no longer than its
        turn."""
        taken = 0
        while True:
            reads = self.reads
            try:
                pieces = reads.read()
            except BlockingIOError:
                return
            except OSError:
                self.close()
                return
            except LayerError as error:
                log.debug("%s: %s", self.address, error)
                self.close()
                return
            if not pieces:
                self.finish()
                return
            self._take(pieces)
            if self._securing is not None:
                return  # which looks itself for what has come
            if self._pauses or self._ends or self.closed or not (until_end or reads.more):
                return
            # A layer that gave nothing has had its turn.
            taken += sum(len(data) for data, _ in pieces) or _TURN_BYTES
            if taken >= _TURN_BYTES or self._layered is not None:
                self._watch()  # a change tells again what is readable
                return

    def _take(self, pieces: Pieces) -> None:
        """Run the commands that are whole now, each at the stamp of its last byte."""
        reads, guard = self.reads, self._guard
        for data, stamp in pieces:
            for command in self._reader.feed(data):
                self.last_read = max(self.last_read, stamp)  # a pause of ours is no silence
                if guard is not None and not guard.lets(command, stamp):
                    pass  # it waits, or it is refused and the last one
                elif type(command) is Run:
                    self._publish(command, stamp)
                else:
                    self._command(command)
                if not self._goes_on(reads):
                    return
            if self._reader.body is not self._body:
                self._body_changed()

    def _goes_on(self, reads: Reader) -> bool:
        """May what came by `reads` behind the last command run?"""
        return not (
            self._ends or self.closed or self._securing is not None or self.reads is not reads
        )

    def _body_changed(self) -> None:
        """Another big body is under way, or none: where its topic is full it waits, unread."""
        if self._body_backlog is not None:
            self._body_backlog.body_ended(self)
        body = self._body = self._reader.body
        topic = None if body is None else self._gateway.topics.find(body.topic)
        backlog = self._body_backlog = None if topic is None else topic.backlog
        if body is None or backlog is None:
            return
        now = monotonic_ns()
        if not backlog.body_may_come(self, body.size, now):
            self.pause(backlog.await_room(self, body.size, now))
            self._is_it_there()

    def _is_it_there(self) -> None:
        """Find out whether the client has gone. It has sent its last byte, or may have, so that
        shows only when something is sent to it, as a reset. One that still reads has a heartbeat
        too many."""
        if self.heartbeat_ns:
            self._gateway.heartbeats.soon(self, monotonic_ns())
        else:
            for level, option, value in _ASK_THE_KERNEL:
                self._socket.setsockopt(level, option, value)

    def _publish(self, run: Run, stamp: int) -> None:
        run.owner = self
        run.stamp = stamp
        self._pending.append(run)
        unanswered = self.unanswered = self.unanswered + run.count
        unanswered_bytes = self.unanswered_bytes = self.unanswered_bytes + run.size
        if unanswered > self._bounds.messages or unanswered_bytes > self._bounds.bytes:
            self.pause(self)
        topic = self._topics.get(run.topic)
        if self._came_ill and self._turn_away(run):
            return
        if topic is not None:
            topic.offer(run)
        else:
            self._gateway.topics.offer(run)

    def _turn_away(self, run: Run) -> bool:
        """A publisher that comes while nsqd cannot write fails over at once; a consumer, who may
        make room, is served."""
        self._came_ill = not self._gateway.topics.is_open
        if self._came_ill:
            run.refuse("nsqd is ill; publish to another broker")
        return self._came_ill

    def _command(self, command: object) -> None:
        if isinstance(command, Line):
            self._line(command)
        elif isinstance(command, ProtocolError):
            self.fail(command)
        elif isinstance(command, Subscribe):
            self._subscribe(command)
        elif isinstance(command, Identify):
            self._identify(command)
        else:
            self.fail(DISABLED)

    def _line(self, line: Line) -> None:
        """A command that is a consumer's: it goes to nsqd."""
        tunnel = self.tunnel
        if tunnel is None:
            if line.name != b"NOP":
                self._cannot(line.name.decode())
        elif line.name == b"CLS":
            if self._closing is not None:
                self._cannot("CLS")
                return
            closing = self._closing = _Closing(line)
            self._pending.append(closing)
            if all(entry is tunnel or entry is closing for entry in self._pending):
                closing.send(tunnel)
        elif line.name != b"RDY" or self._closing is None:  # nsqd heeds no RDY after a CLS
            tunnel.forward(line)

    def _subscribe(self, command: Subscribe) -> None:
        if self.tunnel is not None:
            self._cannot("SUB")
        elif not self.heartbeat_ns:
            self.fail(ProtocolError("E_INVALID", "cannot SUB with heartbeats disabled"))
        else:
            self.tunnel = Tunnel(self._gateway, self, command)
            self._pending.append(self.tunnel)
            if len(self._pending) == 1:
                self.tunnel.start()

    def _identify(self, command: Identify) -> None:
        if self.tunnel is not None or self._layer is not None or self._securing is not None:
            self._cannot("IDENTIFY")
            return
        server = self._gateway.server
        try:
            self.identity = identify.parse_identity(command.body, server, self.identity)
        except ProtocolError as error:
            self.fail(error)
            return
        self.publisher = self._publisher_name()
        self.heartbeat_ns = self.identity.heartbeat_ms(server) * 1_000_000
        self._gateway.heartbeats.reschedule(self)
        frame = build_frame(RESPONSE, identify.answer(self.identity, server))
        agreed = identify.agreed(self.identity, server)
        if agreed.is_plain:
            self._answer(frame)
            return
        self._reader.drop()
        gateway = self._gateway
        self._securing = Securing(self, agreed, gateway.tls, gateway.handshakes)
        if self._pending:
            self._pending.append(_Reply(frame, False, agreed))
        else:
            self.write(frame)
            if not self.closed:
                self._secure(agreed)

    def _cannot(self, name: str) -> None:
        self.fail(ProtocolError("E_INVALID", f"cannot {name} in current state"))

    def _publisher_name(self) -> str:
        return identify.publisher_name(self.identity, self.host)

    def finish(self) -> None:
        """No more commands are taken (the client or nsqd ended): what was sent whole is
        answered, as nsqd would, and then the connection is closed."""
        self._take_no_more()
        if self._pending and isinstance(self._pending[0], _Closing):
            self._advance()  # nsqd may have ended without an answer to it
        self._close_if_done()
        if not self.closed:
            self._is_it_there()

    def _take_no_more(self) -> None:
        self._ends = True
        self._reader.stop()
        self._watch()
        if self._body is not None:
            self._body_changed()

    # --- what a guard asks for ----------------------------------------------------------------

    @property
    def is_secure(self) -> bool:
        return self.tls is not None

    @property
    def has_subscribed(self) -> bool:
        return self.tunnel is not None

    @property
    def authorization(self) -> Authorization | None:
        """What AUTH has brought."""
        return None if self._guard is None else self._guard.authorization

    def run(self, command: object, stamp: int) -> bool:
        """Run a command that was held. May what came behind it run?"""
        reads, guard = self.reads, self._guard
        if guard is None or not self._goes_on(reads):
            return False
        if guard.lets(command, stamp):
            if isinstance(command, Run):
                self._publish(command, stamp)
            else:
                self._command(command)
        return self._goes_on(reads)

    def reply(self, content: bytes) -> None:
        self._answer(build_frame(RESPONSE, content))

    # --- TLS and compression ------------------------------------------------------------------

    def _secure(self, agreed: identify.Agreed) -> None:
        """IDENTIFY is answered: what follows goes through what was agreed on."""
        self._take_from_outbox()
        self.agreed = agreed
        assert self._securing is not None
        self._securing.begin()

    def go_through(self, layer: Layer) -> None:
        self._layer = layer

    def read_through(self, layer: Layer, stamp: int) -> None:
        assert self._securing is not None
        self.tls = self._securing.tls
        self._securing = None
        self._layered = LayeredReader(self.reads, layer, stamp)
        self.reads = self._layered
        self.last_read = monotonic_ns()
        self._gateway.reactor.nudge(self._fd)  # commands may have come with the last of it

    def stay_in_clear(self) -> None:
        self._securing = None

    def write_wire(self, data: bytes) -> None:
        if self._out:
            self._write_later(data)
        elif data:
            self._write_now(data)

    def _coded(self, data: bytes) -> bytes:
        """As it goes over the wire."""
        return data if self._layer is None else self._layer.encode(data)

    # --- answers ------------------------------------------------------------------------------

    def settle(self, run: Run, count: int) -> None:
        """nsqd stored `count` messages of `run` (see `Owner`)."""
        if self.closed:
            return
        published = self.published
        published[run.topic] = published.get(run.topic, 0) + count
        self.unanswered -= count
        pending = self._pending
        left = run.left
        replies = count
        if run.atomic:
            replies = 0 if left else 1
        if pending[0] is run:
            if replies:
                answer = OK_FRAME if replies == 1 else OK_FRAME * replies
                turn = self._outbox.turn
                if self._out or self._turn == turn:
                    self.write(answer)
                else:
                    self._turn = turn
                    layer = self._layer
                    self._slot = (
                        self._outbox.put(self, self._fd, answer)
                        if layer is None
                        else self._outbox.put_through(self, self._fd, answer, layer)
                    )
            if not left:
                self.unanswered_bytes -= run.size
                if run.refused is None:
                    pending.popleft()
                if pending or self._ends:
                    self._advance()
        else:
            run.earned += replies
            if not left:
                self.unanswered_bytes -= run.size
        if self._pauses and self in self._pauses:
            bounds = self._bounds
            if self.unanswered * 2 <= bounds.messages and self.unanswered_bytes * 2 <= bounds.bytes:
                self.resume(self)

    def refuse(self, run: Run, retry_seconds: float | None) -> None:
        """The rest of `run` is not stored: what is behind it does not run either."""
        if self.closed:
            return
        behind = False
        for entry in self._pending:
            if behind:
                self._give_up(entry)
            behind = behind or entry is run
        self._take_no_more()
        if self._pending[0] is run and not run.left:
            self._advance()

    def lose(self, run: Run) -> None:
        """The outcome of `run` is unknown; only a closed connection says so."""
        self.close()

    def subscribed(self) -> None:
        """nsqd has answered SUB, or CLS: what came behind it has its turn."""
        self._advance()

    def unsubscribed(self) -> None:
        """nsqd ended the connection in place of SUB's OK: what came behind it does not run."""
        for entry in self._pending:
            self._give_up(entry)
        self._pending.clear()
        self.finish()

    def ended_by(self, error: bytes) -> None:
        """nsqd ends a consumer's connection with this frame. It is read when what was published
        before is answered."""
        if not self.closed:
            self._take_no_more()
            self._answer(error, last=True)

    def _answer(self, frame: bytes, last: bool = False) -> None:
        if self._pending:
            self._replies += 1
            if self._replies > _MOST_REPLIES and not last:
                self.fail(ProtocolError("E_INVALID", "too many commands behind unanswered PUBs"))
                return
            self._pending.append(_Reply(frame, last, None))
            return
        self.write(frame)
        if last:
            self._close_if_done()

    def fail(self, error: ProtocolError) -> None:
        """Answer with a fatal error, in its turn, and take no more commands."""
        self._take_no_more()
        self._answer(build_frame(ERROR, str(error).encode()), last=True)

    def _advance(self) -> None:
        """The oldest command is answered; give the answers that waited for it."""
        pending = self._pending
        while pending:
            entry = pending[0]
            if type(entry) is Run:
                if entry.earned:
                    self.write(OK_FRAME * entry.earned)
                    entry.earned = 0
                if entry.left:
                    return
                if entry.refused is not None:
                    pending.clear()
                    self.write(build_frame(ERROR, str(entry.refused).encode()))
                    break
            elif isinstance(entry, Tunnel):
                if not entry.answered:
                    entry.start()
                    return
            elif isinstance(entry, _Closing):
                assert self.tunnel is not None
                entry.send(self.tunnel)
                if self.tunnel.awaits_close:
                    return
            else:
                assert isinstance(entry, _Reply)
                self._replies -= 1
                self.write(entry.frame)
                if entry.last:
                    pending.clear()
                    break
                if entry.agreed is not None and not self.closed:
                    self._secure(entry.agreed)
            if self.closed:
                return
            pending.popleft()
        self._close_if_done()

    # --- writing ------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if self.closed:
            return
        if self._turn == self._outbox.turn:
            self._outbox.join(self._slot, data)
        elif self._out:
            self._write_later(self._coded(data))
        else:
            self._write_now(self._coded(data))

    def _write_now(self, data: bytes) -> None:
        try:
            sent = self._send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close()
            return
        if sent < len(data):
            self._write_later(data[sent:])

    def sent_short(self, data: bytes, sent: int) -> None:
        """The outbox could send only so much of our answers (see `Recipient`)."""
        if self.closed:
            return
        if sent < 0 and sent != -EAGAIN:
            self.close()
        else:
            self._write_later(data[max(sent, 0) :])

    def _take_from_outbox(self) -> None:
        """Send at once what waits there: the connection may end."""
        if self._turn == self._outbox.turn:
            self._turn = 0
            self._write_now(self._coded(self._outbox.take(self._slot)))

    def _write_later(self, data: bytes) -> None:
        """The client is slow to read: keep the rest, and past a bound stop reading it."""
        if not self._out:
            self.stuck_since = monotonic_ns()
        self._out += data
        self._watch()
        if len(self._out) > MAX_UNREAD_BYTES:
            self.pause("unread")

    def flush(self) -> None:
        out = self._out
        if out:
            try:
                sent = self._send(out)
            except BlockingIOError:
                return
            except OSError:
                self.close()
                return
            del out[:sent]
            self.stuck_since = monotonic_ns()
        if not out:
            if "unread" in self._pauses:
                self.resume("unread")
            if self.tunnel is not None:
                self.tunnel.client_drained()
            self._watch()
            self._close_if_done()

    @property
    def partial_bytes(self) -> int:
        """The bytes of a command that has not come whole."""
        held = self._reader.buffered
        if self._guard is not None:
            held += self._guard.held_bytes
        if self._layered is not None:
            held += self._layered.buffered
        elif self._securing is not None and self._securing.tls is not None:
            held += self._securing.tls.buffered
        return held

    @property
    def unread_bytes(self) -> int:
        return len(self._out)

    def beat(self, now: int) -> None:
        """A heartbeat is due. A client that has sent no whole command for two of them, or that
        could take nothing for one, is gone; while we do not read it, its silence is ours. nsqd
        beats with a consumer, from its answer to SUB until that has ended."""
        unheard = self._pauses or self._ends or self._securing is not None
        silent = now - self.last_read > 2 * self.heartbeat_ns and not unheard
        stuck = bool(self._out) and now - self.stuck_since > self.heartbeat_ns
        if silent or stuck:
            self.close()
        elif self._securing is not None:
            pass  # there is no place for a beat between clear text and TLS
        elif self.tunnel is None or not self.tunnel.answered or self._ends:
            self.write(HEARTBEAT_FRAME)

    def follow(self) -> None:
        """nsqd has other limits from now on."""
        self._reader.follow(self._gateway.limits)
        self._bounds = self._gateway.connection_bounds

    # --- back-pressure and the end ------------------------------------------------------------

    def pause(self, reason: object) -> None:
        """Stop reading until every reason is gone: two limits never un-pause each other."""
        self._pauses.add(reason)
        self._watch()

    def resume(self, reason: object) -> None:
        self._pauses.discard(reason)
        if not self._pauses and not self.closed:
            self.last_read = monotonic_ns()
            self._watch()

    @property
    def paused(self) -> bool:
        return bool(self._pauses)

    def _watch(self) -> None:
        if not self.closed:
            events = EDGE if self._pauses or self._ends else EDGE | READABLE
            self._gateway.reactor.change(self._fd, events | (WRITABLE if self._out else 0))
            if events & READABLE and self._layered is not None and self._layered.holds:
                self._gateway.reactor.nudge(self._fd)

    def _close_if_done(self) -> None:
        if self._ends and not self._pending:
            self._take_from_outbox()
            if not self._out:
                self._end(self._gateway.farewells.take)

    @property
    def answered(self) -> bool:
        """Is nothing owed to the client?"""
        return not self._pending and not self._out

    def close(self) -> None:
        """End the connection now. What nsqd has been sent goes on; nobody is answered."""
        self._end(socket.socket.close)

    def _end(self, part: Callable[[socket.socket], None]) -> None:
        if self.closed:
            return
        self.closed = True
        self._take_from_outbox()
        if self._securing is not None:
            self._securing.left()
            self._securing = None
        elif self.tls is not None:
            self._say_end()
        if self._guard is not None:
            self._guard.close()
            self._guard = None  # the two hold each other, and nobody collects that soon
        if self._layered is not None:
            # It may be kept until its next heartbeat is due; this is 17 KiB and more.
            self._layer = self._layered = self.tls = None
        self._gateway.reactor.forget(self._fd)
        self.reads.close()
        self.reads = NOTHING
        part(self._socket)
        self._gateway.clients.discard(self)
        self._leave_topics()
        if self.tunnel is not None:
            self.tunnel.close()

    def _say_end(self) -> None:
        if not self._out and self._layer is not None:
            with suppress(OSError):
                self._send(self._layer.ending())

    def _leave_topics(self) -> None:
        """What has gone to nsqd is answered to nobody; what has not is given up."""
        self._reader.stop()
        if self._body is not None:
            self._body_changed()
        for reason in self._pauses:
            if isinstance(reason, Backlog):
                reason.left(self)
        gone = Gone(self.publisher)
        for entry in self._pending:
            if type(entry) is Run:
                self._give_up(entry)
                entry.owner = gone  # or it would keep all of this object
        self._pending.clear()

    def _give_up(self, entry: Run | _Reply | Tunnel | _Closing) -> None:
        if type(entry) is Run:
            topic = self._topics.get(entry.topic)
            if topic is not None:
                topic.give_up(entry)
            entry.void = True
