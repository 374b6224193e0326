"""Watching nsqd: whether it is there, whether it is well, and whether nsqlookupd knows of it."""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from srtm.gateway.disk_trial import DiskTrial
from srtm.gateway.nsqd import Facts, NsqdHttp
from srtm.gateway.options import GatewayOptions
from srtm.gateway.pool import Pool
from srtm.gateway.reactor import Reactor
from srtm.gateway.topic import Topic
from srtm.gateway.topics import Topics
from srtm.gateway.upstream import NsqdAddress, Upstream
from srtm.host.clock import NS, monotonic_ns
from srtm.http.client import TIMEOUT_SECONDS
from srtm.text.errors import UnavailableError

log = logging.getLogger("srtm.gateway")

_AWAY = "nsqd is away"
_ILL = "nsqd is ill (/ping says NOK: it cannot write to its disk)"
_SILENT_SECONDS = 4.5
"""Two of nsqd's heartbeats on our own connections, and some."""


class NsqdWatch:
    """The gate to nsqd: closed while it is away or ill. `on_change` is told of either."""

    def __init__(
        self,
        options: GatewayOptions,
        reactor: Reactor,
        address: NsqdAddress,
        http: NsqdHttp,
        facts: Facts,
        on_change: Callable[[], None],
        on_facts: Callable[[Facts], None],
    ) -> None:
        """on_facts: told what nsqd says of itself, before a message goes to a new one"""
        self.pool = Pool(reactor, address, self._lost, self._learn_soon, self._filled)
        self.ill = ""
        """Why nothing is admitted, else empty."""
        self._options = options
        self._reactor = reactor
        self._http = http
        self._facts = facts
        self._on_change = on_change
        self._on_facts = on_facts
        self._learns = asyncio.Lock()
        self._learning: asyncio.Task[None] | None = None
        self._why_not = ""  # what was wrong with nsqd when it was last asked
        self._away_since = 0
        self._announced = False  # as far as we know; a new nsqd must be told again
        self._withdrawn = False
        self._trial = DiskTrial(http, facts.mem_queue_size, facts.topics)
        self._offered: dict[Topic, int] = {}  # messages that had come when nsqd was last well

    @property
    def is_open(self) -> bool:
        return not self.ill

    @property
    def is_away(self) -> bool:
        return self.ill == _AWAY

    def carrier(self, topic: Topic) -> Upstream | None:
        if self.is_away:
            return None  # it may still look connected; what is not sent has no unknown outcome
        return self.pool.carrier(topic)

    def _lost(self) -> None:
        """A shared connection ended. Without any, nsqd is away."""
        if not self.pool.connected:
            self._close(_AWAY)

    def _filled(self) -> None:
        """There is a shared connection again."""
        if not self.ill:
            self._on_change()

    def _close(self, why: str) -> None:
        if not self.ill:
            self._away_since = monotonic_ns()
            self._trial.wait(self._away_since)
            log.warning("%s: nothing is admitted", why)
        if why == _AWAY:
            self._announced = False
        self.ill = why
        self._on_change()

    def _open(self) -> None:
        if self.ill:
            log.info("nsqd is back")
            self.ill = ""
            self._on_change()

    async def begin(self) -> None:
        """Connect at start, and wait until a message may go to nsqd, which may start anew
        meanwhile. Raises OSError."""
        self.pool.connect()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not self.pool.connected:
                await asyncio.sleep(0.001)
                with contextlib.suppress(OSError):
                    self.pool.connect()
                await self._try_to_learn()

    def _learn_soon(self) -> None:
        """nsqd has answered on a connection, and it may be another process than before."""
        self._reactor.let_asyncio_run()
        self._learning = asyncio.get_running_loop().create_task(self._try_to_learn())

    async def _try_to_learn(self) -> None:
        try:
            await self._learn()
        except (OSError, UnavailableError) as error:
            if str(error) != self._why_not:
                self._why_not = str(error)
                log.warning("%s", error)

    async def _learn(self) -> None:
        """What nsqd is like, while connections that it has answered wait to be used. Raises
        OSError or UnavailableError."""
        async with self._learns:
            asked = self.pool.strangers
            if self.pool.connected or not asked:
                return
            self._facts = facts = await self._http.facts()
            self._trial.follow(facts.mem_queue_size)
            self._on_facts(facts)
            self.pool.welcome(asked)
            self._why_not = ""

    async def announce(self) -> None:
        """nsqd registers with nsqlookupd from now on. Raises UnavailableError."""
        self._announced = True  # said first: a process that ends meanwhile makes it untrue again
        if not self._options.lookupd_tcp_address or self._withdrawn:
            return
        try:
            await self._http.set_lookupd(self._options.lookupd_tcp_address)
        except UnavailableError:
            self._announced = False
            raise

    def announce_again(self) -> None:
        """Announce nsqd again with the next check."""
        self._announced = False

    async def withdraw(self) -> None:
        """Withdraw nsqd from nsqlookupd for good: the gateway stops."""
        self._withdrawn = True
        if self._options.lookupd_tcp_address:
            with contextlib.suppress(UnavailableError):
                await self._http.set_lookupd(())

    async def check(self, topics: Topics) -> None:
        """Called once a second: connect what is missing, ask nsqd how it is, open or close the
        gate."""
        now = monotonic_ns()
        try:
            self.pool.connect()
            is_well = await self._may_be_opened(topics, now)
            await self._try_to_learn()
            await self._trial.clean()
            if not self._announced:
                await self.announce()
            if not is_well:
                self._close(_ILL)
                if not self._trial.possible:
                    topics.try_one()
            elif self.pool.connected:
                self._open()
            else:
                self._close(_AWAY)
        except (OSError, UnavailableError):
            # It may take connections though it is frozen: the kernel does that for it.
            silent = max(self._options.nsqd_timeout, _SILENT_SECONDS) * NS
            if not self.pool.connected or self.pool.heard_at < monotonic_ns() - silent:
                self._close(_AWAY)
        if self.ill and now - self._away_since > self._options.nsqd_away_timeout * NS:
            topics.fail_waiting(self.ill)

    async def _may_be_opened(self, topics: Topics, now: int) -> bool:
        """Is nsqd well, or will it keep what it is given though its disk is full?"""
        if await self._http.healthy():
            self._offered = {topic: topic.meter.offered for topic in topics.by_name.values()}
            return True
        if self._facts.mem_queue_size and await self._queues_have_room(topics):
            return True
        if not (self.ill and self._trial.is_due(now)):
            return False
        if self._options.lookupd_tcp_address:  # it keeps the names of deleted topics
            self._announced = False
            await self._http.set_lookupd(())
        return await self._trial.passes(now)

    async def _queues_have_room(self, topics: Topics) -> bool:
        """nsqd says NOK until its next write to disk, which may never come. While what we
        publish stays in its memory, nothing is written and nothing can be lost. That goes by the
        topics that got a message since nsqd was well: one that is full and has lost its publishers
        to other brokers gets them back when the gate opens."""
        busy = {
            topic.name.decode()
            for topic in topics.by_name.values()
            if topic.backlog.messages or self._offered.get(topic) != topic.meter.offered
        }
        stats = await self._http.stats()
        in_memory = [
            queue["depth"]
            - queue["backend_depth"]
            + queue.get("in_flight_count", 0)
            + queue.get("deferred_count", 0)
            for found in stats.get("topics") or []
            if found["topic_name"] in busy
            for queue in (found, *(found["channels"] or []))
        ]
        return all(depth < self._facts.mem_queue_size // 2 for depth in in_memory)
