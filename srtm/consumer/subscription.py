"""Messages of one NSQ channel, from all its brokers, in a thread of its own.

It reads, touches what waits or is being worked on, and finishes or requeues what the main thread
says. So a batch may take as long as it likes, within `batch-timeout`, and heartbeats go on.
"""

import contextlib
import logging
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from srtm.bridge.figures import Figures as Counts
from srtm.bridge.hosts import Hosts
from srtm.bridge.lookup import Lookup
from srtm.bridge.nsq_source import Host, Link, Waiting
from srtm.bridge.wire import Broken
from srtm.consumer.file import ConsumerTable
from srtm.consumer.pool_file import NsqTable
from srtm.host.clock import NS, boottime_ns

log = logging.getLogger("srtm.consumer")

_TICK_SECONDS = 0.1
_QUIET_SECONDS = 0.1
"""The quiet after which a drain has all: with RDY 0 nsqd sends nothing more, once it has read it;
what was on its way has come by then."""
_LEAVE_SECONDS = 2.0


class Delivery(Waiting):
    """A message from its delivery to its FIN or REQ.

    at:   when nsqd's time-out began: with its delivery, or with the last TOUCH. Seconds
    lost: it was over once, so somebody else may have it; a TOUCH does not bring it back
    """

    __slots__ = ("body", "lost")
    body: bytes
    lost: bool


