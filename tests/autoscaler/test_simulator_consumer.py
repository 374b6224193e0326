"""One simulated consumer: against a plain loop over single events, whatever the windows."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtm.autoscaler.simulator.consumer import Consumer, Partition
from tests.support.cases import cases
from tests.support.simulator_loop import Move, SlowConsumer, fast, play, slow

# Sixteenths and a service time of a quarter: every sum is exact, so ties are ties in both.
SIXTEENTHS = st.integers(0, 400).map(lambda n: n / 16)
TIMES = st.lists(st.lists(SIXTEENTHS, max_size=40).map(sorted), min_size=1, max_size=4)
LOOKS = st.lists(SIXTEENTHS, max_size=30)


def consumer_of(
    times: list[float], mu: float = 4.0, max_poll: int = 500
) -> tuple[Consumer, Partition]:
    partition = Partition(np.array(times, dtype=np.float64))
    return Consumer("c", mu, 0.0, max_poll, partitions=[partition]), partition


@settings(max_examples=cases(300))
@given(data=st.data(), times=TIMES, looks=LOOKS, max_poll=st.integers(1, 12))
def test_a_consumer_is_the_plain_loop_over_events(
    data: st.DataObject, times: list[list[float]], looks: list[float], max_poll: int
) -> None:
    """The same ends and the same lag at every look, with moves between two consumers."""
    number = st.integers(0, len(times) - 1)
    drawn = data.draw(
        st.lists(st.builds(Move, SIXTEENTHS, number, st.integers(0, 1), SIXTEENTHS), max_size=6)
    )
    moves = list({move.partition: move for move in drawn}.values())
    quick, plain = fast(times), slow(times)
    lags = play([Consumer(name, 4.0, 0.0, max_poll) for name in "ab"], quick, moves, looks)
    expected = play([SlowConsumer(4.0, max_poll) for _ in "ab"], plain, moves, looks)
    assert [partition.ends.tolist() for partition in quick] == [p.ends for p in plain]
    assert lags == expected


@given(
    times=st.lists(st.floats(0, 50), min_size=1, max_size=80).map(sorted),
    mu=st.floats(0.5, 400),
    looks=st.lists(st.floats(0, 60), max_size=20).map(sorted),
)
def test_any_times_any_rate_any_windows(times: list[float], mu: float, looks: list[float]) -> None:
    """Not exact sums: no event before its arrival, no two at once, and the loop's ends nearly."""
    consumer, partition = consumer_of(times, mu)
    for look in looks:
        consumer.serve(look)
    consumer.serve(1e6)
    free, expected = 0.0, []
    for time in times:
        free = max(free, time) + 1 / mu
        expected.append(free)
    assert partition.ends == pytest.approx(expected, abs=1e-9)
    assert (partition.ends >= partition.times + 1 / mu - 1e-9).all()


def test_a_start_that_rounding_puts_before_the_arrival_ends() -> None:
    """(a - s) + s may be an ulp less than a: the poll that begins there must hold its event."""
    random = np.random.default_rng(0)
    rounded = 0
    for _ in range(50):
        mu = random.uniform(1, 300)
        times = np.sort(random.random(200) * 5)
        spent = np.arange(200) / mu
        rounded += int(((times - spent) + spent < times).any())
        consumer, partition = consumer_of(times.tolist(), mu)
        consumer.serve(500.0)
        assert np.isfinite(partition.ends).all()
    assert rounded, "no such rounding among these: the test shows nothing"


@pytest.mark.parametrize(
    ("at", "lag"),
    [
        pytest.param(0.0, 0, id="nothing-arrived-before-0"),
        pytest.param(0.25, 5, id="the-first-event-is-served-not-committed"),
        pytest.param(0.74, 5, id="the-poll-of-three-is-not-over"),
        pytest.param(0.75, 2, id="it-is-committed-whole-at-its-end"),
        pytest.param(1.0, 2, id="one-of-the-next-two-is-served"),
        pytest.param(1.25, 0, id="all-committed"),
    ],
)
def test_polls_are_committed_whole(at: float, lag: int) -> None:
    consumer, partition = consumer_of([0.0] * 5, mu=4.0, max_poll=3)
    consumer.serve(at)
    assert partition.lag(at) == lag


def test_a_poll_takes_what_has_arrived_when_it_begins() -> None:
    """The second event comes while the first is served: it is the next poll's."""
    consumer, partition = consumer_of([0.0, 0.125], mu=4.0)
    assert consumer.finish_batch(0.125) == 0.25
    assert partition.ends.tolist() == [0.25, math.inf]
    consumer.serve(1.0)
    assert partition.ends.tolist() == [0.25, 0.5]


def test_ending_a_poll_commits_it_at_its_end_not_before() -> None:
    consumer, partition = consumer_of([0.0] * 4, mu=4.0)
    assert consumer.finish_batch(0.3) == 1.0
    assert partition.lag(0.3) == 4
    consumer.partitions.clear()
    consumer.serve(0.9)
    assert partition.lag(0.9) == 4
    consumer.serve(1.0)
    assert partition.lag(1.0) == 0


def test_a_late_commit_does_not_undo_the_next_owners() -> None:
    first, partition = consumer_of([0.0, 0.0, 5.0], mu=4.0)
    end = first.finish_batch(0.1)
    first.partitions.clear()
    second = Consumer("d", 4.0, 0.0, 500, free_at=end, partitions=[partition])
    second.serve(6.0)
    first.serve(6.0)
    assert partition.lag(6.0) == 0


def test_an_idle_consumer_has_no_poll_to_end() -> None:
    consumer, partition = consumer_of([2.0])
    assert consumer.finish_batch(1.0) == 1.0
    assert partition.ends.tolist() == [math.inf]


@pytest.mark.parametrize("max_poll", [1, 7, 500])
def test_the_size_of_polls_moves_no_end(max_poll: int) -> None:
    times = np.sort(np.random.default_rng(3).random(500) * 20).tolist()
    consumer, partition = consumer_of(times, mu=30.0, max_poll=max_poll)
    consumer.serve(100.0)
    other, same = consumer_of(times, mu=30.0)
    other.serve(100.0)
    assert (partition.ends == same.ends).all()
