"""What a group would be like: late events, work left, and what going over to it costs."""

from dataclasses import replace

import numpy as np
import pytest

from srtm.autoscaler.decision import Handover
from srtm.autoscaler.observation import ConsumerSeen, Observation, PartitionSeen
from srtm.autoscaler.policies.srtm.groups import Group
from srtm.autoscaler.policies.srtm.outlook import WEIGHTS, Outlook
from srtm.limits.ceiling import Ceiling

SLOTS, INTERVALS, FUTURES = 10, 5, 3


def outlook(
    rate: float,
    *,
    error: float = 0.0,
    partitions: int = 2,
    burst: bool = False,
    lag: float = 0.0,
    target: float = 0.5,
    mu: float = 200.0,
) -> Outlook:
    """Equal partitions; a second's events evenly in its ten slots, or all in the first."""
    second = np.zeros((SLOTS, partitions))
    second[slice(0, 1) if burst else slice(None)] = 1.0
    shape = np.tile(second / second.sum(), (INTERVALS, 1))[None]
    return Outlook(
        seen=Observation(
            at=0.0,
            partitions=tuple(PartitionSeen(p, rate / partitions, lag) for p in range(partitions)),
            consumers=(ConsumerSeen("a", mu, tuple(range(partitions))), ConsumerSeen("b", mu)),
            new_mu=mu,
        ),
        shape=shape,
        rates=np.full(INTERVALS, rate),
        errors=np.full(INTERVALS, error),
        interval_seconds=1.0,
        target_seconds=target,
    )


ONE: Group = (("a", (0, 1)),)
TWO: Group = (("a", (0,)), ("b", (1,)))
LAUNCHED: Group = (("a", (0,)), (None, (1,)))


def test_a_steady_rate_below_mu_is_served_in_time() -> None:
    late, left = outlook(150.0).late(ONE)
    assert late.tolist() == [[0] * INTERVALS] * FUTURES
    assert left.tolist() == [pytest.approx([0] * (INTERVALS + 1))] * FUTURES


@pytest.mark.parametrize(
    ("level", "comes"),
    [
        pytest.param(30.0, [130, 100, 100, 100, 100], id="all-of-the-burst-at-first"),
        pytest.param(0.0, [100] * 5, id="no-burst-left"),
    ],
)
def test_no_future_has_more_than_the_contract_allows(level: float, comes: list[float]) -> None:
    free = outlook(200.0, error=20.0)
    bounded = replace(free, ceiling=Ceiling(100.0, 30.0), level=level)
    assert bounded.futures.tolist() == [pytest.approx(comes)] * FUTURES
    assert replace(free, ceiling=Ceiling(500.0, 10.0)).futures.tolist() == free.futures.tolist()


def test_what_does_not_come_leaves_the_burst_for_later() -> None:
    calm = outlook(150.0)
    rising = replace(calm, rates=np.array([50.0, 50.0, 150.0, 150.0, 150.0]))
    bounded = replace(rising, ceiling=Ceiling(100.0, 30.0), level=0.0)
    assert bounded.futures[1].tolist() == pytest.approx([50, 50, 130, 100, 100])


def test_a_burst_is_late_beyond_what_is_served_within_the_target() -> None:
    # 150 at once and 100 within 0.5 s; two consumers have 75 each.
    late, _ = outlook(150.0, burst=True).late(ONE)
    assert late.ravel().tolist() == pytest.approx([50] * INTERVALS * FUTURES)
    late, _ = outlook(150.0, burst=True).late(TWO)
    assert late.ravel().tolist() == pytest.approx([0] * INTERVALS * FUTURES)


def test_overload_leaves_work_and_lag_comes_first() -> None:
    _, left = outlook(260.0).late(ONE)
    assert left[1].tolist() == pytest.approx([60 * second for second in range(INTERVALS + 1)])
    _, left = outlook(260.0, lag=20.0).late(ONE)
    assert left[:, :2].tolist() == [pytest.approx([2 * 20, 60 + 2 * 20])] * FUTURES


def test_without_the_queue_it_begins_with_no_more_than_is_served_within_the_target() -> None:
    # A consumer serves 100 in 0.5 s: 90 of each of three partitions are not heavy.
    waiting = outlook(0.0, lag=90.0, partitions=3)
    three: Group = (("a", (0, 1, 2)),)
    assert waiting.late(three, queue=True)[1][0].tolist() == pytest.approx([270, 70, 0, 0, 0, 0])
    assert waiting.late(three)[1][:, 0].tolist() == pytest.approx([100] * FUTURES)
    assert outlook(0.0, lag=30.0).late(TWO)[1][:, 0].tolist() == pytest.approx([60] * FUTURES)


# --- what one partition brings, only one consumer can serve ---------------------------------------

ALL: Group = (("a", (0, 1, 2)),)
ALONE: Group = (("a", (0,)), (None, (1, 2)))
EACH: Group = (("a", (0,)), (None, (1,)), (None, (2,)))


def uneven(rates: list[float], lags: list[float], mu: float = 100.0) -> Outlook:
    second = np.tile(np.array(rates) / sum(rates) / SLOTS, (SLOTS, 1))
    return Outlook(
        seen=Observation(
            at=0.0,
            partitions=tuple(
                PartitionSeen(p, rate, lag)
                for p, (rate, lag) in enumerate(zip(rates, lags, strict=True))
            ),
            consumers=(ConsumerSeen("a", mu, (0, 1, 2)),),
            new_mu=mu,
        ),
        shape=np.tile(second, (INTERVALS, 1))[None],
        rates=np.full(INTERVALS, float(sum(rates))),
        errors=np.zeros(INTERVALS),
        interval_seconds=1.0,
        target_seconds=0.5,
    )


