"""The first step of the cheapest path, against every path there is."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.autoscaler.policies.srtm.plan import Stages, first_step

MU, TARGET = 100.0, 0.5  # of one consumer, events/s; seconds


Rows = list[list[float]]


def stages(
    sizes: list[int], late: Rows, left: Rows | None = None,
    hand: list[float] | None = None, rate: float = 50.0,
) -> Stages:  # fmt: skip
    """Of one future."""
    return together([(1.0, late, left, rate)], sizes, hand)


def together(
    futures: list[tuple[float, Rows, Rows | None, float]],
    sizes: list[int],
    hand: list[float] | None = None,
    taken: float = 0.0,
) -> Stages:
    """futures: weight, late, left (one more than late: at the start too), rate of each. Without its
    queue the group as it is has no late events where there is one."""
    count = np.array([*sizes, sizes[0]], dtype=np.float64)
    none = [[0.0] * (len(row) + 1) for row in futures[0][1]]
    served = [[late[0] if left is None else [0.0] * len(late[0])] for _, late, left, _ in futures]
    weights = np.array([weight for weight, _, _, _ in futures])
    return Stages(
        weights=weights / weights.sum(),
        sizes=count,
        late=np.array([f[1] + calm for f, calm in zip(futures, served, strict=True)]),
        left=np.array([(left or none) + none[:1] for _, _, left, _ in futures], dtype=np.float64),
        hand=np.array([*(hand or [0.0] * len(sizes)), 0.0]),
        rates=np.array([[rate] * len(futures[0][1][0]) for _, _, _, rate in futures]),
        mu=MU * count,
        taken=np.full((len(futures), len(futures[0][1][0])), taken),
        target_seconds=TARGET,
    )


def calm(sizes: list[int], intervals: int = 4, hand: list[float] | None = None) -> Stages:
    return stages(sizes, [[0.0] * intervals for _ in sizes], hand=hand)


# --- by hand: group 0 is the one as it is; what is saved is saved over going an interval later ----


def test_what_nobody_needs_goes() -> None:
    assert first_step(calm([2, 1, 2, 3]), 1.0, 1.0, 3, 10) == pytest.approx((1, 1.0))


def test_a_hand_over_that_costs_more_than_it_ever_saves_is_not_made() -> None:
    # A consumer less, for four seconds and the ten that the end lasts.
    assert first_step(calm([2, 1, 2, 3], hand=[0, 15, 0, 0]), 1.0, 1.0, 3, 10) == (0, 0.0)
    assert first_step(calm([2, 1, 2, 3], hand=[0, 13, 0, 0]), 1.0, 1.0, 3, 10)[0] == 1


def test_a_hand_over_that_must_not_be_is_not_made() -> None:
    assert first_step(calm([2, 1], hand=[0, np.inf]), 1.0, 1.0, 3, 10) == (0, 0.0)


def test_late_events_are_worth_a_consumer_only_at_their_price() -> None:
    # One late event a second with the group as it is, none with one consumer more.
    busy = stages([1, 2], [[1.0] * 4, [0.0] * 4])
    assert first_step(busy, 0.9, 1.0, 1, 10) == (0, 0.0)
    # A second later is 3 - 2 dearer: a second with late events for one with two consumers.
    assert first_step(busy, 2.0, 1.0, 1, 10) == pytest.approx((1, 1.0))


def test_it_launches_ahead_of_a_rush_and_not_before_it_must() -> None:
    rush = stages([1, 2], [[0, 0, 0, 9, 9, 9], [0.0] * 6])
    assert first_step(rush, 1.0, 1.0, 3, 10) == pytest.approx((1, 9 - 1))
    assert first_step(rush, 1.0, 1.0, 2, 10) == (0, 0.0)


def test_a_balanced_group_of_the_same_size_is_there_at_once() -> None:
    uneven = stages([2, 2], [[5.0] * 4, [0.0] * 4], hand=[0, 12])
    assert first_step(uneven, 1.0, 1.0, 5, 10) == pytest.approx((1, 5.0))


def test_what_was_left_behind_makes_a_launch_worth_less() -> None:
    # 150 events wait, 25 have come within the target: 125 and what comes while 200 - 50 a second
    # of them are served are late, 125 + 50 * 125 / 150 events; 125 + 50 * 125 / 50 at the end.
    left = [[150.0] * 5, [0.0] * 5]
    # Staying: 1 + x / 10 for each of 4 s, 10 s more, and 250 / 10.
    # Going: 1 + x / 10, the launch, 3 s and 10 of two consumers, and 166.7 / 10.
    assert first_step(stages([1, 2], [[18.0] * 4, [0.0] * 4], left), 0.1, 1.0, 1, 10)[0] == 0
    assert first_step(stages([1, 2], [[20.0] * 4, [0.0] * 4], left), 0.1, 1.0, 1, 10)[0] == 1
    assert first_step(stages([1, 2], [[18.0] * 4, [0.0] * 4]), 0.1, 1.0, 1, 10)[0] == 1


def test_a_queue_that_an_interval_clears_is_not_left_behind() -> None:
    # 100 wait at each start, and none at the end but for these: a second's events at once.
    at_once = stages([2, 1], [[0.0] * 4] * 2, [[100.0, 0, 0, 0, 0], [0.0] * 5])
    assert first_step(at_once, 9.0, 1.0, 1, 10)[0] == 1
    queue = stages([2, 1], [[0.0] * 4] * 2, [[100.0] * 5, [0.0] * 5])
    assert first_step(queue, 9.0, 1.0, 1, 10)[0] == 0


def test_where_all_are_late_the_group_that_falls_behind_less_is_kept() -> None:
    left = [[900.0, 1000, 1100, 1200, 1300], [50.0, 250, 450, 650, 850]]
    assert first_step(stages([2, 1], [[300.0] * 4] * 2, left, rate=300.0), 1.0, 1.0, 1, 10)[0] == 0


def test_where_all_are_late_the_group_that_catches_up_is_launched() -> None:
    left = [[900.0, 1000, 1100, 1200, 1300], [0.0] * 5]
    late = [[200.0] * 4, [0.0] * 4]
    assert first_step(stages([1, 4], late, left, rate=200.0), 1.0, 1.0, 1, 10)[0] == 1


def test_a_launch_is_not_put_off_to_where_nothing_is_seen_of_its_backlog() -> None:
    # The queue grows: now is the best time, whatever the end of the horizon promises.
    grows = stages([1, 2], [[50.0] * 4, [0.0] * 4], [[50.0, 100, 150, 200, 250], [0.0] * 5])
    assert first_step(grows, 1.0, 1.0, 1, 10)[0] == 1


# --- more than one future ------------------------------------------------------------------------

CALM: Rows = [[0.0] * 6, [0.0] * 6]
SOON: Rows = [[0, 0, 20, 20, 20, 20], [0.0] * 6]
LATER: Rows = [[0, 0, 0, 0, 20, 20], [0.0] * 6]


@pytest.mark.parametrize(
    ("rush", "likely", "step"),
    [
        pytest.param(SOON, 0.5, 1, id="it-would-come-too-late-once-it-is-known"),
        pytest.param(SOON, 0.1, 0, id="it-is-too-unlikely"),
        pytest.param(LATER, 0.5, 0, id="it-can-wait-until-it-is-known"),
    ],
)
def test_a_launch_that_one_future_needs(rush: Rows, likely: float, step: int) -> None:
    of = together([(likely, rush, None, 50.0), (1 - likely, CALM, None, 50.0)], [1, 2], [0.0, 3.0])
    assert first_step(of, 1.0, 1.0, 2, 10)[0] == step


@pytest.mark.parametrize(("held", "step"), [(0.0, 1), (1.0, 0)])
def test_a_smaller_group_is_held_to_until_the_future_shows(held: float, step: int) -> None:
    surge: Rows = [[0.0] * 6, [0, 0, 0, 20, 20, 20], [0.0] * 6]
    idle: Rows = [[0.0] * 6] * 3
    of = together([(0.5, surge, None, 50.0), (0.5, idle, None, 50.0)], [2, 1, 2], [0.0, 0.0, 1.0])
    assert first_step(of, 1.0, 1.0, 2, 10, held)[0] == step


# --- against all paths ---------------------------------------------------------------------------


def of_future(of: Stages, number: int) -> Stages:
    one = np.s_[number : number + 1]
    return replace(
        of, late=of.late[one], left=of.left[one], rates=of.rates[one], taken=of.taken[one]
    )


def lasting(of: Stages, price: float, seconds: float, persist: int, group: int) -> float:
    """Replica-seconds of the time after the horizon."""
    after, last = persist * seconds, len(of.sizes) - 1
    if group == 0:
        found, _ = taking_over(of, price, seconds, persist, 0, last, of.late.shape[2])
        return found + lasting(of, price, seconds, persist, last)
    size, mu, rate = float(of.sizes[group]), float(of.mu[group]), float(of.rates[0, -1])
    left = mu - float(of.taken[0, -1])
    over = max(0.0, float(of.left[0, group, -1]) - max(0.0, left) * TARGET)
    behind = max(0.0, over + (rate - left) * after) if over else 0.0
    late = float(of.late[0, group, -1]) / seconds * after
    return size * after + price * late + (price + size / mu) * behind


def taking_over(
    of: Stages, price: float, seconds: float, persist: int, old: int, new: int, at: int
) -> tuple[float, int]:
    """Replica-seconds of what the new group finds, and until when it is kept for that."""
    horizon = of.late.shape[2]
    mu, rate = float(of.mu[new]), float(of.rates[0, 0])
    found, own = min(of.left[0, old, at : at + 2]), max(of.left[0, new, at : at + 2])
    over = max(0.0, float(found) - max(rate * TARGET, float(own)))
    spare = max(mu - float(of.taken[0, 0]) - rate, 1e-9)
    inside = (horizon - at) * seconds
    busy = min(over / spare, inside + persist * seconds)
    until = min(horizon, at + max(1, math.ceil(busy / seconds)))
    anyhow = float(of.late[0, new, at:until].sum())
    anyhow += float(of.late[0, new, -1]) / seconds * max(0.0, busy - inside)
    late = over + max(0.0, rate * busy - anyhow)
    behind = over - spare * busy
    return price * late + (price + float(of.sizes[new]) / mu) * behind, until


def cost_of(
    path: tuple[int | None, ...], of: Stages, price: float, seconds: float, lead: int, persist: int
) -> float:
    """Replica-seconds of a path in the only future: to which group it goes over at each interval,
    and at the end."""
    horizon = of.late.shape[2]
    total, group, at = 0.0, 0, 0
    cost = of.sizes[:, None] * seconds + price * of.late[0]
    while at < horizon:
        new = path[at]
        if new is None:
            total += cost[group, at]
            at += 1
            continue
        more = float(of.sizes[new] - of.sizes[group])
        land = min(horizon, at + lead) if more > 0 else at
        total += price * float(of.hand[new])
        total += cost[group, at:land].sum() + max(0.0, more) * (land - at) * seconds
        found, until = taking_over(of, price, seconds, persist, group, new, land)
        total += found + cost[new, land:until].sum()
        group, at = new, until
    last = path[horizon]
    if last is not None:
        more = max(0.0, float(of.sizes[last] - of.sizes[group]))
        total += price * float(of.hand[last]) + more * lead * seconds
        total += taking_over(of, price, seconds, persist, group, last, horizon)[0]
        group = last
    return total + lasting(of, price, seconds, persist, group)


def cheapest(
    of: Stages, price: float, seconds: float, lead: int, persist: int
) -> tuple[float, dict[int, float]]:
    """Of what stays at first, and of what goes over to each group: paths that go the same way in
    every future until `lead`, where it shows which it is."""
    futures, groups, horizon = of.late.shape
    known = min(lead, horizon)
    best: list[dict[tuple[int, int], float]] = []  # by when it first goes over, and to which group
    for number in range(futures):
        found: dict[tuple[int, int], float] = {}
        for path in itertools.product([None, *range(1, groups - 1)], repeat=horizon + 1):
            cost = cost_of(path, of_future(of, number), price, seconds, lead, persist)
            at = next((at for at, group in enumerate(path) if group is not None), horizon)
            first = (at, path[at] or 0) if at < known else (known, 0)
            found[first] = min(found.get(first, np.inf), cost)
        best.append(found)
    mean = {
        key: sum(float(w) * found[key] for w, found in zip(of.weights, best, strict=True))
        for key in best[0]
    }
    going = {group: cost for (at, group), cost in mean.items() if not at}
    return min(cost for (at, _), cost in mean.items() if at), going


amounts = st.floats(0, 60).map(lambda value: round(value, 1))


def rows(groups: int, horizon: int) -> st.SearchStrategy[list[list[float]]]:
    row = st.lists(amounts, min_size=horizon, max_size=horizon)
    return st.lists(row, min_size=groups, max_size=groups)


tiny = st.tuples(st.integers(2, 3), st.integers(1, 4)).flatmap(
    lambda shape: st.builds(
        together,
        futures=st.lists(
            st.tuples(
                st.sampled_from([1.0, 4.0]),
                rows(shape[0], shape[1]),
                rows(shape[0], shape[1] + 1),
                st.sampled_from([20.0, 150.0, 900.0]),
            ),
            min_size=1,
            max_size=3,
        ),
        sizes=st.lists(st.integers(1, 4), min_size=shape[0], max_size=shape[0]),
        hand=st.lists(amounts, min_size=shape[0], max_size=shape[0]),
        taken=st.sampled_from([0.0, 100.0, 250.0]),
    )
)


@given(
    of=tiny,
    price=st.sampled_from([0.05, 0.3, 2.0]),
    seconds=st.sampled_from([1.0, 5.0]),
    lead=st.integers(1, 5),
    persist=st.integers(1, 6),
)
def test_the_first_step_is_that_of_the_cheapest_path(
    of: Stages, price: float, seconds: float, lead: int, persist: int
) -> None:
    step, saved = first_step(of, price, seconds, lead, persist)
    staying, going = cheapest(of, price, seconds, lead, persist)
    best = min(going.values())
    if step:
        assert going[step] == pytest.approx(best)
        assert saved == pytest.approx(staying - best)
    else:
        assert saved == 0
        assert best >= staying - 1e-6
