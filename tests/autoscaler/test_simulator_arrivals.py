"""Arrivals, workload files and settings: exact counts, and one clear line for what is wrong."""

import math
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.autoscaler.simulator.arrivals import (
    ArrivalModel,
    arrivals_by_partition,
    arrivals_of,
    even_shares,
)
from srtm.autoscaler.simulator.setting import Setting
from srtm.autoscaler.simulator.workload import (
    iccbdc_ramp,
    iot_like,
    read_workload,
    taxi_like,
    web_like,
)
from srtm.limits.slo import SLO
from srtm.text.errors import UsageError

SMOOTH, POISSON, BURST = ArrivalModel.SMOOTH, ArrivalModel.POISSON, ArrivalModel.BURST
RATES = st.lists(st.floats(0, 60), min_size=1, max_size=50)


# --- counts ---------------------------------------------------------------------------------------


@given(rates=RATES, partitions=st.integers(1, 6), model=st.sampled_from([SMOOTH, BURST]))
def test_fractions_are_carried_not_lost(
    rates: list[float], partitions: int, model: ArrivalModel
) -> None:
    """After each second every partition has had its rate's sum, less than one event off."""
    arrivals = arrivals_of(rates, even_shares(partitions), model, 1)
    so_far = np.cumsum(rates) / partitions
    off = np.cumsum(arrivals.per_second(), axis=1) - so_far
    assert (np.abs(off) < 1 + 1e-6).all()
    assert abs(arrivals.events - sum(rates)) <= 0.5 + 1e-6  # the topic's whole, rounded


@given(rates=RATES, model=st.sampled_from(ArrivalModel), seed=st.integers(0, 99))
def test_times_ascend_and_stay_in_their_seconds(
    rates: list[float], model: ArrivalModel, seed: int
) -> None:
    arrivals = arrivals_of(rates, (0.7, 0.3), model, seed)
    for times in arrivals.times:
        assert (np.diff(times) >= 0).all()
        assert ((times >= 0) & (times < arrivals.seconds)).all()
    counts = arrivals.per_second()
    assert counts.shape == (2, len(rates))
    assert not counts[:, [rate == 0 for rate in rates]].any()


def test_an_event_at_the_very_end_of_a_second_stays_in_it() -> None:
    """Half an event a second comes when the second ends: seconds 0, 2 and 4, never 1, 3 and 5."""
    arrivals = arrivals_of([0.5] * 6, (1.0,), SMOOTH, 1)
    assert arrivals.times[0] == pytest.approx([1, 3, 5])
    assert arrivals.per_second().tolist() == [[1, 0, 1, 0, 1, 0]]


def test_smooth_events_are_evenly_apart() -> None:
    times = arrivals_of([10.0] * 3, (1.0,), SMOOTH, 1).times[0]
    assert len(times) == 30
    assert np.diff(times) == pytest.approx(0.1)


def test_burst_events_come_with_the_second() -> None:
    times = arrivals_of([2.0, 0.0, 3.0], (1.0,), BURST, 1).times[0]
    assert times.tolist() == [0, 0, 2, 2, 2]


def test_poisson_counts_vary_as_poisson_counts_do() -> None:
    counts = arrivals_of([50.0] * 4000, (1.0,), POISSON, 7).per_second()[0]
    assert counts.mean() == pytest.approx(50, abs=5 * math.sqrt(50 / 4000))
    assert counts.var() == pytest.approx(50, rel=0.12)
    within = np.concatenate(arrivals_of([50.0] * 400, (1.0,), POISSON, 7).times) % 1
    assert within.mean() == pytest.approx(0.5, abs=0.01)


def test_the_seed_decides_poisson_arrivals_only() -> None:
    def first(model: ArrivalModel, seed: int) -> list[float]:
        return list(arrivals_of([20.0] * 5, (1.0,), model, seed).times[0])

    assert first(POISSON, 1) == first(POISSON, 1) != first(POISSON, 2)
    assert first(SMOOTH, 1) == first(SMOOTH, 2)
    assert first(BURST, 1) == first(BURST, 2)


def test_shares_divide_the_events() -> None:
    arrivals = arrivals_of([100.0] * 50, (0.27, 0.27, 0.46), SMOOTH, 1)
    assert [len(times) for times in arrivals.times] == pytest.approx([1350, 1350, 2300], abs=1)


def test_printed_shares_that_do_not_quite_sum_to_one_keep_all_events() -> None:
    """CLOSER's skew: 0.25, 0.25 and seven times 0.0714."""
    arrivals = arrivals_of([1000.0] * 100, (0.25, 0.25, *(0.0714,) * 7), SMOOTH, 1)
    assert arrivals.events == pytest.approx(100_000, abs=4)


