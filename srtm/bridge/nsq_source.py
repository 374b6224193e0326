"""The NSQ side of a route to Kafka: connections, RDY, FIN, TOUCH, REQ of each nsqd.

A message is a `Waiting` from its first delivery until Kafka's report. When nsqd gives it again
meanwhile (its timeout, a connection that broke) it stays the same one: it is not produced again,
and the report finishes the delivery that is the latest.
"""

import logging
import random
import selectors
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from srtm.bridge.figures import Figures
from srtm.bridge.wire import Broken, Wire
from srtm.host.backoff import backoff_seconds
from srtm.nsq.commands import CLS, rdy, sub
from srtm.nsq.connection import Features
from srtm.nsq.errors import is_fatal
from srtm.nsq.frames import MESSAGE, RESPONSE

log = logging.getLogger("srtm.bridge")

_HEAD = struct.Struct(">qH16s")  # of a message frame's data: time, attempts, id
_HEAD_BYTES = 8 + _HEAD.size
_MAX_BACKOFF_SECONDS = 5.0
_REMEMBERED = 20_000
"""Ids of delivered messages for each nsqd: what may come again after its FIN was lost. Eight times
nsqd's --max-rdy-count."""
_REQUEUE_MS = 500


@dataclass(slots=True, eq=False)
class Waiting:
    """A message that Kafka has not acknowledged yet. Called with Kafka's report.

    at:       of the delivery or the last TOUCH
    dead:     it is on its way to the dead letters; cut: not whole; refusals: how often it was too
              big for them
    """

    host: "Host"
    link: "Link | None"
    id: bytes
    attempts: int
    time_ns: int
    size: int
    at: float
    reports: "list[tuple[Waiting, Any, Any]]"
    dead: bool = False
    cut: bool = False
    refusals: int = 0

    def __call__(self, error: Any, message: Any) -> None:
        self.reports.append((self, error, message if error is not None else None))


Take = Callable[["Host", "Link", int, int, bytes, bytes], None]
"""host, link, time in ns, attempts, id, body of a message that is to go to Kafka"""


