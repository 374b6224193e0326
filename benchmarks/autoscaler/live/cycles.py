"""One consumer of the product as a program, which writes down how long the parts of its cycles
take: FILE of its group, and OUT, to which each cycle adds a line.

The product times no phase but the one that it is in. So its figures are given a class of their own
here, which hears of each phase as it begins; all else is what `srtm consume` runs. The sink counts.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from srtm.consumer.batch import Batch, Record
from srtm.consumer.figures import Figures, Phase
from srtm.consumer.file import read_group_file
from srtm.consumer.function import Caller
from srtm.consumer.runner import Runner
from srtm.consumer.sinks import Callback
from srtm.consumer.work import Work


@dataclass(frozen=True, slots=True)
class Cycle:
    """size: bytes of its records' values; phases: seconds of each, by name. From one cycle's end to
    the next all time is some phase's."""

    size: int
    phases: dict[str, float]

    @property
    def seconds(self) -> float:
        return sum(self.phases.values())


def read_cycles(out: Path) -> list[Cycle]:
    """The cycles so far, in order; none before there is a file."""
    lines = out.read_text().splitlines() if out.exists() else []
    return [Cycle(*json.loads(line)) for line in lines]


class CycleFigures(Figures):
    """A consumer's figures, which write down each cycle."""

    def __init__(self, out: Path) -> None:
        super().__init__()
        self._out = out
        self._began = time.monotonic()
        self._phases = dict.fromkeys(map(str, Phase), 0.0)

    def enter(self, phase: Phase) -> None:
        now = time.monotonic()
        self._phases[self.phase] += now - self._began
        self._began = now
        super().enter(phase)

    def served(self, records: Sequence[Record], seconds: float) -> None:
        """The cycle's end: its records are committed."""
        before = self.bytes
        super().served(records, seconds)
        with self._out.open("a") as file:
            file.write(json.dumps([self.bytes - before, self._phases]) + "\n")
        self._phases = dict.fromkeys(self._phases, 0.0)


def _count(records: list[Record], batch: Batch) -> int:
    return sum(len(each.value or b"") for each in records)


def _run(file: Path, out: Path) -> int:
    group = read_group_file(file)
    table = group.consumer
    assert table is not None
    figures, call = CycleFigures(out), Caller(table.batch_timeout)
    work = Work(list, Callback(_count, call), call, figures)
    return Runner(group, table, work, figures).run()


if __name__ == "__main__":
    sys.exit(_run(*map(Path, sys.argv[1:])))
