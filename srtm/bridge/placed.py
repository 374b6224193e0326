"""Where a route publishes, as the Load Distributor says it: the route's lanes are publishers like
any other, with an id, a key and a rate."""

import asyncio
import logging
import threading
from collections.abc import Sequence

from srtm.bridge.file import Route
from srtm.bridge.nsq_sink import Publisher
from srtm.client.place import Place
from srtm.client.watch import join, leave
from srtm.http.service import distributor_files, service_at
from srtm.text.errors import SrtmError

log = logging.getLogger("srtm.bridge")


class _Member:
    """One lane, for the watch."""

    def __init__(self, id: str, key: str, rate: float | None, lane: Publisher) -> None:
        self.id = id
        self.key: str | None = key
        self.rate = rate
        self._lane = lane
        self._place = Place("")

    def placed(self, place: Place) -> None:
        if place.epoch >= self._place.epoch and place.address:
            self._place = place
            self._lane.move(place.address)

    def unplaced(self) -> None:
        self._lane.reason = "the distributor has no broker for it yet"

    def unanswered(self, why: str) -> None:
        """The lanes go on as they are; the watch has logged why."""

    def failed(self, error: SrtmError) -> bool:
        """Show the error. It is never the end of the member: the topic may be made, or the token be
        given, later."""
        if self._lane.reason != str(error):
            log.error("%s", error)
        self._lane.reason = str(error)
        return False


class Placed:
    """The places of all lanes of a route, followed in a loop of its own, as the watch is
    asyncio's."""

    def __init__(self, route: Route, bridge: str) -> None:
        """Raises UsageError for a file that cannot be read."""
        files = distributor_files(route)
        self._endpoint = service_at(route.distributor, files, "distributor-token-file")
        self._route = route
        self._bridge = bridge
        self._loop: asyncio.AbstractEventLoop | None = None
        self._members: list[_Member] = []

    def start(self, lanes: Sequence[Publisher]) -> None:
        route = self._route
        rate = route.rate / len(lanes) if route.rate else None
        name = f"{self._bridge}.{route.name}"
        for lane in lanes:
            lane.reason = f"the distributor at {route.distributor} has named no gateway yet"
        self._members = [
            # They read one Kafka topic, and so burst together: one key spreads them over brokers.
            _Member(f"{name}-{number}", name, rate, lane)
            for number, lane in enumerate(lanes)
        ]
        started = threading.Event()
        threading.Thread(
            target=self._run, args=(started,), name=f"places {name}", daemon=True
        ).start()
        started.wait(5)

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self, started: threading.Event) -> None:
        loop = self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        loop.call_soon(self._join)
        loop.call_soon(started.set)
        loop.run_forever()
        for member in self._members:
            loop.call_soon(leave, self._endpoint, self._route.one_target, member)
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*pending, asyncio.sleep(0), return_exceptions=True))
        loop.close()

    def _join(self) -> None:
        for member in self._members:
            try:
                join(self._endpoint, self._route.one_target, member)
            except SrtmError as error:
                member.failed(error)
