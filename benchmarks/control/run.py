"""What does a gateway's report cost the distributor, where hardly anything changes?

A real distributor and gateways that only report, each with topics of its own, of which one in
twenty has messages. Reports on one connection that tell what has changed, in turn with single
requests that tell everything, as gateways did at first and still may. Each gateway reports four
times a second, so that what the distributor does by itself each second counts little.

Then a fleet whose gateways share their topics (`fleet.py`), and report once a second.
"""

import asyncio
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median

import psutil
from rich.table import Table

from benchmarks.control import fleet
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
_MOST_CPU_SECONDS, _MOST_P99_SECONDS, _MOST_BYTES = 0.15e-3, 0.2, 200e3
"""of a report, and of a gateway: 10,000 of them are 2 GB"""


@dataclass(frozen=True, slots=True)
class Size:
    """fleet: gateways that share their topics"""

    gateways: int
    seconds: int
    rounds: int
    fleet: int


FULL = Size(gateways=60, seconds=15, rounds=5, fleet=1000)
QUICK = Size(gateways=20, seconds=5, rounds=1, fleet=40)
_FLEET = "fleet"
_WARM_SECONDS = 6
"""of a fleet that was away between two rounds: what a gap means is followed for some seconds"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """cpu: seconds of the distributor's, for each report; p99: seconds until the answer"""

    cpu: float
    p99: float
    reports: int
    resident_bytes: int


def run(session: Session) -> Report:
    size = QUICK if session.quick else FULL
    session.plan(2 + size.rounds * (len(Way) + 1))
    outcomes: dict[str, list[Outcome]] = {way: [] for way in (*Way, _FLEET)}
    with _distributor(session, "one") as (address, of):
        session.step(f"{size.gateways} gateways and {size.gateways * TOPICS} topics register")
        gateways = [Gateway(Endpoint(address), f"b{n}") for n in range(size.gateways)]
        _begin(Remote(Endpoint(address)), gateways)
        for turn in range(size.rounds):
            for way in Way:
                session.step(f"{way}, round {turn + 1}")
                outcomes[way].append(_measured(of, gateways, way, size.seconds))
    with _distributor(session, "two") as (address, of):
        session.step(f"{size.fleet} gateways and {size.fleet} topics that they share register")
        empty = of.memory_info().rss
        members = fleet.begin(address, size.fleet)
        for turn in range(size.rounds):
            session.step(f"the fleet, round {turn + 1}")
            outcomes[_FLEET].append(_measured(of, members, Way.LINE, size.seconds, _WARM_SECONDS))
    each_bytes = (max(each.resident_bytes for each in outcomes[_FLEET]) - empty) / size.fleet
    return Report(
        settings={**asdict(size), "topics": TOPICS},
        figures={way: [asdict(each) for each in found] for way, found in outcomes.items()},
        bars=_bars(outcomes, each_bytes, session.quick),
        tables=[_table(outcomes)],
    )


@contextmanager
def _distributor(session: Session, name: str) -> Iterator[tuple[str, psutil.Process]]:
    """A distributor that leads: its address, and its process."""
    [address] = map(str, free_addresses(1))
    flags = (
        f"--http-address={address}",
        f"--store={session.folder / name}.db",
        # Nobody reports while topics register, which takes longer than a usual lease.
        "--lease-duration=10m",
    )
    command = [sys.executable, "-m", "srtm", "distributor", *flags]
    with child(command, session.folder / f"{name}.log", 5) as process:
        until(lambda: is_leading(address), "the distributor leads", 30)
        yield address, psutil.Process(process.pid)


def _begin(remote: Remote, gateways: list[Gateway]) -> None:
    for each in gateways:
        each.register(remote)
    for topic in range(len(gateways) * TOPICS):
        register(remote, f"t{topic}", TOPICS)
    asyncio.run(settle(gateways))


def _measured(
    of: psutil.Process,
    gateways: Sequence[Gateway],
    way: Way,
    seconds: int,
    warm_seconds: int = 0,
) -> Outcome:
    def cpu_seconds() -> float:
        spent = of.cpu_times()
        return float(spent.user + spent.system)

    spent, waits = asyncio.run(measure(gateways, way, seconds, cpu_seconds, warm_seconds))
    p99 = sorted(waits)[math.ceil(0.99 * len(waits)) - 1]
    return Outcome(spent / len(waits), p99, len(waits), of.memory_info().rss)


def _bars(outcomes: dict[str, list[Outcome]], fleet_bytes: float, quick: bool) -> list[Bar]:
    """fleet_bytes: of memory for each gateway of the fleet"""
    line, single, shared = outcomes[Way.LINE], outcomes[Way.SINGLE], outcomes[_FLEET]
    over = [a.cpu / b.cpu for a, b in zip(line, single, strict=True)]

    def cpus(found: list[Outcome]) -> list[float]:
        return [1e3 * each.cpu for each in found]

    def p99s(found: list[Outcome]) -> list[float]:
        return [1e3 * each.p99 for each in found]

    most_cpu, most_p99 = 1e3 * _MOST_CPU_SECONDS, 1e3 * _MOST_P99_SECONDS
    figures = [
        ("CPU of a report on one connection, ms", cpus(line), most_cpu),
        ("CPU of a report on one connection over that of a single whole one", over, 0.2),
        ("99th percentile until the answer, ms", p99s(line), most_p99),
        ("CPU of a report in a fleet that shares its topics, ms", cpus(shared), most_cpu),
        ("99th percentile until the answer in the fleet, ms", p99s(shared), most_p99),
        ("memory for each gateway of the fleet, kB", [fleet_bytes / 1e3], _MOST_BYTES / 1e3),
    ]
    return [judge(name, values, at_most=most, quick=quick) for name, values, most in figures]


def _table(outcomes: dict[str, list[Outcome]]) -> Table:
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
