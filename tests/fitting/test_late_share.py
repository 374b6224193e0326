"""The sequential test on the share of late messages, and how it sees clusters."""

from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.placement.fitting_errors import errors, made
from distributor.fitting.late_share import CLUSTERED, ERROR, Side, dispersion, leaning, side

ALLOWED = 0.01


def counts(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


@pytest.mark.parametrize(
    ("messages", "late", "expected"),
    [
        pytest.param([], [], Side.UNSURE, id="nothing-yet"),
        pytest.param([0.0] * 9, [0.0] * 9, Side.UNSURE, id="no-message"),
        pytest.param([1e4] * 2, [0.0] * 2, Side.UNSURE, id="none-late-for-too-short"),
        pytest.param([1e4] * 3, [0.0] * 3, Side.BELOW, id="none-late-for-long"),
        pytest.param([1e4], [9e3], Side.ABOVE, id="nearly-all-late-at-once"),
        pytest.param([1e4] * 40, [50.0] * 40, Side.BELOW, id="half-of-the-allowed"),
        pytest.param([1e4] * 40, [150.0] * 40, Side.ABOVE, id="one-and-a-half-of-the-allowed"),
        pytest.param([1e4] * 40, [91.0] * 40, Side.UNSURE, id="in-between"),
        pytest.param([1e3] * 10, [0.0] * 9 + [900.0], Side.UNSURE, id="one-big-cluster"),
    ],
)
def test_it_is_sure_or_not(messages: list[float], late: list[float], expected: Side) -> None:
    assert side(counts(*messages), counts(*late), ALLOWED) is expected


def test_bigger_bursts_and_more_tests_ask_for_more() -> None:
    quiet = counts(*[1e4] * 3), counts(*[0.0] * 3)
    assert side(*quiet, ALLOWED) is Side.BELOW
    assert side(*quiet, ALLOWED, together=300) is Side.UNSURE
    busy = counts(*[1e4] * 2), counts(*[390.0] * 2)
    assert side(*busy, ALLOWED, tests=1) is Side.ABOVE
    assert side(*busy, ALLOWED, tests=10**6) is Side.UNSURE


@given(
    st.lists(st.tuples(st.integers(1, 10_000), st.floats(0, 1)), min_size=1, max_size=60),
    st.sampled_from([0.001, 0.01, 0.1]),
)
def test_it_never_says_the_other_side(slots: list[tuple[int, float]], allowed: float) -> None:
    messages = counts(*[each for each, _ in slots])
    late = counts(*[round(each * part * 3 * allowed) for each, part in slots])
    share = late.sum() / messages.sum()
    found = side(messages, np.minimum(late, messages), allowed)
    if found is Side.ABOVE:
        assert share > 0.9 * allowed
    if found is Side.BELOW:
        assert share < 0.92 * allowed


@pytest.mark.parametrize("allowed", [0.0, 2 / 3, float("nan")])
def test_an_allowed_share_that_leaves_no_room_is_refused(allowed: float) -> None:
    with pytest.raises(ValueError, match="must lie between 0 and"):
        side(counts(1.0), counts(0.0), allowed)


# --- dispersion -------------------------------------------------------------------------------


def test_independent_messages_are_not_taken_for_independent() -> None:
    random = np.random.default_rng(1)
    messages = np.full(400, 1000.0)
    assert dispersion(messages, random.poisson(10.0, 400).astype(float)) == CLUSTERED


def test_a_slot_of_its_own_shows_clusters() -> None:
    late = np.zeros(100)
    late[::10] = 500.0
    assert 400 < dispersion(np.full(100, 1000.0), late) < 600


def test_clusters_of_clusters_show_in_longer_batches() -> None:
    """Stretches of 16 slots: a slot alone tells half of it."""
    late = np.tile(np.repeat([0.0, 100.0], 16), 4)
    alone = float(late.var() / late.mean())
    assert dispersion(np.full(128, 1000.0), late) > 10 * alone


# --- errors on clustered late messages --------------------------------------------------------


@pytest.mark.parametrize("rate", [1_667.0, 10_000.0], ids=["one-of-six-brokers", "one-broker"])
@pytest.mark.parametrize("share", [0.005, 0.015], ids=["to-be-accepted", "to-be-rejected"])
@pytest.mark.parametrize("dispersed", [30.0, 70.0], ids=["variance-30", "variance-70"])
def test_it_errs_in_under_one_of_twenty(rate: float, share: float, dispersed: float) -> None:
    random = np.random.default_rng(11)
    runs = [made(random, rate, share, dispersed, stretches=False) for _ in range(100)]
    found = errors("clusters", share, runs)
    assert found.dispersion == pytest.approx(dispersed, rel=0.2)  # it is what it says
    assert found.wrong <= 0.05


def test_a_test_that_assumes_independence_errs_up_to_half_of_the_time() -> None:
    """Why dispersion is estimated: Wald's test as it stands, on the same messages."""
    random = np.random.default_rng(11)
    wrong = 0
    for _ in range(100):
        messages, late = made(random, 10_000.0, 0.015, 70.0, stretches=False)
        for count in range(1, len(late)):
            leans = leaning(messages[:count], late[:count], ALLOWED)
            if abs(leans) >= log(1 / ERROR):
                wrong += leans < 0
                break
    assert wrong > 40
