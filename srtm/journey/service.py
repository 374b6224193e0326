"""`srtm journey run`: measures the journeys of a file, and tells what it finds at its door."""

import asyncio
import logging
import math
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from srtm import __version__
from srtm.host.clock import NS, boot_id, monotonic_ns
from srtm.host.offsets import SAME, Offset
from srtm.http.metrics import Text
from srtm.http.status import listen
from srtm.journey.ages import Ages
from srtm.journey.causes import Leg
from srtm.journey.consumers import Consumers
from srtm.journey.file import Journey, Journeys
from srtm.journey.gateways import Gateways
from srtm.journey.metrics import metrics
from srtm.journey.numbers import MOST_COUNT, whole
from srtm.journey.rates import Rates
from srtm.journey.summary import Summary, summarised
from srtm.limits.rolling import RollingBudget
from srtm.text.address import cannot_listen
from srtm.text.errors import Exit

log = logging.getLogger("srtm.journey")

_TICK_SECONDS = 1.0
_MINUTE_SECONDS = 60.0
NOTHING: Any = {"count": 0, "level": 0, "bridge": {}, "consumer": {}, "samples": []}
"""what a consumer tells of a topic of which it had nothing"""


class Measured:
    """One journey while it is measured."""

    def __init__(self, journey: Journey) -> None:
        self.journey = journey
        self.ages = Ages(round(journey.slo.target_seconds * NS))
        self.budget = RollingBudget(journey.slo)
        window = max(_MINUTE_SECONDS, 2 * journey.slo.target_seconds)
        self.minute = RollingBudget(replace(journey.slo, window_seconds=window))
        self.rates = Rates()
        self.gateways = Gateways(journey, self._arrived)
        self._summary: Summary | None = None
        self._summarised_at = 0
        self.consumers = Consumers()
        self.legs = (Leg.BROKER, *([Leg.BRIDGE] if journey.route else []), Leg.CONSUMER)

    def _arrived(self, document: Any, clock: Offset) -> None:
        """Raises ValueError."""
        self.ages.arrived(document, clock)
        self.rates.add(document)

    def tick(self, now: int) -> None:
        self.ages.settle(now)
        served, late = self.ages.take_late()
        for budget in (self.budget, self.minute):
            budget.add(now / NS, served, late)

    @property
    def fault(self) -> str:
        """Why less is known than could be; "" when all is well."""
        if self.gateways.fault:
            return self.gateways.fault
        if not self.consumers.present(monotonic_ns()):
            return (
                "no consumer tells of its messages: give [consumer] of its file journey-address, "
                "and start it"
            )
        return ""

    def summary(self, now: int) -> Summary:
        """Made once a second, however many ask."""
        if self._summary is None or now - self._summarised_at >= NS:
            self._summary = summarised(self.ages, self.legs, self.budget, self.minute, now)
            self._summarised_at = now
        return self._summary

    def document(self, now: int) -> dict[str, Any]:
        ages = self.ages
        return {
            "journey": self.journey.name,
            "topic": self.journey.topic,
            "slo": str(self.journey.slo),
            "fault": self.fault,
            "consumers": self.consumers.present(now),
            "gateways": self.gateways.faults,
            "message_count": ages.count,
            "matched_count": ages.matched,
            "unmatched_count": ages.unmatched,
            "lost_count": self.consumers.lost,
            "unknown_count": self.consumers.unknown,
            "clock_error_seconds": ages.clock_error_ns / NS,
            **_finite(self.summary(now).document()),
            "rates": self.rates.last(time.time_ns()),
            "bins": {leg: self.ages.legs[leg].recent_bins(now) for leg in self.legs},
        }


class Service:
    def __init__(self, journeys: Journeys, path: Path) -> None:
        self._table = journeys.table
        self._path = path
        self._began = time.time()
        self.measured = [Measured(journey) for journey in journeys.all]

    async def run(self) -> int:
        """Run until SIGTERM or SIGINT. Raises SrtmError."""
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        try:
            server = listen(self._table, self, {"/ages": self.take})
        except OSError as error:
            where = f"{self._path}: [journeys]: http-address {self._table.http_address}"
            raise cannot_listen(where, error) from None
        asked = [asyncio.create_task(each.gateways.run()) for each in self.measured]
        count = len(self.measured)
        log.info("%d journeys, HTTP at %s", count, self._table.http_address)
        while not ended.is_set():
            for each in self.measured:
                each.tick(monotonic_ns())
            try:
                await asyncio.wait_for(ended.wait(), _TICK_SECONDS)
            except TimeoutError:
                continue
        for task in asked:
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
            "journeys": [each.document(now) for each in self.measured],
        }

    def metrics(self) -> Text:
        return metrics(self.measured)


def _finite(found: Any) -> Any:
    """The document with null in place of what is not known: JSON has no NaN."""
    if isinstance(found, dict):
        return {key: _finite(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [_finite(value) for value in found]
    return None if isinstance(found, float) and not math.isfinite(found) else found
