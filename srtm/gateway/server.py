"""The gateway as a whole: its parts, and the order in which they start and stop."""

import asyncio
import gc
import logging
import signal
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from kernel import StampSource, choose_source
from srtm.gateway import sender
from srtm.gateway.agent import Agent, Identity
from srtm.gateway.auth import AuthServers
from srtm.gateway.backlog import Bounds
from srtm.gateway.backlogs import Backlogs
from srtm.gateway.broadcast import broker_name, check_broadcast, check_certificate, identity
from srtm.gateway.client import Client, ConnectionBounds
from srtm.gateway.descriptors import Descriptors, take_descriptors
from srtm.gateway.farewells import Farewells
from srtm.gateway.handshakes import Handshakes
from srtm.gateway.heartbeats import Heartbeats
from srtm.gateway.host import Sender
from srtm.gateway.http.doors import HttpDoors
from srtm.gateway.measure.admissions import AdmissionLog
from srtm.gateway.measure.log_files import LogFiles
from srtm.gateway.measure.matching import Deliveries
from srtm.gateway.measure.probe import Probe
from srtm.gateway.measure.subscription import Subscription
from srtm.gateway.measure.trace import Trace
from srtm.gateway.measure.trace_process import TraceProcess
from srtm.gateway.nsqd import TESTED_VERSION, Facts, NsqdHttp, check_tcp, reach_nsqd
from srtm.gateway.options import GatewayOptions
from srtm.gateway.outbox import Outbox
from srtm.gateway.reactor import Reactor
from srtm.gateway.state import SavedState
from srtm.gateway.tcp_door import TcpDoor
from srtm.gateway.topics import Topics
from srtm.gateway.upstream import NsqdAddress
from srtm.gateway.watch import NsqdWatch
from srtm.host.audit_log import AuditLog
from srtm.host.certificates import LOOK_SECONDS, Renewed
from srtm.host.clock import NS, WallClock, monotonic_ns, wall_clock_error_ns
from srtm.http.client import TIMEOUT_SECONDS
from srtm.http.service import distributor_files, service_at
from srtm.nsq.identify import Server
from srtm.nsq.names import PROBE_TOPIC
from srtm.text.errors import SrtmError, UnavailableError

log = logging.getLogger("srtm.gateway")

_OFTEN_SECONDS = 0.2  # a fifth of the shortest heartbeat interval
_COLLECT_SECONDS = 300
"""Seconds until garbage is collected, at the latest. Only HTTP leaves cyclic garbage, a few kB a
request; a collection under load takes milliseconds, so it waits for a second without a message, or
this long."""


