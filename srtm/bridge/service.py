"""`srtm bridge run`: all routes of a file, its HTTP door, its signals."""

import asyncio
import gc
import logging
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from srtm import __version__
from srtm.bridge.check import check_settings
from srtm.bridge.figures import State
from srtm.bridge.file import BridgeFile, Route, read_bridge_file
from srtm.bridge.http import metrics, open_door
from srtm.bridge.kafka_to_nsq import KafkaToNsq
from srtm.bridge.lookup import topics_of
from srtm.bridge.nsq_to_kafka import NsqToKafka
from srtm.bridge.placed import Placed
from srtm.bridge.runner import Runner
from srtm.http.legs import Legs
from srtm.http.metrics import Text
from srtm.http.service import service_at
from srtm.limits.slo import SLO
from srtm.text.errors import Exit, UnavailableError, UsageError

log = logging.getLogger("srtm.bridge")

_WATCH_SECONDS = 0.2
_GC_OBJECTS = 100_000
"""Thousands of records are held at a time. With Python's own 700 the collector looks through them
again and again, for a sixth of the time of a route to NSQ."""
_TOPICS_SECONDS = 5.0
_LEAVE_SECONDS = 6.0
"""How long routes may take, after the drain, to leave their group, and their channels, with servers
that may be hung."""
MAX_TOPICS = 200
"""The most topics that one pattern may take: each has a thread and a producer."""


