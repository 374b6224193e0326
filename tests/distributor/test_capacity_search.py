"""The search for mcap: bracketed, bounded, a lower bound where the broker is not to blame."""

from math import ceil, log, log2
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributor.capacity.search import NARROW, Found, Outcome, Search, least_rate

HELD, LATE, BEHIND = Outcome
Rounds = list[tuple[int, Outcome]]


def run(search: Search, broker: "Model") -> tuple[Rounds, Found]:
    rounds: Rounds = []
    while (rate := search.next_rate(rounds)) is not None:
        rounds.append((rate, broker.round(rate)))
    return rounds, search.found(rounds)


class Model:
    """A broker that holds up to `mcap`, with a noise of `width` (relative) around it, under a
    generator that keeps up until `generator`."""

    def __init__(self, mcap: float, width: float, generator: float, seed: int) -> None:
        self.mcap, self.width, self.generator = mcap, width, generator
        self._random = Random(seed)

    def round(self, rate: int) -> Outcome:
        if rate > self.generator:
            return BEHIND
        return HELD if rate <= self.mcap * (1 + self._random.uniform(-1, 1) * self.width) else LATE


searches = st.tuples(st.integers(100, 5_000), st.integers(0, 9), st.integers(0, 14)).map(
    lambda parts: Search(parts[0] << parts[1], parts[0], parts[0] << (parts[1] + parts[2]))
)
brokers = st.builds(
    Model,
    st.floats(50, 5e6),
    st.sampled_from([0.0, 0.0, 0.02, 0.1]),
    st.one_of(st.just(float("inf")), st.floats(100, 5e6)),
    st.integers(0, 1000),
)


@given(searches, brokers)
def test_the_bracket_is_right_and_narrow(search: Search, broker: Model) -> None:
    _, found = run(search, broker)
    low, high = broker.mcap * (1 - broker.width), broker.mcap * (1 + broker.width)
    assert found.rate <= min(high, broker.generator, search.most)
    if found.limit is HELD:
        assert found.rate == search.most
    elif not found.rate:
        assert search.least > min(low, broker.generator)
    elif found.limit is LATE:
        assert found.rate * NARROW + 1 >= low
    else:
        assert found.rate * NARROW + 1 >= broker.generator
    assert found.at_least == (found.limit is not LATE)


@given(searches, brokers)
def test_rounds_are_bounded_and_rates_within_what_was_asked(search: Search, broker: Model) -> None:
    rounds, _ = run(search, broker)
    steps = ceil(log2(search.most / search.least)) + 1 + ceil(log2(log(2) / log(NARROW))) + 1
    assert len(rounds) <= 3 * steps
    assert all(search.least <= rate <= search.most for rate, _ in rounds)


@given(searches, brokers)
def test_two_rounds_decide_on_each_rate(search: Search, broker: Model) -> None:
    rounds, found = run(search, broker)
    for rate in {rate for rate, _ in rounds}:
        outcomes = [outcome for each, outcome in rounds if each == rate]
        held = outcomes.count(HELD)
        assert max(held, len(outcomes) - held) == 2
        assert outcomes[0] is HELD or outcomes[1] is HELD or len(outcomes) == 2
    assert [outcome for rate, outcome in rounds if rate == found.rate].count(HELD) in (0, 2)


SEARCH = Search(1_000, 100, 4_000)


@pytest.mark.parametrize(
    ("rounds", "then"),
    [
        pytest.param([], 1_000, id="the-start"),
        pytest.param([(1_000, HELD)], 1_000, id="once-is-not-enough"),
        pytest.param([(1_000, HELD)] * 2, 2_000, id="doubled"),
        pytest.param([(1_000, HELD), (1_000, LATE)], 1_000, id="a-third-round-decides"),
        pytest.param([(1_000, LATE), (1_000, HELD), (1_000, HELD)], 2_000, id="two-of-three"),
        pytest.param([(1_000, LATE)] * 2, 500, id="halved"),
        pytest.param([(1_000, HELD)] * 2 + [(2_000, LATE)] * 2, 1_414, id="bisected"),
        pytest.param([(1_000, HELD)] * 2 + [(2_000, BEHIND)] * 2, 1_414, id="bisected-for-a-bound"),
        pytest.param([(2_000, HELD)] * 2 + [(3_000, HELD)] * 2, 4_000, id="no-more-than-most"),
        pytest.param([(4_000, HELD)] * 2, None, id="most-holds"),
        pytest.param([(100, LATE)] * 2, None, id="the-least-does-not-hold"),
        pytest.param([(150, LATE)] * 2, 100, id="no-less-than-the-least"),
        pytest.param([(1_000, HELD)] * 2 + [(1_050, LATE)] * 2, None, id="narrow"),
        pytest.param([(1_000, HELD)] * 2 + [(1_051, LATE)] * 2, 1_025, id="not-narrow-yet"),
    ],
)
def test_what_comes_next(rounds: Rounds, then: int | None) -> None:
    assert SEARCH.next_rate(rounds) == then


@pytest.mark.parametrize(
    ("rounds", "found"),
    [
        pytest.param([(4_000, HELD)] * 2, Found(4_000, HELD), id="all-that-was-asked"),
        pytest.param([(100, LATE)] * 2, Found(0, LATE), id="nothing"),
        pytest.param([(1_000, HELD)] * 2 + [(1_040, LATE)] * 2, Found(1_000, LATE), id="mcap"),
        pytest.param(
            [(1_000, HELD)] * 2 + [(1_040, LATE), (1_040, BEHIND)],
            Found(1_000, BEHIND),
            id="in-doubt-it-is-the-generator",
        ),
        pytest.param(
            [(1_000, HELD)] * 2 + [(2_000, BEHIND)] * 2 + [(1_040, LATE)] * 2,
            Found(1_000, LATE),
            id="the-lowest-that-failed-tells-why",
        ),
    ],
)
def test_what_was_found(rounds: Rounds, found: Found) -> None:
    assert SEARCH.found(rounds) == found


@pytest.mark.parametrize(
    ("allowed", "seconds", "least"),
    [
        pytest.param(0.01, 10.0, 100, id="p99"),
        pytest.param(0.001, 10.0, 1_000, id="p99.9"),
        pytest.param(0.01, 1.0, 1_000, id="short-rounds"),
        pytest.param(0.5, 10.0, 100, id="rates-are-whole"),
        pytest.param(1 - 0.9, 0.5, 200, id="rounding"),
    ],
)
def test_the_least_rate_has_late_messages_to_judge_by(
    allowed: float, seconds: float, least: int
) -> None:
    assert least_rate(allowed, seconds) == least
