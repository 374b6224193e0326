"""The error budget and its price, and what is learnt of hand-overs."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.autoscaler.decision import Action, Handover
from srtm.autoscaler.observation import Observation, PartitionSeen
from srtm.autoscaler.policies.srtm.budget import Budget
from srtm.autoscaler.policies.srtm.stops import Stops
from srtm.slo import SLO


def seen(served: int, late: int, mu: float = 200.0, rate: float = 100.0) -> Observation:
    partition = PartitionSeen(0, rate, 0.0)
    return Observation(at=0.0, partitions=(partition,), consumers=(), new_mu=mu, served=served,
                       late=late)  # fmt: skip


def spent(late: int, seconds: int = 60, percentile: float = 0.99, mu: float = 200.0) -> Budget:
    """100 events a second, and `late` of them late in the last one."""
    budget = Budget(SLO(percentile, 0.5))
    for second in range(seconds):
        budget.see(seen(100, late if second == seconds - 1 else 0, mu), 1.0)
    return budget


def test_the_price_at_the_start_is_the_planned_one() -> None:
    budget = Budget(SLO(0.99, 0.5))
    budget.see(seen(0, 0), 1.0)
    assert budget.price == pytest.approx(28 / 200)


def test_the_price_as_planned_while_the_spending_is() -> None:
    # 0.8 of the one per cent of 6,000 events.
    assert spent(48).price == pytest.approx(28 / 200)


def test_the_price_by_hand() -> None:
    # 20 more than 48, of 0.8 x 1 a second x 120 s and one.
    assert spent(68).price == pytest.approx(28 / 200 * math.exp(2 * 20 / 97))


@pytest.mark.parametrize(
    ("late", "exponent"),
    [pytest.param(100_000, 4.0, id="dearest"), pytest.param(0, -0.96 / 0.97, id="unused")],
)
def test_the_price_has_limits(late: int, exponent: float) -> None:
    assert spent(late).price == pytest.approx(28 / 200 * math.exp(exponent), rel=1e-3)
    assert spent(0, 10_000).price == pytest.approx(28 / 200 * math.exp(-1.5))


@pytest.mark.parametrize(
    ("rate", "replica_seconds"),
    [
        pytest.param(0.0, 1.2 / 200, id="none"),
        pytest.param(100.0, 1.2 / 200, id="of-half-a-consumer"),
        pytest.param(200.0, 1.2 / 200, id="of-one-consumer"),
        pytest.param(800.0, 1.2 / 800, id="of-four"),
    ],
)
def test_falling_behind_does_not_pay(rate: float, replica_seconds: float) -> None:
    """90 in a hundred may be late and none has been, so the price would be 0.07 of a serving: all
    that comes in a second is worth more than the consumer that is saved by making it late."""
    budget = Budget(SLO(0.1, 0.5))
    for _ in range(600):
        budget.see(seen(int(rate), 0, rate=rate), 1.0)
    assert budget.price == pytest.approx(replica_seconds)


def test_where_many_may_be_late_more_of_them_are_spent() -> None:
    # 0.9 of the 16 per cent of 6,000 events: what is left is half of what it is at one per cent.
    assert spent(864, percentile=0.84).price == pytest.approx(28 / 16 / 200)


@given(st.integers(0, 2000), st.integers(1, 500))
def test_the_price_rises_with_late_events(late: int, more: int) -> None:
    assert spent(late).price <= spent(late + more).price


def test_a_late_event_is_worth_so_many_served_ones_whatever_mu_is() -> None:
    assert spent(68, mu=50.0).price == pytest.approx(4 * spent(68).price)


def left(seconds: int) -> float:
    """Of one in a hundred, what is kept for the end of a run of so long."""
    return 0.2 * (120 / max(120, seconds / 4)) ** 0.08


@pytest.mark.parametrize("seconds", [60, 600, 7200])
def test_the_longer_a_run_the_less_is_kept_for_its_end(seconds: int) -> None:
    as_planned = round((1 - left(seconds)) * seconds)
    assert spent(as_planned, seconds).price == pytest.approx(28 / 200, rel=0.01)


def test_a_long_run_settles() -> None:
    # The same deficit, ten minutes and two hours after the start.
    late = {seconds: round((1 - left(seconds)) * seconds) + 50 for seconds in (600, 7200)}
    early, settled = (spent(late[seconds], seconds).price for seconds in (600, 7200))
    assert early > settled > 28 / 200


@pytest.mark.parametrize(
    ("late", "cost", "affordable"),
    [
        pytest.param(0, 60, True, id="all-of-it"),
        pytest.param(0, 61, False, id="more-than-there-is"),
        pytest.param(50, 10, True, id="the-rest"),
        pytest.param(500, 10, True, id="hardly-any-is-always-affordable"),
        pytest.param(500, 11, False, id="overdrawn"),
    ],
)
def test_what_can_be_afforded(late: int, cost: float, affordable: bool) -> None:
    assert spent(late).affords(cost) is affordable


def test_the_late_events_of_an_expected_hand_over_are_no_trend() -> None:
    calm, alarmed = spent(48), spent(48)
    calm.expect(100.0)
    for budget in (calm, alarmed):
        budget.see(seen(100, 60), 1.0)
    assert calm.price < alarmed.price


# --- stops ---------------------------------------------------------------------------------------

UP, DOWN = (Handover.DIRECT, Action.UP), (Handover.DIRECT, Action.DOWN)
EAGER_UP, EAGER_DOWN = (Handover.EAGER, Action.UP), (Handover.EAGER, Action.DOWN)


def after(*stopped: float, kind: tuple[Handover, Action] = UP) -> Stops:
    stops = Stops()
    for at, seconds in enumerate(stopped):
        stops.begin(kind, 100.0 * at, 0, 0.0)
        stops.see(100.0 * at + 1, 0, None, changing=True)
        stops.see(100.0 * at + 2, 0, seconds, changing=False)
    return stops


def test_before_the_first_what_the_protocol_makes_likely() -> None:
    stops = Stops()
    assert stops.expected(UP, 0.5) == 0.5
    assert stops.expected(EAGER_UP, 0.5) == 2.0  # half a heartbeat on average
    assert stops.expected((Handover.COOPERATIVE, Action.UP), 0.5) == 2.0


def test_each_kind_is_learnt_by_itself() -> None:
    stops = after(1.3)
    assert stops.expected(UP, 0.5) == 1.3
    assert stops.expected(DOWN, 0.5) == 0.5
    assert stops.expected(EAGER_UP, 0.5) == 2.0


def test_an_unknown_kind_is_not_thought_shorter_than_its_protocol_was() -> None:
    assert after(3.4, kind=EAGER_UP).expected(EAGER_DOWN, 0.5) == 3.4
    assert after(0.1, kind=EAGER_UP).expected(EAGER_DOWN, 0.5) == 2.0


def test_a_longer_stop_counts_at_once_and_a_shorter_one_little_by_little() -> None:
    assert after(1.0, 3.0).expected(UP, 0.5) == 3.0
    assert after(3.0, 1.0).expected(UP, 0.5) == pytest.approx(0.8 * 3 + 0.2 * 1)
    assert after(3.0, *[1.0] * 40).expected(UP, 0.5) == pytest.approx(1.0, rel=1e-3)


def test_never_shorter_than_a_rebalance_takes_now() -> None:
    assert after(0.6).expected(UP, 2.0) == 2.0


def test_nothing_is_learnt_while_it_is_under_way_nor_of_what_is_not_ours() -> None:
    stops = Stops()
    stops.see(1.0, 0, 9.0, changing=False)
    stops.begin(UP, 2.0, 0, 0.0)
    stops.see(3.0, 0, 9.0, changing=True)
    assert stops.expected(UP, 0.5) == 0.5


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
