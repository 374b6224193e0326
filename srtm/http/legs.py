"""A thread by which a program that is a leg of journeys asks which SLO it is to keep."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from srtm.http.client import Endpoint, request
from srtm.limits.slo import SLO
from srtm.text.errors import UnavailableError

PATH = "/legs"
MOST_LEGS = 256
"""of one report"""
_SECONDS = 5.0
_TIMEOUT_SECONDS = 2.0
_MOST_BYTES = 256 << 10
_MOST_FAULT = 300
"""characters of what is told of an answer"""
_CHANGES, _CHANGES_SECONDS = 3, 180.0
"""the most changes in so long; whoever takes one drains, or forgets what was late"""

Told = Callable[[], list[dict[str, Any]]]
"""What the program tells of each of its legs."""
Take = Callable[[Sequence[SLO | None]], None]
"""Gets the SLO that is wanted of each leg that was told, in order; None: its file's."""


class Legs:
    """Tells `srtm journey run` of the program's legs every five seconds, and takes its answer.
    While there is none, all stays as it is."""

    def __init__(self, journeys: Endpoint, told: Told, take: Take, log: logging.Logger) -> None:
        self._journeys = journeys
        self._told = told
        self._take = take
        self._log = log
        self._fault = ""
        self._taken: list[SLO | None] = []
        self._changed_at: deque[float] = deque(maxlen=_CHANGES)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="journey", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(_TIMEOUT_SECONDS)

    def _run(self) -> None:
        while not self._over.wait(_SECONDS):
            told = self._told()
            try:
                wanted: list[SLO | None] = []
                for first in range(0, len(told), MOST_LEGS):
                    wanted += self._ask(told[first : first + MOST_LEGS])
            except (UnavailableError, TypeError, ValueError) as error:
                if str(error) != self._fault:
                    self._fault = str(error)
                    self._log.warning("%s; the SLO stays as it is", self._fault[:_MOST_FAULT])
                continue
            if self._fault:
                self._log.info("the journey answers again")
            self._fault = ""
            if self._may_take(wanted, time.monotonic()):
                self._take(wanted)

    def _ask(self, told: list[dict[str, Any]]) -> list[SLO | None]:
        """The SLOs that are wanted. Raises UnavailableError, TypeError, ValueError."""
        answer = request(
            self._journeys,
            "POST",
            PATH,
            document={"legs": told},
            timeout_seconds=_TIMEOUT_SECONDS,
            max_bytes=_MOST_BYTES,
        ).json()
        wanted = [None if each is None else SLO.parse(str(each)) for each in answer["slos"]]
        if len(wanted) != len(told):
            raise ValueError(f"{len(wanted)} SLOs for {len(told)} legs")
        return wanted

    def _may_take(self, wanted: list[SLO | None], now: float) -> bool:
        """May this be taken up, or were there too many changes of late?"""
        if wanted == self._taken:
            return True
        full = len(self._changed_at) == _CHANGES
        if full and now - self._changed_at[0] < _CHANGES_SECONDS:
            return False
        self._changed_at.append(now)
        self._taken = wanted
        return True
