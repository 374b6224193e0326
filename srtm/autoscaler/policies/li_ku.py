"""Li-Ku: consumers by an M/M/1 queue each and by buffer length, decided over reactive windows.

Slips of the printed text, mended:
- Eq. 7 ends with `n`; its text and the experiment call that constant w = 1.5.
- `len == upReactW` and `len == downReactW`: a window whose average is the current number scales
  nothing and grows past its length, after which it never scales again. Here it slides: `>=`.
- Line 24 sets sleepTime only after an action; otherwise the loop runs every second.
- The average of targets is no whole number; it is rounded up, to the side of the SLA.
- With no consumers left Buffer_t is 0 and Eq. 7 undefined: then c_l is c_q.
While the cooldown lasts the loop sleeps: it records nothing. It asks for nothing else, so it
decides while consumers still start, which count (Kubernetes reports them as replicas).
"""

import math
from collections import deque
from typing import Final

from srtm.autoscaler.decision import Decision, Handover
from srtm.autoscaler.observation import Observation
from srtm.autoscaler.policies.group import capped, consumers, nothing
from srtm.autoscaler.policies.kafka import adopt_orphans, scale_to
from srtm.autoscaler.policies.paper import PaperPolicy
from srtm.autoscaler.policies.settings import Settings
from srtm.autoscaler.policies.timeline import Cooldown

W: Final = 1.5
BUFFER_SECONDS: Final = 1.95
"""Buffer_t = mu * c * 1.95."""
UP_REACT_W: Final = {Handover.EAGER: 2, Handover.COOPERATIVE: 4, Handover.DIRECT: 2}
"""Printed for eager and cooperative; a direct hand-over is over as soon as an eager one."""
DOWN_REACT_W: Final = 10
DOWN_AVERAGED: Final = 3
COOLDOWN_SECONDS: Final = 10.0
RATE_SECONDS: Final = 2.0
"""lambda is that of the most recent 2 seconds."""

TUNING_SECONDS: Final = 300.0
"""In so long without a late event the part grows by a factor of e; with twice as many late as are
allowed it shrinks by it."""
MOST_OFF: Final = 10.0
"""A burst that is late as a whole shrinks the part no faster than by e in 30 s."""
LEAST_EVENTS: Final = 2.0
"""Eq. 6 is never tuned to less than two events take: consumers are half busy then."""
SMALLEST_PART: Final = 0.1
LARGEST_PART: Final = 4.0


def queue_model_target(rate: float, mu: float, target_seconds: float) -> int | None:
    """c_q: the fewest consumers with 1 / (mu - rate / c) <= target_seconds (Eq. 6), at least 1.
    None when one event alone takes longer."""
    spare = mu - 1 / target_seconds
    if spare <= 0:
        return None
    return max(1, math.ceil(rate / spare - 1e-9))


def buffer_target(count: int, buffer: float, mu: float, seconds: float = BUFFER_SECONDS) -> float:
    """c_l of Eq. 7, for count >= 1: the current number and w for each threshold in excess.
    seconds: what a buffer at its threshold takes to be served"""
    threshold = mu * count * seconds
    return count + (buffer - threshold) / threshold * W


