"""What hand-overs have really been like: how long they stop a partition, and how many late events
come of one for each that was predicted."""

from srtm.autoscaler.decision import Action, Handover
from srtm.autoscaler.policies.srtm.tuning import TUNING, Tuning

Kind = tuple[Handover, Action]


class Stops:
    """Learns from each hand-over. One is watched at a time, as one is made at a time."""

    def __init__(self, tuning: Tuning = TUNING) -> None:
        self._tuning = tuning
        self._learnt: dict[Kind, float] = {}
        self._changing: Kind | None = None
        self._watched: tuple[float, int, float] | None = None
        self.correction = 1.0
        """Late events of hand-overs: seen for each predicted."""

    def begin(self, kind: Kind, at: float, late: int, predicted: float) -> None:
        """A hand-over was decided at `at`, when `late` events had been late."""
        self._changing = kind
        self._watched = (at, late, predicted / self.correction)

    def see(self, at: float, late: int, stopped_seconds: float | None, changing: bool) -> None:
        """stopped_seconds: of the last hand-over that is complete"""
        if self._changing is not None and not changing and stopped_seconds is not None:
            known = self._learnt.get(self._changing, 0.0)
            memory = self._tuning.stop_memory
            kept = memory * known + (1 - memory) * stopped_seconds
            self._learnt[self._changing] = max(stopped_seconds, kept)
            self._changing = None
        settles = self._tuning.hand_over_settles_seconds
        if self._watched is not None and at > self._watched[0] + settles:
            _, before, predicted = self._watched
            # Ten events on both sides: a ratio of small numbers says nothing.
            ratio = (late - before + 10) / (predicted + 10)
            self.correction = (self.correction + min(3.0, max(0.5, ratio))) / 2
            self._watched = None

    def expected(self, kind: Kind, rebalance_seconds: float) -> float:
        """Seconds; before the first of its kind, what the protocol makes likely."""
        handover = kind[0]
        if kind in self._learnt:
            return max(rebalance_seconds, self._learnt[kind])
        if handover is Handover.DIRECT:
            return rebalance_seconds
        others = [stop for (known, _), stop in self._learnt.items() if known is handover]
        return max(rebalance_seconds + self._tuning.heartbeat_seconds / 2, *others, 0.0)
