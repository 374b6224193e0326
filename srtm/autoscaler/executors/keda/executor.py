"""Consumers that KEDA starts and ends: they are known by joining; nobody can choose who goes."""

import logging
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from srtm.autoscaler.executors.executor import Backoff
from srtm.autoscaler.executors.keda.advice import swallowed, waited
from srtm.consumer.file import ExecutorTable
from srtm.consumer.required import require_grpc

log = logging.getLogger("srtm.autoscale")


class Keda:
    restarts = True
    anonymous = True
    chooses = False

    def __init__(self, table: ExecutorTable, file: Path) -> None:
        """Listens. Raises SrtmError."""
        require_grpc()
        from srtm.autoscaler.executors.keda.server import ScalerServer  # an extra

        self._startup = table.startup
        self._wanted: int | None = None
        self._there = 0
        self._begun: dict[str, float] = {}
        self._backoff = Backoff()
        self._differs_since: float | None = None
        self._advice = ""
        self.server = ScalerServer(table, file, self)

    def replicas(self) -> int | None:
        """What KEDA is told."""
        return self._wanted

    def want(self, wanted: int, there: int) -> None:
        self._wanted, self._there = wanted, there

    def names(self, count: int) -> list[str]:
        return [f"launch-{uuid.uuid4().hex[:8]}" for _ in range(count)]

    def launch(self, at: float, ids: Sequence[str]) -> list[str]:
        self._begun.update(dict.fromkeys(ids, at))
        return []

    def joined(self, ids: Sequence[str]) -> None:
        if ids:
            self._backoff.succeed()
        for id_ in list(self._begun)[: len(ids)]:
            del self._begun[id_]

    def called_off(self, ids: Sequence[str]) -> None:
        for id_ in ids:
            self._begun.pop(id_, None)

    def end(self, at: float, ids: Sequence[str]) -> None:
        """KEDA ends whom it likes, when it likes; `want` has told it how many."""

    def staying(self, ids: Sequence[str], count: int) -> list[str]:
        return list(ids[:count])

    def running(self) -> None:
        return None

    def leaving(self) -> tuple[str, ...]:
        return ()

    def failed(self, at: float) -> Iterator[str]:
        self._advise(at)
        for id_, since in list(self._begun.items()):
            if at - since > self._startup:
                del self._begun[id_]
                self._backoff.fail(
                    at, "KEDA has started no consumer within the time that startup gives it"
                )
                yield id_

    def _advise(self, at: float) -> None:
        wanted = self._there if self._wanted is None else self._wanted
        if wanted == self._there:
            self._differs_since, self._advice = None, ""
            return
        self._differs_since = at if self._differs_since is None else self._differs_since
        advice = swallowed(self._there, wanted) or waited(
            self._there, wanted, at - self._differs_since
        )
        if advice and not self._advice:
            log.warning("%s", advice)
        self._advice = advice

    def backing_off(self, at: float) -> str:
        return self._backoff.told(at)

    def fault(self) -> str:
        return self._advice

    def close(self) -> None:
        self.server.close()
