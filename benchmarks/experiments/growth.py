"""What simulating costs as it grows: from 6 brokers and 12,000 publishers to 1,000 and a million.

Topics of 12,000 publishers come one after the other, and each is placed beside those before it. So
a world of 1,000 brokers is 83 of SRTM's largest topics at once.
"""

import resource
import time
from dataclasses import asdict, dataclass

import numpy as np

from benchmarks.experiments.scale import PAPER_ESTIMATES, paper_scale
from benchmarks.experiments.scenario import Scenario
from benchmarks.experiments.simulated import place
from benchmarks.harness.bars import Bar, judge, judge_worst
from benchmarks.harness.report import Report, tabulate
from benchmarks.harness.session import Session
from distributor.model import Broker
from distributor.simulator.run import placed, simulate
from srtm.limits.contract import Contract

WORLDS = ((6, 12_000), (30, 60_000), (100, 200_000), (300, 500_000), (1_000, 1_000_000))
"""(brokers, publishers)"""
_OF_A_TOPIC = 12_000
_DESIGNS = ("lb", "conc", "srtm")
_SECONDS, _QUICK_SECONDS = 1.0, 0.5  # of virtual time
_PROFILE_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class World:
    """place_seconds, simulate_seconds: CPU. met: share of topics that keep the SLO on every broker;
    p99: the median topic's worst broker, seconds; used: brokers of a topic, mean."""

    brokers: int
    publishers: int
    topics: int
    design: str
    messages: int
    place_seconds: float
    simulate_seconds: float
    peak_bytes: int
    met: float
    p99: float
    used: float


def run(session: Session) -> Report:
    worlds = WORLDS[:3] if session.quick else WORLDS
    session.plan(len(worlds) * len(_DESIGNS))
    found: list[World] = []
    took = 0.0
    for brokers, publishers in worlds:
        for design in _DESIGNS:
            if session.seconds_left < 5 * took:  # the next world is about as many times as large
                continue
            before = time.monotonic()
            session.step(f"{brokers:,} brokers, {publishers:,} publishers: {design}")
            seconds = _QUICK_SECONDS if session.quick else _SECONDS
            found.append(world(brokers, publishers, design, seconds))
            took = time.monotonic() - before
    shown = tabulate(
        f"topics of {_OF_A_TOPIC:,} Poisson publishers x 10 msg/s, {_SECONDS:g} s of virtual time",
        found,
        ("brokers", lambda each: each.brokers),
        ("publishers", lambda each: each.publishers),
        ("design", lambda each: each.design),
        ("k of a topic", lambda each: each.used),
        ("placing, CPU s", lambda each: each.place_seconds),
        ("messages", lambda each: each.messages),
        ("simulating, CPU s", lambda each: each.simulate_seconds),
        ("us a message", lambda each: each.simulate_seconds / each.messages * 1e6),
        ("peak MB", lambda each: f"{each.peak_bytes / 1e6:,.0f}"),
        ("topics within the SLO", lambda each: f"{each.met:.0%}"),
        ("p99, ms", lambda each: each.p99 * 1e3),
    )
    return Report(
        settings={"worlds": worlds, "publishers_of_a_topic": _OF_A_TOPIC, "designs": _DESIGNS},
        figures={"worlds": [asdict(each) for each in found]},
        bars=_bars(found),
        tables=[shown],
        notes=[
            "LB spreads a topic over as many brokers as its b allows: one message of burst each",
            "us a message and MB are this machine's; a virtual second of a million publishers is "
            "ten million messages",
        ],
    )


def world(brokers: int, publishers: int, design: str, seconds: float) -> World:
    scale = paper_scale()
    scenario = Scenario("grown", min(publishers, _OF_A_TOPIC))
    everybody = scenario.everybody(scale)
    profile = scenario.traffic(scale, _PROFILE_SECONDS, 0)
    contract = scenario.contract(scale, profile)
    names = [f"b{n:04}" for n in range(brokers)]
    allocated = np.zeros(brokers)
    topics = []
    placing = simulating = 0.0
    for number_ in range(publishers // scenario.publishers):
        named = Contract(
            topic=f"t{number_:03}", rate=contract.rate, burst=contract.burst, slo=contract.slo
        )
        there = [
            Broker(name, PAPER_ESTIMATES[1], load)
            for name, load in zip(names, allocated.tolist(), strict=True)
        ]
        at = time.process_time()
        placement = place(design, named, there, everybody)
        placing += time.process_time() - at
        for share in placement.brokers:
            allocated[int(share.name[1:])] += share.rate
        at = time.process_time()
        sent = scenario.traffic(scale, seconds, number_)
        topics.append(placed(placement, everybody, names, sent))
        simulating += time.process_time() - at
    at = time.process_time()
    seen = simulate(topics, [scale.service] * brokers)
    worst = [each.worst(scale.slo.percentile) for each in seen]
    simulating += time.process_time() - at
    return World(
        brokers,
        publishers,
        len(topics),
        design,
        sum(each.latencies.size for each in seen),
        placing,
        simulating,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        float(np.mean([scale.slo.met_by(each) for each in worst])),
        float(np.median(worst)),
        float(np.mean([len(each.shares) for each in topics])),
    )


def _bars(found: list[World]) -> list[Bar]:
    """Cost grows with the messages, and hardly faster."""
    ours = {world.brokers: world for world in found if world.design == "srtm"}
    each = {brokers: world.simulate_seconds / world.messages for brokers, world in ours.items()}
    grown = [each[max(each)] / each[min(each)]] if len(each) > 1 else []
    doubt = "" if max(each, default=0) == WORLDS[-1][0] else "not up to 1,000 brokers"
    name = "simulating a message at the largest world over the smallest"
    met = [world.met for world in ours.values()] or [0.0]
    return [
        judge(name, grown, at_most=2.0, doubt=doubt),
        judge_worst("topics within the SLO, srtm, worst world", met, at_least=1.0),
    ]
