"""Does `srtm journey` say how old messages are? Its figures against a client's own.

A publisher writes the time into each body, and the consumer's sink notes how old the message is by
it, as its last act. Publisher, gateway, nsqd, consumer and service are on this host, so all have
one clock. Trials differ in where the time goes: nowhere, in the bucket, in the consumer's queue.
Each has a service and a consumer of its own, and lasts less than the minute over which `show`
looks. The error is what the two differ by, over what may be: 2 % or 1 ms.
"""

import math
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.harness.arms import Node, nodes
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import Report, number, table
from benchmarks.harness.session import Session
from benchmarks.harness.world import child, until, write_toml
from benchmarks.journey.publisher import publish
from srtm.http.client import get_json
from srtm.limits.contract import Contract
from srtm.limits.slo import SLO
from srtm.text.address import free_addresses
from srtm.text.errors import UnavailableError

_OFF = {"relative": 0.02, "seconds": 0.001}
"""what a figure may be off by, the larger of the two"""
QUANTILES = {"p50": 0.5, "p99": 0.99}
_WORK = """
import os, time
from pathlib import Path

OUT = os.open(Path(__file__).parent / "ages.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
EACH = {each}


def handle(records):
    time.sleep(EACH * len(records))
    return [int(record.value) for record in records]


def keep(times, batch):
    now = time.time_ns()
    os.write(OUT, "".join(f"{{now - each}}\\n" for each in times).encode())
"""


@dataclass(frozen=True, slots=True)
class Shape:
    """contract: (r, b); rate: messages/s on average; burst: messages at once; each_seconds: of the
    consumer's work on a message"""

    contract: tuple[float, float]
    rate: float
    burst: int
    each_seconds: float


SHAPES = {
    "steady": Shape((5_000.0, 500.0), 400.0, 1, 0.0002),
    "waits in the bucket": Shape((600.0, 20.0), 400.0, 200, 0.0002),
    "waits for the consumer": Shape((5_000.0, 500.0), 400.0, 100, 0.002),
}


@dataclass(frozen=True, slots=True)
class Timing:
    seconds: float
    rounds: int


FULL = Timing(20.0, 3)
QUICK = Timing(5.0, 1)


@dataclass(frozen=True, slots=True)
class Trial:
    """Quantiles in seconds by name; errors: over what may be; matched: share of the messages whose
    arrival was told; causes: mean seconds."""

    messages: int
    shown: dict[str, float]
    own: dict[str, float]
    matched: float
    causes: dict[str, float]

    def error(self, quantile: str) -> float:
        own = self.own[quantile]
        allowed = max(_OFF["relative"] * own, _OFF["seconds"])
        return abs(self.shown[quantile] - own) / allowed


def run(session: Session) -> Report:
    timing = QUICK if session.quick else FULL
    session.plan(timing.rounds * len(SHAPES))
    contracts = [
        Contract(
            topic=_topic(name), rate=shape.contract[0], burst=shape.contract[1], slo=_CONTRACT_SLO
        )
        for name, shape in SHAPES.items()
    ]
    trials: dict[str, list[Trial]] = {name: [] for name in SHAPES}
    with nodes(session.folder, {"behind": contracts}) as started:
        node = started["behind"]
        for number_ in range(timing.rounds):
            for name, shape in SHAPES.items():
                session.step(f"{name}, round {number_ + 1}")
                folder = session.folder / f"{_topic(name)}-{number_}"
                folder.mkdir()
                found = _trial(node, folder, _topic(name), shape, timing.seconds, number_)
                trials[name].append(found)
    return Report(
        settings={
            "shapes": {name: asdict(shape) for name, shape in SHAPES.items()},
            **asdict(timing),
        },
        figures={name: [asdict(each) for each in all] for name, all in trials.items()},
        bars=bars(trials, session.quick),
        tables=[_table(trials)],
        notes=[],
    )


_CONTRACT_SLO = SLO.parse("0.99@50ms")


def _topic(shape: str) -> str:
    return shape.replace(" ", "-")


