"""A publisher that finds its gateway and follows it, on asyncio."""

import asyncio
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass

from srtm.client.connection import Connection, Rejected, dial
from srtm.client.errors import NotSent, OutcomeUnknown, Refused
from srtm.client.outbox import Outbox, nothing_behind_ran
from srtm.client.place import Place
from srtm.client.route import Event, Route, State
from srtm.client.watch import MAX_BACKOFF_SECONDS, join, leave
from srtm.client.window import Window
from srtm.host.backoff import backoff_seconds
from srtm.http.client import Endpoint
from srtm.http.service import ClientFiles, service_at
from srtm.nsq.commands import message, mpub, pub
from srtm.nsq.connection import PLAIN, Features
from srtm.nsq.frames import ERROR
from srtm.nsq.names import is_valid_topic_name
from srtm.text.address import Address, addresses_of
from srtm.text.errors import SrtmError, UnavailableError, UsageError

log = logging.getLogger("srtm.client")

_PER_WRITE = 128
"""Commands of one write: enough to share a system call, few enough to notice a full socket."""


@dataclass(eq=False, slots=True)
class _Entry:
    command: bytes
    count: int
    done: "asyncio.Future[None]"


class Publisher:
    """Publishes to one topic, in order, through the gateway that the Load Distributor names.

        async with Publisher("sensors", id="s-17", distributor="127.0.0.1:4180") as p:
            await p.publish(b"...")

    id:            of the publisher; needed with a distributor, and one for each publisher
    key, rate:     correlation key and messages/s. With a rate it registers itself; without one it
                   is registered already (`srtm topic register`)
    distributor:   host:port; `token_file` holds the token that it wants. With
                   `distributor_tls_root_ca_file`, PEM, it is reached by TLS, and "plain-text" in
                   place of the file shows the token to other hosts without TLS;
                   `distributor_tls_cert` and `distributor_tls_key` are the publisher's own. All
                   are read again when they change
    nsqd:          host:port of a gateway or an nsqd, instead of a distributor
    features:      TLS, compression and AUTH of its connections: see `features`
    max_in_flight: messages that may be unanswered; past it `publish` and `send` wait
    close_seconds: how long leaving the `async with` waits for answers
    place_timeout: seconds that a message waits while no gateway was ever named for this publisher,
                   or the one that `nsqd` names was never reached, or it refuses the connection

    Every message ends in one of four ways: stored; Refused (an error frame); OutcomeUnknown (its
    connection died after it was sent: it is never sent again by itself); NotSent (the publisher was
    closed, the distributor refuses it, or it has no place within place_timeout). Messages are sent
    in order of the calls, also over a move. Without a connection they wait, up to max_in_flight.
    Not thread-safe: see SyncPublisher.
    """

    def __init__(
        self,
        topic: str,
        key: str | None = None,
        *,
        id: str = "",
        rate: float | None = None,
        distributor: str = "",
        token_file: str = "",
        distributor_tls_root_ca_file: str = "",
        distributor_tls_cert: str = "",
        distributor_tls_key: str = "",
        nsqd: str = "",
        features: Features = PLAIN,
        max_in_flight: int = 1000,
        close_seconds: float = 10.0,
        place_timeout: float = 10.0,
    ) -> None:
        """Raises UsageError."""
        if not 0 < place_timeout < float("inf"):
            raise UsageError(f"place_timeout={place_timeout} is not a number of seconds above 0")
        _check(topic, key, id, rate, distributor, nsqd)
        self.topic = topic
        self.id = id
        self.key = key
        self.rate = rate
        self._name = topic.encode()
        self._endpoint: Endpoint | None = None
        if distributor:
            files = ClientFiles(
                token_file,
                distributor_tls_root_ca_file,
                distributor_tls_cert,
                distributor_tls_key,
            )
            self._endpoint = service_at(distributor, files, "token_file")
        self._nsqd = nsqd
        self._features = features
        self._close_seconds = close_seconds
        self._place_timeout = place_timeout
        self._deadline: asyncio.TimerHandle | None = None
        self._unanswered = ""  # why the distributor said nothing last
        self._is_known = False  # to the distributor, without a place yet
        self._was_connected = False
        self._unreached = ""  # why the last attempt gave no connection; empty after one that did
        self._is_rejected = False  # by the other side of that attempt
        self._window = Window(max_in_flight)
        self._outbox: Outbox[_Entry] = Outbox()
        self._route = Route()
        self._connection: Connection | None = None
        self._attempt: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._pumping = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._error: SrtmError | None = None

    # --- for its user -------------------------------------------------------------------------

    async def __aenter__(self) -> "Publisher":
        if self._endpoint is None:
            self.placed(Place(self._nsqd))
        else:
            join(self._endpoint, self.topic, self)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def address(self) -> str:
        """host:port of the gateway in use, or of the attempt under way; "" before the first."""
        return self._route.address

    @property
    def moves(self) -> int:
        """How often it has gone from one gateway to another."""
        return self._route.moves

    async def publish(self, body: bytes) -> None:
        """Publish, and wait for the OK. Calls that run at the same time are pipelined. Raises
        Refused, OutcomeUnknown, NotSent."""
        await (await self.send(body))

    async def publish_many(self, bodies: Sequence[bytes]) -> None:
        """Publish all of them as one MPUB: stored together, answered once. Raises as `publish`."""
        if not bodies:
            return
        elements = [_element(body) for body in bodies]
        await (await self._send(mpub(self._name, elements, len(elements)), len(elements)))

    async def send(self, body: bytes) -> "asyncio.Future[None]":
        """Publish, and wait only for room among the unanswered; the future ends as `publish`
        does. So one task can keep many in flight."""
        _element(body)
        return await self._send(pub(self._name, body), 1)

    async def flush(self) -> None:
        """Wait until every message so far has its outcome. Each tells its own; this raises none."""
        await self._idle.wait()

    async def close(self) -> None:
        """Wait `close_seconds` for what is under way, then end. Twice is once."""
        if self._route.state is State.CLOSED:
            return
        try:
            async with asyncio.timeout(self._close_seconds):
                await self.flush()
        except TimeoutError:
            log.warning("publisher %s of topic %s is closed early", self.id, self.topic)
        finally:
            why = f"; there was no connection: {self._unreached}" if self._unreached else ""
            self._end(NotSent(f"publisher {self.id} of topic {self.topic} is closed{why}"))

    async def _send(self, command: bytes, count: int) -> "asyncio.Future[None]":
        self._raise_if_ended()
        await self._window.enter(count)
        try:
            self._raise_if_ended()
        except SrtmError:
            self._window.leave(count)
            raise
        entry = _Entry(command, count, asyncio.get_running_loop().create_future())
        entry.done.add_done_callback(lambda _: self._window.leave(count))
        self._outbox.put(entry)
        self._idle.clear()
        self._begin_deadline()
        self._pump_soon()
        return entry.done

    @property
    def _has_way(self) -> bool:
        """Was a gateway ever named, or with `nsqd=` ever reached, that does not refuse us now?"""
        if self._is_rejected:
            return False
        return bool(self._route.address) if self._endpoint else self._was_connected

    def _raise_if_ended(self) -> None:
        if self._error is not None:
            raise self._error

    # --- what the watch says ------------------------------------------------------------------

    def placed(self, place: Place) -> None:
        if self._route.placed(place):
            self._is_rejected = False
            self._act()
        if self._has_way:
            self._end_deadline()
        else:
            self.unplaced()

    def unplaced(self) -> None:
        self._is_known = True

    def unanswered(self, why: str) -> None:
        self._unanswered = why

    def _begin_deadline(self) -> None:
        if self._deadline is None and not self._has_way and not self._outbox.idle:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(self._place_timeout, self._not_placed)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _not_placed(self) -> None:
        """What waits is given up; the publisher stays, and what it sends later waits anew."""
        self._deadline = None
        seconds = f"within {self._place_timeout:g} s"
        if self._is_rejected:
            why = f"no connection {seconds}: {self._unreached}"
        elif self._endpoint is None:
            why = f"no connection {seconds} ({self._unreached}): start it, or correct nsqd="
        elif self._is_known:
            why = (
                f"no broker takes it {seconds}: srtm placement apply {self.topic} --keep places it "
                "where there is room, and says what is missing where there is none"
            )
        else:
            said = self._unanswered or f"{self._endpoint.address} does not answer"
            why = (
                f"the distributor named no gateway {seconds}: {said}; start it, or correct "
                "distributor=, token_file= or "
                "distributor_tls_root_ca_file="
            )
        self._give_up(NotSent(f"publisher {self.id} of topic {self.topic} has no place: {why}"))
        self._check_idle()

    def _give_up(self, error: SrtmError) -> None:
        """What was never sent."""
        for entry in self._outbox.give_up():
            if not entry.done.done():
                entry.done.set_exception(NotSent(str(error)))

    def failed(self, error: SrtmError) -> bool:
        """The distributor refuses it: its end, unless it knows a gateway."""
        if self._route.state is State.HOMELESS:
            self._end(error)
            return True
        log.error("%s; it goes on to %s", error, self._route.address)
        return False

    # --- the way to the gateway ---------------------------------------------------------------

    def _step(self, event: Event) -> None:
        self._route.step(event)
        self._act()

    def _act(self) -> None:
        """What the state asks for."""
        state = self._route.state
        if state is State.OPEN:
            self._was_connected = True
            self._unreached, self._is_rejected = "", False
            self._end_deadline()
        if state is State.CONNECTING:
            self._forget_attempt()
            self._hang_up()
            self._attempt = asyncio.create_task(self._connect(self._route.address))
        elif state is State.WAITING:
            delay = backoff_seconds(self._route.failures - 1, random.random(), MAX_BACKOFF_SECONDS)
            self._retry = asyncio.get_running_loop().call_later(delay, self._step, Event.RETRY)
        elif state is State.OPEN:
            self._pump_soon()
        elif state is State.HOMELESS:
            self._forget_attempt()
        elif state is State.LEAVING and not self._outbox.in_flight:
            self._step(Event.ANSWERED)

    async def _connect(self, address: str) -> None:
        try:
            connection = await dial(address, self, self.id, self._features)
        except UnavailableError as error:
            level = logging.INFO if self._route.failures else logging.WARNING
            log.log(level, "publisher %s of topic %s: %s", self.id, self.topic, error)
            self._unreached, self._is_rejected = str(error), isinstance(error, Rejected)
            self._begin_deadline()
            self._attempt = None
            self._step(Event.BROKEN)
            return
        self._attempt = None
        if connection.alive:
            self._connection = connection
            self._step(Event.CONNECTED)
        else:  # it broke between its answer and this line
            self._step(Event.BROKEN)

    def _forget_attempt(self) -> None:
        if self._attempt is not None:
            self._attempt.cancel()
            self._attempt = None
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    # --- messages -----------------------------------------------------------------------------

    def _pump_soon(self) -> None:
        """Pump once for all that is put in this turn of the loop: one write for many messages."""
        if not self._pumping:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pumping = False
        connection = self._connection
        while self._route.state is State.OPEN and connection is not None and connection.can_write:
            taken = self._outbox.take(_PER_WRITE, lambda entry: entry.done.done())
            if not taken:
                break
            connection.write(b"".join(entry.command for entry in taken))
        self._check_idle()

    def writable(self) -> None:
        self._pump_soon()

    def replied(self, kind: int, data: bytes) -> None:
        if not self._outbox.in_flight:
            if self._connection is not None:  # an answer to nothing: not an nsqd, or out of step
                self._connection.abort()
            return
        entry = self._outbox.answered()
        if kind == ERROR:
            self._refuse(entry, data.decode(errors="replace"))
        elif not entry.done.done():
            entry.done.set_result(None)
        self._check_idle()
        if self._route.state is State.LEAVING and not self._outbox.in_flight:
            self._step(Event.ANSWERED)

    def _refuse(self, entry: _Entry, text: str) -> None:
        """An error frame ends the connection, and what was sent behind it was not run, or nobody
        knows."""
        code, _, sentence = text.partition(" ")
        if not entry.done.done():
            entry.done.set_exception(Refused(code, sentence))
        if nothing_behind_ran(code, sentence):
            self._outbox.put_back()
        if self._connection is not None:
            self._connection.abort()

    def broken(self, connection: Connection) -> None:
        if connection is not self._connection:
            return  # left behind by a move
        self._connection = None
        self._lose(f"{self._route.address} closed the connection before it answered")
        self._step(Event.BROKEN)

    def _lose(self, why: str) -> None:
        for entry in self._outbox.lost():
            if not entry.done.done():
                entry.done.set_exception(OutcomeUnknown(why))
        self._check_idle()

    def _check_idle(self) -> None:
        if self._outbox.idle:
            self._idle.set()

    def _end(self, error: SrtmError) -> None:
        self._error = error
        self._forget_attempt()
        if self._route.state is not State.CLOSED:
            self._route.step(Event.CLOSE)
        self._hang_up()
        self._end_deadline()
        self._give_up(error)
        self._lose("the publisher was closed before the answer came")
        if self._endpoint is not None:
            leave(self._endpoint, self.topic, self)


def _element(body: bytes) -> bytes:
    """[size][body]. Raises UsageError for what no nsqd takes."""
    if not isinstance(body, bytes | bytearray | memoryview) or not body:
        raise UsageError("a message is one byte or more, as bytes")
    return message(bytes(body))


def _check(
    topic: str, key: str | None, id: str, rate: float | None, distributor: str, nsqd: str
) -> None:
    if not is_valid_topic_name(topic.encode()):
        raise UsageError(
            f"{topic!r} is not a topic name: 1 to 64 of [.a-zA-Z0-9_-], #ephemeral may follow"
        )
    if bool(distributor) == bool(nsqd):
        raise UsageError("a publisher needs distributor= or nsqd=, and not both")
    if distributor:
        addresses_of(distributor)
    else:
        Address.of(nsqd)
    if nsqd and (key is not None or rate is not None):
        raise UsageError("key= and rate= are for a distributor; with nsqd= nobody reads them")
    if distributor and not id:
        raise UsageError("a distributor knows publishers by their id: give id=")
    if key is not None and rate is None:
        raise UsageError("key= is told at registration: give rate= too, in messages/s")
    if rate is not None and not 0 < rate < float("inf"):
        raise UsageError(f"rate={rate} is not a number of messages/s above 0")
