"""The distributor as a process: leads when the store lets it, serves, stops on SIGTERM."""

import asyncio
import gc
import logging
import signal
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tornado.netutil import bind_sockets

from distributor.control import fittings, migrations, newcomers
from distributor.control.committer import Committer
from distributor.control.restored import restored
from distributor.control.service import Distributor
from distributor.control.state import ControlState
from distributor.errors import NotLeading
from distributor.http.connections import Connections, room_for_connections
from distributor.http.door import Door
from distributor.http.handler import Shared
from distributor.http.handlers import application
from distributor.http.replica import Replica
from distributor.options import DistributorOptions
from distributor.store import Store, StoreError, open_store, this_process
from distributor.store.statements import put_lease, put_lineage
from srtm.host.audit_log import AuditLog
from srtm.host.certificates import LOOK_SECONDS, Renewed
from srtm.host.clock import NS, WallClock, boottime_ns, monotonic_ns
from srtm.http.access import Access
from srtm.text.address import cannot_listen
from srtm.text.errors import SrtmError

log = logging.getLogger("srtm.distributor")
Result = TypeVar("Result")

_SILENT_SECONDS = 5.0
"""at least, or half a lease, after which a leader that has asked the store nothing is unseated"""
_ASK_SECONDS = 1.0
"""how often the store is asked who leads, or six times in a shorter lease: reports are refused when
the last answer is older than a third of it"""
_ADAPT_SECONDS = 0.1
_BACKLOG = 4096
"""connections that the kernel keeps until they are accepted: thousands come at once after a start;
net.core.somaxconn may be less"""


def now_seconds() -> float:
    """Counted on while the machine is suspended: leases end meanwhile, and another may lead."""
    return boottime_ns() / NS


def wall_seconds() -> float:
    return (monotonic_ns() + WallClock().offset_ns) / NS


