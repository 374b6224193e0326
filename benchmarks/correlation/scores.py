"""How well groups were recovered."""

from dataclasses import dataclass

import numpy as np

from benchmarks.correlation.planted import Labels


@dataclass(frozen=True)
class Score:
    """Pairs of publishers in one group: true, said, and both; adjusted_rand (Hubert, Arabie 1985);
    grouped_alone: share of the publishers of no group that were put into one."""

    true: int
    said: int
    both: int
    adjusted_rand: float
    grouped_alone: float

    @property
    def precision(self) -> float:
        return self.both / self.said if self.said else 1.0

    @property
    def recall(self) -> float:
        return self.both / self.true if self.true else 1.0


def score(label: Labels, found: Labels) -> Score:
    """How well `found` matches `label`. Both are below 0 where a publisher is in no group, each
    with a number of its own."""
    true, said = _pairs(label), _pairs(found)
    both = _pairs(label * (found.max() - found.min() + 1) + found - found.min())
    possible = label.size * (label.size - 1) / 2
    expected = true * said / possible
    most = (true + said) / 2
    alone = label < 0
    return Score(
        true=true,
        said=said,
        both=both,
        adjusted_rand=(both - expected) / (most - expected) if most > expected else 1.0,
        grouped_alone=float((found[alone] >= 0).mean()) if alone.any() else 0.0,
    )


def _pairs(label: Labels) -> int:
    _, counts = np.unique(label, return_counts=True)
    return int((counts * (counts - 1) // 2).sum())


def pooled(scores: list[Score]) -> Score:
    """The score of all pairs together; adjusted_rand and grouped_alone are means over `scores`."""
    return Score(
        true=sum(each.true for each in scores),
        said=sum(each.said for each in scores),
        both=sum(each.both for each in scores),
        adjusted_rand=float(np.mean([each.adjusted_rand for each in scores])),
        grouped_alone=float(np.mean([each.grouped_alone for each in scores])),
    )
