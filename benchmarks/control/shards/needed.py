"""At what size one leader is not enough, by what a report was measured to cost.

A leader is one process, and decides on one core. A gateway reports once a second to each shard in
which it has topics: with brokers in groups to one; with topics by hash to nearly all of a few.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from srtm.report.result import Result

CORE = 0.7
"""of a core that reports may take; the rest is for people, rescales and bursts"""
GATEWAYS = 10_000
_MS = 1e3
_COSTS = {
    "line": "CPU of a report on one connection, ms",
    "fleet": "CPU of a report in a fleet that shares its topics, ms",
}
"""the bars of the benchmark `control` by the gateways' way of reporting"""


@dataclass(frozen=True, slots=True)
class Needed:
    """gateways: that one leader carries; the others: shards, and so cores, for `GATEWAYS` of them.

    hash_least: if a report costs only by its busy topics, so that one cut in parts costs no more
    hash_most:  if each part costs as much as the whole was measured to
    """

    name: str
    report_seconds: float
    gateways: int
    groups: int
    hash_least: int
    hash_most: int


def needed(control: Result) -> list[Needed]:
    """By each way of `control`, and by what its bar allows a report to cost."""
    bars = {bar.name: bar for bar in control.bars}
    costs = {name: bars[bar].value or 0.0 for name, bar in _COSTS.items()}
    costs["the bar"] = bars[_COSTS["fleet"]].at_most or 0.0
    topics = int(control.settings["topics"])
    return [_of(name, cost / _MS, topics) for name, cost in costs.items()]


def most_seconds(cores: int) -> float:
    """The most that a report may cost where so many leaders, with a group each, carry all."""
    return cores * CORE / GATEWAYS


def _of(name: str, seconds: float, topics: int) -> Needed:
    groups = _fewest(seconds, lambda shards: 1.0)
    most = _fewest(seconds, lambda shards: shards_of_gateway(shards, topics))
    return Needed(name, seconds, int(CORE / seconds), groups, groups, most)


def shards_of_gateway(shards: int, topics: int) -> float:
    """The shards in which a gateway with so many topics has some, expected, by hash."""
    return shards * (1 - (1 - 1 / shards) ** topics)


def _fewest(seconds: float, reports: Callable[[int], float]) -> int:
    """Shards that carry all gateways. reports: of a gateway in a second, by the shards"""
    return next(
        shards for shards in count(1) if GATEWAYS * reports(shards) / shards * seconds <= CORE
    )
