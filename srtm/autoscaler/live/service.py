"""`srtm autoscale run`: the controller with its clocks, its records and its HTTP server."""

import logging
import signal
import time
from pathlib import Path
from typing import Any

from srtm import __version__
from srtm.autoscaler.executors.make import make_executor
from srtm.autoscaler.live.announced import Announced
from srtm.autoscaler.live.choice import make_policy
from srtm.autoscaler.live.controller import Controller
from srtm.autoscaler.live.figures import document, leg_of, metrics
from srtm.autoscaler.live.kafka_world import KafkaWorld
from srtm.autoscaler.live.probe import Probe
from srtm.autoscaler.live.sampler import Sampler
from srtm.autoscaler.live.states import State
from srtm.autoscaler.live.wanted import Wanted
from srtm.consumer.door import open_door
from srtm.consumer.file import GroupFile
from srtm.consumer.log import GroupLog
from srtm.consumer.process import here
from srtm.consumer.topic import make_topic
from srtm.host.clock import NS, boottime_ns
from srtm.host.stop import Stop
from srtm.http.metrics import Text
from srtm.text.errors import Exit, UnavailableError
from srtm.text.words import counted

log = logging.getLogger("srtm.autoscale")

_READ_SECONDS = 0.02
"""Words are read as they come; without one, beats and leases are looked at so often."""
_FIRST_SECONDS = 10.0


class Service:
    def __init__(self, file: GroupFile, path: Path) -> None:
        self._file = file
        self._probe = Probe(file)
        self._sampler = Sampler(file, self._probe)
        self._stop = Stop()
        self._path = path
        self._began = time.time()

    def begin(self, dismiss: bool = False) -> None:
        """Raises UnavailableError."""
        group = self._file.group
        self._probe.partitions()
        members = () if group.subscribes else self._probe.members()
        if members:
            raise UnavailableError(
                f"group {group.id} has {len(members)} members that subscribe, so Kafka assigns its "
                "partitions; stop them, or give [group] another id"
            )
        make_topic(self._file)
        self._log = GroupLog(self._file, f"srtm-controller-{group.id}", keeps=True)
        table = self._file.executor
        key = f"kafka:{self._probe.cluster}/{group.id}/{group.topic}"
        executor = make_executor(table, self._path, key)
        self.world = KafkaWorld(
            group=group,
            process=here(),
            name=self._file.controller.name,
            effects=self._log,
            dead=lambda process: process.is_dead,
            seconds=time.time,
            mu=self._sampler.mu,
            abilities=executor.abilities,
            grace_seconds=table.grace,
        )
        self.controller = Controller(
            announced=Announced(self._file.announced, self._path).now,
            group=group,
            world=self.world,
            executor=executor,
            make=lambda slo, mu: make_policy(group.policy, group, mu, slo),
            startup_seconds=table.startup,
        )
        if group.handover == "assignor":
            from srtm.autoscaler.live.removal import Removal  # kafka-python

            Removal(self._file, self._ended).start()
        if self._file.controller.http_address is not None and not dismiss:
            open_door(self._file.controller, self, f"{self._path}: [controller]")
        self._wanted = Wanted(self._file, self._path, self._leg)
        if not dismiss:
            self._wanted.start()
        self._sampler.start()
        if not self._sampler.wait_first(_FIRST_SECONDS):
            raise UnavailableError(self._sampler.fault or "Kafka gives no offsets")

    def run(self, dismiss: bool = False) -> int:
        """Run the controller until SIGTERM or SIGINT; the group works on. With `dismiss`, run it
        until all consumers have left."""
        self._stop.heed(signal.SIGTERM, signal.SIGINT)
        interval_ns = round(self._file.group.interval * NS)
        due_ns = boottime_ns() + interval_ns
        while not self._stop.asked:
            words = self._log.read(_READ_SECONDS)
            now_ns = boottime_ns()
            if self._log.begun_anew:
                self._log.begun_anew = False
                self.world.begin_anew()
            self.world.see(words, now_ns)
            if not self._log.caught_up:
                continue
            self._aim()
            self.controller.tick(now_ns)
            if dismiss:
                self._refuse_beside_another()
                if self.controller.dismiss():
                    break
                continue
            if now_ns >= due_ns:
                due_ns = max(due_ns + interval_ns, now_ns)
                self._decide(now_ns)
        self.world.leave(boottime_ns())
        launched = len(self.controller.executor.seen().running)  # some may not have joined
        self._wanted.close()
        self._sampler.close()
        self.controller.executor.close()
        self._log.close()
        if dismiss and self._stop.asked:
            raise UnavailableError("stop was interrupted: consumers may be left")
        running = counted(max(launched, self.world.running()), "consumer")
        log.info("the controller has ended; %s left at work", running)
        return Exit.OK

    def _aim(self) -> None:
        slo = self._wanted.slo
        self.controller.aim(slo)
        self._sampler.aim(slo.target_seconds)

    def _leg(self) -> dict[str, Any]:
        group = self._file.group
        return leg_of(self.controller, topic=group.topic, group=group.id)

    def _ended(self) -> list[str]:
        """Members that are no more, as who leads knows it."""
        direct = self.world.direct
        return list(direct.ledger.ended) if direct is not None and direct.leads else []

    def _refuse_beside_another(self) -> None:
        """Raises UnavailableError."""
        if self.controller.state is State.STANDBY and self.controller.fault:
            raise UnavailableError(
                f"controller {self.world.ledger.leader} leads, and would launch them again; end it "
                "first"
            )

    def _decide(self, now_ns: int) -> None:
        if self._sampler.fault:
            self.controller.fault = self._sampler.fault
            return
        self.controller.decide(self._sampler.read(), now_ns)
        self._sampler.follow(dict(self.controller.roster.parts))

    # --- at the door ------------------------------------------------------------------------------

    def fault(self) -> str:
        return self._log.fault or self.controller.fault

    def stats(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "start_time": int(self._began),
            **document(self.controller, self.world),
        }

    def metrics(self) -> Text:
        return metrics(self.controller, self.world)


def run_group(file: GroupFile, path: Path, dismiss: bool = False) -> int:
    """The exit code. Raises SrtmError."""
    service = Service(file, path)
    service.begin(dismiss)
    return service.run(dismiss)
