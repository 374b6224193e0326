"""What is read out of offsets: rates, lags, latencies and capacities. Pure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.autoscaler.live.capacity import Capacity
from srtm.autoscaler.live.curve import Curve
from srtm.autoscaler.live.monitor import Monitor, Reset, Sample
from srtm.autoscaler.live.observe import LiveConsumer, Phases, new_mu, observation


def fed(
    samples: list[tuple[float, int, int]], start: int = 0, reset: Reset = "earliest"
) -> Monitor:
    """A monitor of one partition that saw (at, end, committed)."""
    monitor = Monitor(0.5, reset)
    for at, end, committed in samples:
        monitor.see(Sample(at, {0: end}, {0: start}, {0: committed} if committed >= 0 else {}))
    return monitor


def test_rate_and_slots_are_of_the_time_since_the_last_reading() -> None:
    monitor = fed([(0.0, 1000, 1000)])
    monitor.read()
    for tenth in range(1, 11):
        monitor.see(Sample(tenth / 10, {0: 1000 + 20 * tenth}, {0: 0}, {0: 1000}))
    (seen,) = monitor.read().partitions
    assert seen.rate == pytest.approx(200)
    assert seen.slots == (20,) * 10
    assert seen.lag == 200


@pytest.mark.parametrize(
    ("end", "start", "committed", "reset", "lag"),
    [
        pytest.param(100, 0, 60, "earliest", 40, id="what-is-not-committed"),
        pytest.param(100, 30, -1, "earliest", 70, id="never-committed-begins-with-what-is-kept"),
        pytest.param(100, 30, -1, "latest", 0, id="never-committed-begins-at-the-end"),
        pytest.param(100, 80, 10, "earliest", 20, id="expired-events-are-no-lag"),
        pytest.param(100, 0, 130, "earliest", 0, id="committed-beyond-the-end"),
    ],
)
def test_lag(end: int, start: int, committed: int, reset: Reset, lag: int) -> None:
    (seen,) = fed([(0.0, end, committed)], start, reset).read().partitions
    assert seen.lag == lag


@pytest.mark.parametrize(("reset", "lag"), [("earliest", 70), ("latest", 0)])
def test_a_committed_offset_that_is_not_there_is_told_and_lags_as_it_will_be_read(
    reset: Reset, lag: int
) -> None:
    monitor = Monitor(0.5, reset)
    monitor.see(Sample(0.0, {0: 100}, {0: 30}, {0: 130}, beyond={0: 100}))
    reading = monitor.read()
    assert reading.partitions[0].lag == lag
    (told,) = reading.notes
    assert told.startswith("partition 0: committed offset 130 is beyond the end, 100: the topic")
    assert told.endswith(f"begin with the {reset}")


def test_what_came_since_somebody_looks_waits_also_where_a_group_begins_at_the_end() -> None:
    monitor = fed([(0.0, 100, -1), (1.0, 130, -1)], reset="latest")
    (seen,) = monitor.read().partitions
    assert seen.lag == 30


def test_events_are_late_by_the_readers_own_clock() -> None:
    """100 events/s; those of the first second are all committed at 2.0: the later half came within
    a second of it, which is over 0.5 s, so all of them are late; the next ones are in time."""
    monitor = fed([(0.0, 0, 0), (1.0, 100, 0), (2.0, 200, 0), (2.001, 200, 100)])
    reading = monitor.read()
    assert (reading.served, reading.late) == (100, 100)
    assert reading.staying_seconds == pytest.approx(1.5, abs=0.02)
    monitor.see(Sample(2.002, {0: 200}, {0: 0}, {0: 200}))
    reading = monitor.read()
    assert reading.served == 100
    assert reading.late == pytest.approx(50, abs=2)


def test_events_from_before_anybody_looked_have_no_latency() -> None:
    reading = fed([(0.0, 1000, 0), (0.1, 1000, 1000)]).read()
    assert (reading.served, reading.late, reading.staying_seconds) == (0, 0, None)


def test_a_time_lag_is_the_age_of_the_oldest_event_that_waits() -> None:
    monitor = fed([(0.0, 0, 0), (1.0, 100, 0), (2.0, 200, 100)])
    assert monitor.read().time_lags[0] == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(
    ("samples", "stuck"),
    [
        pytest.param([(0.0, 100, 100), (1.0, 120, 100), (13.0, 120, 100)], True, id="by-nobody"),
        pytest.param([(0.0, 100, 100), (1.0, 120, 100), (9.0, 120, 100)], False, id="not-for-long"),
        pytest.param([(0.0, 100, 100), (1.0, 120, 100), (13.0, 120, 101)], False, id="slowly"),
        pytest.param([(0.0, 100, 100), (13.0, 100, 100)], False, id="nothing-to-serve"),
    ],
)
def test_events_that_nobody_serves_are_told_before_they_are_late(
    samples: list[tuple[float, int, int]], stuck: bool
) -> None:
    reading = fed(samples).read()
    assert bool(reading.stuck(0.5)) == stuck
    assert not reading.stuck(60.0), "an SLO of a minute lets them wait"


def test_a_topic_made_anew_and_an_expired_offset_are_told() -> None:
    monitor = fed([(0.0, 100, 90), (1.0, 5, 90)], start=0)
    reading = monitor.read()
    assert "begins anew" in reading.notes[0]
    assert reading.partitions[0].lag == 0
    assert "are no lag" in fed([(0.0, 100, 10)], start=50).read().notes[0]
    assert monitor.read().notes == ()


def test_a_new_partition_is_there_with_the_next_reading() -> None:
    monitor = fed([(0.0, 10, 10)])
    monitor.read()
    monitor.see(Sample(1.0, {0: 10, 1: 7}, {0: 0, 1: 0}, {0: 10}))
    seen = monitor.read().partitions
    assert [(each.id, each.lag, each.rate) for each in seen] == [(0, 0, 0), (1, 7, 0)]


@given(st.lists(st.integers(0, 50), min_size=2, max_size=200), st.floats(0, 1))
def test_a_curve_gives_back_what_it_was_told(steps: list[int], share: float) -> None:
    curve, end = Curve(), 0
    for at, step in enumerate(steps):
        end += step
        curve.add(float(at), end)
    offset = curve.begins_at + share * (curve.end - curve.begins_at)
    assert curve.arrived_by(curve.time_of(offset)) == pytest.approx(offset, abs=1e-6)


def test_a_curve_is_bounded_and_still_dates_old_events() -> None:
    curve = Curve()
    for second in range(20_000):
        curve.add(float(second), 10 * second)
    assert len(curve._times) <= 4096
    assert curve.time_of(50_000) == pytest.approx(5000, abs=1)
    assert curve.time_of(199_000) == pytest.approx(19_900, abs=1e-6)


def test_mu_is_learnt_while_there_is_work_and_only_then() -> None:
    idle, busy = Capacity(), Capacity()
    for tenth in range(100):
        at = tenth / 10
        idle.see(at, (0,), 5 * tenth, 3)
        busy.see(at, (0,), 20 * tenth, 10_000 - 20 * tenth)
    assert idle.mu is None
    assert busy.mu == pytest.approx(200)


@pytest.mark.parametrize("seconds", [0.3, 1.0, 4.0, 7.7])
def test_a_batch_that_takes_long_is_learnt_as_slow(seconds: float) -> None:
    capacity = Capacity()
    for tenth in range(1000):
        committed = 100 * int(tenth / 10 / seconds)
        capacity.see(tenth / 10, (0,), committed, 1_000_000 - committed)
    assert capacity.mu == pytest.approx(100 / seconds, rel=0.1)


def test_a_consumer_that_stood_still_is_no_slow_one() -> None:
    capacity, committed = Capacity(), 0
    for tenth in range(1000):
        if not 500 <= tenth < 900:
            committed += 20
        capacity.see(tenth / 10, (0,), committed, 1_000_000)
        if tenth >= 20:
            assert capacity.mu is not None
            assert 140 <= capacity.mu <= 200.1


def test_one_that_stood_still_at_first_is_known_soon() -> None:
    capacity, committed = Capacity(), 0
    for tenth in range(3200):
        if tenth < 10 or tenth >= 3000:
            committed += 10
        capacity.see(tenth / 10, (0,), committed, 1_000_000)
    assert capacity.mu == pytest.approx(100, rel=0.05)


def test_a_change_of_partitions_teaches_nothing() -> None:
    capacity = Capacity()
    for tenth in range(40):
        capacity.see(tenth / 10, (tenth // 5,), 1000 * tenth, 100_000)
    assert capacity.mu is None


def test_an_observation_takes_the_mean_of_the_mus_that_are_known() -> None:
    reading = fed([(0.0, 10, 10), (1.0, 20, 10)]).read()
    one, two = LiveConsumer("a", (0, 7), 100.0), LiveConsumer("b", ())
    assert new_mu((two,), None) is None
    assert new_mu((one, LiveConsumer("c", (), 300.0), two), 50.0) == 200
    mu = new_mu((one, two), 50.0)
    assert mu is not None
    seen = observation(reading, (one, two), mu, Phases(startup=2.0, rebalance=0.1))
    assert [(each.id, each.mu, each.partitions) for each in seen.consumers] == [
        ("a", 100.0, (0,)),
        ("b", 100.0, ()),
    ]
    assert (seen.startup_seconds, seen.rebalance_seconds, seen.new_mu) == (2.0, 0.1, 100.0)
