"""The demo's picture: latency as a distribution beside the SLO, and the price of splitting."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from srtm.demo.load import GROUP, PUBLISHERS, RATE
from srtm.demo.measure import Outcome
from srtm.limits.contract import Contract
from srtm.limits.slo import SLO

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {
    "lb": "#d55e00",
    "srtm": "#0072b2",
    "no-groups": "#d55e00",
    "inferred": "#0072b2",
    "given": "#009e73",
}
"""those of Okabe and Ito (2008), which people of any colour vision tell apart"""
_NINES = np.linspace(0, 3.3, 200)
"""The y axis: 1 is 90 %, 2 is 99 %."""
_PERCENTILES = 100 * (1 - 10.0**-_NINES)


def draw(outcomes: Sequence[Outcome], contract: Contract, file: Path) -> bool:
    """False where matplotlib is not installed."""
    try:
        figure = picture(outcomes, contract)
    except ImportError:
        return False
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120)
    return True


def picture(outcomes: Sequence[Outcome], contract: Contract) -> "Figure":
    """Raises ImportError where matplotlib is not installed."""
    from matplotlib.figure import Figure

    assert contract.slo is not None
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 1))
    figure.suptitle(headline(outcomes), fontsize=15, fontweight="bold")
    _latency(left, outcomes, contract.slo)
    _token_waits(right, outcomes)
    figure.supxlabel(
        f"{PUBLISHERS} publishers x {RATE:g} msg/s in rooms of {GROUP} that send together; "
        f"contract r = {contract.rate:,.0f}/s, b = {contract.burst:g}, SLO {contract.slo}",
        fontsize=9,
    )
    return figure


def headline(outcomes: Sequence[Outcome]) -> str:
    """Such as "4 brokers to 2, p99 52 ms to 1.9 ms"."""
    first, last = outcomes[0], outcomes[-1]
    if len(outcomes) > 2:
        each = ", ".join(f"{one.policy} {_p99(one)} ms" for one in outcomes)
        return f"p99 by groups: {each}"
    return (
        f"{first.policy} to {last.policy}: {first.brokers} brokers to {last.brokers}, "
        f"p99 {_p99(first)} to {_p99(last)} ms"
    )


def _p99(outcome: Outcome) -> str:
    value = outcome.latency.percentile_ms(99)
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"


def _latency(axes: "Axes", outcomes: Sequence[Outcome], slo: SLO) -> None:
    for each in outcomes:
        values = [each.latency.percentile_ms(percentile) for percentile in _PERCENTILES]
        axes.plot(
            values,
            _NINES,
            color=_COLOURS.get(each.policy),
            linewidth=2.5,
            label=f"{each.policy}: {each.brokers} brokers, {each.late_share:.2%} late",
        )
    target = slo.target_seconds * 1e3
    allowed = -np.log10(slo.allowed_late_share)
    axes.axvline(target, color="black", linestyle="--")
    axes.axhline(allowed, color="grey", linestyle=":")
    axes.plot(target, allowed, "ko")
    text = f"SLO {slo}: kept where a line\npasses the dot on its left"
    axes.text(0.02, 0.97, text, transform=axes.transAxes, va="top", fontsize=9)
    axes.set_yticks([0.3010, 1, 2, 3], ["50 %", "90 %", "99 %", "99.9 %"])
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set(xlabel="end to end, ms", ylabel="messages within", ylim=(0, 3.3))
    axes.set_title("Latency")
    axes.legend(loc="lower right", fontsize=9)


def _token_waits(axes: "Axes", outcomes: Sequence[Outcome]) -> None:
    """Some bars are too small to see: each has its number."""
    names = [each.policy for each in outcomes]
    means = [float(each.measured.mean()) * 1e3 for each in outcomes]
    bars = axes.bar(names, means, color=[_COLOURS.get(name) for name in names])
    axes.bar_label(bars, [f"{mean:.3g} ms" for mean in means], padding=2)
    axes.margins(y=0.15)
    axes.set_title("Mean token wait")
    axes.set_yticks([])
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
