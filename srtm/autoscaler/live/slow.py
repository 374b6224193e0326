"""Consumers that were told to leave and do not: they are killed, and their batches come again."""

import logging
import signal
from collections.abc import Collection
from dataclasses import dataclass, field

from srtm.consumer.ledger import Ledger
from srtm.consumer.process import Process
from srtm.host.clock import NS

log = logging.getLogger("srtm.autoscale")


@dataclass(slots=True)
class SlowLeavers:
    """Kills consumers that do not leave within the grace: only what an executor of this machine
    began is killed; others are waited for."""

    grace_seconds: float
    _since_ns: dict[str, int] = field(default_factory=dict)

    def look(self, leaving: Collection[str], ledger: Ledger, now_ns: int) -> None:
        self._since_ns = {name: self._since_ns.get(name, now_ns) for name in leaving}
        for name, since in self._since_ns.items():
            report = ledger.members.get(name)
            if report is None or now_ns - since <= self.grace_seconds * NS:
                continue
            process = Process(report.place, report.pid, report.begun)
            if process.kill(signal.SIGKILL, report.launch):
                log.warning("%s did not leave within the grace: it is killed", name)
