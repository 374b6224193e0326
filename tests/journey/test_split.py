"""Which options and parts of an SLO are chosen for the legs of a journey."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtm.journey.frontier import frontier_of
from srtm.journey.split import MOST_CHOICES, Impossible, Option, Split, split
from srtm.limits.bins import Bins, bins_of, key_of
from srtm.limits.slo import SLO
from tests.support.cases import LONG, cases

CONFIDENCE = 0.999
BINS = st.dictionaries(
    st.integers(key_of(1e-3), key_of(0.5)), st.integers(1, 99), min_size=1, max_size=6
).map(Counter)
OPTIONS = st.lists(
    st.builds(
        lambda cost, bins: Option(f"{cost}", cost, frontier_of(bins)), st.integers(1, 9), BINS
    ),
    min_size=1,
    max_size=4,
)
LEGS = st.lists(OPTIONS, min_size=1, max_size=3).map(
    lambda all: dict(zip("abc", all, strict=False))
)


def option(name: str, cost: float, milliseconds: float, tail: float = 0.001) -> Option:
    """All but `tail` of its messages take so long, the others ten times that."""
    late = round(tail * 100_000)
    seconds = milliseconds / 1e3
    bins = Counter({key_of(seconds): 100_000 - late, key_of(seconds * 10): late})
    return Option(name, cost, frontier_of(bins))


def legs_of(*options: Option) -> dict[str, list[Option]]:
    return {each.name: [each] for each in options}


@given(LEGS, st.floats(0.5, 0.999), st.floats(0.002, 1.5))
@settings(max_examples=cases(300))
def test_nothing_that_keeps_the_slo_costs_less(
    legs: dict[str, list[Option]], percentile: float, target: float
) -> None:
    slo = SLO(percentile, target)
    found = split(legs, slo)
    costs = []
    for choice in itertools.product(*legs.values()):
        points = itertools.product(*(range(len(each.frontier.seconds)) for each in choice))
        kept = any(
            sum(o.frontier.seconds[n, 0] for o, n in zip(choice, numbers, strict=True)) <= target
            and sum(o.frontier.late[n, 0] for o, n in zip(choice, numbers, strict=True))
            <= 1 - percentile
            for numbers in points
        )
        if kept:
            costs.append(sum(each.cost for each in choice))
    assert isinstance(found, Split) == bool(costs)
    if isinstance(found, Split):
        assert found.cost == pytest.approx(min(costs))
        assert sum(part.seconds for part in found.parts.values()) <= target * (1 + 1e-9)
        late = sum(part.late_share for part in found.parts.values())
        assert late <= (1 - percentile) * (1 + 1e-9)
        assert found.headroom >= 1


def test_the_leg_that_is_dear_to_better_gets_the_time() -> None:
    legs = {
        "broker": [option("1 broker", 10, 40), option("3 brokers", 30, 5)],
        "consumer": [option("1 consumer", 1, 150), option("4 consumers", 4, 20)],
    }
    found = split(legs, SLO.parse("0.99@100ms"))
    assert isinstance(found, Split)
    assert {leg: each.name for leg, each in found.options.items()} == {
        "broker": "1 broker",
        "consumer": "4 consumers",
    }


def test_of_equal_cost_the_one_with_more_headroom() -> None:
    legs = {"consumer": [option("a", 1, 20, tail=0.005), option("b", 1, 20, tail=0.001)]}
    found = split(legs, SLO.parse("0.99@100ms"))
    assert isinstance(found, Split)
    assert found.options["consumer"].name == "b"
    assert found.headroom == pytest.approx(10)


def test_what_cannot_be_kept_names_the_leg_and_the_target_that_could() -> None:
    legs = legs_of(option("broker", 1, 5), option("bridge", 1, 10), option("consumer", 1, 300))
    found = split(legs, SLO.parse("0.99@100ms"))
    assert isinstance(found, Impossible)
    assert found.leg == "consumer"
    assert found.late_share == 1.0
    assert found.needs_seconds == pytest.approx(0.315, rel=0.03)
    assert isinstance(split(legs, SLO(0.99, found.needs_seconds)), Split)


def test_a_percentile_that_no_target_keeps() -> None:
    bins = Counter({key_of(0.01): 50})
    legs = {"consumer": [Option("seen", 1, frontier_of(bins, confidence=CONFIDENCE))]}
    found = split(legs, SLO.parse("0.99@10s"))
    assert isinstance(found, Impossible)
    assert found.needs_seconds is None  # fifty messages say nothing of one in a hundred


def test_too_many_choices_are_refused() -> None:
    many = [option(str(number), number, 10) for number in range(101)]
    with pytest.raises(ValueError, match=str(MOST_CHOICES)):
        split({"a": many, "b": many}, SLO.parse("0.99@1s"))


def test_a_promise_to_journeys_with_dependent_legs_is_kept() -> None:
    """Random legs that share their bursts, each known by a sample of its own; what was promised of
    them is held against what all messages then do."""
    rng = np.random.default_rng(7)
    journeys = 10_000 if LONG else 60
    promised = broken = 0
    for _ in range(journeys):
        whole = _dependent(rng, 20_000)
        seen = {
            name: [Option("seen", 1, frontier_of(binned(rng.choice(leg, 5_000)), CONFIDENCE))]
            for name, leg in zip("abc", whole, strict=True)
        }
        slo = SLO(0.97, float(np.quantile(whole.sum(axis=0), 0.97) * rng.uniform(1.0, 3.0)))
        found = split(seen, slo)
        if isinstance(found, Split):
            promised += 1
            broken += (whole.sum(axis=0) > slo.target_seconds).mean() > slo.allowed_late_share
    assert promised > journeys / 10
    # Three legs, each with its confidence.
    assert broken <= 3 * (1 - CONFIDENCE) * promised


def _dependent(rng: np.random.Generator, messages: int) -> np.ndarray:
    """Latencies in seconds, shape (3, messages), of legs that are late together, against each
    other, or by themselves."""
    shared = rng.normal(size=messages)
    rows = []
    for _ in range(3):
        weight = rng.uniform(-1, 1)
        own = rng.normal(size=messages)
        drawn = weight * shared + np.sqrt(1 - weight**2) * own
        rows.append(rng.uniform(0.001, 0.05) * np.exp(rng.uniform(0.1, 1.0) * drawn))
    return np.array(rows)


def binned(seconds: np.ndarray) -> Bins:
    return bins_of(seconds * 1e9, np.ones(len(seconds), dtype=np.int64))
