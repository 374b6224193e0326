"""One member of a group: what it was told, what it has, and for how long. Pure: words and time come
in, reports go out.

Whoever is out (fenced, taken for ended, or without a word for so long that it could have missed a
fence) has nothing from that moment on, and never comes back under the same name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from srtm.consumer.lease import Lease
from srtm.consumer.ledger import Ledger
from srtm.consumer.process import Process
from srtm.consumer.wire import Command, Ended, Report, Word
from srtm.host.clock import NS


@dataclass(slots=True)
class Member:
    """out: why it is; "" while it is not
    missed_seconds: without a beat read back for so long, a fence may have been compacted away
    """

    name: str
    launch: str
    process: Process
    lease_seconds: float
    missed_seconds: float
    joined_ns: int
    out: str = ""
    ledger: Ledger = field(default_factory=Ledger)
    version: int = 0
    has: Mapping[int, int] = field(default_factory=dict)
    _lease: Lease = field(init=False)
    _told: Command | None = None
    _beat: int = 0

    def __post_init__(self) -> None:
        self._lease = Lease(self.lease_seconds)

    def see(self, word: Word) -> None:
        """The next word of the group's partition."""
        counts = self.ledger.apply(word)
        if self.out or word.name != self.name:
            return
        match word:
            case Command() if counts and word.fence:
                self.end("it was silent for too long, and fenced")
            case Ended():
                self.end("it was taken for ended")
            case Command() if counts:
                if self._told is None or word.version > self._told.version:
                    self._told = word
            case Report() if counts:
                self._lease.read_back(word.beat)
            case _:
                pass

    def end(self, why: str) -> None:
        self.out = why
        self._lease.end()

    def look(self, now_ns: int) -> None:
        """Put the member out if it has missed too much. Call it often."""
        since = max(self._lease.until_ns, self.joined_ns)
        if not self.out and now_ns - since > self.missed_seconds * NS:
            self.end("no word from the group's topic for minutes")

    def holds(self, now_ns: int) -> bool:
        """May it work with what it has?"""
        return not self.out and self._lease.holds(now_ns)

    @property
    def wanted(self) -> Command | None:
        """What is to be carried out; None: nothing new."""
        told = self._told
        return told if told is not None and told.version > self.version and not self.out else None

    def done(self, version: int, has: Mapping[int, int]) -> None:
        """`version` is carried out: it has `has`, partition -> token, and nothing else."""
        self.version, self.has = version, dict(has)

    def report(
        self,
        now_ns: int,
        mu: float = 0.0,
        served: int = 0,
        fault: str = "",
        gone: bool = False,
    ) -> Report:
        """A beat, to be written now."""
        self._beat += 1
        self._lease.sent(self._beat, now_ns)
        return Report(
            name=self.name,
            beat=self._beat,
            epoch=self.ledger.epoch,
            version=self.version,
            holds={} if gone else dict(self.has),
            launch=self.launch,
            place=self.process.place,
            pid=self.process.pid,
            begun=self.process.begun,
            mu=mu,
            served=served,
            fault=fault,
            gone=gone,
        )
