"""Consumers that KEDA starts and ends: they are known by joining; nobody can choose who goes."""

import logging
from pathlib import Path

from srtm.autoscaler.executors.executor import Abilities, Fleet, Wanted
from srtm.autoscaler.executors.keda.advice import swallowed, waited
from srtm.consumer.file import ExecutorTable
from srtm.consumer.required import require_grpc

log = logging.getLogger("srtm.autoscale")

_LATE = "KEDA has started no consumer within the time that startup gives it"


class Keda:
    abilities = Abilities(restarts=True, anonymous=True, blind=True)

    def __init__(self, table: ExecutorTable, file: Path) -> None:
        """Listens. Raises SrtmError."""
        require_grpc()
        from srtm.autoscaler.executors.keda.server import ScalerServer  # an extra

        self._wanted = Wanted()
        self._differs_since: float | None = None
        self._advice = ""
        self.server = ScalerServer(table, file, self)

    def replicas(self) -> int | None:
        """What KEDA is told."""
        return self._wanted.count

    def want(self, at: float, wanted: Wanted) -> None:
        self._wanted = wanted
        there, count = wanted.there, wanted.count
        if count is None or count == there:
            self._differs_since, self._advice = None, ""
            return
        self._differs_since = at if self._differs_since is None else self._differs_since
        advice = swallowed(there, count) or waited(there, count, at - self._differs_since)
        if advice and not self._advice:
            log.warning("%s", advice)
        self._advice = advice

    def seen(self) -> Fleet:
        return Fleet(starting=dict.fromkeys(self._wanted.launches, _LATE), fault=self._advice)

    def close(self) -> None:
        self.server.close()
