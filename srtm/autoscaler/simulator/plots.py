"""The picture of a comparison: arrivals, replicas and latency over time, and the CDF."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from srtm.autoscaler.simulator.run import Run

_CDF_POINTS = 2000
"""The most points of a curve; more cannot be seen, and a run may have millions of events."""


def draw(runs: Sequence[Run], path: Path) -> None:
    """Write a PNG. All runs have the same arrivals. Raises OSError."""
    figure = Figure(figsize=(13, 8), layout="constrained")
    panels = figure.subplot_mosaic(
        [["arrivals", "cdf"], ["replicas", "cdf"], ["latency", "cdf"]], width_ratios=(3, 2)
    )
    target_ms = runs[0].setting.slo.target_seconds * 1e3
    _arrivals(panels["arrivals"], runs[0])
    for run in runs:
        at, count = zip(*run.replicas, (run.seconds, run.replicas[-1][1]), strict=True)
        panels["replicas"].step(at, count, where="post", label=run.policy)
        seconds, p99 = p99_per_second(run)
        panels["latency"].plot(seconds, p99 * 1e3, linewidth=0.8, label=run.policy)
        latency, share = cdf(run)
        panels["cdf"].plot(latency * 1e3, share, label=run.policy)
    panels["replicas"].set_ylabel("consumers billed")
    panels["latency"].set(ylabel="p99 of each second, ms", xlabel="seconds", yscale="log")
    panels["latency"].axhline(target_ms, color="black", linestyle=":")
    panels["cdf"].set(ylabel="share of events", xlabel="latency, ms", xscale="log", ylim=(0, 1.01))
    panels["cdf"].axvline(target_ms, color="black", linestyle=":", label="SLO")
    panels["cdf"].axhline(runs[0].setting.slo.percentile, color="black", linestyle=":")
    panels["cdf"].legend(loc="lower right")
    for name in ("arrivals", "replicas", "latency"):
        panels[name].set_xlim(0, runs[0].seconds)
    figure.savefig(path, dpi=110)


def _arrivals(axes: Axes, run: Run) -> None:
    counts = np.bincount(run.arrived.astype(np.int64), minlength=run.seconds)
    axes.plot(np.arange(run.seconds) + 0.5, counts, linewidth=0.8, color="black")
    axes.set_ylabel("events/s arriving")


def p99_per_second(run: Run) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The middle of each second in which events arrived, and the p99 of their latency (seconds;
    nan where it is infinite, so that a gap is drawn)."""
    edges = run.arrived.searchsorted(np.arange(run.seconds + 1))
    filled = np.flatnonzero(np.diff(edges))
    p99 = np.array(
        [
            np.quantile(run.latency[edges[s] : edges[s + 1]], 0.99, method="inverted_cdf")
            for s in filled
        ],
        dtype=np.float64,
    )
    middle: NDArray[np.float64] = filled.astype(np.float64) + 0.5
    return middle, np.where(np.isfinite(p99), p99, np.nan)


def cdf(run: Run) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Latencies (seconds, ascending) and the share of all events that took no longer; what was
    never served is missing at the end, so that the curve stays below 1."""
    served = np.sort(run.latency[np.isfinite(run.latency)])
    if not len(served):
        return np.zeros(0), np.zeros(0)
    picked = np.unique(np.linspace(0, len(served) - 1, _CDF_POINTS).astype(np.int64))
    share: NDArray[np.float64] = (picked + 1.0) / len(run.latency)
    return served[picked], share
