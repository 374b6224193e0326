"""Journeys as tables and bars, from what /stats of `srtm journey run` says."""

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType

from srtm.text.terminal import Column, Table

_BAR = 40
"""characters of the longest bar"""
_LEFT_OUT = {
    "lost_count": "the reports of their consumers did not arrive",
    "unknown_count": "they have no time of nsqd's, or are of another topic",
}
"""what /stats counts of messages that are left out -> why"""


def tables(journeys: list[dict[str, Any]]) -> Iterator[RenderableType]:
    yield _ages(journeys)
    for each in journeys:
        yield ""
        yield f"{each['journey']}: where the time goes, mean of each cause"
        yield from _bars(each["causes"])
        yield _legs(each["legs"])
        for name, why in _LEFT_OUT.items():
            if each[name]:
                yield f"{each['journey']}: {each[name]:,} messages are in no figure: {why}"
        if each["fault"]:
            yield f"{each['journey']}: {each['fault']}"


def _ages(journeys: list[dict[str, Any]]) -> Table:
    table = Table(
        Column("journey", text=True),
        Column("SLO", text=True),
        Column("messages", 3),
        Column("p50 ms", 1),
        Column("p99 ms"),
        Column("late"),
        Column("promised", 1),
        Column("independent", 4),
        Column("unmatched", 5),
        Column("clocks ms", 6),
        Column("budget"),
    )
    for each in journeys:
        known = each["matched_count"] + each["unmatched_count"]
        table.add(
            each["journey"],
            each["slo"],
            f"{each['message_count']:,}",
            *(_milliseconds(each[name]) if each["count"] else "-" for name in _QUANTILES),
            _share(each["late_share"]),
            _share(each["promised_share"]),
            _share(each["estimated_share"]),
            _share(each["unmatched_count"] / known if known else None),
            _milliseconds(each["clock_error_seconds"]),
            _share(each["budget_left"]),
        )
    return table


_QUANTILES = ("p50_seconds", "p99_seconds")


def _bars(causes: dict[str, float]) -> Iterator[str]:
    longest = max(causes.values(), default=0.0)
    for cause, seconds in causes.items():
        bar = "#" * round(_BAR * seconds / longest) if longest else ""
        yield f"  {cause:<11}{_milliseconds(seconds):>10} ms  {bar}"


def _legs(legs: list[dict[str, Any]]) -> Table:
    table = Table(
        Column("leg", text=True),
        Column("in a minute", 2),
        Column("p50 ms", 1),
        Column("p99 ms"),
        Column("part of the target, ms"),
        Column("late at most"),
    )
    for each in legs:
        part = each["part"]
        table.add(
            each["leg"],
            f"{each['count']:,}",
            *(_milliseconds(each[name]) if each["count"] else "-" for name in _QUANTILES),
            _milliseconds(part["seconds"]) if part else "-",
            _share(part["late_share"]) if part else "-",
        )
    return table


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.3g}"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.3%}"
