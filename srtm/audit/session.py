"""What one process of a gateway logged of a topic. No I/O."""

from dataclasses import dataclass, field
from pathlib import Path

from srtm.audit.blocks import Admissions, Beat, Word

SUFFIX = ".admissions"
"""of a log's files: BROKER-NUMBER.admissions"""


@dataclass(frozen=True)
class Damage:
    """Bytes at the end of a file that are no whole block, and the time up to which it is whole.
    file: its number"""

    file: int
    unread_bytes: int
    since: int


@dataclass
class Session:
    """What one process of a gateway logged of a topic. Times are monotonic ns of its host.

    words:      the topic's limits, each from a time on
    admissions: as blocks have them
    dropped:    (since, until, messages of all topics)
    beats:      the first one, and each with another offset or error than the one before; none:
                nothing of it can be placed in time
    until:      all that was decided before is in the log, or counted in `dropped`
    ended:      the gateway said so; else it was killed, or still runs
    """

    broker: str
    boot: str
    process: str
    files: list[int] = field(default_factory=list)
    words: list[tuple[int, Word]] = field(default_factory=list)
    admissions: list[Admissions] = field(default_factory=list)
    dropped: list[tuple[int, int, int]] = field(default_factory=list)
    beats: list[Beat] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    began: int = 0
    until: int = 0
    ended: bool = False

    @property
    def messages(self) -> int:
        return sum(int(each.counts.sum()) for each in self.admissions)


def number_of(file: Path) -> int:
    """Its place in the row of its broker's files."""
    return int(file.name.removesuffix(SUFFIX).rpartition("-")[2])
