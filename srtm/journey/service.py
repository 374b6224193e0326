"""`srtm journey run`: measures the journeys of a file, and tells what it finds at its door."""

import asyncio
import logging
import signal
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from srtm import __version__
from srtm.host.clock import boot_id, monotonic_ns
from srtm.host.offsets import SAME, Offset
from srtm.http.legs import MOST_LEGS
from srtm.http.legs import PATH as LEGS
from srtm.http.metrics import Text
from srtm.http.status import listen
from srtm.journey.check import check_files
from srtm.journey.file import Journeys
from srtm.journey.leg_report import read_leg
from srtm.journey.measured import Measured, by_place
from srtm.journey.metrics import metrics
from srtm.journey.numbers import MOST_COUNT, whole
from srtm.journey.splitter import Splitter
from srtm.journey.state import State
from srtm.text.address import cannot_listen
from srtm.text.errors import Exit
from srtm.text.words import counted

log = logging.getLogger("srtm.journey")

_TICK_SECONDS = 1.0
NOTHING: Any = {"count": 0, "level": 0, "bridge": {}, "consumer": {}, "samples": []}
"""what a consumer tells of a topic of which it had nothing"""


class Service:
    def __init__(self, journeys: Journeys, path: Path, deployment: str = "") -> None:
        """deployment: that holds the contracts of topics, where no distributor is named. Raises
        UsageError."""
        self._table = table = journeys.table
        self._path = path
        self._began = time.time()
        self.measured = [Measured(journey) for journey in journeys.all]
        self._at = by_place(self.measured)
        self._state = state = None
        if any(journey.split != "off" for journey in journeys.all):
            check_files(journeys, path)
            kept = path.parent / table.state_folder / f"{path.stem}.journeys.json"
            self._state = state = State(kept)
        self._splitter = Splitter(self.measured, state, table.owner(deployment))

    async def run(self) -> int:
        """Run until SIGTERM or SIGINT. Raises SrtmError."""
        with nullcontext() if self._state is None else self._state.alone():
            return await self._run()

    async def _run(self) -> int:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        try:
            server = listen(self._table, self, {"/ages": self.take, LEGS: self.take_legs})
        except OSError as error:
            where = f"{self._path}: [journeys]: http-address {self._table.http_address}"
            raise cannot_listen(where, error) from None
        tasks = [asyncio.create_task(each.gateways.run()) for each in self.measured]
        tasks.append(asyncio.create_task(self._splitter.run()))
        count = counted(len(self.measured), "journey")
        log.info("%s, HTTP at %s", count, self._table.http_address)
        while not ended.is_set():
            for each in self.measured:
                each.tick(monotonic_ns())
            try:
                await asyncio.wait_for(ended.wait(), _TICK_SECONDS)
            except TimeoutError:
                continue
        for task in tasks:
            task.cancel()
        server.stop()
        log.info("ended")
        return Exit.OK

    # --- for the HTTP door ----------------------------------------------------------------------

    def take(self, report: Any) -> dict[str, Any]:
        """A consumer's report. Raises ValueError."""
        try:
            where = str(report["topic"]), str(report.get("channel") or report["group"])
            name, topics = str(report["consumer"])[:200], dict(report["topics"])
            lost, unknown = (whole(report[each], 0, MOST_COUNT) for each in ("lost", "unknown"))
            clock = SAME if report["boot_id"] == boot_id() else None
            if clock is None and "clock" in report:
                clock = Offset.read(report["clock"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no report of a consumer: {error!r}") from None
        ending = {
            each.journey.topic: each for each in self.measured if each.journey.ends_at == where
        }
        if not ending:
            raise ValueError(
                f"no journey ends at topic {where[0]!a}, channel or group {where[1]!a}: add it to "
                f"{self._path.name}"
            )
        now = monotonic_ns()
        for topic, measured in ending.items():
            # What the first report of another host says cannot be told from its clock.
            told = NOTHING if clock is None else topics.get(topic, NOTHING)
            measured.ages.handled(told, clock or SAME, now)
            measured.consumers.told(name, lost, unknown, now)
        return {"boot_id": boot_id(), "wall_ns": time.time_ns(), "topics": sorted(ending)}

    def take_legs(self, report: Any) -> dict[str, Any]:
        """A program tells of its legs, and is told which SLOs they are to keep. Raises
        ValueError."""
        try:
            documents = list(report["legs"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"no report of legs: {error!r}") from None
        if len(documents) > MOST_LEGS:
            raise ValueError(f"{len(documents)} legs: {MOST_LEGS} at most")
        now, slos = monotonic_ns(), []
        for told in map(read_leg, documents):
            for each in self._at.get((told.leg, told.place), ()):
                if not told.stands_by:
                    each.told[told.leg] = told, now
            wanted = self._splitter.wanted(told.leg, told.place)
            slos.append(None if wanted is None else str(wanted))
        return {"slos": slos}

    def fault(self) -> str:
        for each in self.measured:
            if each.fault:
                return f"journey {each.journey.name}: {each.fault}"
        return ""

    def stats(self) -> dict[str, Any]:
        fault, now = self.fault(), monotonic_ns()
        return {
            "version": __version__,
            "health": f"NOK - {fault}" if fault else "OK",
            "start_time": int(self._began),
            "journeys": [
                {**each.document(now), "split": self._splitter.document(each)}
                for each in self.measured
            ],
        }

    def metrics(self) -> Text:
        return metrics(self.measured)
