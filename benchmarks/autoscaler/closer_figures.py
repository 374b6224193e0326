"""CLOSER's figures 4 to 8: latencies over time, the consumers, and the CDFs of two autoscalers."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.autoscaler.scaling import Outcome
from benchmarks.harness.bars import Bar, judge
from srtm.autoscaler.simulator.run import Run

Floats = NDArray[np.float64]
_OVER_TIME = {
    "Fig. 4, 5": "first: Algorithm 2",
    "Fig. 6": "second: Algorithm 2",
    "Fig. 8": "second, skewed: Algorithm 2",
}
_CDFS = ("first, skewed: Algorithm 2", "first, skewed: linear")
_QUANTILES = (0.8, 0.9, 0.95, 0.98, 0.99)
"""of Fig. 7: where its curves are apart"""
_STEP_SECONDS = 5.0
"""How far from a step of the group's size an event counts with it: a heartbeat of 3 s, and the
queue that is left."""


def steps(run: Run, direction: int) -> Floats:
    """When the group grew (1) or shrank (-1), in seconds."""
    return np.array(
        [
            at
            for (_, before), (at, count) in pairwise(run.replicas)
            if np.sign(count - before) == direction
        ]
    )


def late_near(run: Run, at: Floats) -> float:
    """The share of the late events that arrived within some seconds of these times."""
    late = np.sort(run.arrived[run.latency > run.setting.slo.target_seconds])
    if not len(late) or not len(at):
        return 0.0
    near = np.abs(late[:, None] - at[None, :]).min(axis=1) <= _STEP_SECONDS
    return float(near.mean())


def quantiles(run: Run) -> Floats:
    """Latencies in seconds, of the quantiles at which the CDFs are compared."""
    found: Floats = np.quantile(run.latency, _QUANTILES, method="inverted_cdf")
    return found


def bars(outcomes: Mapping[str, Outcome], doubt: str = "") -> list[Bar]:
    """What the text reads off the figures: late events come with scale-downs (section 5.2), and the
    CDF of linear lies below."""
    found = []
    for where, name in _OVER_TIME.items():
        if name in outcomes:
            ratios = [_ratio(run) for run in outcomes[name].runs]
            title = f"{where}: late events near scale-downs over those near scale-ups"
            found.append(judge(title, ratios, at_least=1.0, doubt=doubt))
    if all(name in outcomes for name in _CDFS):
        ours, linear = (outcomes[name].runs for name in _CDFS)
        quicker = [
            float(np.count_nonzero(quantiles(b) < quantiles(a)))
            for a, b in zip(ours, linear, strict=True)
        ]
        title = "Fig. 7: quantiles of latency at which linear is quicker than Algorithm 2"
        found.append(judge(title, quicker, at_most=0.0, doubt=doubt))
    return found


def _ratio(run: Run) -> float:
    """Late events near one scale-down, over those near one scale-up; 1e9 stands for none of
    these."""
    downs, ups = steps(run, -1), steps(run, 1)
    near_down = late_near(run, downs) / max(1, len(downs))
    near_up = late_near(run, ups) / max(1, len(ups))
    return near_down / near_up if near_up > 0 else 1e9


def draw(axes: Sequence[Any], outcomes: Mapping[str, Outcome]) -> None:
    """Latencies over time with the consumers (Fig. 4), and the CDFs (Fig. 7), of the first seed."""
    over_time, cdfs = axes
    name = _OVER_TIME["Fig. 4, 5"]
    if name in outcomes:
        run = outcomes[name].runs[0]
        over_time.plot(run.arrived, 1e3 * run.latency, ",", label="latency")
        over_time.axhline(1e3 * run.setting.slo.target_seconds, color="grey", lw=0.8)
        counts = over_time.twinx()
        counts.step(*zip(*run.replicas, strict=True), where="post", color="C1")
        over_time.set(xlabel="s", ylabel="latency, ms", title=f"{name}; consumers")
    for each in _CDFS:
        if each in outcomes:
            latency = np.sort(outcomes[each].runs[0].latency)
            cdfs.plot(1e3 * latency, np.arange(1, len(latency) + 1) / len(latency), label=each)
    cdfs.set(xscale="log", xlabel="latency, ms", title="CDFs (Fig. 7)")
    cdfs.legend(fontsize="x-small")
