"""`srtm autoscale run` and `stop` of a pool: the controller with its clocks and its HTTP door."""

import logging
import signal
import time
from pathlib import Path
from typing import Any

from srtm import __version__
from srtm.autoscaler.executors.make import make_executor
from srtm.autoscaler.live.choice import make_pool_policy
from srtm.autoscaler.live.figures import told
from srtm.autoscaler.observation import ConsumerState
from srtm.autoscaler.pool.controller import PoolController
from srtm.autoscaler.pool.lock import Lock
from srtm.autoscaler.pool.sampler import PoolSampler
from srtm.autoscaler.pool.state import PoolState, state_path
from srtm.consumer.door import open_door
from srtm.consumer.pool_file import PoolFile
from srtm.host.clock import NS, boottime_ns
from srtm.host.stop import Stop
from srtm.http.metrics import Text
from srtm.text.errors import Exit, UnavailableError
from srtm.text.words import counted

log = logging.getLogger("srtm.autoscale")

_TICK_SECONDS = 0.1
_FIRST_SECONDS = 5.0


def pool_key(file: PoolFile) -> str:
    """One channel of one set of brokers."""
    nsq = file.nsq
    return f"nsq:{nsq.topic}/{nsq.channel}@{','.join(sorted((*nsq.lookupd, *nsq.nsqd)))}"


class PoolService:
    def __init__(self, file: PoolFile, path: Path) -> None:
        """Raises SrtmError."""
        self._file = file
        self._path = path
        self._lock = Lock(pool_key(file))
        self._sampler = PoolSampler(file)
        self._stop = Stop()
        self._began = time.time()
        self._leads = False
        self._fault = "it has just begun"
        self.controller: PoolController | None = None

    def run(self, dismiss: bool = False) -> int:
        """Run the controller until SIGTERM or SIGINT; the pool works on. With `dismiss`, run it
        until all consumers have left. Raises SrtmError."""
        self._stop.heed(signal.SIGTERM, signal.SIGINT)
        address = self._file.controller.http_address
        if address is not None and not dismiss:
            open_door(address, self, f"{self._path}: [controller]")
        self._sampler.start()
        try:
            if self._wait_to_lead(dismiss):
                self._lead(dismiss)
        finally:
            self._sampler.close()
            if self.controller is not None:
                self.controller.executor.close()
            self._lock.release()
        return Exit.OK

    def _wait_to_lead(self, dismiss: bool) -> bool:
        """False: it was ended before."""
        while not self._lock.take():
            if dismiss:
                raise UnavailableError(
                    "a controller leads on this host, and would launch them again; end it first"
                )
            self._tell("another controller of this host leads; this one stands by")
            if self._stop.wait(_TICK_SECONDS):
                return False
        return True

    def _lead(self, dismiss: bool) -> None:
        file = self._file
        state = PoolState(state_path(self._path, file.controller.state_folder))
        controller = self.controller = PoolController(
            group=file.group,
            executor=make_executor(file.executor, self._path, pool_key(file)),
            state=state,
            make=lambda mu: make_pool_policy(file.group.policy, file.group, mu),
            mu=self._sampler.mu,
            mean_mu=self._sampler.mean_mu,
            least_mu=self._sampler.least_mu,
            wall=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            tells=file.consumer is not None,
        )
        self._leads = True
        log.info("this controller leads")
        self._sampler.wait_first(_FIRST_SECONDS)
        self._sampler.read()
        due, interval = _seconds(), file.group.interval
        while not self._stop.wait(_TICK_SECONDS):
            now = _seconds()
            controller.tick(now)
            if now < due and not dismiss:
                continue
            due = max(due + interval, now)
            seen = self._sampler.read()
            if seen is None:
                fault = "; ".join(self._sampler.faults) or self._nobody()
                if dismiss:
                    raise UnavailableError(f"{fault}: who consumes is not known; nobody was ended")
                self._tell(fault)
                continue
            if dismiss:
                if controller.dismiss(seen, now):
                    return
                continue
            controller.decide(seen, now)
            self._fault = controller.fault
        state.save()
        running = sum(each.state is ConsumerState.RUNNING for each in controller.consumers)
        log.info("the controller has ended; %s at work", counted(running, "consumer"))

    def _tell(self, fault: str) -> None:
        """Tell of a fault at the door, and once in the log."""
        if fault != self._fault:
            log.warning("%s", fault)
        self._fault = fault

    def _nobody(self) -> str:
        return f"no nsqd has topic {self._file.nsq.topic} yet"

    # --- at the door ------------------------------------------------------------------------------

    def fault(self) -> str:
        return self._fault

    def stats(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "start_time": int(self._began),
            "brokers": self._sampler.brokers(),
            **self._document(),
        }

    def _document(self) -> dict[str, Any]:
        controller, nsq = self.controller, self._file.nsq
        found: dict[str, Any] = {
            "topic": nsq.topic,
            "channel": nsq.channel,
            "leads": float(self._leads),
            "health": f"NOK - {self._fault}" if self._fault else "OK",
            "slo": str(self._file.group.slo),
        }
        if controller is None:
            return found
        budget = controller.budget
        starting = list(controller.launched)
        return {
            **found,
            "consumers": len(controller.consumers) - len(starting),
            "names": [each.id for each in controller.consumers],
            "starting": starting,
            "leaving": sorted(controller.ended),
            "mu": {each.id: each.mu for each in controller.consumers},
            "budget_left": budget.left,
            "late_share": budget.late / budget.served if budget.served else 0.0,
            "oldest_wait_seconds": controller.oldest_wait,
            "replica_seconds": controller.replica_seconds,
            **{f"{action}_count": count for action, count in controller.counts.items()},
        }

    def metrics(self) -> Text:
        nsq = self._file.nsq
        return told(self._document(), f"{nsq.topic}/{nsq.channel}")


def _seconds() -> float:
    return boottime_ns() / NS


def run_pool(file: PoolFile, path: Path, dismiss: bool = False) -> int:
    """The exit code. Raises SrtmError."""
    return PoolService(file, path).run(dismiss)
