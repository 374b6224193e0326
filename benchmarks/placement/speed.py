"""How fast publishers are placed, and how near the best placement.

Time: one call of the `srtm` policy by size, publishers of equal and of unequal rates in groups of
20, brokers of mixed capacity, with room to spare and, at the largest size, nearly full: there whole
publishers of unequal rates fit only at a second attempt, or packed by size. CPU seconds are judged:
it is one thread that waits for nothing, and another program on the machine does not change them
much; wall time stands beside them. Optimality: random small topics against an exact solution by
mixed-integer programming.
"""

import time
from dataclasses import asdict, dataclass
from random import Random
from statistics import median

from rich.table import Table

from benchmarks.harness.bars import Bar, judge, judge_worst
from benchmarks.harness.report import Report, number, tabulate
from benchmarks.harness.session import Session
from benchmarks.placement.exact import best
from distributor.model import Broker, Placement, Publisher
from distributor.placement.policies import POLICIES
from srtm.limits.contract import Contract

SIZES = ((1_000, 10), (10_000, 100), (100_000, 1_000))
"""(publishers, brokers)"""
RATES = {"equal": (10.0, 10.0), "unequal": (1.0, 19.0)}
"""messages/s of a publisher, drawn evenly"""
ROOMY = 0.77
FULL = (0.97, 0.99, 0.9999)
"""The offered rate over the capacity of all brokers; with ROOMY most are needed, and one more is
there. FULL is tried at the largest size only."""
_GROUP = 20
_REPEATS, _QUICK_REPEATS = 9, 3
_TOPICS, _QUICK_TOPICS = 400, 60
_SECONDS_KEPT = 5.0  # of a quick run, for the last topic and the report
_MOST_SECONDS = 1.0
_TOLERANCE = 1e-6  # messages/s; what the solver allows itself


@dataclass(frozen=True, slots=True)
class Timed:
    """One call. cpu, wall: seconds; the bounds are the plan's own."""

    publishers: int
    brokers: int
    rates: str
    fill: float
    cpu: float
    wall: float
    used: int
    at_least: int
    minimum: float
    minimum_at_most: float
    unplaced: int


@dataclass(frozen=True, slots=True)
class Compared:
    """One small topic against the exact solution.

    more_brokers:   above the fewest
    minimum_behind: messages/s that the smallest share is behind the best for as many brokers
    largest:        messages/s of the largest publisher
    overload:       messages/s above a broker's residual capacity, the worst
    missed:         publishers not placed although all can be
    """

    rates: str
    more_brokers: int
    minimum_behind: float
    largest: float
    overload: float
    missed: int


def run(session: Session) -> Report:
    repeats = _QUICK_REPEATS if session.quick else _REPEATS
    topics = _QUICK_TOPICS if session.quick else _TOPICS
    session.plan(len(_SETTINGS) + len(RATES))
    timed = []
    for each in _SETTINGS:
        session.step(_named(*each))
        timed += [_timed(*each, seed) for seed in range(repeats)]
    compared = []
    for rates in RATES:
        session.step(f"{topics} topics of {rates} rates against the exact solution")
        share = session.seconds_left / (2 if rates == "equal" else 1)
        until = time.monotonic() + share - _SECONDS_KEPT
        for seed in range(topics):
            if time.monotonic() > until:
                break
            found = _compared(rates, Random(seed))
            compared += [found] if found else []
    return Report(
        settings={
            "sizes": SIZES,
            "rates_per_second": RATES,
            "group": _GROUP,
            "fills": [ROOMY, *FULL],
            "repeats": repeats,
            "topics_compared": topics,
        },
        figures={
            "time": [asdict(each) for each in timed],
            "optimality": [asdict(each) for each in compared],
        },
        bars=_bars(timed, compared, repeats),
        tables=[_times(timed), _optima(compared)],
        notes=[
            "the exact solution takes the fewest brokers first, then the largest smallest share; "
            "it is compared for as many brokers as the plan has"
        ],
    )


_SETTINGS = [
    (publishers, brokers, rates, fill)
    for publishers, brokers in SIZES
    for rates in RATES
    for fill in ((ROOMY, *FULL) if publishers == SIZES[-1][0] else (ROOMY,))
]


def _named(publishers: int, brokers: int, rates: str, fill: float) -> str:
    return f"{publishers:,} publishers of {rates} rates, {brokers:,} brokers, {100 * fill:g} % full"


def _timed(publishers: int, brokers: int, rates: str, fill: float, seed: int) -> Timed:
    random = Random(seed)
    low, high = RATES[rates]
    topic = [
        Publisher(f"p{n:06}", f"g{n // _GROUP:05}", random.uniform(low, high))
        for n in range(publishers)
    ]
    offered = sum(each.rate for each in topic)
    parts = [random.uniform(0.5, 1.5) for _ in range(brokers)]
    found = [Broker(f"b{n:04}", part * offered / fill / sum(parts)) for n, part in enumerate(parts)]
    contract = Contract(topic="placed", rate=1.1 * offered, burst=10.0 * brokers)
    cpu, wall = time.process_time(), time.perf_counter()
    placement = POLICIES["srtm"](contract, found, topic)
    return Timed(
        publishers,
        brokers,
        rates,
        fill,
        time.process_time() - cpu,
        time.perf_counter() - wall,
        len(placement.brokers),
        placement.brokers_at_least,
        placement.minimum,
        placement.minimum_at_most,
        len(placement.unplaced),
    )


