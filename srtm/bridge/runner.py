"""One route at work, in a thread of its own."""

import logging
import random
import threading
from typing import Any

from confluent_kafka import KafkaException

from srtm.bridge.figures import Figures, State
from srtm.bridge.file import KafkaTable, Route
from srtm.host.backoff import backoff_seconds

log = logging.getLogger("srtm.bridge")

_MAX_BACKOFF_SECONDS = 10.0
DEAD_LETTER = 'dead-letter = "kafka:TOPIC" or "file:/PATH"'
"""the remedy for a message that cannot go over"""


class Stopped(Exception):
    """The route can do nothing more until a person mends what the text says."""


class Runner:
    """What the service knows of a route: start it, ask it to stop, look at its figures."""

    def __init__(self, route: Route, kafka: KafkaTable, bridge: str, drain_seconds: float) -> None:
        self.route = route
        self.topic = ""  # of NSQ, where the route has one
        self.kafka = kafka
        self.bridge = bridge
        self.drain_seconds = drain_seconds
        self.figures = Figures(route.slo)
        self.stopping = threading.Event()
        self._failures = 0  # since it ran
        self._thread = threading.Thread(target=self._run, name=f"route {route.name}", daemon=True)

    @property
    def label(self) -> str:
        """Its name for people."""
        return self.route.name

    def start(self) -> None:
        self._thread.start()

    def ask_stop(self) -> None:
        """Ask the route to drain and end."""
        self.stopping.set()

    def join(self, seconds: float) -> bool:
        """Has it ended?"""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def work(self) -> None:
        """The work of a route, which subclasses define: it goes on until `stopping` is set and all
        is drained. Raises Stopped."""
        raise NotImplementedError

    def document(self) -> dict[str, Any]:
        return {
            "route": self.route.name,
            "from": str(self.route.source),
            "to": str(self.route.target),
            **self.figures.document(),
        }

    def _run(self) -> None:
        while True:
            try:
                self.work()
            except Stopped as error:
                self.figures.state, self.figures.reason = State.STOPPED, str(error)
                log.error("route %s stops: %s", self.label, error)
                return
            # Nothing that was not acknowledged is lost: both sides give it again.
            except KafkaException as error:
                if self._begins_anew(error.args[0].str()):
                    continue
            except Exception as error:
                log.exception("route %s", self.label)
                if self._begins_anew(f"a fault of the bridge: {error}"):
                    continue
            self.figures.state = State.ENDED
            return

    def _begins_anew(self, why: str) -> bool:
        """Wait a while before the route begins anew; False when it is to end."""
        self.said(why)
        seconds = backoff_seconds(self._failures, random.random(), _MAX_BACKOFF_SECONDS)
        self._failures += 1
        return not self.stopping.wait(seconds)

    def said(self, reason: str) -> None:
        """The route waits; one line when that is new."""
        if self.figures.waits(reason):
            log.warning("route %s waits: %s", self.label, reason)

    def goes_on(self) -> None:
        self._failures = 0
        if self.figures.runs():
            log.info("route %s runs", self.label)
