"""The demo's table, and what it says in a line."""

from collections.abc import Sequence

import numpy as np
from rich.text import Text

from srtm.demo.load import GROUP, PUBLISHERS, RATE
from srtm.demo.measure import Outcome
from srtm.limits.queueing import Floats
from srtm.limits.slo import SLO
from srtm.text.terminal import Column, Table

PERCENTILE = 0.99


def as_table(outcomes: Sequence[Outcome], unsplit: Floats, slo: SLO) -> Table:
    """One row a placement; below them one bucket for all, on paper: the same send times through
    exact buckets."""
    table = Table(
        Column("policy", text=True),
        Column("brokers"),
        Column("sent", 3),
        Column("p50 ms", 2),
        Column("p99 ms"),
        Column("late"),
        Column("SLO", text=True),
        Column("wait ms"),
        Column("on paper", 2),
        Column("p99 wait ms", 2),
        Column("on paper", 2),
        title=f"{PUBLISHERS} publishers x {RATE:g} msg/s in rooms of {GROUP}, SLO {slo}; "
        "waits for tokens, mean and p99, measured and on paper",
    )
    for each in outcomes:
        table.add(
            each.policy,
            str(each.brokers),
            f"{len(each.measured):,}",
            *(f"{each.latency.percentile_ms(p):.2f}" for p in (50, 99)),
            f"{each.late_share:.2%}",
            Text("kept", "green") if each.keeps(slo) else Text("missed", "red"),
            _mean(each.measured),
            _mean(each.predicted),
            _high(each.measured),
            _high(each.predicted),
        )
    nothing = ("-",) * 6
    table.add("unsplit", *nothing, "-", _mean(unsplit), "-", _high(unsplit))
    return table


def meaning(lb: Outcome, srtm: Outcome, slo: SLO, own_p99_seconds: float) -> str:
    """What this run showed, also where it is not what we would like."""
    late = (
        f"{srtm.late_share:.2%} late on {srtm.brokers} brokers against {lb.late_share:.2%} on "
        f"{lb.brokers}; {srtm.late_by_tokens(slo):.2%} and {lb.late_by_tokens(slo):.2%} by their "
        "wait for tokens alone"
    )
    lag = max(lb.send_lag_seconds, srtm.send_lag_seconds)
    machine = (
        f"this machine alone took {own_p99_seconds * 1e3:.1f} ms at p99 before, and was "
        f"{lag * 1e3:.1f} ms late with sending at p99"
    )
    if lb.keeps(slo) and srtm.keeps(slo):
        return f"both keep the SLO: {late}; {machine}."
    if srtm.late_share >= lb.late_share:
        return f"srtm is not better in this run: {late}; {machine}."
    if not srtm.keeps(slo):
        return f"srtm is better, and misses the SLO too: {late}; {machine}."
    return (
        f"srtm is better: {late}. Its bucket is in fewer parts, and each room is spread over all "
        "of them, so that a burst is split as the bucket is."
    )


def _mean(waits: Floats) -> str:
    return f"{waits.mean() * 1e3:.3f}"


def _high(waits: Floats) -> str:
    return f"{float(np.quantile(waits, PERCENTILE)) * 1e3:.2f}"
