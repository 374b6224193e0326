"""The gateway as a whole: doors, topics, nsqd, and the order in which they start and stop."""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
from collections.abc import Callable

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_unix_socket

from kernel import best_source
from srtm.clock import NS, WallClock, monotonic_ns
from srtm.contract import Limit
from srtm.errors import SrtmError, UnavailableError
from srtm.gateway.admin import admin_application
from srtm.gateway.client import Client, ConnectionBounds
from srtm.gateway.heartbeats import Heartbeats
from srtm.gateway.http import door_application
from srtm.gateway.matching import Deliveries
from srtm.gateway.meter import Meter
from srtm.gateway.nsqd import TESTED_VERSION, Facts, NsqdHttp
from srtm.gateway.options import GatewayOptions
from srtm.gateway.probe import CHANNEL, Probe
from srtm.gateway.reactor import Reactor
from srtm.gateway.run import Run
from srtm.gateway.state import Kept, State
from srtm.gateway.topic import Bounds, Topic
from srtm.gateway.tunnel import Tunnel
from srtm.gateway.upstream import NsqdAddress, Pool, Upstream
from srtm.nsq.errors import ProtocolError
from srtm.nsq.names import is_ephemeral

log = logging.getLogger("srtm.gateway")

_BACKLOG = 1024
_ACCEPTS_PER_WAKE = 128
_MATCH_SECONDS = 0.25
_SPARE_FDS = 64
_MANY_FILES = 1_000_000


