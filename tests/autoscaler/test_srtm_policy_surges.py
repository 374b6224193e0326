"""What is remembered of rises that no forecast saw."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.autoscaler.policies.srtm.forecast import Forecast
from srtm.autoscaler.policies.srtm.surges import Surges
from srtm.autoscaler.policies.srtm.tuning import TUNING


def after(rises: list[float]) -> Surges:
    surges = Surges(1.0)
    for rise in rises:
        surges.see(rise)
    return surges


def test_without_experience_the_prior_stands_in() -> None:
    rises, likely = Surges(1.0).expected(200.0)
    assert rises == pytest.approx([200 * share for share in TUNING.surge_prior])
    assert likely == pytest.approx(TUNING.surge_weights)


def test_a_calm_time_makes_the_prior_unlikely() -> None:
    calm = [10.0, -10.0] * 900
    short, long = (after(calm[:seconds]).expected(200.0)[1].sum() for seconds in (60, 1800))
    assert long < 0.5 * short < 0.5 * sum(TUNING.surge_weights)


def test_a_rise_is_remembered_for_minutes_and_forgotten_in_the_end() -> None:
    # A crowd's first seconds, none of which was forecast.
    crowd = [1.0] * 300 + [400.0] * 6
    found = [after(crowd + [1.0] * seconds).expected(1.0) for seconds in (0, 300, 6000)]
    likely = [float(weights @ (rises > 200)) for rises, weights in found]
    assert likely[0] > likely[1] > 0.004
    assert likely[2] < 0.0001


def test_the_more_often_it_rises_the_likelier_it_is() -> None:
    often, seldom = ([1.0] * every + [300.0] * 6 for every in (54, 294))
    found = [after(rises * 4).expected(1.0)[1].sum() for rises in (often, seldom)]
    assert found[0] > 3 * found[1]
    assert after([1.0, 1.0, 300.0] * 100).expected(1.0)[1].sum() <= TUNING.surge_most + 1e-9


def test_falls_and_the_usual_errors_are_no_rises() -> None:
    for errors in ([-500.0] * 600, [-500.0, 1.0] * 300, [40.0, -40.0] * 300):
        rises, likely = after(errors).expected(10.0)
        assert (rises <= 10.0 * TUNING.surge_prior[0] + 1e-9).all()
        assert likely.sum() < sum(TUNING.surge_weights)


@given(st.lists(st.floats(-1e3, 1e3), max_size=60), st.floats(0, 1e4))
def test_no_rise_and_no_likelihood_is_out_of_range(rises: list[float], level: float) -> None:
    found, likely = after(rises).expected(level)
    assert (found >= 0).all()
    assert (found <= max([1e3, TUNING.surge_prior[0] * level]) + 1e-6).all()
    assert (likely >= 0).all()
    assert likely.sum() <= TUNING.surge_most + 1e-9


def test_a_jump_is_followed_at_once_and_noise_is_none() -> None:
    random = np.random.default_rng(1)
    forecast = Forecast(7, 2)
    for _ in range(60):
        forecast.see(float(200 + random.normal(0, 10)))
    assert abs(forecast.level - 200) < 10
    assert len(forecast.errors(7)) == 7
    forecast.see(400.0)
    assert forecast.level == pytest.approx(400)
    assert forecast.surprise == pytest.approx(200, abs=30)
