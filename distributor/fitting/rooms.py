"""What this fitting has measured of its brokers: who is known to hold how much."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from distributor.fitting.verdict import Answer, Verdict


@dataclass(frozen=True, slots=True)
class Rooms:
    """A value: `judged` gives the next one. Rates are messages/s of the topic that is fitted.

    A broker that was late at one rate is taken to be late at every higher one; where rounds
    contradict each other, the late one counts.
    """

    _holds: Mapping[str, frozenset[float]] = field(default_factory=dict)
    _late: Mapping[str, float] = field(default_factory=dict)

    def judged(self, rates: Mapping[str, float], verdicts: Mapping[str, Verdict]) -> "Rooms":
        """The rooms with one more round. rates: by broker; verdicts that are not sure say
        nothing."""
        holds, late = dict(self._holds), dict(self._late)
        for name, verdict in verdicts.items():
            if verdict.answer is Answer.HOLDS:
                holds[name] = holds.get(name, frozenset()) | {rates[name]}
            elif verdict.answer is Answer.VIOLATED:
                late[name] = min(late.get(name, inf), rates[name])
        return Rooms(holds, late)

    def late_from(self, broker: str) -> float:
        """The least at which it was late; infinite where it never was."""
        return self._late.get(broker, inf)

    def held(self, broker: str) -> float:
        """The most that it held, and was not late at; 0 where it has not held anything yet."""
        late_from = self.late_from(broker)
        rates = self._holds.get(broker, frozenset())
        return max((rate for rate in rates if rate < late_from), default=0.0)