def _compared(rates: str, random: Random) -> Compared | None:
    """A random topic; None where no placement holds everybody."""
    count = random.randint(2, 5)
    publishers = random.randint(2, 40 if rates == "equal" else 14)
    topic = [
        Publisher(f"p{n:02}", random.choice("abc"), 10.0 if rates == "equal" else each)
        for n, each in enumerate(float(random.randint(1, 40)) for _ in range(publishers))
    ]
    offered = sum(each.rate for each in topic)
    parts = [random.uniform(0.3, 1.0) for _ in range(count)]
    room = random.choice([1.0, 1.1, 1.5, 3.0]) * offered
    found = [
        Broker(f"b{n}", float(round(part * room / sum(parts)))) for n, part in enumerate(parts)
    ]
    reference = best(found, topic)
    if reference is None:
        return None
    placement = POLICIES["srtm"](Contract(topic="t", rate=offered, burst=100.0), found, topic)
    there = best(found, topic, len(placement.brokers)) or reference
    return Compared(
        rates,
        len(placement.brokers) - reference.brokers,
        0.0 if placement.unplaced else there.minimum - placement.minimum,
        max(each.rate for each in topic),
        _overload(placement, found),
        len(placement.unplaced),
    )


def _overload(placement: Placement, brokers: list[Broker]) -> float:
    rooms = {broker.name: broker.rcap for broker in brokers}
    return max([share.rate - rooms[share.name] for share in placement.brokers], default=0.0)


def _bars(timed: list[Timed], compared: list[Compared], repeats: int) -> list[Bar]:
    bars = [
        judge(
            f"CPU seconds, {_named(*setting)}",
            [each.cpu for each in _of(timed, setting)],
            at_most=_MOST_SECONDS,
            repeats=repeats,
        )
        for setting in _SETTINGS
        if setting[0] == SIZES[-1][0]
    ]
    equal = [each for each in compared if each.rates == "equal"]
    unequal = [each for each in compared if each.rates == "unequal"]
    worst: list[tuple[str, list[float], float]] = [
        ("equal rates: brokers over the fewest", [c.more_brokers for c in equal], 0.0),
        (
            "equal rates: smallest share behind the best, messages/s",
            [c.minimum_behind for c in equal],
            _TOLERANCE,
        ),
        ("unequal rates: brokers over the fewest", [c.more_brokers for c in unequal], 1.0),
        (
            "unequal rates: smallest share behind the best, in largest publishers",
            [c.minimum_behind / c.largest for c in unequal],
            1.0,
        ),
        ("publishers not placed though all can be", [c.missed for c in compared], 0.0),
        ("overload of a broker, messages/s", [c.overload for c in compared], _TOLERANCE),
    ]
    # The worst topic is judged, not the one in the middle.
    return bars + [
        judge_worst(f"{name}, worst", values, at_most=most) for name, values, most in worst
    ]


def _of(timed: list[Timed], setting: tuple[int, int, str, float]) -> list[Timed]:
    return [t for t in timed if (t.publishers, t.brokers, t.rates, t.fill) == setting]


def _times(timed: list[Timed]) -> Table:
    found = [_of(timed, setting) for setting in _SETTINGS]
    return tabulate(
        "one placement",
        found,
        ("publishers", lambda each: each[0].publishers),
        ("brokers", lambda each: each[0].brokers),
        ("rates", lambda each: each[0].rates),
        ("% full", lambda each: f"{100 * each[0].fill:g}"),
        ("CPU, s", lambda each: median(call.cpu for call in each)),
        ("wall, s", lambda each: median(call.wall for call in each)),
        ("used", lambda each: each[-1].used),
        ("at least", lambda each: each[-1].at_least),
        ("unplaced", lambda each: each[-1].unplaced),
        ("smallest share", lambda each: number(each[-1].minimum, 4)),
        ("at most", lambda each: number(each[-1].minimum_at_most, 4)),
    )


def _optima(compared: list[Compared]) -> Table:
    found = [[each for each in compared if each.rates == rates] for rates in RATES]
    return tabulate(
        "against the exact solution",
        [each for each in found if each],
        ("rates", lambda found: found[0].rates),
        ("topics", len),
        ("as few brokers", lambda found: sum(each.more_brokers == 0 for each in found)),
        ("one more", lambda found: sum(each.more_brokers == 1 for each in found)),
        (
            "smallest share as large",
            lambda found: sum(each.minimum_behind <= _TOLERANCE for each in found),
        ),
        (
            "worst behind, largest publishers",
            lambda found: max(each.minimum_behind / each.largest for each in found),
        ),
    )
