"""The open-loop schedule, without a socket or a clock."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.load.schedule import Schedule, build_schedule
from srtm.load.settings import LoadSettings

NS = 1_000_000_000


def plan(**changes: Any) -> Schedule:
    same: dict[str, Any] = {"topic": "t", "publish_addresses": ("127.0.0.1:4150",)}
    return build_schedule(LoadSettings(**(same | changes)))


def offsets_by_publisher(schedule: Schedule, publishers: int) -> list[list[int]]:
    return [schedule.offsets_ns[schedule.publishers == p].tolist() for p in range(publishers)]


@pytest.mark.parametrize(
    ("changes", "events"),
    [
        pytest.param({"rate_per_second": 100.0}, 100_000, id="each-publisher-has-the-rate"),
        pytest.param({"rate_per_second": 100.0, "batch": 20}, 5_000, id="a-batch-is-one-event"),
        pytest.param(
            {"rate_per_second": 100.0, "group_size": 10}, 100_000, id="a-group-multiplies-nothing"
        ),
        pytest.param(
            {"rate_per_second": 100.0, "group_size": 7, "jitter_seconds": 0.1},
            100_000,
            id="a-smaller-last-group-keeps-its-rate",
        ),
        pytest.param({"trace": (2000.0, 0.0, 4000.0)}, 6_000, id="a-trace-has-its-total"),
        pytest.param(
            {"trace": (2000.0, 0.0, 4000.0), "trace_scale": 0.5}, 3_000, id="a-scaled-trace"
        ),
        pytest.param(
            {"trace": (2000.0, 0.0, 4000.0), "group_size": 10, "batch": 2},
            3_000,
            id="groups-and-batches-divide-a-trace",
        ),
        pytest.param(
            {"trace": (2000.0, 0.0, 4000.0), "duration_seconds": 2.5}, 4_000, id="a-trace-cut-short"
        ),
    ],
)
@pytest.mark.parametrize("arrivals", ["poisson", "periodic"])
def test_number_of_events(changes: dict[str, Any], events: int, arrivals: str) -> None:
    schedule = plan(publishers=100, arrivals=arrivals, **changes)
    # a group's events are one draw: its size multiplies their variance
    spread = 5 * (events * changes.get("group_size", 1)) ** 0.5 if arrivals == "poisson" else 101
    assert abs(len(schedule) - events) <= spread


def test_periodic_arrivals_have_a_random_phase_and_one_period() -> None:
    schedule = plan(publishers=50, rate_per_second=100.0, arrivals="periodic", duration_seconds=2.0)
    phases = set()
    for offsets in offsets_by_publisher(schedule, 50):
        assert len(offsets) in (199, 200, 201)
        assert set(np.diff(offsets)) <= set(range(9_999_998, 10_000_003))
        assert 0 <= offsets[0] < 10_000_000
        phases.add(offsets[0])
    assert len(phases) == 50


def test_poisson_gaps_vary_as_much_as_their_mean() -> None:
    schedule = plan(publishers=1, rate_per_second=10_000.0)
    gaps = np.diff(schedule.offsets_ns)
    assert 0.95 < gaps.std() / gaps.mean() < 1.05


def test_a_trace_follows_its_rate_second_by_second() -> None:
    schedule = plan(publishers=7, trace=(1000.0, 0.0, 3000.0), arrivals="periodic")
    assert np.bincount(schedule.offsets_ns // NS).tolist() == pytest.approx([1000, 0, 3000], abs=1)
    assert set(schedule.publishers.tolist()) == set(range(7))


paces = st.one_of(
    st.fixed_dictionaries({"rate_per_second": st.floats(0.5, 50.0)}),
    st.fixed_dictionaries({"trace": st.lists(st.floats(0.1, 100.0), min_size=1).map(tuple)}),
)
shapes = st.fixed_dictionaries(
    {
        "publishers": st.integers(1, 12),
        "group_size": st.integers(1, 5),
        "jitter_seconds": st.sampled_from([0.0, 0.001, 0.5]),
        "batch": st.integers(1, 4),
        "arrivals": st.sampled_from(["poisson", "periodic"]),
        "duration_seconds": st.floats(0.1, 5.0),
        "seed": st.integers(0, 2**32),
    }
)


@given(paces, shapes)
def test_a_schedule_is_sorted_bounded_and_reproducible(
    pace: dict[str, Any], shape: dict[str, Any]
) -> None:
    schedule = plan(**pace, **shape)
    offsets, publishers = schedule.offsets_ns, schedule.publishers
    again = plan(**pace, **shape)
    assert offsets.dtype == publishers.dtype == np.int64
    assert (np.diff(offsets) >= 0).all()
    assert ((offsets >= 0) & (offsets < (shape["duration_seconds"] + 0.5) * NS)).all()
    assert ((publishers >= 0) & (publishers < shape["publishers"])).all()
    assert (again.offsets_ns == offsets).all()
    assert (again.publishers == publishers).all()


@given(paces, shapes)
def test_a_group_sends_together_within_its_jitter(
    pace: dict[str, Any], shape: dict[str, Any]
) -> None:
    schedule = plan(**pace, **(shape | {"duration_seconds": 2.0, "arrivals": "periodic"}))
    jitter_ns = shape["jitter_seconds"] * NS
    sent = offsets_by_publisher(schedule, shape["publishers"])
    for publisher, offsets in enumerate(sent):
        first = sent[publisher - publisher % shape["group_size"]]
        assert len(offsets) == len(first)
        if jitter_ns == 0:
            assert offsets == first
        elif jitter_ns == 1_000_000 and "rate_per_second" in pace:  # far below the period
            assert all(abs(a - b) <= jitter_ns for a, b in zip(offsets, first, strict=True))


def test_another_seed_gives_another_schedule() -> None:
    one, other = (plan(rate_per_second=5.0, seed=seed).offsets_ns.tolist() for seed in (1, 2))
    assert one != other


# --- publishers with rates and groups of their own ----------------------------------------------


def test_each_publisher_has_its_own_rate() -> None:
    rates = (1.0, 10.0, 100.0)
    schedule = plan(publishers=3, rates=rates, duration_seconds=1000.0)
    for publisher, rate in enumerate(rates):
        count = int((schedule.publishers == publisher).sum())
        assert abs(count - 1000 * rate) < 5 * (1000 * rate) ** 0.5


def test_the_slow_of_a_group_send_at_instants_of_the_fastest() -> None:
    rates, groups = (5.0, 20.0, 20.0, 7.0), (0, 1, 0, 1)
    schedule = plan(publishers=4, rates=rates, groups=groups, duration_seconds=500.0)
    sent = [set(each) for each in offsets_by_publisher(schedule, 4)]
    assert sent[0] < sent[2]
    assert sent[3] < sent[1]
    assert not sent[1] & sent[2]
    for publisher, rate in enumerate(rates):
        assert abs(len(sent[publisher]) - 500 * rate) < 5 * (500 * rate) ** 0.5


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    arrivals=st.sampled_from(["poisson", "periodic"]),
    data=st.data(),
)
def test_a_group_of_one_rate_sends_as_one(sizes: list[int], arrivals: str, data: Any) -> None:
    in_order = [group for group, size in enumerate(sizes) for _ in range(size)]
    groups = data.draw(st.permutations(in_order))
    schedule = plan(
        publishers=len(groups),
        rates=tuple(10.0 * (1 + group) for group in groups),
        groups=tuple(groups),
        arrivals=arrivals,
        duration_seconds=2.0,
    )
    offsets = offsets_by_publisher(schedule, len(groups))
    assert (np.diff(schedule.offsets_ns) >= 0).all()
    for group in range(len(sizes)):
        members = [offsets[each] for each in range(len(groups)) if groups[each] == group]
        assert len({tuple(each) for each in members}) == 1


def test_groups_by_number_are_groups_by_size() -> None:
    same = {"publishers": 10, "rate_per_second": 50.0}
    by_size = plan(group_size=4, **same)
    by_number = plan(groups=(0, 0, 0, 0, 1, 1, 1, 1, 2, 2), **same)
    assert by_size.offsets_ns.tolist() == by_number.offsets_ns.tolist()
    assert by_size.publishers.tolist() == by_number.publishers.tolist()
