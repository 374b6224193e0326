"""A consumer's word with its controller, in a thread of its own: beats, and what is read.

The work goes on in the main thread for as long as the lease holds, whether a controller is there or
not.
"""

import logging
import os
import threading
import uuid
from collections.abc import Mapping

from srtm.consumer.file import GroupFile
from srtm.consumer.ledger import Ledger
from srtm.consumer.log import GroupLog
from srtm.consumer.member import Member
from srtm.consumer.process import LAUNCH, here
from srtm.consumer.topic import UNCOMPACTED_SECONDS, make_topic
from srtm.consumer.wire import Command, PartitionPlan
from srtm.host.clock import NS, boottime_ns

log = logging.getLogger("srtm.consumer")

BEATS_IN_A_LEASE = 5
"""Four may be lost or late before it ends."""
_READ_SECONDS = 0.1


class Membership:
    """Commands are carried out by the main thread: `wanted` gives the newest, `done` reports it."""

    def __init__(self, file: GroupFile) -> None:
        self._file = file
        self._launch = os.environ.get(LAUNCH, "")
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._beat_ns = 0
        self._leader_ns = 0
        self._leader_beats = 0
        self._figures: tuple[float, int, str] = (0.0, 0, "")
        self._member = self._begin(Ledger())

    def _begin(self, ledger: Ledger) -> Member:
        return Member(
            name=f"{self._launch or 'consumer'}-{uuid.uuid4().hex[:12]}",
            launch=self._launch,
            process=here(),
            lease_seconds=self._file.group.lease,
            missed_seconds=UNCOMPACTED_SECONDS / 2,
            joined_ns=boottime_ns(),
            ledger=ledger,
        )

    def start(self) -> None:
        """Raises UnavailableError."""
        make_topic(self._file)
        self._log = GroupLog(self._file, f"{self.name}-words", keeps=True)
        self._thread = threading.Thread(target=self._run, name="membership", daemon=True)
        self._thread.start()

    # --- the main thread --------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._member.name

    @property
    def out(self) -> str:
        """Why it has lost its place; "" while it has one."""
        return self._member.out

    @property
    def fault(self) -> str:
        """What is wrong with the group's topic; "" while nothing is known to be."""
        return self._log.fault

    @property
    def version(self) -> int:
        """The version of the last command that was carried out."""
        return self._member.version

    @property
    def alive(self) -> bool:
        """False where its thread has failed: nothing is said or heard any more."""
        return self._thread.is_alive() or self._over.is_set()

    def wanted(self) -> Command | None:
        return self._member.wanted

    @property
    def plan(self) -> PartitionPlan | None:
        """The newest that was read."""
        return self._member.ledger.plan

    @property
    def leader_is_away(self) -> bool:
        """Was nobody heard who leads, for two leases?"""
        return boottime_ns() - self._leader_ns > 2 * self._file.group.lease * NS

    def holds(self) -> bool:
        """May the work go on?"""
        return self._member.holds(boottime_ns())

    def done(self, version: int, has: Mapping[int, int]) -> None:
        """`version` is carried out; said at once."""
        with self._lock:
            self._member.done(version, has)
            self._say()

    def figures(self, mu: float, served: int, fault: str) -> None:
        """Set the figures for the next beat."""
        self._figures = (mu, served, fault[:2000])

    def rejoin(self) -> None:
        """Everything was given up; come back as somebody new."""
        with self._lock:
            log.warning("%s is out (%s); it comes back with nothing", self.name, self.out)
            self._log.end(self.name)
            self._member = self._begin(self._member.ledger)
            self._say()

    def leave(self) -> None:
        """The last word. Everything was committed and given up."""
        self._over.set()
        self._thread.join(5)
        with self._lock:
            self._say(gone=True)
        self._log.close()

    # --- its own thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        every = round(self._file.group.lease * NS) // BEATS_IN_A_LEASE
        while not self._over.is_set():
            words = self._log.read(min(_READ_SECONDS, every / NS))
            with self._lock:
                if self._log.begun_anew:
                    self._log.begun_anew = False
                    known = self._member.ledger
                    self._member.ledger = Ledger(epoch=known.epoch, version=known.version)
                    self._member.end("the group's topic was made anew")
                for word in words:
                    self._member.see(word)
                now = boottime_ns()
                if self._member.ledger.leader_beats != self._leader_beats:
                    self._leader_beats = self._member.ledger.leader_beats
                    self._leader_ns = now
                self._member.look(now)
                if now - self._beat_ns >= every:
                    self._say()

    def _say(self, gone: bool = False) -> None:
        if self._member.out:
            return
        self._beat_ns = boottime_ns()
        mu, served, fault = self._figures
        self._log.write(self._member.report(self._beat_ns, mu, served, fault, gone))