class Subscription:
    """ready: messages that may be under way, over all brokers. fault: why none come; "": all is
    well."""

    def __init__(self, nsq: NsqTable, table: ConsumerTable, name: str) -> None:
        self.fault = ""
        self.ready = table.batch
        self.counts = Counts()
        self._table = table
        self._timeout = nsq.msg_timeout
        self._topic = nsq.topic
        self._identity: dict[str, Any] = {
            "client_id": name,
            "hostname": socket.gethostname(),
            "user_agent": "srtm-consume",
            "msg_timeout": int(nsq.msg_timeout * 1000),
            "output_buffer_size": -1,  # nsqd's buffer may hold a message for 250 ms
        }
        self._nsq = nsq
        self._arrived = threading.Condition()
        self._queue: deque[Delivery] = deque()
        self._bytes = 0
        self._answers: deque[Callable[[], None]] = deque()
        self._shut_until = 0.0
        self._draining = False
        self._over = False
        self._now = self._turn = 0.0
        self._last_at = 0.0
        self._wake, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="subscription", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # --- the main thread --------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() or self._over

    def gather(self, most: int, interrupted: Callable[[], bool]) -> list[Delivery]:
        """Phase 1: up to `most` messages or `batch-bytes`, or what came within `wait` of the first.
        Nothing where `interrupted`."""
        due = 0.0
        while not interrupted():
            with self._arrived:
                now = seconds()
                whole = len(self._queue) >= most or self._bytes >= self._table.batch_bytes
                if self._queue and (whole or (due and now >= due)):
                    return self._taken(most)
                if self._queue and not due:
                    due = now + self._table.wait
                self._arrived.wait(min(max(due - now, 0.001), 0.05) if due else 0.05)
        return []

    def left(self, most: int) -> list[Delivery]:
        """What has come and is not begun; for a drain. Empty where nothing comes any more."""
        with self._arrived:
            while not self._queue:
                quiet = seconds() - self._last_at
                if quiet >= _QUIET_SECONDS:
                    return []
                self._arrived.wait(_QUIET_SECONDS - quiet)
            return self._taken(most)

    def _taken(self, most: int) -> list[Delivery]:
        found: list[Delivery] = []
        size = 0
        while self._queue and len(found) < most and size < self._table.batch_bytes:
            found.append(self._queue.popleft())
            size += found[-1].size
        return found

    def holds(self, batch: Sequence[Delivery]) -> bool:
        """Can no other consumer have any of it yet? What a broken connection delivered is still
        ours for the rest of its time-out."""
        since = seconds() - self._timeout
        return not any(each.lost or each.at <= since for each in batch)

    def finish(self, batch: Sequence[Delivery]) -> None:
        def answer() -> None:
            for each in batch:
                if each.id in each.host.waiting:
                    each.host.delivered(each)
                self._bytes -= each.size

        self._say(answer)

    def requeue(self, batch: Sequence[Delivery], delays: Sequence[float]) -> None:
        """delays: seconds until nsqd gives each of them again"""

        def answer() -> None:
            for each, delay in zip(batch, delays, strict=True):
                self._requeue(each, delay)

        self._say(answer)

    def hold(self, wait_seconds: float) -> None:
        """RDY 0 for so long; what has come and is not begun goes to others at once."""
        with self._arrived:
            left = list(self._queue)
            self._queue.clear()
        self._shut_until = seconds() + wait_seconds
        self.requeue(left, [0.0] * len(left))

    def drain(self) -> None:
        """RDY 0 from now on."""
        self._last_at = seconds()
        self._draining = True
        self._say(lambda: None)

    def close(self) -> None:
        """Every FIN reaches nsqd; then the connections end."""
        self._over = True
        self._say(lambda: None)
        self._thread.join(2 * _LEAVE_SECONDS)

    def _say(self, answer: Callable[[], None]) -> None:
        self._answers.append(answer)
        with contextlib.suppress(OSError):
            self._wake.send(b"!")

    # --- its own thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        nsq = self._nsq
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ, None)
            hosts = Hosts(
                nsq.nsqd,
                nsq.topic,
                nsq.channel,
                self._identity,
                nsq.features(),
                self.counts,
                selector,
            )
            lookup = Lookup(nsq.lookupd, nsq.topic) if nsq.lookupd else None
            tick_at = 0.0
            try:
                while not self._over:
                    self._select(selector, _TICK_SECONDS)
                    while self._answers:
                        self._answers.popleft()()
                    hosts.finish(self._now)
                    if self._now >= tick_at or self._draining:
                        tick_at = self._now + _TICK_SECONDS
                        self._tick(hosts, lookup)
                self._leave(hosts, selector)
            finally:
                if lookup:
                    lookup.close()
                hosts.close()

    def _select(self, selector: selectors.BaseSelector, timeout: float) -> None:
        self._turn, found = seconds(), selector.select(timeout)
        self._now = seconds()
        for key, events in found:
            link: Link | None = key.data
            if link is None:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(4096)
                continue
            host = link.host
            try:
                if events & selectors.EVENT_WRITE:
                    link.flush()
                if events & selectors.EVENT_READ:
                    link.read(partial(self._frames, host))
            except Broken as error:
                self._broken(host, str(error))

    def _frames(self, host: Host, raw: bytes, ends: list[int]) -> list[tuple[int, bytes]]:
        return host.frames(raw, ends, self._take, self._now)

    def _take(
        self, host: Host, link: Link, time_ns: int, attempts: int, id: bytes, body: bytes
    ) -> None:
        # It may have come at any time since the turn before, and lain here while we were frozen.
        one = Delivery(host, link, id, attempts, time_ns, len(body), self._turn, [])
        one.body, one.lost = body, False
        host.waiting[id] = one
        self._bytes += one.size
        self._last_at = self._now
        if self._over:
            self._requeue(one, 0.0)
            return
        with self._arrived:
            self._queue.append(one)
            self._arrived.notify()

    def _requeue(self, each: Delivery, delay: float) -> None:
        self._bytes -= each.size
        if each.host.waiting.pop(each.id, None) is None or each.link is None:
            return  # it comes again by itself
        self.counts.counts["requeue_count"] += 1
        each.link.write(b"REQ %b %d\n" % (each.id, round(delay * 1000)))

    def _broken(self, host: Host, why: str) -> None:
        """nsqd gives what it had delivered to anybody again; what is not begun is left to it."""
        host.broken(why, self._now)
        with self._arrived:
            gone = [each for each in self._queue if each.host is host]
            for each in gone:
                self._queue.remove(each)
        for each in gone:
            self._requeue(each, 0.0)

    def _tick(self, hosts: Hosts, lookup: Lookup | None) -> None:
        now = self._now
        if lookup:
            hosts.follow(lookup.found)
        self._mark_lost(hosts)
        links = {host: host.link for host in hosts}
        hosts.tick(now)
        for host, link in links.items():
            if link is not None and host.link is None:
                self._broken(host, host.reason)
        full = self._bytes >= 2 * self._table.batch_bytes
        shut = self._draining or full or now < self._shut_until
        hosts.share_ready(self.ready, shut=shut, trial=False, full=full, now=now)
        if hosts.subscribed:
            self.fault = ""
        elif len(hosts):
            self.fault = hosts.reason
        else:
            self.fault = (lookup.reason if lookup else "") or f"no nsqd has topic {self._topic} yet"

    def _mark_lost(self, hosts: Hosts) -> None:
        """Mark messages that nsqd gives to others by now as lost, before they are touched: this
        process was frozen, or nsqd could not be reached."""
        since = seconds() - self._timeout
        for host in hosts:
            for each in host.waiting.values():
                if each.at <= since and isinstance(each, Delivery):
                    each.lost = True

    def _leave(self, hosts: Hosts, selector: selectors.BaseSelector) -> None:
        while self._answers:
            self._answers.popleft()()
        for host in hosts:
            try:
                host.leave()
            except Broken as error:
                self._broken(host, str(error))
        until = seconds() + _LEAVE_SECONDS
        while seconds() < until:
            if all(host.link is None or host.link.left for host in hosts if host.subscribed):
                return
            self._select(selector, 0.05)


def seconds() -> float:
    """Seconds of a clock that counts sleep too, as nsqd's time-out does."""
    return boottime_ns() / NS
