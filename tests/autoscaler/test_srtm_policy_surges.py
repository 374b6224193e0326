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
    assert Surges(1.0).expected(200.0) == pytest.approx([200 * p for p in TUNING.surge_prior])


def test_a_calm_time_makes_the_prior_small() -> None:
    short, long = (after([0.0] * seconds).expected(200.0) for seconds in (60, 1800))
    assert (long < 0.5 * short).all()


def test_a_rise_is_remembered_for_minutes_and_forgotten_in_the_end() -> None:
    # A crowd's first seconds, none of which was forecast.
    crowd = [0.0] * 300 + [400.0] * 6
    found = [after(crowd + [0.0] * seconds).expected(0.0)[0] for seconds in (0, 300, 6000)]
    assert min(found[:2]) > 200
    assert found[2] < 20


def test_falls_are_no_rises() -> None:
    assert after([-500.0] * 600).expected(0.0) == pytest.approx([0.0] * len(TUNING.surge_prior))


@given(st.lists(st.floats(-1e3, 1e3), max_size=60), st.floats(0, 1e4))
def test_the_rarest_is_the_largest_and_none_is_out_of_range(
    rises: list[float], level: float
) -> None:
    found = after(rises).expected(level)
    assert (found[:-1] >= found[1:] - 1e-9).all()
    assert (found >= 0).all()
    assert (found <= max([1e3, TUNING.surge_prior[0] * level])).all()


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