class Gateway:
    """One gateway before one nsqd. `run` returns when it has been drained.

    read_options: gives the options anew at SIGHUP; only the contracts in them are applied
    """

    stamps: StampSource
    descriptors: Descriptors
    tcp: TcpDoor
    watch: NsqdWatch

    def __init__(
        self, options: GatewayOptions, reactor: Reactor, read_options: Callable[[], GatewayOptions]
    ) -> None:
        self.options = options
        self.reactor = reactor
        self.wall: WallClock = WallClock()
        features, endpoint = reach_nsqd(options)
        self.nsqd = NsqdAddress(options.nsqd_tcp_address, features)
        self.nsqd_http = NsqdHttp(endpoint, features)
        self.auth = AuthServers.of(
            options.auth_http_address, options.auth_http_request_method, reactor
        )
        self.farewells = Farewells(reactor)
        self.handshakes = Handshakes(reactor)
        self.heartbeats = Heartbeats(reactor.fault)
        self.outbox = Outbox(reactor.fault)
        self.deliveries = Deliveries(self.wall)
        self.clients: set[Client] = set()
        self.uploads: set[Sender] = set()
        self.agent: Agent | None = None
        self.admissions: AdmissionLog | None = None
        self.log_files: LogFiles | None = None
        self.trace: Trace | None = None
        self.trace_process: TraceProcess | None = None
        self.tls: Renewed | None = None
        self.audit: AuditLog | None = None
        self.draining = False
        self.http_requests = 0
        self._read_options = read_options
        self._since_collection = 0  # seconds
        self._stopped = asyncio.Event()
        self._reload_wanted = asyncio.Event()

    # --- life ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises SrtmError where it cannot start."""
        loop = asyncio.get_running_loop()
        with ExitStack() as closing:
            closing.callback(signal.signal, signal.SIGHUP, signal.SIG_IGN)  # it has ended already
            closing.callback(loop.remove_signal_handler, signal.SIGHUP)
            loop.add_signal_handler(signal.SIGHUP, self._reload_wanted.set)
            await self._start(closing)
            log.info(
                "ready: TCP %s, HTTP %s%s, nsqd %s at %s, timestamps %s",
                self.tcp.address,
                self.http.address,
                f", HTTPS {self.http.https_address}" if self.http.https_address else "",
                self.info["version"],
                self.options.nsqd_tcp_address,
                self.stamps.name,
            )
            gc.collect()
            gc.freeze()
            gc.disable()  # a collection in the middle of a burst is a latency of its own
            closing.callback(gc.enable)
            tasks = [
                asyncio.create_task(self._forever(LOOK_SECONDS, self._look_at_files)),
                asyncio.create_task(self._forever(1.0, self._tick)),
                asyncio.create_task(self._forever(1.0, self._look_at_nsqd)),
                asyncio.create_task(self._forever(_OFTEN_SECONDS, self._look_often)),
                asyncio.create_task(self._forever(1.0, self._bound_partials)),
                asyncio.create_task(self._forever(0.0, self._reload)),
            ]
            if self.agent is not None:
                tasks.append(asyncio.create_task(self.agent.run()))
            stop = asyncio.create_task(self._stopped.wait())
            done, _ = await asyncio.wait([stop, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stop}:
                task.result()  # a background loop ended: its exception is ours
            await self._drain()
            for task in tasks:
                task.cancel()

    async def _start(self, closing: ExitStack) -> None:
        """Start the parts in order: what needs nobody, what talks to nsqd and to the distributor,
        and then the doors. `closing` ends them the other way round."""
        options = self.options
        self.tls = Renewed.of(options.tls_files)
        check_certificate(options)
        if options.audit_log:
            self.audit = AuditLog(options.audit_log, "--audit-log", log)
            closing.callback(self.audit.close)
        self.descriptors = take_descriptors(options)
        state = SavedState.read(options.state_file)
        state.require_writable()
        facts = await self.nsqd_http.facts()
        self._take(facts)
        options.check_body_size(self.limits.max_body_size)
        await check_tcp(options.nsqd_tcp_address, self.nsqd.features)
        who = identity(options, state.instance)
        self._begin_sources(closing)
        self._begin_topics(state, facts, who.instance, closing)
        self.tcp = TcpDoor(self)
        await self._connect(who, closing)
        for number in (signal.SIGTERM, signal.SIGINT):  # who comes in now hears of our end
            asyncio.get_running_loop().add_signal_handler(number, self._stopped.set)
        self.tcp.open()
        closing.callback(self.tcp.close)
        self.http = HttpDoors(self)
        closing.callback(self.http.close)
        check_broadcast(options, self.tcp.address, self.http.address, facts)
        self.topics.state_file.write(clean=False)
        await self.watch.announce()

    def _begin_sources(self, closing: ExitStack) -> None:
        """Where stamps come from, and how answers are sent."""
        self.stamps = choose_source(self.wall, self.options.timestamps)
        closing.callback(self.stamps.close)
        if self.stamps.reason:
            log.info(
                "timestamps by %s, because there is no %s", self.stamps.name, self.stamps.reason
            )
        sender.begin()
        if sender.why_slower:
            log.info("answers are sent one by one: %s", sender.why_slower)

    def _begin_topics(
        self, state: SavedState, facts: Facts, instance: str, closing: ExitStack
    ) -> None:
        """The topics, with nsqd behind them and what is kept of their messages."""
        options = self.options
        self.watch = NsqdWatch(
            options,
            self.reactor,
            self.nsqd,
            self.nsqd_http,
            facts,
            self._gate_changed,
            self._follow,
        )
        closing.callback(self.watch.pool.close)
        if options.admission_log:
            self._begin_log(closing)
        if options.trace_dir:
            self._begin_trace(closing)
        channel = f"{instance}#ephemeral".encode()
        self.probe = Probe(
            partial(Subscription, self.reactor, self.nsqd, PROBE_TOPIC, channel), facts
        )
        self.topics = Topics(
            self.reactor,
            self.watch,
            self.bounds,
            state,
            options.default_limit,
            options.max_topics,
            Backlogs(self._most_bytes, options.max_topics),
            self.stamps.in_order,
            self.admissions,
            self.trace,
            self.probe,
        )
        if self.admissions is not None:
            self.reactor.add_stage(self.admissions.stage)
        if self.trace is not None:
            self.reactor.add_stage(self.trace.stage)
        self.reactor.add_stage(self.outbox.flush)  # after the topics' own
        self.reactor.add_stage(self.handshakes.stage)  # and after all that messages wait for
        self.topics.begin(options.topic, facts.topics)
        for close in (self.topics.state_file.close, self._close_clients, self.probe.close):
            closing.callback(close)

    async def _connect(self, who: Identity, closing: ExitStack) -> None:
        """Meet nsqd, and the Load Distributor where there is one, before anybody is let in."""
        options = self.options
        try:
            await self.watch.begin()
        except OSError as error:
            why = str(error) or f"no answer within {TIMEOUT_SECONDS:g}s"
            raise UnavailableError(
                f"nsqd at {options.nsqd_tcp_address} takes no V2 connection: {why}"
            ) from None
        if options.distributor_address:
            distributor = service_at(
                options.distributor_address, distributor_files(options), "--distributor-token-file"
            )
            self.agent = Agent(distributor, who, self.topics)
            closing.callback(self.agent.close)
            await self.agent.first_contact()

    def _take(self, facts: Facts) -> None:
        """What nsqd says of itself, and the bounds that are made of it."""
        options, largest = self.options, facts.limits.max_body_size
        if not facts.info["version"].startswith(TESTED_VERSION):
            log.warning(
                "nsqd %s: the gateway is tested with nsqd %sx",
                facts.info["version"],
                TESTED_VERSION,
            )
        self.limits, self.info = facts.limits, facts.info
        self.server = self._door(facts.server)
        self.connection_bounds = ConnectionBounds(
            options.max_connection_backlog, max(options.max_connection_backlog_bytes, largest)
        )
        self.bounds = Bounds(
            options.max_topic_backlog, max(options.max_topic_backlog_bytes, largest), largest
        )
        self._most_bytes = max(options.max_backlog_bytes, largest)

    def _door(self, server: Server) -> Server:
        """What nsqd says of its connections, with what is the gateway's own to say."""
        options = self.options
        return replace(
            server,
            tls=self.tls is not None,
            snappy=options.snappy == "true",
            deflate=options.deflate == "true",
            max_deflate_level=min(options.max_deflate_level, server.max_deflate_level),
            requires_tls=options.tcp_requires_tls,
            requires_auth=bool(options.auth_http_address),
        )

    def _follow(self, facts: Facts) -> None:
        """nsqd may be another process than before, with other limits."""
        before = self.limits
        self.probe.heed(facts)
        if (
            facts.info != self.info
            or self._door(facts.server) != self.server
            or facts.limits != before
        ):
            self._take(facts)
        if self.limits == before:
            return
        log.info("nsqd was started anew with other limits: %s", self.limits)
        for client in list(self.clients):
            client.follow()
        self.topics.follow(self.limits, self.bounds, self._most_bytes)

    def _begin_log(self, closing: ExitStack) -> None:
        options = self.options
        files = LogFiles(options.admission_log, broker_name(options), options.admission_log_bytes)
        admissions = AdmissionLog(files, self.reactor.call_at)
        admissions.clock(self.wall.offset_ns, wall_clock_error_ns())
        self.admissions, self.log_files = admissions, files
        closing.callback(files.close)
        closing.callback(lambda: admissions.flush(monotonic_ns(), is_end=True))

    def _begin_trace(self, closing: ExitStack) -> None:
        options = self.options
        process = TraceProcess(
            {
                "folder": options.trace_dir,
                "broker": broker_name(options),
                "file_seconds": options.trace_file_age,
                "file_bytes": options.trace_file_bytes,
                "kept_seconds": options.trace_age,
                "kept_bytes": options.trace_bytes,
            }
        )
        trace = Trace(process, self.reactor.call_at)
        trace.clock(self.wall.offset_ns)
        self.trace, self.trace_process = trace, process
        closing.callback(process.close)
        closing.callback(lambda: trace.flush(monotonic_ns()))

    async def _drain(self) -> None:
        """Take nothing new, withdraw, finish what was taken, close the rest without OK."""
        self.draining = True
        self.tcp.close()  # before it is said: whoever reads it finds the door shut
        log.info("draining for at most %gs", self.options.drain_timeout)
        if self.auth is not None:
            self.auth.give_up()
        await self.watch.withdraw()
        for client in list(self.clients):
            if client.tunnel is None:
                client.pause("draining")
        deadline = monotonic_ns() + int(self.options.drain_timeout * NS)
        while monotonic_ns() < deadline and not self._drained():
            await asyncio.sleep(0.01)
        left = sum(topic.backlog.messages for topic in self.topics.by_name.values())
        log.info("drained%s", f"; {left} messages were not finished" if left else "")
        self.topics.state_file.write(
            clean=True
        )  # the loop waits: nobody may spend a token meanwhile

    def _drained(self) -> bool:
        return not self.http_requests and all(
            client.answered if client.tunnel is None else not client.unanswered
            for client in self.clients
        )

    def _close_clients(self) -> None:
        for client in list(self.clients):
            client.close()
        self.farewells.close()

    async def _reload(self) -> None:
        """Reload at SIGHUP: contracts from the options' file again; nsqd is announced again."""
        await self._reload_wanted.wait()
        self._reload_wanted.clear()
        try:
            options = await asyncio.to_thread(self._read_options)
            self.topics.replace(self.options.topic, options.topic)
        except SrtmError as error:
            log.error("SIGHUP: nothing is changed: %s", error)
        else:
            self.options = self.options.model_copy(update={"topic": options.topic})
            log.info("SIGHUP: contracts are read again")
            other = [each for each, value in self.options if getattr(options, each) != value]
            if other:
                names = ", ".join(each.replace("_", "-") for each in other)
                log.warning("SIGHUP: these changes in the file need a restart: %s", names)
        await self._look_at_files()
        self.watch.announce_again()

    def _gate_changed(self) -> None:
        """nsqd came or went, or is ill: clients fail over while it is away."""
        if self.watch.is_away:
            self.tcp.close()
        elif self.watch.ill:
            self._open_tcp()
        else:
            self.topics.release()
            self._open_tcp()

    def _open_tcp(self) -> None:
        if self.draining:
            return
        try:
            self.tcp.open()
        except UnavailableError as error:  # taken meanwhile; tried again every second
            log.error("%s", error)

    # --- consumers ----------------------------------------------------------------------------

    def consumed(self, name: bytes, raw: bytes, ends: list[int], now: int) -> None:
        topic = self.topics.by_name.get(name)
        if topic is not None and topic.has_slo:
            self.deliveries.consumed(topic, raw, ends, now)

    # --- every second -------------------------------------------------------------------------

    async def _forever(self, seconds: float, look: Callable[[], Awaitable[None]]) -> None:
        """A look that fails is one look less: the messages go on without it."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await look()
            except Exception as error:
                self.reactor.fault(error, "what is done again and again failed")

    async def _tick(self) -> None:
        """What needs nobody else."""
        now = monotonic_ns()
        if self.wall.refresh():
            log.warning("the wall clock was stepped; kernel time stamps of this second are wrong")
        self.stamps.tick()
        self.tcp.try_again()
        self.watch.pool.drop_silent(now - int(self.options.nsqd_timeout * NS))
        self.watch.pool.retire_side()
        busy = self.topics.tick(now)
        self.probe.tick(now, not self.watch.is_away and self.topics.have_slo)
        if self.admissions is not None:
            self.admissions.clock(self.wall.offset_ns, wall_clock_error_ns())
            self.admissions.tick(now)
        if self.trace is not None and self.trace_process is not None:
            self.trace.clock(self.wall.offset_ns)
            self.trace_process.tick(now)
        self._since_collection += 1
        if not busy or self._since_collection >= _COLLECT_SECONDS:
            self._since_collection = 0
            gc.collect(1)

    async def _look_at_files(self) -> None:
        """The certificate may have been renewed."""
        if self.tls is not None:
            await asyncio.to_thread(self.tls.look)

    async def _look_at_nsqd(self) -> None:
        """What waits for nsqd's answers."""
        if self.draining:
            return
        await self.watch.check(self.topics)
        if not self.watch.is_away:
            self._open_tcp()

    async def _look_often(self) -> None:
        """What a second would be too coarse for."""
        self.heartbeats.tick(monotonic_ns())
        self.deliveries.match()

    async def _bound_partials(self) -> None:
        """Half-received commands and answers that nobody reads may not fill the memory: the
        biggest holders go first."""
        senders = [*await self.http.look(), *self.clients, *self.uploads]
        most = self.options.max_partial_bytes
        held = sum(each.partial_bytes for each in senders)
        if held <= most:
            return
        for each in sorted(senders, key=lambda each: each.partial_bytes, reverse=True):
            if held <= most:
                break
            held -= each.partial_bytes
            each.close()
