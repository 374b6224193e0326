"""Brokers for the fitting to measure: as late as a test says, in slots of half a second."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from distributor.fitting import Done, Fitting, Round, Sample
from distributor.model import Broker, Publisher
from srtm.limits.contract import Contract
from srtm.limits.slo import SLO

SLOT = 0.5
TOPIC = "t"


@dataclass(frozen=True)
class Late:
    """Parts of a broker's messages."""

    late: float = 0.0
    at_broker: float | None = None  # of `late`, all where None
    near: float | None = None  # those over 0.8 x target; as many as are late where None


Behaviour = Callable[[str, float, Round], Late]
"""(broker, messages/s there, round) -> what it measures"""


def contract(rate: float = 1_100.0, burst: float = 200.0, slo: str | None = "0.99@1ms") -> Contract:
    return Contract(topic=TOPIC, rate=rate, burst=burst, slo=SLO.parse(slo) if slo else None)


def publishers(count: int = 100, rate: float = 10.0, groups: int = 10) -> list[Publisher]:
    return [Publisher(f"p{n:03}", f"g{n % groups}", rate) for n in range(count)]


def brokers(count: int = 6, capacity: float = 5_000.0, allocated: float = 0.0) -> list[Broker]:
    return [Broker(f"b{n}", capacity, allocated) for n in range(count)]


def holding(limits: Mapping[str, float] | float, near_from: float = 1.0) -> Behaviour:
    """Late beyond so many messages/s; p99 is near the target from `near_from` of that."""

    def behaviour(broker: str, rate: float, current: Round) -> Late:
        limit = limits if isinstance(limits, float) else limits[broker]
        return Late(0.2 if rate > limit else 0.0, near=0.02 if rate >= near_from * limit else None)

    return behaviour


def rates(assignment: Mapping[str, str], topic: Sequence[Publisher]) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in topic:
        if each.id in assignment:
            found[assignment[each.id]] = found.get(assignment[each.id], 0.0) + each.rate
    return found


def measured(
    current: Round, since: float, until: float, topic: Sequence[Publisher], behaviour: Behaviour
) -> list[Sample]:
    """The slots that ended after `since` and by `until`, on a grid from the round's begin. Bigger
    counts than such brokers have: the verdicts are not what is tested."""
    found = []
    for broker, rate in rates(current.assignment, topic).items():
        late = behaviour(broker, rate, current)
        first = int((since - current.began_at) / SLOT + 1e-6)
        for at in range(first, int((until - current.began_at) / SLOT + 1e-6)):
            began = current.began_at + at * SLOT
            found.append(sample(broker, current.epoch, began, late))
    return found


def sample(broker: str, epoch: int, began: float, what: Late, topic: str = TOPIC) -> Sample:
    messages = 10_000
    late = round(messages * what.late)
    alone = late if what.at_broker is None else round(messages * what.at_broker)
    near = late if what.near is None else max(late, round(messages * what.near))
    return Sample(broker, topic, epoch, began, began + SLOT, messages, late, alone, near)


def carry_out(
    fitting: Fitting, topic: Sequence[Publisher], behaviour: Behaviour, most_rounds: int = 200
) -> tuple[Done, list[Round]]:
    """Until it is done; every round as it was begun."""
    rounds: list[Round] = []
    since = 0.0
    what = fitting.next([], 0.0)
    while isinstance(what, Round):
        if not rounds or rounds[-1].epoch != what.epoch:
            rounds.append(what)
            since = what.began_at
            assert len(rounds) <= most_rounds
        now = what.look_again_at
        assert now > since
        samples = measured(what, since, now, topic, behaviour)
        since = now
        what = fitting.next(samples, now)
    return what, rounds
