"""The latency SLO as text and as numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.limits.slo import SLO


@pytest.mark.parametrize(
    ("text", "percentile", "seconds"),
    [
        pytest.param("0.99@1ms", 0.99, 0.001, id="p99"),
        pytest.param("0.5@1h", 0.5, 3600.0, id="the-median"),
        pytest.param("0.99999@250us", 0.99999, 0.00025, id="five-nines"),
        pytest.param("0.99999999@1s", 0.99999999, 1.0, id="eight-nines"),
        pytest.param(".9@1m30s", 0.9, 90.0, id="a-dot-before"),
    ],
)
def test_slos_as_text(text: str, percentile: float, seconds: float) -> None:
    slo = SLO.parse(text)
    assert slo == SLO(percentile, seconds)
    assert SLO.parse(str(slo)) == slo


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "write PERCENTILE@DURATION, such as 0.99@1ms", id="nothing"),
        pytest.param("1ms", "write PERCENTILE@DURATION", id="no-percentile"),
        pytest.param("0.99", "write PERCENTILE@DURATION", id="no-target"),
        pytest.param("p99@1ms", "write PERCENTILE@DURATION", id="a-letter"),
        pytest.param("@1ms", "write PERCENTILE@DURATION", id="an-empty-percentile"),
        pytest.param("0.99@", "is not a duration", id="an-empty-target"),
        pytest.param("0.99@1", "is not a duration", id="no-unit"),
        pytest.param("0.99@1ms@2ms", "is not a duration", id="two-targets"),
        pytest.param("99@1ms", "write 0.99 for p99", id="a-percentage"),
        pytest.param("1@1ms", "not between 0 and 1", id="all-of-them"),
        pytest.param("0@1ms", "not between 0 and 1", id="none-of-them"),
        pytest.param("-0.5@1ms", "not between 0 and 1", id="negative"),
        pytest.param("nan@1ms", "not between 0 and 1", id="nan"),
        pytest.param("inf@1ms", "not between 0 and 1", id="infinite"),
        pytest.param("0.99@0", "must be more than 0", id="at-once"),
        pytest.param("0.99@0.1ns", "must be more than 0", id="under-a-nanosecond"),
        pytest.param("0.99@100000h", "longer than ten years", id="a-target-of-decades"),
    ],
)
def test_what_is_no_slo_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SLO.parse(text)


@pytest.mark.parametrize(
    ("text", "window"),
    [
        pytest.param("0.99@500ms over 1h", 3600.0, id="an-hour"),
        pytest.param("0.999@1ms over 10m", 600.0, id="ten-minutes"),
        pytest.param("0.99@500ms", None, id="none"),
    ],
)
def test_an_slo_has_a_window_or_none(text: str, window: float | None) -> None:
    slo = SLO.parse(text)
    assert slo.window_seconds == window
    assert str(slo) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("0.99@500ms over", "is not a duration", id="an-empty-window"),
        pytest.param("0.99@500ms over day", "is not a duration", id="a-word"),
        pytest.param("0.99@500ms over 100ms", "must be longer than the target", id="too-short"),
        pytest.param("0.99@500ms over 0", "must be longer than the target", id="nothing"),
        pytest.param("over 1h", "write PERCENTILE@DURATION", id="nothing-else"),
    ],
)
def test_what_is_no_window_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SLO.parse(text)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_target_that_nothing_or_everything_meets_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="must be more than 0"):
        SLO(0.99, seconds)


@given(st.integers(1, 10**9 - 1), st.integers(1, 10**15))
def test_an_slo_reads_back_as_it_was(billionths: int, nanoseconds: int) -> None:
    slo = SLO(billionths / 1e9, round(nanoseconds / 1e9, 9))
    assert SLO.parse(str(slo)) == slo


def test_it_is_met_up_to_its_target() -> None:
    slo = SLO(0.99, 0.001)
    assert slo.met_by(0.001)
    assert slo.met_by(0.0)
    assert not slo.met_by(0.0010001)
    assert not slo.met_by(float("nan"))
    assert slo.allowed_late_share == pytest.approx(0.01)
