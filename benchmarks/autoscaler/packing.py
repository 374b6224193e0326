"""How long packing takes, and how far above the lower bound it ends, from 10 to 100,000 partitions.

Rates are uniform between 0 and half of a consumer, and as many consumers as that needs are there,
each partition with one at random: a group that has to be packed anew altogether. CPU seconds are
judged: packing is one thread that waits for nothing. The exact packing is run up to 30 partitions,
with a time limit, and judged by nothing. The packings that Landau surveys (chapter 3) stand beside
ours on sizes alone.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf
from random import Random
from statistics import median

from rich.table import Table

from benchmarks.autoscaler.surveyed import SURVEYED, Surveyed
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import Picture, Report, number, table, tabulate
from benchmarks.harness.session import Session
from srtm.autoscaler.packing import ALGORITHMS, Algorithm, Bin, Bins, Item, exact, lower_bound

MU = 200.0  # events/s of a consumer
LAG = 100.0  # events: mu x 500 ms
SIZES = (10, 100, 1_000, 10_000, 100_000)
BARS = {1_000: 0.05, 100_000: 5.0}
"""CPU seconds at most, by the number of partitions."""
EXACT_SIZES = (10, 20, 30)
EXACT_SECONDS = 3.0
_REPEATS, _QUICK_REPEATS = 5, 3
_DECREASING_FITS = ("next-fit-decreasing", "first-fit-decreasing", "best-fit-decreasing")
_ONCE_FROM = 10_000  # partitions: one call is long enough to be measured
SURVEYED_SIZES = (10, 100, 1_000, 10_000)
_SECONDS_KEPT = 12.0  # of a quick run, for the call under way and the exact packing


@dataclass(frozen=True, slots=True)
class Workload:
    """lag: whether partitions have lag, up to half a consumer's; rates: of the consumers there,
    over a new one's, drawn evenly."""

    lag: bool
    rates: tuple[float, float]

    def problem(self, partitions: int, seed: int) -> tuple[list[Item], Bins]:
        draw = Random(seed)
        consumers = max(1, partitions // 4)
        room = LAG if self.lag else inf
        items = [
            Item(
                at,
                draw.uniform(0, MU / 2),
                draw.uniform(0, LAG / 2) if self.lag else 0.0,
                str(draw.randrange(consumers)),
            )
            for at in range(partitions)
        ]
        existing = tuple(
            Bin(str(at), MU * draw.uniform(*self.rates), room) for at in range(consumers)
        )
        return items, Bins(Bin(None, MU, room), existing)


WORKLOADS = {
    "rate and lag": Workload(True, (1.0, 1.0)),
    "rate": Workload(False, (1.0, 1.0)),
    "unequal": Workload(True, (0.6, 1.4)),
}
"""The workloads, in the order in which a quick run gets to them."""


@dataclass(frozen=True, slots=True)
class Timed:
    """cpu: seconds of each call; count, bound: consumers; moved: consumers' worth of rate."""

    algorithm: str
    workload: str
    partitions: int
    cpu: tuple[float, ...]
    count: int
    bound: int
    moved: float
    exact: bool


def run(session: Session) -> Report:
    repeats = _QUICK_REPEATS if session.quick else _REPEATS
    heuristics = [name for name in ALGORITHMS if name != "exact"]
    found: list[Timed] = []
    skipped = 0
    session.plan(len(WORKLOADS) * len(SIZES) * len(heuristics) + len(EXACT_SIZES))
    for workload in WORKLOADS:
        for size in SIZES:
            if session.quick and (size == 10_000 or (size > 10_000 and workload != "rate and lag")):
                continue
            for name in heuristics:
                session.step(f"{name}, {size:,} partitions, {workload}")
                if session.seconds_left < _SECONDS_KEPT:
                    skipped += 1
                    continue
                found.append(_timed(name, workload, size, 1 if size >= _ONCE_FROM else repeats))
    for size in EXACT_SIZES:
        session.step(f"exact, {size} partitions")
        if session.seconds_left > EXACT_SECONDS:
            found.append(_timed("exact", "rate and lag", size, 1))
    surveyed = compare_surveyed(repeats)
    return Report(
        settings={
            "mu_per_second": MU,
            "lag_room": LAG,
            "workloads": {name: asdict(each) for name, each in WORKLOADS.items()},
            "sizes": SIZES,
            "repeats": repeats,
            "exact_time_limit_seconds": EXACT_SECONDS,
        },
        figures={"calls": [asdict(each) for each in found], "surveyed": surveyed},
        bars=bars(found, heuristics) + surveyed_bars(surveyed),
        tables=[*(table_of(found, workload) for workload in WORKLOADS), surveyed_table(surveyed)],
        notes=[f"no time for {skipped} of the calls"] if skipped else [],
        draw=lambda figure: draw(figure, found),
    )


def _timed(name: str, workload: str, partitions: int, repeats: int) -> Timed:
    pack = ALGORITHMS[name]
    items, bins = WORKLOADS[workload].problem(partitions, seed=partitions)
    cpu = []
    for _ in range(repeats):
        began = time.process_time()
        packed = exact(items, bins, EXACT_SECONDS) if name == "exact" else pack(items, bins)
        cpu.append(time.process_time() - began)
    return Timed(
        algorithm=name,
        workload=workload,
        partitions=partitions,
        cpu=tuple(cpu),
        count=packed.count,
        bound=packed.lower_bound,
        moved=packed.moved_rate / MU,
        exact=packed.exact,
    )


Ratios = dict[str, dict[int, list[float]]]
"""Bins over the lower bound of each packing, by the number of sizes, one for each seed."""


def compare_surveyed(seeds: int) -> Ratios:
    """The packings of Landau's chapter 3, and the same fits of ours, on sizes drawn evenly from
    (0, 1]."""
    ours = {
        name: ALGORITHMS[name] for name in ("next-fit", "first-fit", "best-fit", *_DECREASING_FITS)
    }
    bins = Bins(Bin(None, 1.0))

    def of_ours(pack: Algorithm) -> Surveyed:
        def packed(sizes: Sequence[float]) -> list[list[float]]:
            made = pack([Item(at, size) for at, size in enumerate(sizes)], bins)
            return [[sizes[at] for at in each.items] for each in made.filled]

        return packed

    all_of_them = {name: of_ours(pack) for name, pack in ours.items()}
    all_of_them |= {name: pack for name, (pack, _) in SURVEYED.items()}
    found: Ratios = {name: {} for name in all_of_them}
    for size in SURVEYED_SIZES:
        for seed in range(seeds):
            draw = Random(seed * 1_000_003 + size)
            sizes = [1.0 - draw.random() for _ in range(size)]
            bound = lower_bound([Item(at, each) for at, each in enumerate(sizes)], bins)
            for name, pack in all_of_them.items():
                found[name].setdefault(size, []).append(len(pack(sizes)) / bound)
    return found


def surveyed_bars(found: Ratios) -> list[Bar]:
    """The asymptotic ratios are to the fewest bins, and hold over the lower bound too."""
    most = SURVEYED_SIZES[-1]
    return [
        judge(f"surveyed: {name}, bins over the lower bound", found[name][most], at_most=ratio)
        for name, (_, ratio) in SURVEYED.items()
    ]


def surveyed_table(found: Ratios) -> Table:
    return tabulate(
        "Landau ch. 3: bins over the lower bound, sizes even in (0, 1], %",
        list(found.items()),
        ("packing", lambda row: row[0]),
        *(
            (f"{size:,}", lambda row, size=size: 100 * (median(row[1][size]) - 1))
            for size in SURVEYED_SIZES
        ),
        ("cited, at most", lambda row: _cited(row[0])),
    )


def _cited(name: str) -> float | None:
    return 100 * (SURVEYED[name][1] - 1) if name in SURVEYED else None


def bars(found: list[Timed], heuristics: list[str]) -> list[Bar]:
    """The bars: for each algorithm and size, the workload that takes longest."""
    judged = []
    for size, seconds in BARS.items():
        for name in heuristics:
            calls = [
                each.cpu for each in found if (each.algorithm, each.partitions) == (name, size)
            ]
            slowest = max(calls, key=median, default=())
            judged.append(judge(f"{name}, {size:,} partitions, CPU s", slowest, at_most=seconds))
    return judged


def table_of(found: list[Timed], workload: str) -> Table:
    mine = {(e.algorithm, e.partitions): e for e in found if e.workload == workload}
    sizes = sorted({size for _, size in mine})
    columns = [f"{what} {size:,}" for size in sizes for what in ("ms", "gap %")]
    made = table(f"{workload}: CPU time, and bins over the lower bound", "algorithm", *columns)
    for name in ALGORITHMS:
        cells = []
        for size in sizes:
            each = mine.get((name, size))
            if each is None:
                cells += ["-", "-"]
            else:
                cells += [
                    number(median(each.cpu) * 1e3),
                    number(100 * (each.count / each.bound - 1)),
                ]
        made.add_row(name, *cells)
    return made


def draw(figure: Picture, found: list[Timed]) -> None:
    """Time and gap by size, rate and lag."""
    times, gaps = figure.subplots(1, 2)
    for at, name in enumerate(ALGORITHMS):
        mine = [e for e in found if e.algorithm == name and e.workload == "rate and lag"]
        sizes = [each.partitions for each in mine]
        style = {"marker": "o", "ms": 3, "lw": 0.8, "color": f"C{at % 10}"}
        times.plot(sizes, [median(each.cpu) for each in mine], label=name, **style)
        gaps.plot(sizes, [100 * (each.count / each.bound - 1) for each in mine], **style)
    for size, seconds in BARS.items():
        times.plot(size, seconds, "k_", ms=14)
    times.set(xscale="log", yscale="log", xlabel="partitions", ylabel="CPU s")
    gaps.set(xscale="log", xlabel="partitions", ylabel="bins over the lower bound, %")
    times.legend(fontsize=6)
