"""The error budget and its price, and what is learnt of hand-overs."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.autoscaler.decision import Action, Handover
from srtm.autoscaler.observation import Observation, PartitionSeen
from srtm.autoscaler.policies.srtm.budget import Budget
from srtm.autoscaler.policies.srtm.stops import Stops
from srtm.autoscaler.policies.srtm.tuning import TUNING, Tuning
from srtm.limits.slo import SLO


def seen(served: int, late: int, mu: float = 200.0, rate: float = 100.0) -> Observation:
    partition = PartitionSeen(0, rate, 0.0)
    return Observation(at=0.0, partitions=(partition,), consumers=(), new_mu=mu, served=served,
                       late=late)  # fmt: skip


def spent(
    late: int,
    seconds: int = 60,
    percentile: float = 0.99,
    mu: float = 200.0,
    window: float | None = None,
    tuning: Tuning = TUNING,
) -> Budget:
    """100 events a second, and `late` of them late in the last one."""
    budget = Budget(SLO(percentile, 0.5, window), tuning)
    for second in range(seconds):
        budget.see(seen(100, late if second == seconds - 1 else 0, mu), 1.0)
    return budget


def planned(mu: float = 200.0, percentile: float = 0.99) -> float:
    """Of a late event, where the spending is as it should be."""
    return TUNING.price * 0.01 / (1 - percentile) / mu


def test_the_price_at_the_start_is_the_planned_one() -> None:
    budget = Budget(SLO(0.99, 0.5))
    budget.see(seen(0, 0), 1.0)
    assert budget.price == pytest.approx(planned())


def test_the_price_is_the_planned_one_within_what_may_be_late() -> None:
    """Of 6,000 events 60 may be late: with none it is lower, with all of them higher."""
    assert spent(0).price < planned() < spent(60).price


@pytest.mark.parametrize("window", [None, 600.0])
def test_the_price_has_limits(window: float | None) -> None:
    dear, cheap = spent(100_000, window=window), spent(0, 10_000, window=window)
    assert dear.price == pytest.approx(planned() * math.exp(TUNING.dearest))
    assert cheap.price == pytest.approx(planned() * math.exp(TUNING.cheapest))
    assert dear.discount == 1.0
    assert cheap.discount == pytest.approx(math.exp(TUNING.cheapest))


@pytest.mark.parametrize("rate", [0.0, 100.0, 200.0, 800.0])
def test_falling_behind_does_not_pay(rate: float) -> None:
    """90 in a hundred may be late and none has been, so a late event would be worth next to
    nothing: all that comes in a second is worth more than the consumer that is saved by making it
    late."""
    budget = Budget(SLO(0.1, 0.5))
    for _ in range(600):
        budget.see(seen(int(rate), 0, rate=rate), 1.0)
    assert budget.price * max(200.0, rate) > 1.0


def test_where_twice_as_many_may_be_late_each_is_worth_half() -> None:
    one, two = (Budget(SLO(percentile, 0.5)) for percentile in (0.99, 0.98))
    for budget in (one, two):
        budget.see(seen(0, 0), 1.0)
    assert one.price == pytest.approx(2 * two.price)


@given(st.integers(0, 2000), st.integers(1, 500))
def test_the_price_rises_with_late_events(late: int, more: int) -> None:
    assert spent(late).price <= spent(late + more).price


def test_a_late_event_is_worth_so_many_served_ones_whatever_mu_is() -> None:
    assert spent(68, mu=50.0).price == pytest.approx(4 * spent(68).price)


def after_a_bad_start(seconds: int, window: float | None = None) -> Budget:
    """All that came in the first 20 s was late, nothing since; 100 events a second."""
    budget = Budget(SLO(0.99, 0.5, window))
    for second in range(seconds):
        budget.see(seen(100, 100 if second < 20 else 0), 1.0)
    return budget


def test_a_bad_start_is_not_made_good_at_any_price() -> None:
    """The whole of half an hour would allow 1,800 late events, and there were 2,000."""
    assert after_a_bad_start(30).price == pytest.approx(planned() * math.exp(TUNING.dearest))
    assert after_a_bad_start(900).price < planned()


def test_a_shorter_window_is_done_with_it_sooner() -> None:
    prices = [after_a_bad_start(300, window).price for window in (60.0, 120.0, 3600.0)]
    assert prices == sorted(prices)
    assert prices[0] < planned() < prices[-1]


def test_a_hand_over_that_costs_hardly_any_is_always_affordable() -> None:
    """One a second may be late, and all budget is gone."""
    assert spent(5000).affords(TUNING.small_seconds)


def test_a_hand_over_within_what_is_left_is_affordable_and_one_beyond_it_is_not() -> None:
    assert spent(0).affords(50)
    assert not spent(0).affords(70)
    assert not spent(100).affords(50)


def test_hand_overs_have_a_budget_of_their_own() -> None:
    """The SLO is missed: a smaller group would else be out of reach until the window is over."""
    overdrawn = spent(5000, 600)
    cost = 0.5 * TUNING.hand_overs * 600 * 0.8
    assert overdrawn.affords(cost)
    overdrawn.expect(cost)
    overdrawn.expect(cost)
    assert not overdrawn.affords(cost), "and it is used up"


def test_the_late_events_of_an_expected_hand_over_are_no_trend() -> None:
    calm, alarmed = spent(48), spent(48)
    calm.expect(100.0)
    for budget in (calm, alarmed):
        budget.see(seen(100, 60), 1.0)
    assert calm.price < alarmed.price


# --- stops ---------------------------------------------------------------------------------------

UP, DOWN = (Handover.DIRECT, Action.UP), (Handover.DIRECT, Action.DOWN)
EAGER_UP, EAGER_DOWN = (Handover.EAGER, Action.UP), (Handover.EAGER, Action.DOWN)


NOW = 1000.0


def after(*stopped: float, kind: tuple[Handover, Action] = UP) -> Stops:
    """All of them have just ended."""
    stops = Stops()
    for seconds in stopped:
        stops.begin(kind, NOW, 0, 0.0)
        stops.see(NOW, 0, None, changing=True)
        stops.see(NOW, 0, seconds, changing=False)
    return stops


def test_before_the_first_what_the_protocol_makes_likely() -> None:
    stops = Stops()
    assert stops.expected(UP, 0.5, NOW) == 0.5
    assert stops.expected(EAGER_UP, 0.5, NOW) == 2.0  # half a heartbeat on average
    assert stops.expected((Handover.COOPERATIVE, Action.UP), 0.5, NOW) == 2.0


def test_each_kind_is_learnt_by_itself() -> None:
    stops = after(1.3)
    assert stops.expected(UP, 0.5, NOW) == 1.3
    assert stops.expected(DOWN, 0.5, NOW) == 0.5
    assert stops.expected(EAGER_UP, 0.5, NOW) == 2.0


def test_an_unknown_kind_is_not_thought_shorter_than_its_protocol_was() -> None:
    assert after(3.4, kind=EAGER_UP).expected(EAGER_DOWN, 0.5, NOW) == 3.4
    assert after(0.1, kind=EAGER_UP).expected(EAGER_DOWN, 0.5, NOW) == 2.0


def test_a_longer_stop_counts_at_once_and_a_shorter_one_little_by_little() -> None:
    assert after(1.0, 3.0).expected(UP, 0.5, NOW) == 3.0
    assert after(3.0, 1.0).expected(UP, 0.5, NOW) == pytest.approx(0.8 * 3 + 0.2 * 1)
    assert after(3.0, *[1.0] * 40).expected(UP, 0.5, NOW) == pytest.approx(1.0, rel=1e-3)


def test_never_shorter_than_a_rebalance_takes_now() -> None:
    assert after(0.6).expected(UP, 2.0, NOW) == 2.0


def test_one_long_stop_is_forgotten_though_nothing_is_handed_over() -> None:
    once = after(30.0)
    fading = [once.expected(UP, 0.5, NOW + 60 * minute) for minute in range(20)]
    assert fading == sorted(fading, reverse=True)
    assert fading[2] == pytest.approx(15.0)  # half of it after two minutes
    assert fading[-1] == 0.5
    usual = after(30.0, 2.0, 2.0)
    assert usual.expected(UP, 0.5, NOW + 3600) == pytest.approx(2.0)  # never under the shortest


def test_nothing_is_learnt_while_it_is_under_way_nor_of_what_is_not_ours() -> None:
    stops = Stops()
    stops.see(1.0, 0, 9.0, changing=False)
    stops.begin(UP, 2.0, 0, 0.0)
    stops.see(3.0, 0, 9.0, changing=True)
    assert stops.expected(UP, 0.5, NOW) == 0.5


def corrected(predicted: float, late: int) -> float:
    stops = Stops()
    stops.begin(UP, 10.0, 1000, predicted)
    stops.see(20.0, 1000 + 5 * late, None, changing=False)
    assert stops.correction == 1.0, "queues have not settled"
    stops.see(26.0, 1000 + late, None, changing=False)
    return stops.correction


@pytest.mark.parametrize(
    ("predicted", "late", "correction"),
    [
        pytest.param(90, 90, 1.0, id="as-predicted"),
        pytest.param(90, 190, 1.5, id="twice-as-many"),
        pytest.param(190, 90, 0.75, id="half-as-many"),
        pytest.param(0, 0, 1.0, id="none-and-none"),
        pytest.param(0, 5, 1.25, id="a-few-say-little"),
        pytest.param(10, 10_000, 2.0, id="at-most-three-times"),
        pytest.param(10_000, 0, 0.75, id="at-least-half"),
    ],
)
def test_late_events_seen_correct_those_predicted(
    predicted: float, late: int, correction: float
) -> None:
    assert corrected(predicted, late) == pytest.approx(correction)


def test_a_correction_is_not_corrected_again() -> None:
    stops = Stops()
    for number in range(30):
        at = 100.0 * number
        stops.begin(UP, at, 0, 100 * stops.correction)  # what the model says is 100
        stops.see(at + 16, 200, None, changing=False)
    assert stops.correction == pytest.approx(210 / 110)
