"""What does a gateway's report cost the distributor, where hardly anything changes?

A real distributor and gateways that only report, each with topics of its own, of which one in
twenty has messages. Reports on one connection that tell what has changed, in turn with single
requests that tell everything, as gateways did at first and still may. Each gateway reports four
times a second, so that what the distributor does by itself each second counts little.
"""

import asyncio
import math
import sys
from dataclasses import asdict, dataclass
from statistics import median

import psutil
from rich.table import Table

from benchmarks.control.gateways import Gateway, Way, is_leading, measure, register, settle
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import Report, number, table
from benchmarks.harness.session import Session
from benchmarks.harness.world import child, until
from distributor.remote import Remote
from srtm.http.client import Endpoint
from srtm.text.address import free_addresses

TOPICS = 20
"""of a gateway"""
_MOST_CPU_SECONDS, _MOST_P99_SECONDS = 0.15e-3, 0.2


@dataclass(frozen=True, slots=True)
class Size:
    gateways: int
    seconds: int
    rounds: int


FULL = Size(gateways=60, seconds=15, rounds=5)
QUICK = Size(gateways=20, seconds=5, rounds=1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """cpu: seconds of the distributor's, for each report; p99: seconds until the answer"""

    cpu: float
    p99: float
    reports: int
    resident_bytes: int


def run(session: Session) -> Report:
    size = QUICK if session.quick else FULL
    session.plan(1 + size.rounds * len(Way))
    [address] = map(str, free_addresses(1))
    flags = (
        f"--http-address={address}",
        f"--store={session.folder / 'store.db'}",
        # Nobody reports while topics register, which takes longer than a usual lease.
        "--lease-duration=10m",
    )
    command = [sys.executable, "-m", "srtm", "distributor", *flags]
    outcomes: dict[Way, list[Outcome]] = {way: [] for way in Way}
    with child(command, session.folder / "distributor.log", 5) as process:
        until(lambda: is_leading(address), "the distributor leads", 30)
        session.step(f"{size.gateways} gateways and {size.gateways * TOPICS} topics register")
        gateways = [Gateway(Endpoint(address), f"b{n}") for n in range(size.gateways)]
        _begin(Remote(Endpoint(address)), gateways)
        of = psutil.Process(process.pid)
        for turn in range(size.rounds):
            for way in Way:
                session.step(f"{way}, round {turn + 1}")
                outcomes[way].append(_measured(of, gateways, way, size.seconds))
    return Report(
        settings={**asdict(size), "topics": TOPICS},
        figures={way: [asdict(each) for each in found] for way, found in outcomes.items()},
        bars=_bars(outcomes, session.quick),
        tables=[_table(outcomes)],
    )


def _begin(remote: Remote, gateways: list[Gateway]) -> None:
    for each in gateways:
        each.register(remote)
    for topic in range(len(gateways) * TOPICS):
        register(remote, f"t{topic}", TOPICS)
    asyncio.run(settle(gateways))


def _measured(of: psutil.Process, gateways: list[Gateway], way: Way, seconds: int) -> Outcome:
    def cpu_seconds() -> float:
        spent = of.cpu_times()
        return float(spent.user + spent.system)

    spent, waits = asyncio.run(measure(gateways, way, seconds, cpu_seconds))
    p99 = sorted(waits)[math.ceil(0.99 * len(waits)) - 1]
    return Outcome(spent / len(waits), p99, len(waits), of.memory_info().rss)


def _bars(outcomes: dict[Way, list[Outcome]], quick: bool) -> list[Bar]:
    line, single = outcomes[Way.LINE], outcomes[Way.SINGLE]
    return [
        judge(
            "CPU of a report on one connection, ms",
            [1e3 * each.cpu for each in line],
            at_most=1e3 * _MOST_CPU_SECONDS,
            quick=quick,
        ),
        judge(
            "CPU of a report on one connection over that of a single whole one",
            [a.cpu / b.cpu for a, b in zip(line, single, strict=True)],
            at_most=0.2,
            quick=quick,
        ),
        judge(
            "99th percentile until the answer, ms",
            [1e3 * each.p99 for each in line],
            at_most=1e3 * _MOST_P99_SECONDS,
            quick=quick,
        ),
    ]


def _table(outcomes: dict[Way, list[Outcome]]) -> Table:
    made = table("a report", "way", "CPU ms", "p99 ms", "reports", "distributor MB")
    for way, found in outcomes.items():
        made.add_row(
            str(way),
            number(1e3 * median(each.cpu for each in found)),
            number(1e3 * median(each.p99 for each in found)),
            f"{sum(each.reports for each in found):,}",
            number(max(each.resident_bytes for each in found) / 1e6),
        )
    return made
