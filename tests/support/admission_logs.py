"""Admission logs as a gateway writes them, without a gateway: time passed in."""

from collections.abc import Callable
from pathlib import Path

from srtm.audit import blocks
from srtm.audit.blocks import Rule, Word
from srtm.audit.session import SUFFIX
from srtm.gateway.measure.admissions import AdmissionLog


class Disk:
    """`LogFiles` of one process without a thread; `takes` False: it takes nothing for now."""

    def __init__(
        self,
        folder: Path,
        broker: str = "b1",
        process: str = "p1",
        number: int = 1,
        boot: str = "one",
        file_bytes: int = 1 << 30,
    ) -> None:
        self.takes = True
        self._folder, self._broker, self._process = folder, broker, process
        self._number, self._boot, self._file_bytes = number, boot, file_bytes
        self._folder.mkdir(parents=True, exist_ok=True)
        self._written = 0
        self._append(blocks.header(broker, boot, process, number))

    @property
    def path(self) -> Path:
        return self._folder / f"{self._broker}-{self._number:08d}{SUFFIX}"

    @property
    def is_due(self) -> bool:
        return self._written >= self._file_bytes

    def put(self, chunk: bytes, in_new_file: bool) -> bool:
        if not self.takes:
            return False
        if in_new_file:
            self._number += 1
            self._written = 0
            self._append(blocks.header(self._broker, self._boot, self._process, self._number))
        self._append(chunk)
        return True

    def _append(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)
        self._written += len(data)


def never(when: int, alarm: Callable[[int], None]) -> None:
    """No alarm: a test flushes by hand."""


def log_of(disk: Disk) -> AdmissionLog:
    return AdmissionLog(disk, never)


def own(rate: float, burst: float) -> Word:
    return Word(Rule.OWN, rate, burst)


def share(rate: float, burst: float, whole: tuple[float, float], epoch: int = 1) -> Word:
    return Word(Rule.SHARE, rate, burst, *whole, epoch)


def floor(rate: float, burst: float, whole: tuple[float, float], epoch: int = 1) -> Word:
    """What is left of a share without contact."""
    return share(rate, burst, whole, epoch)._replace(rule=Rule.FLOOR)
