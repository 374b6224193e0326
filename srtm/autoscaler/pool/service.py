"""`srtm autoscale run` and `stop` of a pool: the controller with its clocks and its HTTP door."""

import logging
import signal
import time
from pathlib import Path
from typing import Any

from srtm import __version__
from srtm.autoscaler.executors.make import make_executor
from srtm.autoscaler.live.announced import Announced
from srtm.autoscaler.live.choice import make_pool_policy
from srtm.autoscaler.live.controller import Controller
from srtm.autoscaler.live.figures import leg_of, of_both, told
from srtm.autoscaler.live.learnt import Learnt
from srtm.autoscaler.live.states import State
from srtm.autoscaler.live.wanted import Wanted
from srtm.autoscaler.pool.lock import Lock
from srtm.autoscaler.pool.source import source_of
from srtm.autoscaler.pool.state import PoolState, state_path
from srtm.autoscaler.pool.world import PoolWorld
from srtm.consumer.door import open_door
from srtm.consumer.pool_file import PoolFile
from srtm.consumer.share_file import ShareFile
from srtm.host.clock import NS, boottime_ns
from srtm.host.stop import Stop
from srtm.http.metrics import Text
from srtm.text.errors import Exit, UnavailableError
from srtm.text.words import counted

log = logging.getLogger("srtm.autoscale")

_TICK_SECONDS = 0.1
_FIRST_SECONDS = 5.0


class PoolService:
    def __init__(self, file: PoolFile | ShareFile, path: Path) -> None:
        """Raises SrtmError."""
        self._file = file
        self._path = path
        self._source = source_of(file, path)
        self._lock = Lock(self._source.key)
        self._sampler = self._source.sampler()
        self._announced = Announced(file.announced, path)
        self._stop = Stop()
        self._began = time.time()
        self._fault = "it has just begun"
        self.controller: Controller | None = None
        self._world: PoolWorld | None = None

    def run(self, dismiss: bool = False) -> int:
        """Run the controller until SIGTERM or SIGINT; the pool works on. With `dismiss`, run it
        until all consumers have left. Raises SrtmError."""
        self._stop.heed(signal.SIGTERM, signal.SIGINT)
        door = self._file.controller
        if door.http_address is not None and not dismiss:
            open_door(door, self, f"{self._path}: [controller]")
        self._sampler.start()
        try:
            if not (self._wait_to_lead(dismiss) and self._lead(dismiss)) and dismiss:
                raise UnavailableError("stop was interrupted: consumers may be left")
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

    def _lead(self, dismiss: bool) -> bool:
        """With `dismiss`: have all consumers left?"""
        file = self._file
        state = PoolState(state_path(self._path, file.controller.state_folder))
        executor = make_executor(file.executor, self._path, self._source.key)
        world = self._world = PoolWorld(
            group=file.group,
            abilities=executor.abilities,
            state=state,
            mu=self._sampler.mu,
            mean_mu=self._sampler.mean_mu,
            least_mu=self._sampler.least_mu,
            tells=file.consumer is not None,
        )
        controller = self.controller = Controller(
            announced=self._announced.now,
            group=file.group,
            world=world,
            executor=executor,
            make=lambda slo, mu: make_pool_policy(file.group.policy, file.group, mu, slo),
            startup_seconds=file.executor.startup,
            state=State.SENTINEL,
            learnt=Learnt(startup=state.startup or Learnt().startup),
        )
        log.info("this controller leads")
        wanted = Wanted(
            file,
            self._path,
            lambda: leg_of(controller, **self._source.whose),
        )
        if not dismiss:
            wanted.start()
        try:
            return self._control(controller, world, wanted, dismiss)
        finally:
            wanted.close()
            state.save()

    def _control(
        self, controller: Controller, world: PoolWorld, wanted: Wanted, dismiss: bool
    ) -> bool:
        """Control the pool until it is to end; with `dismiss`: have all consumers left?"""
        file = self._file
        self._sampler.wait_first(_FIRST_SECONDS)
        self._sampler.read()
        due_ns, interval_ns = boottime_ns(), round(file.group.interval * NS)
        while not self._stop.wait(_TICK_SECONDS):
            now_ns = boottime_ns()
            controller.aim(wanted.slo)
            self._sampler.aim(wanted.slo.target_seconds)
            controller.tick(now_ns)
            if now_ns < due_ns and not dismiss:
                continue
            due_ns = max(due_ns + interval_ns, now_ns)
            seen = self._sampler.read()
            if seen is None:
                fault = "; ".join(self._sampler.faults) or self._source.nobody
                if dismiss:
                    raise UnavailableError(f"{fault}: who consumes is not known; nobody was ended")
                self._tell(fault)
                continue
            first, world.seen = world.seen is None, seen
            if dismiss:
                if controller.dismiss() and not first:
                    return True
                continue
            controller.decide(seen.reading, now_ns)
            self._fault = controller.fault
        launched = len(controller.executor.seen().running)  # some may not have joined
        running = counted(max(launched, world.running()), "consumer")
        log.info("the controller has ended; %s left at work", running)
        return False

    def _tell(self, fault: str) -> None:
        """Tell of a fault at the door, and once in the log."""
        if fault != self._fault:
            log.warning("%s", fault)
        self._fault = fault

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
        world = self._world
        found: dict[str, Any] = {
            **self._source.whose,
            "leads": float(self.controller is not None),
            "health": f"NOK - {self._fault}" if self._fault else "OK",
            "slo": str((self.controller or self._file).group.slo),
        }
        if self.controller is None or world is None:
            return found
        return {
            **found,
            "names": [each.id for each in world.consumers],
            "mu": {each.id: each.mu for each in world.consumers},
            **of_both(self.controller, world.running()),
        }

    def metrics(self) -> Text:
        return told(self._document(), "/".join(self._source.whose.values()))


def run_pool(file: PoolFile | ShareFile, path: Path, dismiss: bool = False) -> int:
    """The exit code. Raises SrtmError."""
    return PoolService(file, path).run(dismiss)