class Service:
    def __init__(self, path: Path, file: BridgeFile) -> None:
        self._path = path
        self._file = file
        self._runners: dict[tuple[str, str], Runner] = {}  # by route and, of a pattern, topic
        self._wanted: dict[tuple[str, str], SLO] = {}  # in place of its route's, by runner
        self._told: list[tuple[str, str]] = []  # runners of which the journeys were told last
        self._refused: set[str] = set()
        self._blind: dict[str, str] = {}  # patterns of which no nsqlookupd tells the topics: why
        self._lock = threading.Lock()  # a SIGHUP and a pattern's topics may change runners
        self._changing = threading.Lock()  # held by who ends runners and starts others for them
        self._began = time.time()
        self._over = threading.Event()

    async def run(self) -> int:
        """Run the bridge until SIGTERM or SIGINT, or until every route has stopped. Returns the
        exit code."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        again = asyncio.Event()
        loop.add_signal_handler(signal.SIGHUP, again.set)
        door = open_door(self._file.bridge, self)
        for route in self._file.routes:
            self._begin(route)
        patterns = threading.Thread(target=self._follow_patterns, daemon=True)
        patterns.start()
        legs = self._legs()
        log.info("%d routes, HTTP at %s", len(self._file.routes), self._file.bridge.http_address)
        while not ended.is_set():
            await asyncio.sleep(_WATCH_SECONDS)
            if again.is_set():
                again.clear()
                await loop.run_in_executor(None, self._read_again)
            if self._all_stopped():
                log.error("every route has stopped; the bridge ends")
                break
        failed = self._all_stopped()
        self._over.set()
        if legs is not None:
            await loop.run_in_executor(None, legs.close)
        if not failed:
            log.info("drains what is under way, for at most %gs", self._file.bridge.drain_timeout)
        with self._lock:
            runners = dict(self._runners)
        await loop.run_in_executor(None, self._stop, runners)
        log.info("ended")
        door.stop()
        return Exit.FAILED if failed else Exit.OK

    # --- routes ---------------------------------------------------------------------------------

    def _begin(self, route: Route) -> None:
        if not (route.source.system == "nsq" and route.source.is_pattern):
            self._start(route, "")

    def _start(self, route: Route, topic: str) -> None:
        file = self._file
        kafka, bridge = file.kafka, file.bridge
        runner: Runner
        if route.source.system == "nsq":
            slo = self._wanted.get((route.name, topic), route.slo)
            aimed = route.model_copy(update={"slo": slo})
            runner = NsqToKafka(aimed, kafka, bridge.name, bridge.drain_timeout, topic)
        else:
            placed = Placed(route, bridge.name) if route.distributor else None
            runner = KafkaToNsq(route, kafka, bridge.name, bridge.drain_timeout, placed)
        with self._lock:
            if file is not self._file or route not in file.routes:
                return  # SIGHUP came meanwhile; what still is to run is found anew
            if (route.name, topic) in self._runners:
                return  # whoever was first has started it
            self._runners[route.name, topic] = runner
        runner.start()

    def _stop(self, runners: dict[tuple[str, str], Runner]) -> None:
        """Drain them, all at once."""
        for runner in runners.values():
            runner.ask_stop()
        until = time.monotonic() + self._file.bridge.drain_timeout + _LEAVE_SECONDS
        for (name, _), runner in runners.items():
            if not runner.join(max(until - time.monotonic(), 0.1)):
                log.error("route %s does not end; what it holds comes again", name)

    def _all_stopped(self) -> bool:
        runners = self.runners()
        waits = any(route.source.is_pattern for route in self._file.routes)
        return (
            bool(runners)
            and not waits
            and all(each.figures.state is State.STOPPED for each in runners)
        )

    def _read_again(self) -> None:
        """SIGHUP: only routes that changed are touched."""
        try:
            file = read_bridge_file(self._path)
            check_settings(file, str(self._path))
        except UsageError as error:
            log.error("%s; the routes go on as they are", error)
            return
        if file.bridge != self._file.bridge:
            log.warning("[bridge] has changed: that takes a restart")
            file = file.model_copy(update={"bridge": self._file.bridge})
        with self._changing:
            gone, started = self._replace(file)
        log.info("%s read again: %d ended, %d started", self._path, gone, started)

    def _replace(self, file: BridgeFile) -> tuple[int, int]:
        """Run the file's routes in place of what runs; how many ended, and how many started."""
        all_anew = file.kafka != self._file.kafka
        before = {route.name: route for route in self._file.routes}
        after = {route.name: route for route in file.routes}
        with self._lock:
            self._file = file
            gone = {
                key: runner
                for key, runner in self._runners.items()
                if all_anew or after.get(key[0]) != before.get(key[0]) or not runner.alive
            }
        self._stop(gone)
        with self._lock:
            for key in gone:
                del self._runners[key]
            running = {name for name, _ in self._runners}
        started = [route for route in file.routes if route.name not in running]
        for route in started:
            self._begin(route)
        return len(gone), len(started)

    # --- what journeys want ---------------------------------------------------------------------

    def _legs(self) -> Legs | None:
        """Who asks the journeys, where [bridge] names them. Raises UsageError."""
        bridge = self._file.bridge
        if not bridge.journey_address:
            return None
        where = f"{self._path}: journey-token-file of [bridge]"
        journeys = service_at(bridge.journey_address, bridge.journey_files, where)
        legs = Legs(journeys, self._tell, self._aim, log)
        legs.start()
        return legs

    def _tell(self) -> list[dict[str, Any]]:
        with self._lock:
            found = [
                (key, runner)
                for key, runner in self._runners.items()
                if isinstance(runner, NsqToKafka)
            ]
        self._told = [key for key, _ in found]
        return [runner.leg() for _, runner in found]

    def _aim(self, wanted: Sequence[SLO | None]) -> None:
        """Routes whose SLO is another one now drain and begin anew with it."""
        for key, slo in zip(self._told, wanted, strict=False):
            with self._changing:
                self._aim_one(key, slo)

    def _aim_one(self, key: tuple[str, str], slo: SLO | None) -> None:
        with self._lock:
            route = next((each for each in self._file.routes if each.name == key[0]), None)
            runner = self._runners.get(key)
            if slo is None:
                self._wanted.pop(key, None)
            else:
                self._wanted[key] = slo
        if route is None or runner is None or runner.route.slo == (slo or route.slo):
            return
        whose = "its file says" if slo is None else "the journey wants it"
        log.info("route %s: SLO %s, as %s", runner.label, slo or route.slo, whose)
        self._stop({key: runner})
        if self._over.is_set():
            return
        with self._lock:
            del self._runners[key]
        self._start(route, key[1])

    def _follow_patterns(self) -> None:
        """New topics of NSQ that a pattern takes in."""
        while not self._over.is_set():
            for route in self._file.routes:
                if route.source.system == "nsq" and route.source.is_pattern:
                    self._follow(route)
            self._over.wait(_TOPICS_SECONDS)

    def _follow(self, route: Route) -> None:
        found: set[str] = set()
        answers, why = 0, ""
        for lookupd in route.lookupd:
            try:
                found |= topics_of(lookupd)
                answers += 1
            except UnavailableError as error:
                why = str(error)
                self._once(f"route {route.name}: {why}; start it, or mend lookupd of the route")
        if answers:
            self._blind.pop(route.name, None)
        else:
            self._blind[route.name] = why
        with self._lock:
            known = {topic for name, topic in self._runners if name == route.name}
        for topic in sorted(found - known):
            if not route.source.matches(topic):
                continue
            fault = route.target.fault(route.target.of(topic))
            if fault:
                self._once(f"route {route.name}: topic {topic} is not taken: {fault}")
            elif len(known) >= MAX_TOPICS:
                self._once(f"route {route.name}: more than {MAX_TOPICS} topics; divide its pattern")
            elif not self._over.is_set():
                self._start(route, topic)
                known.add(topic)

    def _once(self, line: str) -> None:
        if line not in self._refused and len(self._refused) < 10_000:
            self._refused.add(line)
            log.warning(line)

    # --- for the HTTP door ----------------------------------------------------------------------

    def runners(self) -> list[Runner]:
        with self._lock:
            return list(self._runners.values())

    def metrics(self) -> Text:
        return metrics(self.runners())

    def fault(self) -> str:
        """Why it is not ready; "" when it is."""
        for runner in self.runners():
            if runner.figures.state is not State.RUNNING:
                why = runner.figures.reason or runner.figures.state
                return f"route {runner.label}: {why}"
        patterns = {route.name for route in self._file.routes if route.source.is_pattern}
        for name, why in list(self._blind.items()):
            if name in patterns:
                return f"route {name}: {why}"
        return ""

    def stats(self) -> dict[str, Any]:
        fault = self.fault()
        return {
            "version": __version__,
            "health": f"NOK - {fault}" if fault else "OK",
            "start_time": int(self._began),
            "routes": [each.document() for each in self.runners()],
        }


def run(path: Path) -> int:
    """The exit code. Raises SrtmError."""
    file = read_bridge_file(path)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_OBJECTS)
    return asyncio.run(Service(path, file).run())
