"""The SLO that a group or pool is to keep: its file's, or the one that a journey wants."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from srtm.consumer.scaled_file import ScaledFile
from srtm.http.legs import Legs
from srtm.http.service import service_at
from srtm.limits.slo import SLO

log = logging.getLogger("srtm.autoscale")


class Wanted:
    """slo: replaced by another thread where [consumer] names a journey"""

    def __init__(self, file: ScaledFile, path: Path, told: Callable[[], dict[str, Any]]) -> None:
        """told: what the journey is told of the consumers (figures.leg_of). Raises UsageError for
        files that cannot be read."""
        self.slo = self._own = file.group.slo
        self._legs: Legs | None = None
        table = file.consumer
        if table is not None and table.journey_address:
            where = f"{path}: journey-token-file of [consumer]"
            journeys = service_at(table.journey_address, table.journey_files, where)
            self._legs = Legs(journeys, lambda: [told()], self._take, log)

    def start(self) -> None:
        if self._legs is not None:
            self._legs.start()

    def close(self) -> None:
        if self._legs is not None:
            self._legs.close()

    def _take(self, wanted: Sequence[SLO | None]) -> None:
        slo = wanted[0] or self._own
        if slo.window_seconds is not None:  # a budget needs one, and journeys always say it
            self.slo = slo
