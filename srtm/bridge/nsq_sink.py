"""The NSQ side of a route from Kafka: MPUBs in order, pipelined, each until its OK.

A lane is one connection at a time. All records of a partition go through one lane, so that their
order is kept, also over a connection that breaks: what has no answer then is published again, in
order, before anything else of the lane.
"""

import logging
import random
import re
import selectors
import socket
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from srtm.bridge.figures import Figures
from srtm.bridge.wire import Broken, Wire, frames_of
from srtm.host.backoff import backoff_seconds
from srtm.nsq.commands import mpub, pub
from srtm.nsq.connection import PLAIN, Features
from srtm.nsq.frames import ERROR

log = logging.getLogger("srtm.bridge")

_SIZE = struct.Struct(">i")
_MAX_BACKOFF_SECONDS = 5.0
_WINDOW = 8
"""MPUBs without an answer on a connection: one is stored while others are on their way."""
_TOO_BIG = re.compile(r"(message|body) too big \d+ > (\d+)")
MAX_BATCH_BYTES = 1 << 20
"""The most bytes of an MPUB, unless it is one message that is longer: a fifth of nsqd's
--max-body-size."""


@dataclass(slots=True, eq=False)
class Batch:
    """Messages to one topic, and what they mean to the source.

    bodies: of the messages; records: what the source gave, for the dead-letter topic; parts: what
    it was divided into, if it was too much for nsqd
    """

    topic: str
    bodies: list[bytes] = field(default_factory=list)
    records: list[Any] = field(default_factory=list)
    nbytes: int = 0
    sends: int = 0
    stored: bool = False
    parts: list[Any] | None = None

    @property
    def done(self) -> bool:
        if self.parts is not None:
            return all(part.done for part in self.parts)
        return self.stored

    def command(self) -> bytes:
        topic = self.topic.encode()
        if len(self.bodies) == 1:
            return pub(topic, self.bodies[0])
        # Without a loop in Python: most of what a message costs here is made of such.
        sizes = map(_SIZE.pack, map(len, self.bodies))
        pieces = chain.from_iterable(zip(sizes, self.bodies, strict=True))
        return mpub(topic, pieces, len(self.bodies))


class Lane(Wire):
    """The connection that a `Publisher` has at the moment."""

    def __init__(
        self, selector: selectors.BaseSelector, owner: "Publisher", address: str, now: float
    ) -> None:
        self.owner = owner
        identity = {"client_id": owner.client_id, "hostname": socket.gethostname()}
        super().__init__(selector, address, identity, now, owner.features)

    def identified(self) -> None:
        self.owner.joined()

    def answered(self, kind: int, data: bytes) -> None:
        if kind == ERROR:
            raise Broken(f"{self.address}: {data[:300].decode(errors='replace')}")
        self.owner.stored()


class Publisher:
    """One lane: what waits for it, what it has sent, where it goes.

    route: its name, for the log
    addresses: nsqds or gateways; when one is away the next is tried. `move` names another.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        route: str,
        client_id: str,
        addresses: Sequence[str],
        first: int,
        figures: Figures,
        features: Features = PLAIN,
    ) -> None:
        self.route = route
        self.features = features
        self.client_id = client_id
        self.reason = ""
        self.answers: deque[Batch] = deque()  # those that were just stored, for the owner
        self.max_msg_size = 0  # as nsqd has said it; 0: not yet
        self.max_body_size = 0
        self._selector = selector
        self._addresses = list(addresses)
        self._at = first
        self._figures = figures
        self._wanted: str | None = None
        self._lane: Lane | None = None
        self._queue: deque[Batch] = deque()
        self._sent: deque[Batch] = deque()
        self._failures = 0
        self._next = 0.0

    # --- for its owner --------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Batches without an answer, sent or not."""
        return len(self._queue) + len(self._sent)

    @property
    def connected(self) -> bool:
        return self._lane is not None and self._lane.ready

    @property
    def address(self) -> str:
        return self._lane.address if self._lane else ""

    @property
    def has_room(self) -> bool:
        return self.waiting < _WINDOW

    def put(self, batch: Batch) -> None:
        self._queue.append(batch)

    def take_all(self) -> list[Batch]:
        """What is not sent, out of the queue, for a new division; `put` gives it back in order."""
        taken = list(self._queue)
        self._queue.clear()
        return taken

    def move(self, address: str) -> None:
        """Go to `address` once all that was sent is answered. May be called from any thread."""
        self._wanted = address

    def pump(self, now: float) -> None:
        """Send what may be sent."""
        lane = self._lane
        if self._wanted is not None and not self._sent:
            wanted, self._wanted = self._wanted, None
            if lane is None or lane.address != wanted:
                if lane is not None:
                    lane.close()
                    self._lane = None
                self._addresses, self._at, self._next = [wanted], 0, 0.0
            return
        if lane is None or not lane.ready or self._wanted is not None:
            return
        try:
            while self._queue and len(self._sent) < _WINDOW:
                batch = self._queue.popleft()
                self._sent.append(batch)
                if batch.sends:
                    self._figures.counts["resent_count"] += len(batch.bodies)
                batch.sends += 1
                lane.write(batch.command())
        except Broken as error:
            self.broken(str(error), now)

    def tick(self, now: float) -> None:
        """Connect where there is no connection, or beat; called once in a while."""
        try:
            if self._lane is not None:
                self._lane.beat(now)
            elif now >= self._next and self._addresses:
                address = self._addresses[self._at % len(self._addresses)]
                self._lane = Lane(self._selector, self, address, now)
        except Broken as error:
            self.broken(str(error), now)

    def ready(self, lane: Lane, events: int, now: float) -> None:
        """The selector's word."""
        try:
            if events & selectors.EVENT_WRITE:
                lane.flush()
            if events & selectors.EVENT_READ:
                lane.read(frames_of)
        except Broken as error:
            self.broken(str(error), now)

    def close(self) -> None:
        if self._lane is not None:
            self._lane.close()
            self._lane = None

    # --- for its lane ---------------------------------------------------------------------------

    def joined(self) -> None:
        self._figures.counts["connect_count"] += 1
        log.info("route %s: connected to %s, to publish there", self.route, self.address)

    def stored(self) -> None:
        if not self._sent:
            raise Broken(f"{self.address}: an answer to nothing")
        self._failures = 0
        self.reason = ""
        batch = self._sent.popleft()
        batch.stored = True
        self.answers.append(batch)

    def broken(self, why: str, now: float) -> None:
        """What was sent has an unknown outcome: it is published again, in order, first."""
        if self._lane is not None:
            self._lane.close()
            self._lane = None
        self._queue.extendleft(reversed(self._sent))
        self._sent.clear()
        limit = _TOO_BIG.search(why)
        if limit is not None:
            if limit[1] == "message":
                self.max_msg_size = int(limit[2])
            else:
                self.max_body_size = int(limit[2])
            log.warning("route %s: %s; from now on no longer one is sent", self.route, why)
            self._next = now
            return
        if why != self.reason:
            log.warning("route %s: %s; it is tried again", self.route, why)
        self.reason = why
        self._at += 1
        self._next = now + backoff_seconds(self._failures, random.random(), _MAX_BACKOFF_SECONDS)
        self._failures += 1