def _trial(node: Node, folder: Path, topic: str, shape: Shape, seconds: float, seed: int) -> Trial:
    with _measured(node, folder, topic, shape) as address:
        times = list(_schedule(shape, seconds, random.Random(seed)))
        publish(node.publish_to, [topic], times)
        ages = folder / "ages.txt"
        until(
            lambda: ages.exists() and len(ages.read_text().splitlines()) >= len(times),
            "the consumer has all",
            60,
        )
        until(lambda: _told(address)["count"] >= len(times), "all ages are known", 20)
        found = _told(address)
    own = sorted(int(line) / 1e9 for line in ages.read_text().splitlines())
    return Trial(
        len(times),
        {name: float(found[f"{name}_seconds"]) for name in QUANTILES},
        {name: own[math.ceil(share * len(own)) - 1] for name, share in QUANTILES.items()},
        found["matched_count"] / (found["matched_count"] + found["unmatched_count"]),
        found["causes"],
    )


def _schedule(shape: Shape, seconds: float, rng: random.Random) -> Iterator[float]:
    """When each message is sent: bursts at random, `rate` messages/s on average."""
    at = 0.0
    while True:
        at += rng.expovariate(shape.rate / shape.burst)
        if at >= seconds:
            return
        yield from [at] * shape.burst


@contextmanager
def _measured(node: Node, folder: Path, topic: str, shape: Shape) -> Iterator[str]:
    """A consumer and the service for the time of a `with` block; the service's address."""
    address = str(*free_addresses(1))
    (folder / "work.py").write_text(_WORK.format(each=shape.each_seconds))
    pool = write_toml(folder / "pool.toml", _pool(node, topic, address))
    journeys = write_toml(
        folder / "journeys.toml",
        {
            "journeys": {"http-address": address},
            "journey": [{"topic": topic, "slo": "0.99@1s", "consumers": pool.name}],
        },
    )
    srtm = [sys.executable, "-m", "srtm"]
    with (
        child([*srtm, "journey", "run", str(journeys)], folder / "journey.log", 5),
        child([*srtm, "consume", str(pool)], folder / "consume.log", 5),
    ):
        until(lambda: _told(address)["fault"] == "", lambda: _told(address)["fault"], 30)
        yield address


def _pool(node: Node, topic: str, address: str) -> dict[str, Any]:
    return {
        "nsq": {
            "topic": topic,
            "channel": "handlers",
            "nsqd": [node.gateway_tcp],
            "nsqd-http": [node.gateway_http],
        },
        "group": {"slo": "0.99@900ms"},
        "consumer": {
            "process": "work:handle",
            "sink": "callback",
            "callback": "work:keep",
            "batch": 50,
            "wait": "1ms",
            "journey-address": address,
        },
    }


def _told(address: str) -> dict[str, Any]:
    try:
        [found] = get_json(address, "/stats")["journeys"]
    except UnavailableError as error:
        return {"fault": str(error), "count": 0}
    assert isinstance(found, dict)
    return found


def bars(trials: dict[str, list[Trial]], quick: bool) -> list[Bar]:
    """An error of 1 is as much as may be."""
    return [
        *(
            judge(
                f"error of {quantile}, {name}",
                [each.error(quantile) for each in found],
                at_most=1.0,
                quick=quick,
                repeats=2,
            )
            for name, found in trials.items()
            for quantile in QUANTILES
        ),
        judge(
            "share of messages whose arrival was told",
            [each.matched for found in trials.values() for each in found],
            at_least=0.99,
            quick=quick,
        ),
    ]


def _table(trials: dict[str, list[Trial]]) -> Table:
    made = table(
        "Ages, ms", "load", "messages", "p50 shown", "p50 own", "p99 shown", "p99 own", "most from"
    )
    for name, found in trials.items():
        for each in found:
            most = max(each.causes, key=lambda cause: each.causes[cause])
            figures: Sequence[float] = [
                found[quantile] * 1e3 for quantile in QUANTILES for found in (each.shown, each.own)
            ]
            made.add_row(name, f"{each.messages:,}", *map(number, figures), most)
    return made
