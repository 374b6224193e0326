"""What hand-overs have really been like: how long they stop a partition, and how many late events
come of one for each that was predicted."""

from dataclasses import dataclass

from srtm.autoscaler.decision import Action, Handover
from srtm.autoscaler.policies.srtm.tuning import TUNING, Tuning

Kind = tuple[Handover, Action]


@dataclass(frozen=True, slots=True)
class _Learnt:
    """Stops of one kind of hand-over, seconds, as of `at`."""

    at: float
    likely: float
    shortest: float


class Stops:
    """Learns from each hand-over. One is watched at a time, as one is made at a time."""

    def __init__(self, tuning: Tuning = TUNING) -> None:
        self._tuning = tuning
        self._learnt: dict[Kind, _Learnt] = {}
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
            self._learn(self._changing, at, stopped_seconds)
            self._changing = None
        tuning = self._tuning
        settles = tuning.hand_over_settles_seconds
        if self._watched is not None and at > self._watched[0] + settles:
            _, before, predicted = self._watched
            added = tuning.correction_events
            ratio = (late - before + added) / (predicted + added)
            within = min(tuning.correction_most, max(tuning.correction_least, ratio))
            self.correction = (self.correction + within) / 2
            self._watched = None

    def _learn(self, kind: Kind, at: float, stopped_seconds: float) -> None:
        known, memory = self._learnt.get(kind), self._tuning.stop_memory
        if known is None:
            self._learnt[kind] = _Learnt(at, stopped_seconds, 0.0)
            return
        likely = memory * self._likely(known, at) + (1 - memory) * stopped_seconds
        shortest = min(stopped_seconds, known.shortest or known.likely)
        self._learnt[kind] = _Learnt(at, max(stopped_seconds, likely), shortest)

    def _likely(self, known: _Learnt, at: float) -> float:
        """One slow batch makes one long stop. If that alone kept hand-overs from being made, no
        shorter one would ever be seen: so what it was over the shortest one fades by itself."""
        kept: float = 0.5 ** (max(0.0, at - known.at) / self._tuning.stop_fades_seconds)
        return known.shortest + kept * (known.likely - known.shortest)

    def expected(self, kind: Kind, rebalance_seconds: float, at: float) -> float:
        """Seconds; before the first of its kind, what the protocol makes likely."""
        handover = kind[0]
        if kind in self._learnt:
            return max(rebalance_seconds, self._likely(self._learnt[kind], at))
        if handover is Handover.DIRECT:
            return rebalance_seconds
        others = [
            self._likely(known, at) for (of, _), known in self._learnt.items() if of is handover
        ]
        return max(rebalance_seconds + self._tuning.heartbeat_seconds / 2, *others, 0.0)
