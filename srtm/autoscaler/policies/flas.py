"""The reactive half of FLAS, as Li-Ku compares with it: two fixed thresholds of response time.

Li-Ku prints neither thresholds nor steps, so these are chosen to behave as it says (8 consumers
after 60 s by 3.29 ups, "the scaling-down condition is too challenging to meet"): twice as many when
the mean time from arrival to the end of processing is above 0.2 w_sla for reactW = 2 observations
(Li-Ku takes that 2 from FLAS), one fewer when it is below 0.04 w_sla as long, and Li-Ku's cooldown
of 10 s after either. 0.04 of 500 ms is 20 ms, hardly more than one event takes at 58/s. Consumers
that still start count; a response time is measured whatever is under way, and so it decides then.
Where nothing was served there is no response time, and both windows begin anew.
"""

from typing import Final

from srtm.autoscaler.decision import Decision
from srtm.autoscaler.observation import Observation
from srtm.autoscaler.policies.group import consumers
from srtm.autoscaler.policies.kafka import adopt_orphans, scale_to
from srtm.autoscaler.policies.paper import PaperPolicy
from srtm.autoscaler.policies.settings import Settings
from srtm.autoscaler.policies.timeline import Cooldown

UP_SHARE: Final = 0.2
DOWN_SHARE: Final = 0.04
REACT_W: Final = 2
COOLDOWN_SECONDS: Final = 10.0


class Flas(PaperPolicy):
    def __init__(self, name: str, settings: Settings) -> None:
        super().__init__(name, settings)
        self._above = self._below = 0
        self._cooldown = Cooldown(settings.cooldown(COOLDOWN_SECONDS))

    def _decide(self, seen: Observation) -> Decision:
        count, most = len(seen.consumers), len(seen.partitions)
        if self._timeline.went_back:
            self._above = self._below = 0
            self._cooldown.since = None
        if not count or count > most:
            needed = 1 if not count else most
            said = f"{consumers(count)} for {most} partitions"
            return scale_to(seen, needed, self.settings.handover, said)
        if left := self._cooldown.left(seen.at):
            return adopt_orphans(seen, self.settings.handover, f"cooldown for {left:g} s more")
        self._count(seen.staying_seconds)
        said = "nothing was served: no response time"
        if seen.staying_seconds is not None:
            said = f"response time {seen.staying_seconds * 1e3:.3g} ms"
        if self._above >= REACT_W:
            if count == most:
                note = f"{most} consumers for {most} partitions: more would idle"
                return adopt_orphans(seen, self.settings.handover, said, (note,))
            return self._scale(seen, min(2 * count, most), f"{said}, {REACT_W} times over")
        if self._below >= REACT_W and count > 1:
            return self._scale(seen, count - 1, f"{said}, {REACT_W} times under")
        return adopt_orphans(seen, self.settings.handover, said)

    def _count(self, staying_seconds: float | None) -> None:
        w_sla = self.settings.w_sla
        above = staying_seconds is not None and staying_seconds > UP_SHARE * w_sla
        below = staying_seconds is not None and staying_seconds < DOWN_SHARE * w_sla
        self._above = self._above + 1 if above else 0
        self._below = self._below + 1 if below else 0

    def _scale(self, seen: Observation, count: int, reason: str) -> Decision:
        self._above = self._below = 0
        self._cooldown.begin(seen.at)
        share = UP_SHARE if count > len(seen.consumers) else DOWN_SHARE
        limit = share * self.settings.w_sla * 1e3
        return scale_to(seen, count, self.settings.handover, f"{reason} {limit:g} ms")
