"""Every policy on random histories: exact sums, floors, and nothing where nothing would change."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_adaptor.policies import POLICIES
from tb_adaptor.share import Part, divide, even
from tb_adaptor.window import MOST_ARRIVALS, Seen, Window, WindowReport

CONTRACT = Part(1_000.0, 100.0)
NAMES = ["b1", "b2", "b3"]


@st.composite
def histories(draw: st.DrawFn) -> dict[str, Seen]:
    weights = draw(st.lists(st.floats(0.01, 1), min_size=3, max_size=3))
    bursts = draw(st.lists(st.floats(0.0, 1), min_size=3, max_size=3))
    split = divide(
        CONTRACT, dict(zip(NAMES, weights, strict=True)), dict(zip(NAMES, bursts, strict=True))
    )
    found = {}
    for name in NAMES:
        count = draw(st.integers(0, 60))
        times = np.sort(np.array(draw(st.lists(st.floats(0, 10), min_size=count, max_size=count))))
        sizes = draw(st.lists(st.integers(1, 400), min_size=count, max_size=count))
        waits = draw(st.lists(st.floats(0, 500), min_size=10, max_size=10))
        found[name] = Seen(
            10.0, split[name], times, np.array(sizes, dtype=float), np.array(waits), waits[-1]
        )
    return found


def sums(split: dict[str, Part]) -> tuple[Fraction, Fraction]:
    return sum((Fraction(each.rate) for each in split.values()), Fraction()), sum(
        (Fraction(each.burst) for each in split.values()), Fraction()
    )


@pytest.mark.parametrize("name", POLICIES)
@given(seen=histories())
def test_a_rescale_is_within_the_contract_and_serves_each_broker(
    name: str, seen: dict[str, Seen]
) -> None:
    found = POLICIES[name].make().rescale(CONTRACT, seen, 10.0)
    if found is None:
        return
    rate, burst = sums(found.split)
    assert rate <= Fraction(CONTRACT.rate)
    assert burst <= Fraction(CONTRACT.burst)
    assert float(rate) == pytest.approx(CONTRACT.rate), "nothing of it is left unused"
    assert float(burst) == pytest.approx(CONTRACT.burst)
    for each in found.split.values():
        assert each.burst >= 1
        assert each.rate >= 0.04 * CONTRACT.rate / 3, "an idle broker can start again"
    assert found.reasons


@pytest.mark.parametrize("name", POLICIES)
@given(seen=histories())
def test_the_same_history_asks_for_nothing_more(name: str, seen: dict[str, Seen]) -> None:
    """With proportional rules. Ours may go on, as what stays where it is depends on where it is."""
    policy = POLICIES[name].make()
    found = policy.rescale(CONTRACT, seen, 10.0)
    if found is None or name == "srtm":
        return
    after = {
        broker: Seen(
            each.until, found.split[broker], each.times, each.counts, each.step_waiting, 0.0
        )
        for broker, each in seen.items()
    }
    again = policy.rescale(CONTRACT, after, 10.0)
    assert again is None


@given(seen=histories())
def test_ours_moves_nothing_where_nobody_waits(seen: dict[str, Seen]) -> None:
    calm = {
        name: Seen(each.until, each.part, each.times, each.counts, np.zeros(10), 0.0)
        for name, each in seen.items()
    }
    assert POLICIES["srtm"].make().rescale(CONTRACT, calm, 10.0) is None


def steady(rate: float, part: Part, waiting: float = 0.0) -> Seen:
    times = np.arange(0, 10, 1 / rate) if rate else np.empty(0)
    return Seen(10.0, part, times, np.ones(times.size), np.full(10, waiting), waiting)


def test_ours_gives_what_is_needed_and_leaves_the_rest_with_the_idle() -> None:
    split = even(CONTRACT, ["b1", "b2"])
    seen = {"b1": steady(600, split["b1"], 50.0), "b2": steady(0, split["b2"])}
    found = POLICIES["srtm"].make().rescale(CONTRACT, seen, 10.0)
    assert found is not None
    assert 600 < found.split["b1"].rate < 800
    assert found.split["b2"].rate > 50
    assert found.split["b2"].burst > 25
    paper = POLICIES["paper"].make().rescale(CONTRACT, seen, 10.0)
    assert paper is not None
    assert paper.split["b2"] == pytest.approx(Part(0.05 * 500, 1)), "its floors"


def test_rate_only_leaves_b() -> None:
    split = even(CONTRACT, ["b1", "b2"])
    seen = {"b1": steady(600, split["b1"], 50.0), "b2": steady(200, split["b2"])}
    found = POLICIES["rate-only"].make().rescale(CONTRACT, seen, 10.0)
    assert found is not None
    assert found.split["b1"] == pytest.approx(Part(750, 50))


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1e9), min_size=1),
    st.floats(0.001, 1e6),
    st.floats(6, 1e6),
)
def test_a_contract_is_divided_without_a_digit_too_much(
    weights: dict[str, float], rate: float, burst: float
) -> None:
    split = divide(Part(rate, burst), weights, weights)
    assert sums(split)[0] <= Fraction(rate)
    assert sums(split)[1] <= Fraction(burst)
    assert min(each.burst for each in split.values()) >= 1


def test_more_brokers_than_messages_of_b_is_refused() -> None:
    with pytest.raises(ValueError, match="less than one message on each of 3 brokers"):
        even(Part(10, 2.5), NAMES)


def test_a_long_window_of_many_arrivals_is_bounded() -> None:
    window = Window(seconds=3600.0)
    part = Part(10.0, 5.0)
    for second in range(300):
        times = second + np.arange(1_000) / 1_000
        window.add("b1", WindowReport(second + 1.0, part, times, np.ones(1_000), 0.0, 0.0))
    assert sum(each.times.size for each in window._told["b1"]) <= MOST_ARRIVALS
    assert window.seen(300.0)["b1"].times[-1] == pytest.approx(299.999)


def test_the_window_forgets_and_takes_maxima_by_step() -> None:
    window = Window(4.0, 1.0)
    for at in range(1, 9):
        told = WindowReport(
            float(at), Part(1, 1), np.array([at - 0.5]), np.array([2.0]), float(at), 10.0 * at
        )
        window.add("b1", told)
    seen = window.seen(8.0)["b1"]
    assert seen.times.tolist() == [4.5, 5.5, 6.5, 7.5]
    assert seen.step_waiting.tolist() == [50, 60, 70, 80]
    assert seen.waiting == 8
    window.forget("b1")
    assert window.seen(8.0) == {}