class LiKu(PaperPolicy):
    def __init__(self, name: str, settings: Settings) -> None:
        super().__init__(name, settings)
        self._rates: deque[tuple[float, float]] = deque()
        self._up: deque[float] = deque(maxlen=UP_REACT_W[settings.handover])
        self._down: deque[float] = deque(maxlen=DOWN_REACT_W)
        self._cooldown = Cooldown(settings.cooldown(COOLDOWN_SECONDS))
        self._part = 1.0
        """what is aimed at, over w_sla and over BUFFER_SECONDS"""

    def _decide(self, seen: Observation) -> Decision:
        if self._timeline.went_back:
            self._rates.clear()
            self._clear()
            self._cooldown.since = None
        rate = self._recent_rate(seen)
        if left := self._cooldown.left(seen.at):
            return adopt_orphans(seen, self.settings.handover, f"cooldown for {left:g} s more")
        count = len(seen.consumers)
        c_q, c_l, notes = self._targets(seen, rate)
        optimal = self._evaluate(count, c_q, c_l)
        said = (
            f"{rate:g}/s want {consumers(c_q)} (M/M/1), {seen.lag:g} waiting want {c_l:.3g} "
            f"(buffer), {count} are there"
        )
        if optimal == count:
            return adopt_orphans(seen, self.settings.handover, said, notes)
        optimal, cap = capped(seen, optimal, "the average of the window")
        if optimal == count:
            return nothing(said, (*notes, *cap))
        self._clear()
        self._cooldown.begin(seen.at)
        return scale_to(seen, optimal, self.settings.handover, said, (*notes, *cap))

    def _recent_rate(self, seen: Observation) -> float:
        self._rates.append((seen.at, seen.rate))
        while self._rates[0][0] <= seen.at - RATE_SECONDS:
            self._rates.popleft()
        return sum(rate for _, rate in self._rates) / len(self._rates)

    def _targets(self, seen: Observation, rate: float) -> tuple[int, float, tuple[str, ...]]:
        """c_q, c_l and notes; mu is the mean of the consumers that are there."""
        running = [consumer.mu for consumer in seen.consumers] or [seen.new_mu]
        mu = math.fsum(running) / len(running)
        w_sla = self.settings.w_sla
        c_q = queue_model_target(rate, mu, max(self._part * w_sla, min(w_sla, LEAST_EVENTS / mu)))
        notes: tuple[str, ...] = ()
        if c_q is None:
            c_q = len(seen.partitions)
            notes = (
                f"serving one event takes {1 / mu:g} s, not less than w_sla: Eq. 6 has no "
                f"solution; one consumer for each partition, or allow more than {1 / mu:g} s",
            )
        c_q, cap = capped(seen, c_q, "Eq. 6")
        count = len(seen.consumers)
        c_l = float(c_q)
        if count:
            c_l = buffer_target(count, seen.lag, mu, self._part * BUFFER_SECONDS)
        return c_q, c_l, (*notes, *cap)

    def _evaluate(self, count: int, c_q: int, c_l: float) -> int:
        """Algorithm 1, lines 2-18: the number of consumers to scale to."""
        target = max(c_q, c_l)
        if target > count:
            self._down.clear()
            self._up.append(target)
            if len(self._up) == self._up.maxlen:
                return math.ceil(sum(self._up) / len(self._up) - 1e-9)
        elif c_q < count or c_l < count:
            self._up.clear()
            self._down.append(target)
            if len(self._down) == self._down.maxlen:
                newest = list(self._down)[-DOWN_AVERAGED:]
                return math.ceil(sum(newest) / len(newest) - 1e-9)
        else:
            self._clear()
        return count

    def _clear(self) -> None:
        self._up.clear()
        self._down.clear()


class LiKuTuned(LiKu):
    """Li-Ku with one of its parameters tuned by control, which the paper leaves as future work.

    Eq. 6 holds a mean, and the SLO is a percentile; 1.95 s and w are of one experiment. So both
    thresholds are multiplied by a part that an integral controller moves in its logarithm, by how
    far the share of late events is from what the SLO allows. No constant of it was fitted to a run.
    """

    def decide(self, seen: Observation) -> Decision:
        decision = super().decide(seen)
        if self._timeline.went_back:
            self._part = 1.0
        elif seen.served:
            allowed = self.settings.slo.allowed_late_share
            off = min(MOST_OFF, (seen.late / seen.served - allowed) / allowed)
            seconds = self.settings.decision_seconds
            part = self._part * math.exp(-off * seconds / TUNING_SECONDS)
            self._part = min(LARGEST_PART, max(SMALLEST_PART, part))
        return decision
