"""Where the publishers of this process are to send: one stream for all of one topic.

Level-triggered: each stream begins with the present place of each publisher, so what changed while
there was none is learnt by the next. While the distributor is away everybody keeps the place that
was known last.
"""

import asyncio
import json
import logging
import random
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

from srtm.client.place import Place, read_place
from srtm.host.backoff import backoff_seconds
from srtm.http.client import Answer, Endpoint, Refusal, call, lines
from srtm.text.errors import SrtmError, UnavailableError, UsageError

log = logging.getLogger("srtm.client")

MAX_BACKOFF_SECONDS = 5.0
_SILENCE_SECONDS = 30.0
"""The stream beats every 10 s."""
_GATHER_SECONDS = 0.05
"""Publishers that start together share one registration and one stream."""
MAX_IDS = 10_000
"""The most ids of one registration, and of one stream: the API bounds both."""


class Member(Protocol):
    """One publisher, as its watch knows it."""

    id: str
    key: str | None
    rate: float | None

    def placed(self, place: Place) -> None: ...

    def unplaced(self) -> None:
        """The distributor knows it, and has never had a broker for it."""

    def unanswered(self, why: str) -> None:
        """The distributor does not answer, or refuses this process; it is asked again."""

    def failed(self, error: SrtmError) -> bool:
        """The distributor refuses it. True when that is its end."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What one watch follows."""

    endpoint: Endpoint
    topic: str


