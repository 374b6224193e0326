"""The arithmetic of the benchmark `fairness`."""

import pytest

from benchmarks.gateway.fair_share import ideal_waits, jain
from benchmarks.gateway.fairness import Found, Rows, bars


@pytest.mark.parametrize(
    ("messages", "waits"),
    [
        pytest.param([(0.0, "a")], [0.0], id="alone"),
        pytest.param([(0.0, "a"), (0.0, "a"), (0.0, "a")], [0.0, 0.5, 1.0], id="its-own-queue"),
        pytest.param([(0.0, "a"), (0.0, "b")], [0.5, 0.5], id="half-each"),
        pytest.param([(0.0, "a"), (0.0, "a"), (0.25, "b")], [0.25, 1.0, 0.5], id="from-its-stamp"),
        pytest.param([(0.0, "a"), (9.0, "a")], [0.0, 0.0], id="a-pause-between"),
    ],
)
def test_an_ideal_server_shares_its_rate_at_every_instant(
    messages: list[tuple[float, str]], waits: list[float]
) -> None:
    """Two messages/s."""
    times, names = zip(*messages, strict=True)
    assert ideal_waits(times, names, 2.0) == pytest.approx(waits)


def test_jains_index() -> None:
    assert jain([3, 3, 3]) == 1
    assert jain([5, 0, 0, 0]) == 0.25
    assert jain([0, 0]) == 0


def test_what_counts_of_a_trial() -> None:
    rows = Rows([0.0, 1.0, 2.0, 3.0], ["a", "noisy", "b", "a"], [0.5, 9.0, 0.25, 0.75])
    times, waits = rows.quiet(rows.waits)
    assert (times.tolist(), waits.tolist()) == ([0.0, 2.0, 3.0], [0.5, 0.25, 0.75])
    assert rows.parts(0.0, 3.0) == [1, 0, 1]


def test_the_bars_are_ratios() -> None:
    found = [Found(alone=10.0, fair=10.5, in_order=900.0, ideal=12.0)]
    made = bars({"together": found, "independent": found}, [0.995], [0.0, 0.0], [], True)
    assert [each.met for each in made] == [True, True, True, True, None]
    assert [each.value for each in made[:2]] == [1.05, 0.875]
    late = [Found(alone=150.0, fair=140.0, in_order=900.0, ideal=140.0)]
    made = bars({"together": late, "independent": late}, [0.995], [0.0], [], True)
    assert (made[0].met, made[0].why) == (None, "the generator was late: alone 150 ms")
    worse = bars({"together": found, "independent": found}, [0.9], [0.0, 0.1], [], True)
    assert [each.met for each in worse[2:4]] == [False, False]
