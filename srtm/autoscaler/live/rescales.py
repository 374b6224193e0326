"""How often the group changes, and what it may change by in a day."""

import calendar
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from srtm.autoscaler.decision import Action, Decision
from srtm.autoscaler.observation import Observation
from srtm.text.words import counted

DAY_SECONDS = 86400.0
STAMP = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(slots=True)
class Rescales:
    """Changes of the last day. most: how many there may be (None: any number). What a day has had
    is known again after a restart, from the decisions that are kept."""

    most: int | None = None
    _at: deque[float] = field(default_factory=deque)

    def recall(self, stamps: Iterable[str]) -> None:
        """The changes that were made before this process: when, as the diary has it. What is no
        time is passed over."""
        for text in stamps:
            try:
                self._at.append(float(calendar.timegm(time.strptime(text, STAMP))))
            except ValueError:
                continue
        self._at = deque(sorted(self._at))

    def add(self, stamp: str) -> None:
        self.recall([stamp])

    def count(self, stamp: str) -> int:
        """Changes in the day before `stamp`."""
        now = calendar.timegm(time.strptime(stamp, STAMP))
        while self._at and self._at[0] <= now - DAY_SECONDS:
            self._at.popleft()
        return sum(at <= now for at in self._at)  # a clock that was ahead says nothing

    def allowed(self, seen: Observation, decision: Decision, stamp: str) -> Decision:
        """The decision, where the day has a change left for it. More consumers are never refused,
        nor that somebody takes what nobody has."""
        free = decision.action in (Action.NONE, Action.UP) or seen.orphans
        if free or self.most is None or self.count(stamp) < self.most:
            return decision
        until = time.strftime(STAMP, time.gmtime(self._at[-self.most] + DAY_SECONDS))
        reason = (
            f"{counted(self.most, 'change')} in a day is what rescales-a-day allows: nothing but "
            f"more consumers before {until}"
        )
        return replace(decision, action=Action.NONE, members=(), reason=reason)