def test_a_partition_without_a_share_gets_nothing() -> None:
    for model in ArrivalModel:
        assert len(arrivals_of([100.0] * 5, (1.0, 0.0), model, 1).times[1]) == 0


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rates", "shares", "line"),
    [
        pytest.param([], (1.0,), "the workload is empty", id="no-seconds"),
        pytest.param([1.0], (), "no partitions", id="no-partitions"),
        pytest.param([1.0, math.nan], (1.0,), "second 1 of the workload: nan events/s", id="nan"),
        pytest.param([-1.0], (1.0,), "second 0 of the workload: -1 events/s; a rate", id="below-0"),
        pytest.param([math.inf], (1.0,), "second 0 of the workload: inf events/s", id="infinite"),
        pytest.param([1.0], (0.5, 0.4), "sum to 0.9; they must sum to 1", id="shares-of-0.9"),
        pytest.param([1.0], (1.5, -0.5), "each must be between 0 and 1", id="a-share-below-0"),
        pytest.param([1.0], (math.nan, 1.0), "each must be between 0 and 1", id="a-share-of-nan"),
        pytest.param([1e12], (1.0,), "1e+12 events and a simulation holds 100,000,000", id="huge"),
    ],
)
@pytest.mark.parametrize("model", list(ArrivalModel))
def test_arrivals_that_cannot_be(
    rates: list[float], shares: tuple[float, ...], line: str, model: ArrivalModel
) -> None:
    with pytest.raises(ValueError) as error:
        arrivals_of(rates, shares, model, 1)
    assert line in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("rates", "line"),
    [
        pytest.param([[1.0, 2.0], [1.0]], "unequal numbers of seconds", id="ragged"),
        pytest.param([[1.0], [math.nan]], "partition 1, second 0 of the workload: nan", id="nan"),
        pytest.param([[]], "the workload is empty", id="no-seconds"),
        pytest.param([], "the workload is empty", id="no-partitions"),
    ],
)
def test_rates_by_partition_that_cannot_be(rates: list[list[float]], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        arrivals_by_partition(rates, SMOOTH, 1)


@pytest.mark.parametrize("partitions", [0, -3])
def test_a_topic_has_a_partition(partitions: int) -> None:
    with pytest.raises(ValueError, match=f"{partitions} partitions: a topic has one or more"):
        even_shares(partitions)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        pytest.param({"mu": 0.0}, "mu is 0.0; it must be more than 0", id="mu-of-0"),
        pytest.param({"mu": math.nan}, "mu is nan", id="mu-of-nan"),
        pytest.param({"mu": math.inf}, "mu is inf", id="mu-without-end"),
        pytest.param({"decision_seconds": 0.0}, "decision interval is 0.0", id="no-interval"),
        pytest.param({"heartbeat_seconds": 0.0}, "heartbeat is 0.0", id="no-heartbeat"),
        pytest.param({"session_seconds": 0.0}, "session timeout is 0.0", id="no-session"),
        pytest.param({"rebalance_seconds": -1.0}, "rebalance is -1.0 s", id="rebalance-below-0"),
        pytest.param({"startup_seconds": math.nan}, "start-up is nan s", id="start-up-of-nan"),
        pytest.param({"lag_phase": -0.1}, "lag phase is -0.1 s", id="phase-below-0"),
        pytest.param({"initial": 0}, "starts with 1 consumer or more", id="nobody-at-the-start"),
        pytest.param({"max_poll": 0}, "polls 1 event or more", id="empty-polls"),
    ],
)
def test_settings_that_cannot_be(changes: dict[str, float], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        Setting(SLO(0.99, 0.5), **changes)  # type: ignore[arg-type]


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        pytest.param("5\n6\n", [5, 6], id="one-column"),
        pytest.param("0.5,5\n1.5,6\n", [5, 6], id="seconds-first"),
        pytest.param("second,events\n0,5\n1,6", [5, 6], id="a-header"),
        pytest.param("2022-09-05 16:34:44,5\n2022-09-05 16:34:45,6\n", [5, 6], id="dates-first"),
        pytest.param("\ufeff5\r\n6\r\n", [5, 6], id="a-byte-order-mark-hides-no-row"),
        pytest.param("5\n6\n\n \n", [5, 6], id="empty-lines-at-the-end"),
        pytest.param("0,a,5\n1,b,6\n2,c,7\n", [5, 6, 7], id="the-last-of-three-columns"),
        pytest.param("7,5\n7,6\n7,4\n", [5, 6, 4], id="a-constant-first-column"),
        pytest.param("0\n0\n", [0, 0], id="nothing-arrives"),
    ],
)
def test_a_workload_is_read(tmp_path: Path, text: str, rates: list[float]) -> None:
    file = tmp_path / "workload.csv"
    file.write_text(text, encoding="utf-8")
    assert read_workload(file) == rates


