"""The first step of the cheapest path, against every path there is."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.autoscaler.policies.srtm.plan import Stages, first_step

ROOM, MU = 50.0, 100.0  # of one consumer: events within the target, events/s


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
) -> Stages:
    """futures: weight, late, left, rate of each."""
    count = np.array(sizes, dtype=np.float64)
    none = [[0.0] * len(row) for row in futures[0][1]]
    weights = np.array([weight for weight, _, _, _ in futures])
    return Stages(
        weights=weights / weights.sum(),
        sizes=count,
        late=np.array([late for _, late, _, _ in futures], dtype=np.float64),
        left=np.array([left or none for _, _, left, _ in futures], dtype=np.float64),
        hand=np.array(hand or [0.0] * len(sizes), dtype=np.float64),
        rates=np.array([[rate] * len(none[0]) for _, _, _, rate in futures]),
        room=ROOM * count,
        mu=MU * count,
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
    # 150 events wait and room is 100, so all of them are late; the 50 above it are served at
    # 200 - 50 a second while 50 more come a second: 150 + 50 / 3 late events.
    left = [[150.0] * 4, [0.0] * 4]
    # Staying: 1 + x for each of 14 s and 100; going: 1 + 1 + x, 166.7, and 2 for each of 13 s.
    assert first_step(stages([1, 2], [[6.0] * 4, [0.0] * 4], left), 1.0, 1.0, 1, 10)[0] == 0
    assert first_step(stages([1, 2], [[7.0] * 4, [0.0] * 4], left), 1.0, 1.0, 1, 10)[0] == 1
    assert first_step(stages([1, 2], [[6.0] * 4, [0.0] * 4]), 1.0, 1.0, 1, 10)[0] == 1


def test_where_all_are_late_the_group_that_falls_behind_less_is_kept() -> None:
    lost = stages([2, 1], [[50.0] * 4] * 2, [[200.0, 190, 180, 170], [250.0, 300, 350, 400]])
    assert first_step(lost, 1.0, 1.0, 1, 10) == (0, 0.0)


def test_a_launch_is_not_put_off_to_where_nothing_is_seen_of_its_backlog() -> None:
    # The queue grows: now is the best time, whatever the end of the horizon promises.
    grows = stages([1, 2], [[50.0] * 4, [0.0] * 4], [[50.0, 100, 150, 200], [0.0] * 4])
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


# --- against all paths ---------------------------------------------------------------------------


def of_future(of: Stages, number: int) -> Stages:
    one = np.s_[number : number + 1]
    return replace(of, late=of.late[one], left=of.left[one], rates=of.rates[one])


def backlog(of: Stages, price: float, old: int, new: int, when: int) -> float:
    """Replica-seconds: late events, and the work that has still to be done."""
    left, room = float(of.left[0, old, when]), float(of.room[new])
    spare = max(float(of.mu[new] - of.rates[0, when]), 0.05 * float(of.mu[new]))
    waiting = left * min(1.0, left / room)
    late = waiting + max(0.0, left - room) / spare * float(of.rates[0, when])
    return price * late + max(0.0, left - room) * float(of.sizes[new] / of.mu[new])


def cost_of(
    path: tuple[int | None, ...], of: Stages, price: float, seconds: float, lead: int, persist: int
) -> float:
    """Replica-seconds of a path in the only future: to which group it goes over at each interval,
    and at the end."""
    horizon = of.late.shape[2]
    total, group, at = 0.0, 0, 0
    cost = of.sizes[:, None] * seconds + price * of.late[0]

    def takes(new: int) -> float:
        return price * float(of.hand[new])

    while at < horizon:
        new = path[at]
        if new is None:
            total += cost[group, at]
            at += 1
            continue
        more = float(of.sizes[new] - of.sizes[group])
        total += takes(new)
        if more <= 0:
            group = new
            total += cost[group, at]
            at += 1
            continue
        land = min(horizon, at + lead)
        total += cost[group, at:land].sum() + more * (land - at) * seconds
        total += backlog(of, price, group, new, min(land, horizon - 1))
        group, at = new, land
    last = path[horizon]
    if last is not None:
        more = max(0.0, float(of.sizes[last] - of.sizes[group]))
        total += takes(last) + more * lead * seconds
        if more:
            total += backlog(of, price, group, last, horizon - 1)
        group = last
    behind = max(0.0, float(of.left[0, group, -1] - of.room[group]))
    serving = float(of.sizes[group] / of.mu[group])
    return total + float(cost[group, -1]) * persist + (price + serving) * behind


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
        for path in itertools.product([None, *range(1, groups)], repeat=horizon + 1):
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
                rows(*shape),
                rows(*shape),
                st.sampled_from([20.0, 150.0, 900.0]),
            ),
            min_size=1,
            max_size=3,
        ),
        sizes=st.lists(st.integers(1, 4), min_size=shape[0], max_size=shape[0]),
        hand=st.lists(amounts, min_size=shape[0], max_size=shape[0]),
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