class Server:
    """Opens the store and reads its files at once, so that a wrong one is told at the start."""

    def __init__(self, options: DistributorOptions) -> None:
        self._options = options
        self._tls = Renewed.of(options.tls_files)
        self._access = Access(
            options.token_file, "--token-file", log, options.requires_certificates
        )
        self._audit = AuditLog(options.audit_log, "--audit-log", log) if options.audit_log else None
        self._thread = ThreadPoolExecutor(1, "store")
        self._store: Store | None = open_store(options.store)
        self._service: Distributor | None = None
        self._replica = Replica(options.store, options.lease_duration, now_seconds, wall_seconds)
        self._why_not = "it is starting"
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises UnavailableError where it cannot listen."""
        connections = Connections(room_for_connections())
        gc.set_threshold(100_000, 20, 50)  # publishers are values without cycles, in great number
        options, loop = self._options, asyncio.get_running_loop()
        address = options.http_address
        try:
            sockets = bind_sockets(address.port, address.host, backlog=_BACKLOG)
        except OSError as error:
            raise cannot_listen(f"--http-address {address}", error) from None
        shared = Shared(
            connections, self._access, self._audit, self._tls, wall_seconds, self._replica
        )
        server = Door(application(self._leading, shared), connections, self._tls)
        server.add_sockets(sockets)
        self._warn()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopped.set)
        leading = asyncio.create_task(self._lead_forever())
        adapting = asyncio.create_task(self._adapt_forever())
        settling = asyncio.create_task(self._settle_forever())
        looking = asyncio.create_task(self._look_forever(server))
        stop = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait([leading, stop], return_when=asyncio.FIRST_COMPLETED)
            if leading.done():
                leading.result()
        finally:
            leading.cancel()
            adapting.cancel()
            settling.cancel()
            looking.cancel()
            if self._service is not None:
                fittings.cancel(self._service)  # what goes on would find the store closed
            server.stop()
            await server.close_all_connections()
            self._thread.shutdown()
            self._replica.close()
            if self._store is not None:
                self._store.close()

    def _warn(self) -> None:
        """Log settings that work and are hardly meant."""
        address = self._options.http_address
        if self._tls is None and not address.is_local:
            log.warning("tokens come to %s in clear text: give --tls-cert and --tls-key", address)
        if not self._access.has_operator:
            log.warning(
                "nobody may register topics: name a caller of role operator in --token-file"
            )

    def _leading(self) -> Distributor:
        if self._service is None:
            raise NotLeading(f"this distributor does not lead: {self._why_not}; ask again")
        return self._service

    async def _lead_forever(self) -> None:
        while True:
            try:
                if self._service is None:
                    await self._try_to_lead()
                else:
                    asked_at = now_seconds()
                    await self._off(self._sure().confirm)
                    self._service.confirmed_at = asked_at
            except SrtmError as error:
                self._step_down(str(error))
            except Exception as error:
                log.exception("the store failed")
                self._step_down(f"the store failed ({error})")
            await asyncio.sleep(min(_ASK_SECONDS, self._options.lease_duration / 6))

    async def _look_forever(self, server: Door) -> None:
        """Follow the files of certificates and callers."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._tls is not None:
                server.renew(self._tls)
            self._access.look()

    async def _adapt_forever(self) -> None:
        while True:
            await asyncio.sleep(_ADAPT_SECONDS)
            if self._service is not None:
                service = self._service
                done = await self._tried("shares stay as they are", service.adapt())
                # Whatever is wrong with the one does not end the other.
                done &= await self._tried("publishers stay", migrations.decide(service))
                if not done:
                    await asyncio.sleep(_ASK_SECONDS)

    async def _settle_forever(self) -> None:
        """Grant again once gateways have been heard, and place who registers later. Either may wait
        long for placements that others ask for; that we lead is confirmed meanwhile."""
        while True:
            await asyncio.sleep(min(_ASK_SECONDS, self._options.lease_duration / 6))
            if self._service is not None:
                await self._tried("nothing is granted", self._service.settle())
            if self._service is not None:
                await self._tried("publishers wait", newcomers.retry(self._service))

    async def _tried(self, otherwise: str, doing: Awaitable[None]) -> bool:
        try:
            await doing
        except SrtmError as error:
            log.warning("%s: %s", otherwise, error)
        except Exception:
            log.exception("%s", otherwise)
        else:
            return True
        return False

    async def _try_to_lead(self) -> None:
        if self._store is None:
            self._store = await self._off(open_store, self._options.store)
        lease = self._options.lease_duration
        if not await self._off(self._sure().lead, this_process(str(self._options.http_address))):
            if await self._off(self._sure().unseat, max(_SILENT_SECONDS, lease / 2)):
                log.warning("%s was silent: it leads no more", await self._off(self._leader))
                return
            why = f"{await self._off(self._leader)} has the store"
            if why != self._why_not:
                log.info("waits until it may lead: %s", why)
            self._why_not = why
            return
        store = self._sure()
        kept = await self._off(store.snapshot)
        # Whoever led before gave leases until it noticed that it does not: a third of one.
        longest = max(lease, kept.lease_seconds)
        state = restored(kept, now_seconds() + longest * 4 / 3)
        first = [put_lease(longest)]
        if kept.lineage is None:
            first += put_lineage(state.lineage_row())
        await self._off(store.write, first)
        self._lead(store, state, longest)

    def _lead(self, store: Store, state: ControlState, longest_lease: float) -> None:
        """Lead from this state on. longest_lease: seconds, of those that leaders before may have
        given, or of ours."""

        def lost(error: StoreError) -> None:
            """The outcome of a write is unknown: forget what is in memory, and read it again."""
            if self._store is store:
                self._step_down(str(error))

        self._service = Distributor(
            state,
            Committer(store, self._thread, lost),
            self._options.lease_duration,
            now_seconds,
            wall_seconds,
            self._options.unplaced,
            self._options.forget,
            longest_lease,
        )
        self._replica.forget()
        fittings.resume(self._service)
        if self._options.forget:
            log.warning("--forget: what gateways know by another store counts for nothing")
        log.info(
            "leads: %d brokers, %d topics, epoch %d",
            len(state.gateways),
            len(state.topics),
            state.epoch,
        )

    def _step_down(self, why: str) -> None:
        if self._service is not None or why != self._why_not:
            log.warning("does not lead: %s", why)
        self._why_not = why
        if self._service is not None:
            self._service.watches.end_all()
            fittings.cancel(self._service)
            self._service = None
        store, self._store = self._store, None
        if store is not None:
            self._thread.submit(store.close)

    def _leader(self) -> str:
        try:
            return self._sure().leader()
        except StoreError:  # it makes the tables at this moment
            return "another one"

    def _sure(self) -> Store:
        if self._store is None:
            raise NotLeading("the store is closed")
        return self._store

    async def _off(self, call: Callable[..., Result], *arguments: object) -> Result:
        """The store's calls, in its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)