@pytest.mark.parametrize(
    ("rates", "lags"),
    [
        pytest.param([150.0, 0, 0], [0.0, 0, 0], id="more-comes-than-one-serves"),
        pytest.param([150.0, 0, 0], [2000.0, 0, 0], id="and-waits"),
        pytest.param([10.0, 0, 0], [2000.0, 0, 0], id="all-that-waits-is-of-one"),
    ],
)
def test_no_group_is_charged_with_what_no_group_can_help(
    rates: list[float], lags: list[float]
) -> None:
    seen = uneven(rates, lags)
    found = seen.stages([ALL, ALONE, EACH, ALL])
    assert seen.heavy == (0,)
    assert found.late.max() == pytest.approx(0)
    assert found.left.max() == pytest.approx(0)
    assert found.rates.max() == pytest.approx(0)
    assert found.taken.tolist() == [pytest.approx([100] * INTERVALS)] * FUTURES


def test_a_heavy_partition_leaves_its_consumer_no_time_for_others() -> None:
    found = uneven([150.0, 20, 20], [500.0, 0, 0]).stages([ALL, ALONE, EACH, ALL])
    second = np.arange(INTERVALS + 1)
    assert found.left[1, 0].tolist() == pytest.approx((40 * second).tolist())
    assert found.left[:, 1:3].max() == pytest.approx(0)
    assert found.late[1, 0].tolist() == pytest.approx([40] * INTERVALS)
    assert found.late[:, 1:3].max() == pytest.approx(0)
    assert (found.mu - found.taken[1, 0]).tolist() == pytest.approx([0, 100, 200, 0])


def test_what_is_divisible_is_divided() -> None:
    """Of three partitions none is heavy, and all of them are too much for one consumer."""
    seen = uneven([60.0, 60, 60], [10.0, 10, 10])
    assert seen.heavy == ()
    found = seen.stages([ALL, ALONE, EACH, ALL])
    assert found.taken.max() == 0
    assert found.late[:, 0].sum() > 0
    assert found.late[:, 2].sum() == pytest.approx(0)


def test_an_unsure_rate_has_late_events_that_a_sure_one_has_not() -> None:
    # 190/s and an error of 20: 155/s or 225/s, each in one case of six.
    sure, unsure = outlook(190.0), outlook(190.0, error=20.0)
    assert sure.late(ONE)[0].sum() == pytest.approx(0)
    late, left = unsure.late(ONE)
    assert late.sum(axis=1).tolist() == pytest.approx([0, 0, late.sum()])
    assert left[2].tolist() == pytest.approx(np.arange(INTERVALS + 1) * (20 * 3**0.5 - 10))
    assert late.sum() > 0


def test_the_futures_have_the_mean_and_the_error_of_the_forecast() -> None:
    futures = outlook(190.0, error=20.0).futures
    assert (WEIGHTS @ futures).tolist() == pytest.approx([190] * INTERVALS)
    assert (WEIGHTS @ (futures - 190) ** 2).tolist() == pytest.approx([400] * INTERVALS)
    assert outlook(10.0, error=20.0).futures.min() == 0


def test_a_group_serves_what_its_consumers_do() -> None:
    assert outlook(1.0).mu((("b", ()), (None, (0, 1)))).tolist() == [200, 200]


@pytest.mark.parametrize("handover", list(Handover))
def test_where_nothing_moves_only_an_eager_hand_over_costs(handover: Handover) -> None:
    # Each of the two as in the next test.
    expected = 2 * 35 if handover is Handover.EAGER else 0
    assert outlook(100.0).hand_over(TWO, TWO, handover, 1.0) == pytest.approx(expected)


def test_the_late_events_of_a_stop_by_hand() -> None:
    # Partition 1 brings 5 a slot. It stands still for ten slots: the first five wait longer than
    # 0.5 s, the others go on the pile of 50, of which 20 are served in each slot: the last of slot
    # 5, 30th of the pile, is done 0.15 s after the stop, and 0.65 s after it came; of slot 6, 35th,
    # 0.575 s; 40th of slot 7 after 0.5 s.
    found = outlook(100.0).hand_over(ONE, LAUNCHED, Handover.DIRECT, 1.0)
    assert found == pytest.approx(7 * 5)


def test_only_an_eager_hand_over_stops_what_stays() -> None:
    direct, cooperative, eager = (
        outlook(100.0).hand_over(ONE, LAUNCHED, kind, 1.0)
        for kind in (Handover.DIRECT, Handover.COOPERATIVE, Handover.EAGER)
    )
    assert direct == cooperative < eager


def test_a_longer_stop_costs_more_and_what_waits_delays_it() -> None:
    costs = [outlook(100.0).hand_over(ONE, TWO, Handover.DIRECT, s) for s in (0.2, 0.6, 1.0, 2.0)]
    assert costs == sorted(costs)
    assert costs[0] == 0 < costs[1] < costs[3]
    queued = outlook(100.0, lag=60.0).hand_over(ONE, TWO, Handover.DIRECT, 0.6)
    assert queued > costs[1], "the owner serves its poll first"
