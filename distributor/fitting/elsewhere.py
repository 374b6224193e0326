"""Where publishers send that take no part in a trial: only through brokers known to have room."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

from distributor.fitting.capacity import CapacityModel, Load
from distributor.fitting.topic import FittedTopic
from distributor.fitting.trial import Trial
from distributor.fitting.verdict import Answer, Verdict
from distributor.model import Broker
from distributor.placement.srtm import extend


@dataclass(frozen=True, slots=True)
class Rooms:
    """What this fitting has measured of its brokers: who is known to hold how much. A value:
    `judged` gives the next one. Rates are messages/s of the topic that is fitted.

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


_HALVINGS = 20
"""of the rate that the capacity model expects a broker to hold: to a millionth of the topic's"""


def elsewhere(
    topic: FittedTopic, trial: Trial, rooms: Rooms, model: CapacityModel
) -> dict[str, str]:
    """publisher id -> broker name: the trial's, and of the others those for whom there is room.

    A broker that is judged takes nobody beside its trial. The others take first what they were seen
    to hold in this fitting. Whoever is left goes to brokers that were never late in it, up to the
    capacity that is declared and that the model expects of them. A broker that was late never gets
    more than it held before.
    """
    outside = [each for each in topic.brokers if each.name not in trial.judged]
    seen = {each.name: rooms.held(each.name) for each in outside}
    found = _filled(topic, trial.assignment, seen)
    if len(found) == len(topic.publishers):
        return found
    whole = _whole(topic)
    trusted = {
        each.name: max(seen[each.name], _expected(topic, whole, each, model))
        for each in outside
        if rooms.late_from(each.name) == inf
    }
    return _filled(topic, found, seen | trusted)


def _filled(
    topic: FittedTopic, assignment: Mapping[str, str], rooms: Mapping[str, float]
) -> dict[str, str]:
    """The assignment with those who wait placed as well, as far as `rooms` go (messages/s of the
    topic by broker)."""
    there = topic.rates(assignment)
    brokers = []
    for each in topic.brokers:
        room = max(there.get(each.name, 0.0), min(each.rcap, rooms.get(each.name, 0.0)))
        brokers.append(replace(each, capacity=each.allocated + room))
    filled = extend(topic.contract, brokers, topic.publishers, assignment, {})
    return dict(filled.assignment)


def _whole(topic: FittedTopic) -> Load:
    """The topic alone, all of it at one broker."""
    alone = replace(topic, brokers=(Broker("all", 0.0),))
    return alone.loads(dict.fromkeys((each.id for each in topic.publishers), "all"))["all"]


def _expected(topic: FittedTopic, whole: Load, broker: Broker, model: CapacityModel) -> float:
    """messages/s of the topic that a broker may hold: its capacity, or less if the model says so of
    such a part of the topic."""

    def late_share(part: float) -> float | None:
        rate = broker.allocated + part * whole.rate
        connections = max(1, round(part * whole.connections))
        return model.late_share(broker.name, Load(rate, part * whole.burst, connections))

    allowed = topic.slo.allowed_late_share
    low, high = 0.0, min(1.0, broker.rcap / whole.rate)
    if high <= 0:
        return 0.0
    expected = late_share(high)
    if expected is None or expected <= allowed:
        return high * whole.rate
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        expected = late_share(middle)
        if expected is not None and expected <= allowed:
            low = middle
        else:
            high = middle
    return low * whole.rate