class Link(Wire):
    """One connection that is, or will be, subscribed."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        host: "Host",
        identity: dict[str, Any],
        features: Features,
        now: float,
    ) -> None:
        self.host = host
        self.subscribed = False
        self.left = False  # nsqd has confirmed CLS: every FIN before it is carried out
        self.finished: list[bytes] = []  # ids to FIN
        self.sent: deque[list[bytes]] = deque()  # ids of FINs that nsqd may not have read yet
        self.sent_count = 0
        self._rdy = -1
        super().__init__(selector, host.address, identity, now, features)

    def identified(self) -> None:
        self.write(sub(self.host.topic, self.host.channel))

    def answered(self, kind: int, data: bytes) -> None:
        if kind == RESPONSE:
            if data == b"CLOSE_WAIT":
                self.left = True
            elif not self.subscribed:
                self.subscribed = True
                self.host.joined()
            return
        text = data[:300].decode(errors="replace")
        if is_fatal(text):
            raise Broken(f"{self.address}: {text}")
        if text.startswith("E_FIN_FAILED"):
            self.host.late(text)

    def set_rdy(self, count: int) -> None:
        """Raises Broken."""
        if self.subscribed and count != self._rdy:
            self._rdy = count
            self.write(rdy(count))

    @property
    def msg_timeout(self) -> float:
        """Seconds until nsqd gives a message to someone else."""
        found = self.told.get("msg_timeout")
        return min(found, 1 << 53) / 1e3 if isinstance(found, int) and found > 0 else 60.0

    @property
    def max_rdy(self) -> int:
        found = self.told.get("max_rdy_count")
        return found if isinstance(found, int) and found > 0 else 2500

    def finish(self) -> None:
        """FIN what is delivered. Raises Broken."""
        ids = self.finished
        if not ids:
            return
        self.finished = []
        self.sent.append(ids)
        self.sent_count += len(ids)
        while self.sent_count - len(self.sent[0]) > _REMEMBERED // 2:
            self.sent_count -= len(self.sent.popleft())
        self.write(b"FIN " + b"\nFIN ".join(ids) + b"\n")


class Host:
    """One nsqd, over all its connections."""

    def __init__(
        self,
        address: str,
        topic: str,
        channel: str,
        identity: dict[str, Any],
        features: Features,
        figures: Figures,
        selector: selectors.BaseSelector,
    ) -> None:
        self.address = address
        self.topic = topic.encode()
        self.channel = channel.encode()
        self.listed = True  # nsqlookupd knows it, or the file names it
        self.waiting: dict[bytes, Waiting] = {}
        self.orphans = 0  # of those that wait: deliveries of connections that broke
        self.link: Link | None = None
        self.reason = ""
        self._done: dict[bytes, None] = {}
        self._identity = identity
        self._features = features
        self._figures = figures
        self._selector = selector
        self._failures = 0
        self._next = 0.0
        self._touched = 0.0

    # --- the connection -------------------------------------------------------------------------

    def connect(self, now: float) -> None:
        """If it is time to."""
        if self.link is not None or now < self._next or not self.listed:
            return
        try:
            self.link = Link(self._selector, self, self._identity, self._features, now)
        except Broken as error:
            self.broken(str(error), now)

    def joined(self) -> None:
        self._failures = 0
        self.reason = ""
        self._figures.counts["connect_count"] += 1
        channel = f"nsq:{self.topic.decode()}/{self.channel.decode()}"
        log.info("connected to %s, to read %s there", self.address, channel)

    def broken(self, why: str, now: float) -> None:
        """The connection is gone; what waits stays, and is recognised when nsqd gives it again."""
        link, self.link = self.link, None
        if why != self.reason:
            log.warning("%s; it is tried again", why)
        self.reason = why
        if link is not None:
            for ids in (*link.sent, link.finished):
                self._remember(ids)
            for each in self.waiting.values():
                each.link = None
            self.orphans = len(self.waiting)
            link.close()
        self._next = now + backoff_seconds(self._failures, random.random(), _MAX_BACKOFF_SECONDS)
        self._failures += 1

    @property
    def subscribed(self) -> bool:
        return self.link is not None and self.link.subscribed

    @property
    def held(self) -> int:
        """Messages that nsqd counts against RDY."""
        return len(self.waiting) - self.orphans

    # --- messages -------------------------------------------------------------------------------

    def frames(
        self, raw: bytes, ends: list[int], take: Take, now: float
    ) -> list[tuple[int, bytes]]:
        """Messages go to `take`; the other frames are given back."""
        link = self.link
        assert link is not None
        others: list[tuple[int, bytes]] = []
        unpack = _HEAD.unpack_from
        counts = self._figures.counts
        waiting, done = self.waiting, self._done
        counts["message_count"] += len(ends)
        counts["message_bytes"] += ends[-1]
        start = 0
        for end in ends:
            if raw[start + 7] == MESSAGE and end - start >= _HEAD_BYTES:
                time_ns, attempts, id = unpack(raw, start + 8)
                if attempts > 1:
                    counts["redelivered_count"] += 1
                # Also a first attempt may be known: nsqd's disk queue keeps no count of attempts.
                if id in waiting or id in done:
                    self._repeated(link, id, now)
                else:
                    take(self, link, time_ns, attempts, id, raw[start + 34 : end])
                counts["message_bytes"] -= 34
            else:
                others.append((raw[start + 7], raw[start + 8 : end]))
                counts["message_count"] -= 1
                counts["message_bytes"] -= end - start
            start = end
        return others

    def _repeated(self, link: Link, id: bytes, now: float) -> None:
        """A copy of it is in Kafka, or on its way there."""
        self._figures.counts["not_repeated_count"] += 1
        waiting = self.waiting.get(id)
        if waiting is None:
            link.finished.append(id)
        else:
            self.orphans -= waiting.link is None
            waiting.link = link
            waiting.at = now

    def delivered(self, waiting: Waiting) -> None:
        """Kafka has it."""
        del self.waiting[waiting.id]
        if waiting.link is None:
            self.orphans -= 1
            self._remember([waiting.id])
        else:
            waiting.link.finished.append(waiting.id)

    def requeue(self, waiting: Waiting) -> None:
        """Kafka did not take it, and will: nsqd keeps it meanwhile. Raises Broken."""
        del self.waiting[waiting.id]
        self._figures.counts["requeue_count"] += 1
        if waiting.link is None:
            self.orphans -= 1
        else:
            waiting.link.write(b"REQ %b %d\n" % (waiting.id, _REQUEUE_MS))

    def touch(self, now: float) -> None:
        """TOUCH the messages that have waited for a third of nsqd's timeout. Raises Broken."""
        link = self.link
        if link is None or not link.subscribed or now - self._touched < link.msg_timeout / 10:
            return
        self._touched = now
        old = now - link.msg_timeout / 3
        due = [each for each in self.waiting.values() if each.at < old and each.link is link]
        if due:
            for each in due:
                each.at = now
            self._figures.counts["touch_count"] += len(due)
            link.write(b"".join(b"TOUCH %b\n" % each.id for each in due))

    def late(self, text: str) -> None:
        """nsqd had given up a message that Kafka has: it comes once more, and is not repeated."""
        self._figures.counts["late_finish_count"] += 1
        words = text.split()
        if len(words) > 2:
            self._remember([words[2].encode()])

    def _remember(self, ids: list[bytes]) -> None:
        done = self._done
        for id in ids:
            done[id] = None
        while len(done) > _REMEMBERED:
            del done[next(iter(done))]

    def leave(self) -> None:
        """The last words on this connection. Raises Broken."""
        if self.link is not None:
            self.link.finish()
            if self.link.subscribed:
                self.link.write(CLS)
