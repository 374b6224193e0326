"""The DRL penalty's bars, table and picture."""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING

from rich.table import Table

from benchmarks.gateway.drl_figures import JOINT_CONFIDENCE, PERCENTILES, Pooled
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import number, table
from srtm.limits.contract import Limit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TOLERANCE = 0.01
"""Relative. What is left when the bucket is exact is rounding to nanoseconds."""


def bars(pooled: Sequence[Pooled], numbers: Iterable[int]) -> list[Bar]:
    """Two for each of `numbers` of brokers; those that there was no time for are undecided."""
    found = {each.brokers: each for each in pooled}
    deviations, distances = [], []
    for brokers in numbers:
        each = found.get(brokers)
        deviations.append(
            judge(
                f"mean token wait off the exact bucket, k = {brokers}",
                [run.deviation for run in each.runs] if each else [],
                at_most=_TOLERANCE,
            )
        )
        distances.append(
            judge(
                f"closed form off the measured mean, in widths of its interval, k = {brokers}",
                [each.distance] if each else [],
                at_most=1.0,
                doubt=each.doubt if each else "",
            )
        )
    return deviations + distances


def table_of(pooled: Sequence[Pooled], publishers: int, contract: Limit) -> Table:
    made = table(
        f"{publishers:,} Poisson publishers x 10 msg/s, r = {contract.rate:,.0f}/s, "
        f"b = {contract.burst:g}, split over k brokers; ms",
        *(
            "k",
            "p50",
            "p95",
            "p99",
            "token wait",
            "exact bucket",
            "interval",
            "closed form",
            "Eq. (1)",
        ),
        *("scheduled", "unsplit", "penalty", "lag p99", "read late", "sketch off"),
    )
    for each in pooled:
        measured = each.mean_ms(lambda run: run.measured)
        unsplit = each.mean_ms(lambda run: run.unsplit)
        interval = each.interval
        made.add_row(
            str(each.brokers),
            *(number(each.end_to_end_ms(name)) for name in PERCENTILES),
            number(measured),
            number(each.mean_ms(lambda run: run.exact)),
            f"{number(interval.low * 1e3)} .. {number(interval.high * 1e3)}",
            number(each.closed * 1e3),
            number(each.eq1 * 1e3),
            number(each.scheduled_ms),
            number(unsplit),
            number(measured - unsplit),
            number(median(run.send_lag_p99_ms for run in each.runs)),
            f"{median(run.read_late for run in each.runs):.2%}",
            f"{median(run.sketch_off for run in each.runs):+.2%}",
        )
    return made


def draw(figure: "Figure", pooled: Sequence[Pooled]) -> None:
    """Fig. 6a, and the mean token wait beside the closed forms."""
    left, right = figure.subplots(1, 2)
    brokers = [each.brokers for each in pooled]
    for name in PERCENTILES:
        left.plot(brokers, [each.end_to_end_ms(name) for each in pooled], marker="o", label=name)
    left.set(title="End to end (SRTM Fig. 6a)", xlabel="brokers", ylabel="ms", ylim=(0, None))
    left.legend()
    spread = [each.interval for each in pooled]
    right.errorbar(
        brokers,
        [each.mean * 1e3 for each in spread],
        yerr=(
            [max(each.mean - each.low, 0.0) * 1e3 for each in spread],
            [max(each.high - each.mean, 0.0) * 1e3 for each in spread],
        ),
        fmt="o",
        capsize=4,
        label=f"measured, joint {JOINT_CONFIDENCE:.0%}",
    )
    right.plot(
        brokers,
        [each.mean_ms(lambda run: run.exact) for each in pooled],
        "x",
        label="exact bucket, same arrivals",
    )
    right.plot(brokers, [each.closed * 1e3 for each in pooled], label="closed form")
    right.plot(brokers, [each.eq1 * 1e3 for each in pooled], "--", label="SRTM Eq. (1)")
    right.set(title="Mean token wait", xlabel="brokers", ylabel="ms", ylim=(0, None))
    right.legend()