class Gateway:
    """One gateway before one nsqd. `run` returns when it has been drained."""

    def __init__(self, options: GatewayOptions) -> None:
        self.options = options
        self.wall: WallClock = WallClock()
        self.stamps = best_source(self.wall, options.timestamps)
        self.nsqd = NsqdAddress(options.nsqd_tcp_address)
        self.nsqd_http = NsqdHttp(options.nsqd_http_address)
        self.heartbeats = Heartbeats()
        self.deliveries = Deliveries(self.wall)
        self.topics: dict[bytes, Topic] = {}
        self.clients: set[Client] = set()
        self.refused_connections: int = 0
        self.started_at = 0.0
        self.draining = False
        self.ill = ""  # why nothing is admitted, else empty
        self.http_requests = 0
        self._state = State.read(options.state_file)
        self.dirty: list[Topic] = []
        self._probes: dict[Topic, Probe] = {}
        self._tunnels: set[Tunnel] = set()
        self._listener: socket.socket | None = None
        self._stopped = asyncio.Event()
        self._away_since = 0
        self._servers: list[HTTPServer] = []
        self._reopening: asyncio.Task[None] | None = None

    # --- life ---------------------------------------------------------------------------------

    async def run(self, on_ready: Callable[[], None] | None = None) -> None:
        """Serve until SIGTERM or SIGINT. Raises SrtmError where it cannot start."""
        loop = asyncio.get_running_loop()
        self.reactor = Reactor(loop)
        self.pool = Pool(self.reactor, self.nsqd, self._nsqd_lost)
        try:
            facts = await self._start()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._stopped.set)
            loop.add_signal_handler(signal.SIGHUP, self._reload)
            log.info(
                "ready: TCP %s, HTTP %s, nsqd %s at %s, timestamps %s",
                self.tcp_address,
                self.http_address,
                facts.info["version"],
                self.options.nsqd_tcp_address,
                self.stamps.name,
            )
            if on_ready is not None:
                on_ready()
            ticks = asyncio.create_task(self._tick_forever())
            matches = asyncio.create_task(self._match_forever())
            gc.collect()
            gc.freeze()
            gc.disable()  # a collection in the middle of a burst is a latency of its own
            stop = asyncio.create_task(self._stopped.wait())
            done, _ = await asyncio.wait(
                [stop, ticks, matches], return_when=asyncio.FIRST_COMPLETED
            )
            for task in done - {stop}:
                task.result()  # a background loop ended: its exception is ours
            await self._drain()
            for task in (ticks, matches):
                task.cancel()
        finally:
            gc.enable()
            self._close()

    async def _start(self) -> Facts:
        facts = await self.nsqd_http.facts()
        if not facts.info["version"].startswith(TESTED_VERSION):
            log.warning(
                "nsqd %s: the gateway is tested with nsqd %sx",
                facts.info["version"],
                TESTED_VERSION,
            )
        self.limits, self.server, self.info = facts.limits, facts.server, facts.info
        self.bounds = Bounds(
            self.options.max_topic_backlog,
            max(self.options.max_topic_backlog_bytes, self.limits.max_body_size),
            self.limits.max_body_size,
        )
        self.connection_bounds = ConnectionBounds(
            self.options.max_connection_backlog, self.options.max_connection_backlog_bytes
        )
        if self.options.max_connection_backlog_bytes < self.limits.max_body_size:
            raise SrtmError(
                f"--max-connection-backlog-bytes {self.options.max_connection_backlog_bytes} is "
                f"less than nsqd's --max-body-size {self.limits.max_body_size}: one big MPUB would "
                "never be read; raise it"
            )
        self.max_connections = _room_for_connections(self.options.max_connections)
        self._begin_topics(facts)
        try:
            self.pool.connect()
        except OSError as error:
            raise UnavailableError(
                f"nsqd at {self.options.nsqd_tcp_address} takes no TCP connection: {error}"
            ) from None
        self.started_at = self.wall.offset_ns / NS + monotonic_ns() / NS
        self._listener = self._listen(self.options.tcp_address)
        self.tcp_address = _shown(self._listener)
        self._open_http()
        self._check_broadcast(facts)
        self.reactor.add_stage(self._decide)
        if self.options.lookupd_tcp_address:
            await self.nsqd_http.set_lookupd(self.options.lookupd_tcp_address)
        return facts

    def _begin_topics(self, facts: Facts) -> None:
        now = monotonic_ns()
        limits = {name: kept.limit for name, kept in self._state.topics.items()}
        limits.update({contract.topic: contract.limit() for contract in self.options.topic})
        for name, limit in limits.items():
            topic = self._new_topic(name.encode())
            topic.set_limit(limit, now, self._state.first_tokens(name))
        for name in facts.topics:
            topic = self.topics.get(name.encode()) or self._new_topic(name.encode())
            topic.known = True
        self._keep_state(clean=False)

    def _listen(self, address: str) -> socket.socket:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, int(port)))
            self.stamps.prepare(listener)
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            raise UnavailableError(
                f"--tcp-address {address}: {error.strerror}; is another nsqd or gateway there?"
            ) from None
        listener.setblocking(False)
        self.reactor.watch(listener.fileno(), self._accept)
        return listener

    def _open_http(self) -> None:
        server = HTTPServer(
            door_application(self),
            max_body_size=self.limits.max_body_size,
            max_buffer_size=self.limits.max_body_size + 64 * 1024,
            max_header_size=16 * 1024,
            idle_connection_timeout=60,
            body_timeout=60,
        )
        host, _, port = self.options.http_address.rpartition(":")
        try:
            server.listen(int(port), host.strip("[]"))
        except OSError as error:
            raise UnavailableError(
                f"--http-address {self.options.http_address}: {error.strerror}; is another nsqd or "
                "gateway there?"
            ) from None
        self._servers.append(server)
        self.http_address = _shown(next(iter(server._sockets.values())))
        if self.options.admin_socket:
            admin = HTTPServer(admin_application(self), max_body_size=64 * 1024)
            try:
                admin.add_socket(bind_unix_socket(self.options.admin_socket, mode=0o600))
            except (OSError, ValueError) as error:
                raise UnavailableError(
                    f"--admin-socket {self.options.admin_socket}: {error}"
                ) from None
            self._servers.append(admin)

    def _check_broadcast(self, facts: Facts) -> None:
        """Others must be led to the gateway, not round it."""
        ours = {
            "broadcast_address": self.options.broadcast_address,
            "broadcast_tcp_port": int(self.tcp_address.rpartition(":")[2]),
            "broadcast_http_port": int(self.http_address.rpartition(":")[2]),
        }
        for name, value in ours.items():
            if facts.broadcast[name] != value:
                flag = name.replace("_", "-")
                log.warning(
                    "nsqd tells nsqlookupd --%s=%s, so consumers and nsqadmin go round the "
                    "gateway; start nsqd with --%s=%s",
                    flag,
                    facts.broadcast[name],
                    flag,
                    value,
                )

    async def _drain(self) -> None:
        """Take nothing new, withdraw, finish what was taken, close the rest without OK."""
        self.draining = True
        log.info("draining for at most %gs", self.options.drain_timeout)
        self._stop_listening()
        if self.options.lookupd_tcp_address:
            with contextlib.suppress(UnavailableError):
                await self.nsqd_http.set_lookupd(())
        for client in list(self.clients):
            if client.tunnel is None:
                client.pause("draining")
        deadline = monotonic_ns() + int(self.options.drain_timeout * NS)
        while monotonic_ns() < deadline and not self._drained():
            await asyncio.sleep(0.01)
        left = sum(topic.backlog for topic in self.topics.values())
        log.info("drained%s", f"; {left} messages were not finished" if left else "")
        self._keep_state(clean=True)

    def _drained(self) -> bool:
        return not self.http_requests and all(
            client.answered for client in self.clients if client.tunnel is None
        )

    def _close(self) -> None:
        self._stop_listening()
        for server in self._servers:
            server.stop()
        for probe in self._probes.values():
            probe.close()
        for client in list(self.clients):
            client.close()
        self.pool.close()
        self.reactor.close()
        if self.options.admin_socket:
            with contextlib.suppress(OSError):
                os.unlink(self.options.admin_socket)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self.reactor.forget(self._listener.fileno())
            self._listener.close()
            self._listener = None

    def _reload(self) -> None:
        """SIGHUP: nsqd reopens its logs on it; ours go to stderr, so it tells nsqd's lookupds
        again and reads nsqd's topics anew."""
        log.info("SIGHUP: announcing again")
        self._reopening = asyncio.ensure_future(self._announce())

    async def _announce(self) -> None:
        with contextlib.suppress(UnavailableError):
            if self.options.lookupd_tcp_address and not self.draining:
                await self.nsqd_http.set_lookupd(self.options.lookupd_tcp_address)

    # --- clients ------------------------------------------------------------------------------

    def _accept(self, _mask: int) -> None:
        listener = self._listener
        for _ in range(_ACCEPTS_PER_WAKE):
            if listener is None:
                return
            try:
                connection, peer = listener.accept()
            except OSError:  # none left, or no descriptor: the next wake-up tries again
                return
            if len(self.clients) >= self.max_connections:
                self.refused_connections += 1
                connection.close()
                continue
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client = Client(self, connection, f"{peer[0]}:{peer[1]}")
            self.clients.add(client)
            self.heartbeats.schedule(client, monotonic_ns())

    def client_closed(self, client: Client) -> None:
        self.clients.discard(client)

    def tunnel_opened(self, tunnel: Tunnel) -> None:
        self._tunnels.add(tunnel)

    def tunnel_closed(self, tunnel: Tunnel) -> None:
        self._tunnels.discard(tunnel)

    def consumed(self, name: bytes, raw: bytes, ends: list[int], now: int) -> None:
        topic = self.topics.get(name)
        if topic is not None and topic.limit is not None and topic.limit.slo is not None:
            self.deliveries.consumed(topic, raw, ends, now)

    # --- publishing ---------------------------------------------------------------------------

    def offer(self, run: Run) -> None:
        """Take a run from any door. It is decided at the end of this wake-up."""
        topic = self.topics.get(run.topic)
        if topic is None:
            topic = self._topic_for(run)
            if topic is None:
                return
        topic.offer(run)

    def _topic_for(self, run: Run) -> Topic | None:
        if len(self.topics) >= self.options.max_topics and not self._forget_idle_topics():
            run.left = 0
            run.refused = ProtocolError(
                run.failure_code,
                f"{self.options.max_topics} topics are in use (--max-topics); "
                f"{run.topic.decode()} would be one more",
            )
            run.owner.refuse(run, None)
            return None
        topic = self._new_topic(run.topic)
        if self.options.default_limit is not None:
            topic.set_limit(self.options.default_limit, monotonic_ns())
        return topic

    def _new_topic(self, name: bytes) -> Topic:
        topic = self.topics[name] = Topic(name, self, self.bounds, Meter())
        return topic

    def _forget_idle_topics(self) -> bool:
        idle = [name for name, topic in self.topics.items() if topic.idle]
        for name in idle:
            del self.topics[name]
        return bool(idle)

    def _decide(self, now: int) -> None:
        """The stage after reading: each topic that got something decides."""
        dirty, self.dirty = self.dirty, []
        for topic in dirty:
            topic.decide(now)

    def flush(self) -> None:
        """Decide what came in by asyncio."""
        self._decide(monotonic_ns())

    @property
    def is_open(self) -> bool:
        return not self.ill

    def carrier(self, topic: Topic) -> Upstream | None:
        if is_ephemeral(topic.name):
            topic.known = False  # it goes with its last channel, and its next PUB asks lookupd
        return self.pool.carrier(topic)

    def call_at(self, when: int, alarm: Callable[[int], None]) -> None:
        self.reactor.call_at(when, alarm)

    def topic_deleted(self, name: str) -> None:
        """nsqd has dropped it through our door: its next PUB is a first one again."""
        topic = self.topics.get(name.encode())
        if topic is not None:
            topic.known = False

    # --- limits -------------------------------------------------------------------------------

    def set_limit(self, name: str, limit: Limit | None) -> None:
        """Change a topic's contract at run time, and keep it. Raises SrtmError at --max-topics."""
        key = name.encode()
        topic = self.topics.get(key)
        if topic is None:
            if limit is None:
                return
            if len(self.topics) >= self.options.max_topics and not self._forget_idle_topics():
                raise SrtmError(f"{self.options.max_topics} topics are in use (--max-topics)")
            topic = self._new_topic(key)
        topic.set_limit(limit or self.options.default_limit, monotonic_ns())
        self._keep_state(clean=False)
        log.info("topic %s: %s", name, limit.document() if limit else "no contract")

    def _keep_state(self, clean: bool) -> None:
        now = monotonic_ns()
        kept = {
            topic.name.decode(): Kept(topic.limit, topic.bucket.level(now))
            for topic in self.topics.values()
            if topic.limit is not None and topic.bucket is not None
        }
        try:
            self._state.write(kept, clean)
        except OSError as error:
            log.error("--state-file %s: %s", self.options.state_file, error.strerror)

    # --- nsqd's coming and going --------------------------------------------------------------

    def _nsqd_lost(self) -> None:
        """A shared connection ended. Without any, nsqd is away."""
        if not self.pool.connected:
            self._close_gate("nsqd is away")

    def _close_gate(self, why: str) -> None:
        if not self.ill:
            self._away_since = monotonic_ns()
            log.warning("%s: no new connections, nothing is admitted", why)
        self.ill = why
        self._stop_listening()

    def _open_gate(self) -> None:
        if not self.ill:
            return
        log.info("nsqd is back")
        self.ill = ""
        now = monotonic_ns()
        for topic in list(self.topics.values()):
            topic.release(now)
        if self._listener is None and not self.draining:
            try:
                self._listener = self._listen(self.tcp_address)
            except UnavailableError as error:
                log.error("%s", error)

    async def _check_nsqd(self) -> None:
        now = monotonic_ns()
        self.pool.drop_silent(now - int(self.options.nsqd_timeout * NS))
        self.pool.retire_side()
        try:
            self.pool.connect()
            healthy = await self.nsqd_http.healthy()
        except (OSError, UnavailableError):
            if not self.pool.connected:
                self._close_gate("nsqd is away")
        else:
            if not healthy:
                self._close_gate("nsqd is ill (/ping says NOK: it cannot write to its disk)")
            elif self.pool.connected:
                if self.ill == "nsqd is away":
                    await self._announce()
                self._open_gate()
        if self.ill and now - self._away_since > self.options.nsqd_away_timeout * NS:
            for topic in list(self.topics.values()):
                topic.fail_waiting(self.ill)

    # --- every second -------------------------------------------------------------------------

    async def _tick_forever(self) -> None:
        while True:
            await asyncio.sleep(1)
            now = monotonic_ns()
            if self.wall.refresh():
                log.warning("the wall clock was stepped; kernel stamps of this second are off")
            self.heartbeats.tick(now)
            self._bound_partials()
            for topic in self.topics.values():
                topic.tick()
            if self.draining:
                continue
            await self._check_nsqd()
            await self._place_probes()
            if not any(topic.backlog for topic in self.topics.values()):
                gc.collect(1)

    async def _match_forever(self) -> None:
        while True:
            await asyncio.sleep(_MATCH_SECONDS)
            self.deliveries.match()

    def _bound_partials(self) -> None:
        """Half-received commands may not fill the memory: the biggest holders go first."""
        held = sum(client.partial_bytes for client in self.clients)
        if held <= self.options.max_partial_bytes:
            return
        for client in sorted(self.clients, key=lambda c: c.partial_bytes, reverse=True):
            if held <= self.options.max_partial_bytes:
                break
            held -= client.partial_bytes
            client.close()

    async def _place_probes(self) -> None:
        """A probe on each topic with an SLO and a channel of somebody else's."""
        self._probes = {topic: probe for topic, probe in self._probes.items() if not probe.closed}
        for topic in list(self.topics.values()):
            wanted = False
            if topic.limit is not None and topic.limit.slo is not None and not self.ill:
                try:
                    stats = await self.nsqd_http.stats(topic.name.decode())
                except UnavailableError:
                    return
                wanted = any(
                    channel["channel_name"] != CHANNEL
                    for found in stats.get("topics") or []
                    for channel in found["channels"] or []
                )
            probe = self._probes.get(topic)
            if wanted and probe is None:
                with contextlib.suppress(OSError):
                    self._probes[topic] = Probe(
                        self.reactor, self.nsqd, topic, self.deliveries, self.limits.max_msg_size
                    )
            elif not wanted and probe is not None:
                probe.leave()

    async def withdraw_probe(self, name: str) -> None:
        """Before a channel of this topic is deleted: the probe must not be the last one."""
        topic = self.topics.get(name.encode())
        probe = self._probes.get(topic) if topic is not None else None
        if probe is not None:
            probe.leave()
            for _ in range(100):
                if probe.closed:
                    return
                await asyncio.sleep(0.005)
            probe.close()


def _shown(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _room_for_connections(wanted: int) -> int:
    """Raise the open-file limit for `wanted` clients (0: all it allows); a client is one
    descriptor, a consumer two. Raises SrtmError where the hard limit is too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MANY_FILES if hard == resource.RLIM_INFINITY else hard
    if wanted > most - _SPARE_FDS:
        raise SrtmError(
            f"--max-connections {wanted} needs {wanted + _SPARE_FDS} open files, and the hard "
            f"limit is {most}; lower it or raise the limit (ulimit -Hn)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    return wanted or most - _SPARE_FDS