@pytest.mark.parametrize("unit", [1e3, 1e6, 1e9], ids=["milli", "micro", "nano"])
def test_times_may_be_in_smaller_units(tmp_path: Path, unit: float) -> None:
    file = tmp_path / "workload.csv"
    file.write_text("".join(f"{int((1_400_000_000 + at) * unit)},5\n" for at in range(3)))
    assert read_workload(file) == [5, 5, 5]


def test_a_change_to_summer_time_is_no_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clocks of Berlin went from 2:00 to 3:00 that night; the file's went on."""
    file = tmp_path / "workload.csv"
    file.write_text("".join(f"2022-03-27 {at},5\n" for at in ("02:59:58", "02:59:59", "03:00:00")))
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "Europe/Berlin")
        time.tzset()
        rates = read_workload(file)
    time.tzset()
    assert rates == [5, 5, 5]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("", "no rows; one row a second", id="empty"),
        pytest.param("second,events\n", "no rows; one row a second", id="a-header-only"),
        pytest.param("\n\n", "no rows; one row a second", id="empty-lines-only"),
        pytest.param("0,5\n\n2,6\n", "line 2: an empty line", id="an-empty-line-between"),
        pytest.param("0,5\n1,\n2,6\n", "line 2: '' is not a number", id="a-missing-rate"),
        pytest.param("0,\n1,5\n", "line 1: '' is not a number", id="a-missing-rate-is-no-header"),
        pytest.param("0,5\n1,many\n", "line 2: 'many' is not a number", id="words"),
        pytest.param("0,5\n1,nan\n", "line 2: nan events/s; a rate is 0 or more", id="nan"),
        pytest.param("0,5\n1,inf\n", "line 2: inf events/s", id="infinite"),
        pytest.param("0,5\n1,-3\n", "line 2: -3 events/s", id="below-0"),
        pytest.param("0,5\n1,6\n3,7\n", "line 3: 2 s after the row before", id="a-second-missing"),
        pytest.param(
            "2022-09-05 16:34:44,5\n2022-09-05 16:34:45,6\n2022-09-05 16:34:55,6\n",
            "line 3: 10 s after the row before it; one row a second",
            id="ten-seconds-missing",
        ),
        pytest.param("0,5\n300,6\n600,7\n", "its rows are 300 s apart", id="five-minutes-apart"),
        pytest.param(
            "2014-04-10 00:00:00,5\n2014-04-10 00:00:30,6\n", "are 30 s apart", id="by-date"
        ),
        pytest.param(
            "1400000000000,5\n1400000060000,6\n", "are 60 s apart", id="milliseconds-a-minute-apart"
        ),
        pytest.param("0,5\n0.1,6\n0.2,7\n", "its rows are 0.1 s apart", id="ten-a-second"),
        pytest.param("0,5\n1,6\n1,7\n", "line 3: 0 s after the row before", id="a-second-twice"),
        pytest.param("0;5\n1;6\n", "line 2: '1;6' is not a number", id="semicolons"),
    ],
)
def test_a_workload_that_cannot_be(tmp_path: Path, text: str, line: str) -> None:
    file = tmp_path / "workload.csv"
    file.write_text(text)
    with pytest.raises(UsageError) as error:
        read_workload(file)
    assert f"{file}" in str(error.value)
    assert line in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_workload(tmp_path / "none.csv")
    with pytest.raises(UsageError, match="Is a directory"):
        read_workload(tmp_path)
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(UsageError, match="not a CSV file"):
        read_workload(binary)


# --- generators -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rates", "seconds", "peak"),
    [
        pytest.param(iot_like(), 600, 350, id="iot"),
        pytest.param(web_like(seed=3), 210, 500, id="web"),
        pytest.param(taxi_like(600), 600, None, id="taxi"),
    ],
)
def test_generators_give_rates(rates: list[float], seconds: int, peak: float | None) -> None:
    assert len(rates) == seconds
    assert all(0 <= rate < math.inf for rate in rates)
    if peak is not None:
        assert max(rates) == pytest.approx(peak, rel=0.01)


def test_iccbdcs_ramp_is_the_papers() -> None:
    """Section 4.1: 15/s each, up by one a second to 60/s, one partition after the other."""
    ramp = iccbdc_ramp()
    assert [len(row) for row in ramp] == [600] * 5
    assert [[row[at] for row in ramp] for at in (0, 150, 300, 450, 599)] == [
        [15] * 5,
        [45, 45, 15, 15, 15],
        [60, 60, 60, 15, 15],
        [60, 60, 60, 60, 15],
        [15] * 5,
    ]
