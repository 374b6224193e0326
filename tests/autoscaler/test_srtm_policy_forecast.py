"""What the policy thinks comes next: rates with an error, and how arrivals lie within seconds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.autoscaler.policies.srtm.forecast import Forecast
from srtm.autoscaler.policies.srtm.shape import Shape

AHEAD = 6


def fed(rates: list[float], ahead: int = AHEAD, beside: int = 0) -> Forecast:
    forecast = Forecast(ahead, beside)
    for rate in rates:
        forecast.see(rate)
    return forecast


def misses(rates: list[float], after: int) -> list[tuple[float, float]]:
    """(error, bound) of what was said AHEAD intervals before, from `after` on."""
    forecast = Forecast(AHEAD)
    found = []
    for now in range(len(rates) - AHEAD):
        forecast.see(rates[now])
        if now >= after:
            said, bound = forecast.rates(AHEAD)[-1], forecast.errors(AHEAD)[-1]
            found.append((abs(rates[now + AHEAD] - said), float(bound)))
    return found


def test_a_constant_rate_goes_on_for_sure() -> None:
    forecast = fed([120.0] * 30)
    assert forecast.rates(10) == pytest.approx([120.0] * 10)
    assert forecast.errors(10) == pytest.approx([0.0] * 10, abs=1e-6)
    assert forecast.level == pytest.approx(120)


def test_a_ramp_is_followed() -> None:
    forecast = fed([10.0 + 3 * t for t in range(40)])
    assert forecast.rates(8) == pytest.approx([10.0 + 3 * (39 + t) for t in range(1, 9)], rel=0.01)
    assert max(forecast.errors(8)) < 5


def test_the_first_rate_is_all_that_is_known_and_is_not_sure() -> None:
    forecast = fed([80.0])
    assert forecast.rates(3) == pytest.approx([80.0] * 3)
    assert forecast.errors(3) == pytest.approx([8.0] * 3)


def test_noise_is_averaged_and_its_size_is_known() -> None:
    noise = np.random.default_rng(1).normal(0, 10, 400)
    rates = [float(rate) for rate in 200 + noise]
    found = misses(rates, 60)
    # 10/s of the rate itself; a forecast that knew the mean would miss by as much.
    assert np.sqrt(np.mean([error**2 for error, _ in found])) < 12.5
    assert np.mean([bound for _, bound in found]) == pytest.approx(11, abs=2.5)
    assert np.mean([error <= 2 * bound for error, bound in found]) > 0.9


def test_the_noise_of_single_intervals_is_no_error_of_a_level() -> None:
    noise = np.random.default_rng(3).normal(0, 40, 300)
    rates = [float(rate) for rate in 200 + noise]
    single, level = fed(rates), fed(rates, beside=2)
    assert single.errors(AHEAD)[-1] == pytest.approx(40, rel=0.3)
    assert level.errors(AHEAD)[-1] == pytest.approx(40 / 5**0.5, rel=0.3)
    assert level.rates(AHEAD) == pytest.approx([200.0] * AHEAD, rel=0.1)


@pytest.mark.parametrize("beside", [1, 2])
def test_a_level_is_held_against_the_forecast_of_its_middle(beside: int) -> None:
    ramp = fed([10.0 + 3 * t for t in range(60)], beside=beside)
    assert max(ramp.errors(AHEAD)) < 2  # 3 to the next interval


def test_the_bound_covers_waves() -> None:
    rates = [150 + 100 * np.sin(t / 15) for t in range(300)]
    found = misses([float(rate) for rate in rates], 60)
    assert np.mean([error <= 2 * bound for error, bound in found]) > 0.9
    assert np.mean([error for error, _ in found]) < 15  # 100 * (1 - cos(6 / 15)) and more, if flat


def test_a_step_makes_it_unsure_and_then_sure_again() -> None:
    steady, step = [100.0] * 40, [200.0]
    unsure = fed(steady + step * 3)
    assert unsure.rates(AHEAD)[-1] + 2 * unsure.errors(AHEAD)[-1] > 200
    assert unsure.errors(AHEAD)[-1] > 40
    later = fed(steady + step * 60)
    assert later.rates(AHEAD) == pytest.approx([200.0] * AHEAD, rel=0.02)
    assert later.errors(AHEAD)[-1] < 20


def test_the_error_grows_with_the_square_root_of_the_distance() -> None:
    noise = np.random.default_rng(2).normal(0, 10, 50)
    errors = fed([float(rate) for rate in 200 + noise]).errors(4 * AHEAD)
    assert errors[4 * AHEAD - 1] == pytest.approx(2 * errors[AHEAD - 1])


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=60),
    st.integers(1, 12),
    st.integers(1, 30),
)
def test_rates_are_rates_whatever_was_seen(rates: list[float], ahead: int, steps: int) -> None:
    forecast = fed(rates, ahead)
    for found in (forecast.rates(steps), forecast.errors(steps)):
        assert found.shape == (steps,)
        assert np.isfinite(found).all()
        assert (found >= 0).all()
    assert 0 <= forecast.level < np.inf


# --- the shape -----------------------------------------------------------------------------------


def shaped(rows: list[list[list[float]]], horizon: int = 2, paths: int = 2) -> Shape:
    shape = Shape(horizon, paths, 1.0)
    for row in rows:
        shape.see(np.array(row))
    return shape


EARLY, LATE = [[8.0, 2.0], [0.0, 0.0]], [[0.0, 0.0], [8.0, 2.0]]
"""Ten events at the start of an interval of two slots, and at its end."""


def test_an_interval_s_events_are_divided_by_its_rate() -> None:
    paths = shaped([EARLY] * 4).paths()
    assert paths.shape == (2, 4, 2)
    assert paths[0].tolist() == [[0.8, 0.2], [0, 0]] * 2
    assert paths[1].tolist() == paths[0].tolist()


def test_the_last_intervals_are_cut_into_paths_oldest_first() -> None:
    paths = shaped([EARLY, EARLY, LATE, EARLY, LATE]).paths()
    assert paths[0].tolist() == [[0.8, 0.2], [0, 0], [0, 0], [0.8, 0.2]]
    assert paths[1].tolist() == [[0.8, 0.2], [0, 0], [0, 0], [0.8, 0.2]]
    assert shaped([EARLY] * 4 + [LATE] * 4).paths()[0, :2].tolist() == [[0, 0], [0.8, 0.2]]


def test_a_short_history_is_repeated() -> None:
    paths = shaped([EARLY], horizon=3).paths()
    assert paths.shape == (1, 6, 2)
    assert paths[0].tolist() == [[0.8, 0.2], [0, 0]] * 3
    assert shaped([EARLY, LATE, EARLY], horizon=2).paths().shape == (1, 4, 2)


def test_noise_stays_in_the_shape() -> None:
    shape = shaped([[[10.0]], [[10.0]], [[20.0]], [[10.0]], [[10.0]]], horizon=5, paths=1)
    # The third is divided by all five, its neighbours by three of them, the others by themselves.
    expected = [1, 30 / 40, 20 / 12, 30 / 40, 1]
    assert shape.paths().ravel().tolist() == pytest.approx(expected)


@given(st.floats(0, 50), st.floats(0.1, 30), st.integers(1, 60))
def test_a_ramp_does_not(start: float, slope: float, seconds: int) -> None:
    rows = [[[start + slope * (second + 1)]] for second in range(seconds)]
    paths = shaped(rows, horizon=seconds, paths=1).paths()
    assert paths.ravel().tolist() == pytest.approx([1.0] * seconds)


def test_where_an_interval_is_long_its_own_rate_is_the_level() -> None:
    shape = Shape(1, 1, interval_seconds=30.0)
    for events in (300.0, 6000.0):
        shape.see(np.array([[events]]))
    assert shape.paths().ravel().tolist() == [1.0]


def test_a_partition_that_comes_or_goes_begins_it_anew() -> None:
    shape = shaped([EARLY] * 5)
    shape.see(np.array([[5.0, 3.0, 2.0], [0.0, 0.0, 0.0]]))
    assert shape.paths().shape == (1, 4, 3)


def test_silence_is_spread_evenly() -> None:
    assert shaped([[[0.0, 0.0], [0.0, 0.0]]]).paths().ravel().tolist() == [0.25] * 8


def test_an_interval_without_events_says_nothing_of_the_partitions_shares() -> None:
    paths = shaped([[[0.0, 0.0]], [[0.0, 0.0]], [[0.0, 0.0]], [[0.0, 9.0]]], 4, 1).paths()
    assert paths[0, :, 0].tolist() == [0.0] * 4
    assert paths[0, 0].tolist() == [0.0, 1.0]


def test_after_a_jump_of_the_rate_partitions_have_the_shares_that_they_have_since() -> None:
    shape = shaped([[[6.0, 4.0]]] * 4, horizon=5, paths=1)
    shape.see(np.array([[90.0, 0.0]]), jumped=True)
    paths = shape.paths()[0]
    old = paths[:3] / paths[:3].sum(axis=1, keepdims=True)
    # What came before counts as one interval: 6 and 4 of 100.
    assert old.ravel().tolist() == pytest.approx([0.96, 0.04] * 3)
    assert shaped([[[6.0, 4.0]]] * 4, 5, 1).paths()[0, 0].tolist() == pytest.approx([0.6, 0.4])


@given(
    st.lists(st.lists(st.integers(0, 1000), min_size=6, max_size=6), min_size=1, max_size=20),
    st.integers(1, 5),
    st.integers(1, 3),
)
def test_paths_are_finite_and_as_long_as_the_horizon(
    rows: list[list[int]], horizon: int, paths: int
) -> None:
    shape = Shape(horizon, paths, 1.0)
    for row in rows:
        shape.see(np.array(row, dtype=np.float64).reshape(3, 2))
    found = shape.paths()
    assert found.shape == (max(1, min(paths, len(rows) // horizon)), 3 * horizon, 2)
    assert np.isfinite(found).all()
    assert (found >= 0).all()
