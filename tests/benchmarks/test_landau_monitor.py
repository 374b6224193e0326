"""Landau's monitor beside ours: what both measure of records whose times are known."""

import numpy as np
import pytest

from benchmarks.autoscaler.landau_monitor import (
    RECORD_BYTES,
    STEP_SECONDS,
    STEPS,
    follow,
    spread,
    steps,
    until_near,
)


def test_both_measure_an_even_flow() -> None:
    found = follow(np.arange(0.05, 60.0, 0.1), 60.0)
    assert found.ours[5:] == pytest.approx(10 * RECORD_BYTES, rel=0.01)
    assert found.window[-1] == pytest.approx(10 * RECORD_BYTES, rel=0.01)
    assert spread(found.ours[5:]) < 0.01


def test_a_window_follows_a_step_when_it_is_full_of_it() -> None:
    found = follow(steps(), len(STEPS) * STEP_SECONDS)
    for seconds in until_near(found.at, found.window):
        assert 20 < seconds <= 30
    assert until_near(found.at, found.ours) == [1.0, 1.0]
