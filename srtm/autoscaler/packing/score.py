"""How good a series of packings is: Landau's two figures."""

from collections.abc import Mapping, Sequence

from srtm.autoscaler.packing.model import Packing


def rscore(packing: Packing, capacity: float) -> float:
    """Landau, Eq. (4.6): the rate of the partitions that move, over a consumer's capacity C."""
    return packing.moved_rate / capacity


def cardinal_bin_scores(counts: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """CBS, Landau's Eq. (4.8): by how much of the fewest bins an algorithm exceeds the fewest.

    counts: bins used in each iteration, by algorithm; all of one length, at least 1 each. The
    fewest are those of the best of these algorithms in the iteration. Raises ValueError on series
    of different lengths, on none, and on a count of 0.
    """
    series = list(counts.values())
    if not series or not series[0] or any(len(each) != len(series[0]) for each in series):
        raise ValueError(
            "cardinal bin score: every algorithm needs the same iterations, at least 1"
        )
    fewest = [min(each) for each in zip(*series, strict=True)]
    if min(fewest) < 1:
        raise ValueError("cardinal bin score: an iteration with no bins has no score")
    return {
        name: sum((used - least) / least for used, least in zip(each, fewest, strict=True))
        / len(fewest)
        for name, each in counts.items()
    }
