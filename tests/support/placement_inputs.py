"""Topics to place: strategies and small builders that the placement tests share."""

from collections import Counter
from collections.abc import Sequence
from math import fsum

from hypothesis import strategies as st

from distributor.model import Broker, Placement, Publisher
from srtm.limits.contract import Contract


def contract(rate: float = 1e6, burst: float = 1e6, topic: str = "t") -> Contract:
    return Contract(topic=topic, rate=rate, burst=burst)


def publishers(rates: Sequence[float], keys: Sequence[str | None] = (None,)) -> list[Publisher]:
    """p00, p01, ...; keys are taken in turn."""
    return [
        Publisher(f"p{number:04}", keys[number % len(keys)], rate)
        for number, rate in enumerate(rates)
    ]


def brokers(*rooms: float, allocated: float = 0.0) -> list[Broker]:
    """b0, b1, ... with so much left."""
    return [Broker(f"b{n}", room + allocated, allocated) for n, room in enumerate(rooms)]


def cells(placement: Placement, topic: Sequence[Publisher]) -> dict[tuple[str, str], float]:
    """messages/s of each (group, broker); those without a key are left out."""
    rates: Counter[tuple[str, str]] = Counter()
    for each in topic:
        name = placement.assignment.get(each.id)
        if each.key and name:
            rates[each.key, name] += each.rate  # type: ignore[assignment]
    return dict(rates)


def total(topic: Sequence[Publisher]) -> float:
    return fsum(each.rate for each in topic)


KEYS = st.sampled_from([None, "a", "b", "c", "d"])
EQUAL_RATES = st.sampled_from([0.1, 1.0, 20 / 3, 10.0, 1234.5])


@st.composite
def equal_topics(draw: st.DrawFn, most: int = 60) -> list[Publisher]:
    rate = draw(EQUAL_RATES)
    keys = draw(st.lists(KEYS, min_size=1, max_size=most))
    return [Publisher(f"p{number:04}", key, rate) for number, key in enumerate(keys)]


@st.composite
def unequal_topics(draw: st.DrawFn, most: int = 12) -> list[Publisher]:
    rates = draw(st.lists(st.integers(1, 40), min_size=1, max_size=most))
    return [Publisher(f"p{n:04}", draw(KEYS), float(rate)) for n, rate in enumerate(rates)]


@st.composite
def rooms_for(draw: st.DrawFn, topic: Sequence[Publisher], most: int = 6) -> list[Broker]:
    """From far too little room to far too much, often just enough; some of it allocated."""
    parts = draw(st.lists(st.integers(1, 5), min_size=1, max_size=most))
    tightness = draw(st.sampled_from([0.5, 1.0, 1.05, 1.3, 3.0]))
    each = total(topic) * tightness / sum(parts)
    return [
        Broker(f"b{n}", part * each + allocated, allocated)
        for n, part in enumerate(parts)
        for allocated in [draw(st.sampled_from([0.0, 7.0, 100.0]))]
    ]
