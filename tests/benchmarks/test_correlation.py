"""The scores and the plain answer of `correlation-groups`."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks.correlation.plain import plain
from benchmarks.correlation.planted import Case, arrivals, large_label, pooled, publishers, score


@pytest.mark.parametrize(
    ("label", "found", "precision", "recall", "rand"),
    [
        pytest.param([0, 0, 1, 1, -1], [5, 5, 3, 3, -9], 1, 1, 1, id="all-and-only"),
        pytest.param([0, 0, 1, 1, -1], [-1, -2, -3, -4, -5], 1, 0, 0, id="nothing"),
        pytest.param([0, 0, 1, 1, -1], [0, 0, 0, 0, -1], 1 / 3, 1, 2 / 7, id="two-merged"),
        pytest.param([-1, -2, -3], [0, 0, -3], 0, 1, 0, id="out-of-nothing"),
    ],
)
def test_scores(
    label: list[int], found: list[int], precision: float, recall: float, rand: float
) -> None:
    scored = score(np.array(label), np.array(found))
    assert (scored.precision, scored.recall) == pytest.approx((precision, recall))
    assert scored.adjusted_rand == pytest.approx(rand)


def test_pairs_are_pooled() -> None:
    good = score(np.array([0, 0, 0]), np.array([1, 1, 1]))
    bad = score(np.array([0, 0, -1]), np.array([-1, 2, 2]))
    assert pooled([good, bad]).precision == pytest.approx(3 / 4)
    assert pooled([good, bad]).recall == pytest.approx(3 / 4)
    assert pooled([good, bad]).grouped_alone == pytest.approx(0.5)


def test_cases_are_what_they_say() -> None:
    times, label = publishers(Case("periodic", 4.0, 50, lone=0.5), np.random.default_rng(0))
    assert np.mean(label < 0) == pytest.approx(0.5, abs=0.01)
    _, sizes = np.unique(label[label >= 0], return_counts=True)
    assert sizes.size == 12
    assert 5 <= sizes.min() <= sizes.max() <= 30
    assert np.mean([each.size for each in times]) == pytest.approx(100, rel=0.05)
    assert [large_label(each, 10_000) for each in (0, 16, 49)] == [5, 6, 8]
    assert large_label(50, 10_000) < 0


def test_the_plain_answer_finds_what_is_plain(tmp_path: Path) -> None:
    case = Case("poisson", 1.0, 50)
    rows, labels = arrivals([case], 1)
    pq.write_table(rows, tmp_path / "1.parquet")
    found, names, _ = plain(tmp_path)
    label = labels[case.name][[int(name[1:]) for name in names]]
    assert score(label, found).recall > 0.9
    assert score(label, found).precision > 0.9
