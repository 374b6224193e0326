"""The pure parts of online fitting: queues of batches, warm-up, prefixes, samples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributor.fitting import Sample
from distributor.fitting.batches import beyond, smallest_burst, work_before
from distributor.fitting.round import LONGEST_SECONDS, SHORTEST_SECONDS, warm_up
from distributor.fitting.samples import slots
from distributor.fitting.shed import in_order, middle
from distributor.model import Publisher
from srtm.limits import queueing
from tests.support.fitting_brokers import contract, publishers

# --- batches ----------------------------------------------------------------------------------

BATCHES = st.lists(st.tuples(st.integers(0, 200), st.integers(1, 30)), min_size=1, max_size=40)


@given(BATCHES, st.integers(1, 40), st.integers(0, 300))
def test_a_bucket_of_batches_is_the_bucket_of_their_messages(
    batches: list[tuple[int, int]], burst: int, target: int
) -> None:
    """Quarters of a second and whole messages: nothing is lost to rounding."""
    times = np.cumsum([gap for gap, _ in batches]) / 4
    sizes = np.array([size for _, size in batches], dtype=float)
    rate = 8.0
    waits = queueing.token_waits(np.repeat(times, sizes.astype(int)), rate, burst)
    late = waits > target / 8 + 1e-9
    starts = np.cumsum(sizes) - sizes
    expected = np.add.reduceat(late, starts.astype(int))
    found = beyond(work_before(times, sizes, rate), sizes, burst + rate * target / 8)
    assert found.tolist() == expected.tolist()


@given(BATCHES)
def test_the_smallest_burst_is_that_of_the_messages(batches: list[tuple[int, int]]) -> None:
    times = np.cumsum([gap for gap, _ in batches]) / 4
    sizes = np.array([size for _, size in batches], dtype=float)
    if times[0] == times[-1]:
        return
    fit = queueing.smallest_burst(np.repeat(times, sizes.astype(int)), 1.25, 0.9)
    work = work_before(times - times[0], sizes, fit.rate)
    late_share = (sizes.sum() - max(1, np.ceil(0.9 * sizes.sum() - 1e-9))) / sizes.sum()
    assert smallest_burst(work, sizes, late_share) == fit.burst


def test_a_bucket_that_starts_emptier_makes_more_wait() -> None:
    times, sizes = np.array([0.0, 1.0]), np.array([3.0, 3.0])
    assert work_before(times, sizes, 2.0).tolist() == [0.0, 1.0]
    assert work_before(times, sizes, 2.0, start=5.0).tolist() == [5.0, 6.0]


def test_no_messages_fit_no_burst() -> None:
    with pytest.raises(ValueError, match="record arrivals"):
        smallest_burst(np.zeros(0), np.zeros(0), 0.01)


# --- warm-up ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("burst", "memory", "empty_first"),
    [
        pytest.param(200.0, 2.0, False, id="short"),
        pytest.param(2_000.0, 20.0, False, id="long"),
        pytest.param(20_000.0, 200.0, True, id="too-long-to-wait-for"),
    ],
)
def test_the_warm_up_outlasts_the_bucket_or_empties_it(
    burst: float, memory: float, empty_first: bool
) -> None:
    found = warm_up(contract(1_100.0, burst), 1_000.0)
    assert found.memory == pytest.approx(memory)
    assert found.empty_first is empty_first
    assert found.violated_from == pytest.approx(memory)  # never against a broker before that
    assert found.holds_after - found.holds_from >= SHORTEST_SECONDS
    if empty_first:
        assert memory > LONGEST_SECONDS
        assert found.holds_from == 0  # an empty bucket flatters nobody
    else:
        assert found.holds_from == pytest.approx(memory)


@pytest.mark.parametrize("offered", [1_100.0, 2_000.0], ids=["all", "more"])
def test_a_bucket_that_never_fills_has_no_warm_up(offered: float) -> None:
    with pytest.raises(ValueError, match="waits grow without end"):
        warm_up(contract(1_100.0), offered)


# --- prefixes ---------------------------------------------------------------------------------


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=60), st.randoms())
def test_every_prefix_takes_the_same_part_of_every_group(keys: list[str], random: object) -> None:
    mine = [Publisher(f"p{n:02}", key, 5.0) for n, key in enumerate(keys)]
    order = in_order(mine)
    shuffled = list(mine)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert in_order(shuffled) == order
    for length in range(len(order) + 1):
        for key in set(keys):
            there = sum(each.key == key for each in order[:length])
            assert abs(there - length / len(keys) * keys.count(key)) <= 2.5
    half = order[: len(order) // 2]
    assert all(
        abs(sum(e.key == k for e in half) - len(half) / len(keys) * keys.count(k)) <= 2
        for k in set(keys)
    )


def test_equal_groups_take_turns() -> None:
    order = in_order(publishers(40, groups=4))
    for first in range(0, 40, 4):
        assert {each.key for each in order[first : first + 4]} == {"g0", "g1", "g2", "g3"}


def test_a_big_group_gives_more_of_every_prefix() -> None:
    mine = [Publisher(f"p{n:02}", "small" if n < 10 else "big", 1.0) for n in range(40)]
    order = in_order(mine)
    for first in range(0, 40, 4):
        assert [each.key for each in order[first : first + 4]].count("small") == 1


def test_those_that_stay_come_first() -> None:
    order = in_order(publishers(20, groups=2), first={"p013", "p007"})
    assert {each.id for each in order[:2]} == {"p013", "p007"}
    assert len(order) == 20


@given(st.lists(st.floats(1, 100), min_size=2, max_size=30), st.integers(0, 28), st.integers(2, 30))
def test_the_middle_is_between_and_halfway_by_rate(found: list[float], low: int, more: int) -> None:
    order = [Publisher(f"p{n}", None, rate) for n, rate in enumerate(found)]
    low = min(low, len(order) - 2)
    high = min(len(order), low + more)
    length = middle(order, low, high)
    assert low < length < high
    sums = np.concatenate([[0.0], np.cumsum(found)])
    half = (sums[low] + sums[high]) / 2
    off = np.abs(sums[low + 1 : high] - half)
    assert abs(sums[length] - half) == pytest.approx(off.min(), abs=1e-6)


def test_there_is_no_middle_of_neighbours() -> None:
    with pytest.raises(ValueError, match="no prefix between 3 and 4"):
        middle(publishers(9), 3, 4)


# --- samples ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param((0.0, 1.0, 5, 6, 0, 6), "must not decrease", id="more-late-than-there-are"),
        pytest.param((0.0, 1.0, 5, 2, 3, 2), "must not decrease", id="later-alone-than-with-waits"),
        pytest.param((0.0, 1.0, 5, 2, 2, 1), "must not decrease", id="late-and-not-near"),
        pytest.param((0.0, 1.0, 5, -1, -1, 0), "must not decrease", id="less-than-none"),
        pytest.param((1.0, 1.0, 5, 0, 0, 0), "has no length", id="no-time"),
    ],
)
def test_a_sample_that_cannot_be_is_refused(
    values: tuple[float, float, int, int, int, int], message: str
) -> None:
    began, ended, messages, late, alone, near = values
    with pytest.raises(ValueError, match=f"broker b0, topic t: .*{message}"):
        Sample("b0", "t", 1, began, ended, messages, late, alone, near)


def test_samples_from_before_are_left_out_and_the_others_come_in_order_of_time() -> None:
    rows = [Sample("b", "t", 1, at, at + 1, 10 + int(at), 2, 1, 3) for at in (3.0, 1.0, 2.0)]
    found = slots(rows, since=2.0)
    assert found.messages.tolist() == [12, 13]
    assert found.late_share == pytest.approx(4 / 25)
    assert found.near_share == pytest.approx(6 / 25)
    assert slots([], 0.0).late_share == 0
