"""A thread that tells a journey, once a second, how old messages were (see `ages`)."""

import logging
import threading
import time

from srtm.consumer.ages import Ages
from srtm.host.clock import boot_id
from srtm.host.offsets import Offsets
from srtm.http.client import Endpoint, request
from srtm.text.errors import UnavailableError

log = logging.getLogger("srtm.consumer")

PATH = "/ages"
_SECONDS = 1.0
_TIMEOUT_SECONDS = 1.0
_MOST_BYTES = 16 << 10
"""of an answer: the journey's clock, and the names of topics"""


class Teller:
    """lost: messages of reports that did not arrive, so far"""

    def __init__(self, ages: Ages, journeys: Endpoint, whose: dict[str, str], name: str) -> None:
        """journeys: `srtm journey run`; whose: what is consumed: `topic` with `channel` or `group`;
        name: of this consumer"""
        self.ages = ages
        self._journeys = journeys
        self._whose = {**whose, "consumer": name}
        self._offsets = Offsets()
        self._fault = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="journey", daemon=True)
        self.lost = 0

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Tell the rest, and end."""
        self._over.set()
        self._thread.join(2 * _SECONDS)

    def _run(self) -> None:
        while not self._over.wait(_SECONDS):
            self._tell()
        self._tell()

    def _tell(self) -> None:
        report = self.ages.report()
        begun = time.time_ns()
        document = {**self._whose, "boot_id": boot_id(), "lost": self.lost, **report}
        clock = self._offsets.best
        if clock is not None:
            document["clock"] = clock.document()
        try:
            answer = request(
                self._journeys,
                "POST",
                PATH,
                document=document,
                timeout_seconds=_TIMEOUT_SECONDS,
                max_bytes=_MOST_BYTES,
            ).json()
            done = time.time_ns()
            wanted = frozenset(map(str, answer["topics"]))
            self._offsets.add(str(answer["boot_id"]), int(answer["wall_ns"]), begun, done)
            self.ages.wanted = wanted
        except (UnavailableError, TypeError, ValueError, ArithmeticError) as error:
            self.lost += sum(each["count"] for each in report["topics"].values())
            if str(error) != self._fault:
                self._fault = str(error)
                log.warning("%s; how old messages are is not told", error)
            return
        if self._fault:
            log.info("the journey answers again")
        self._fault = ""