class Watch:
    """Made by `join`, ended with its last member."""

    def __init__(self, subject: Subject) -> None:
        self._endpoint = subject.endpoint
        self._path = f"/v1/topics/{quote(subject.topic, safe='')}"
        self._topic = subject.topic
        self._members: dict[str, Member] = {}
        self._registered: set[str] = set()
        self._failures = 0  # in a row, for the backoff
        self._refusals = 0  # likewise, of registrations
        self._again: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    @property
    def over(self) -> bool:
        return self._task.done()

    def add(self, member: Member) -> None:
        """Raises UsageError where the id is in use in this process."""
        if member.id in self._members:
            raise UsageError(
                f"publisher {member.id} of topic {self._topic} is open already in this process: "
                "two of one id would mix their order; give each its own id"
            )
        if len(self._members) >= MAX_IDS:
            raise UsageError(
                f"{MAX_IDS:,} publishers of topic {self._topic} are open in this process, the "
                "most that one stream follows; use more processes"
            )
        self._members[member.id] = member
        self._changed.set()

    def remove(self, member: Member) -> bool:
        """True when nobody is left and the watch is over."""
        if self._members.get(member.id) is member:
            del self._members[member.id]
        if self._members:
            return False
        self.end()
        return True

    def end(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(_GATHER_SECONDS)
            self._changed.clear()
            if not self._members:
                continue
            try:
                await self._register()
                await self._follow()
            except UnavailableError as error:
                log.log(
                    logging.DEBUG if self._failures else logging.WARNING,
                    "topic %s: %s; publishers go on to the gateways that they know",
                    self._topic,
                    error,
                )
                for member in list(self._members.values()):
                    member.unanswered(str(error))
                seconds = backoff_seconds(self._failures, random.random(), MAX_BACKOFF_SECONDS)
                await asyncio.sleep(seconds)
                self._failures += 1
            self._changed.set()

    async def _register(self) -> None:
        new = [
            member
            for member in self._members.values()
            if member.rate is not None and member.id not in self._registered
        ]
        if not new:
            return
        answer = await self._post(new)
        if answer.status in _THEIR_FAULT and len(new) > 1:
            for member in new:  # one of them is at fault; the others are not
                self._judge([member], await self._post([member]))
        else:
            self._judge(new, answer)

    async def _post(self, members: list[Member]) -> Answer:
        body = {"publishers": [_description(member) for member in members]}
        return await call(
            self._endpoint, "POST", f"{self._path}/publishers", json.dumps(body).encode()
        )

    def _judge(self, members: list[Member], answer: Answer) -> None:
        if answer.status in (200, 201):
            self._refusals = 0
            self._registered.update(member.id for member in members)
        elif answer.status in _THEIR_FAULT:
            for member in members:
                self._fail(member, answer.error)
        else:
            raise UnavailableError(f"{self._endpoint.address}: {answer.error}")

    async def _follow(self) -> None:
        """One stream, until other members are to be watched. Raises UnavailableError when it ends
        before that."""
        ids = list(self._members)
        body = json.dumps({"ids": ids}).encode()
        changed = asyncio.create_task(self._changed.wait())
        stream = asyncio.create_task(self._read(body))
        try:
            await asyncio.wait([changed, stream], return_when=asyncio.FIRST_COMPLETED)
            if stream.done():
                stream.result()
        finally:
            for task in (changed, stream):
                task.cancel()
            await asyncio.gather(changed, stream, return_exceptions=True)

    async def _read(self, body: bytes) -> None:
        stream = lines(self._endpoint, f"{self._path}/watch", body, _SILENCE_SECONDS)
        try:
            async with aclosing(stream):
                async for document in stream:
                    self._failures = 0
                    self._take(document)
        except Refusal as error:
            if error.status in _THEIR_FAULT:  # there is no such topic
                for member in list(self._members.values()):
                    self._fail(member, str(error))
            raise
        raise UnavailableError(f"{self._endpoint.address} ended the stream")

    def _take(self, document: dict[str, Any]) -> None:
        member = self._members.get(str(document.get("id")))
        if member is None:
            return  # a beat, or one that has left
        if document.get("rate") is None:
            self._unknown(member)
            return
        try:
            place = read_place(document)
        except ValueError as error:
            raise UnavailableError(f"{self._endpoint.address}: {error}") from None
        if place is None:
            member.unplaced()
        else:
            member.placed(place)

    def _unknown(self, member: Member) -> None:
        """The distributor has no such publisher: it was never registered, or is no more."""
        if member.id in self._registered:
            self._registered.discard(member.id)
            self._changed.set()
        elif member.rate is None:
            self._fail(
                member,
                f"it is not registered with topic {self._topic}: `srtm topic register` does it, or "
                "give rate= and it registers itself",
            )
        elif self._again is None:  # it was refused, and may not be any more
            seconds = backoff_seconds(self._refusals, random.random(), MAX_BACKOFF_SECONDS)
            self._refusals += 1
            self._again = asyncio.get_running_loop().call_later(seconds, self._register_again)

    def _register_again(self) -> None:
        self._again = None
        self._changed.set()

    def _fail(self, member: Member, why: str) -> None:
        if member.failed(UsageError(f"publisher {member.id}: {why}")):
            self._members.pop(member.id, None)


_THEIR_FAULT = (400, 404, 409, 413, 422)
_watches: dict[tuple[int, Subject], Watch] = {}
"""The watches, by event loop and subject: a watch's task and its members belong to one loop."""


def _description(member: Member) -> dict[str, Any]:
    found: dict[str, Any] = {"id": member.id, "rate": member.rate}
    if member.key is not None:
        found["key"] = member.key
    return found


def join(endpoint: Endpoint, topic: str, member: Member) -> None:
    """Watch for `member`, with all others of this topic in this loop. Raises UsageError."""
    key = (id(asyncio.get_running_loop()), Subject(endpoint, topic))
    watch = _watches.get(key)
    if watch is None or watch.over:  # of a loop that is gone, whose number has come again
        watch = _watches[key] = Watch(key[1])
    watch.add(member)


def leave(endpoint: Endpoint, topic: str, member: Member) -> None:
    key = (id(asyncio.get_running_loop()), Subject(endpoint, topic))
    watch = _watches.get(key)
    if watch is not None and watch.remove(member):
        del _watches[key]
