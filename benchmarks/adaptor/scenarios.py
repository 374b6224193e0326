"""Traffic that moves between brokers, by a seed: 120 s of single messages within one contract."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from srtm.limits.queueing import Floats
from tb_adaptor.share import Part
from tb_adaptor.simulator.run import Arrivals

SECONDS = 120.0
LOAD = 0.8
"""of r, all brokers together; the rates that scenarios name are shares of that"""

_CONTRACT = Part(1_000.0, 50.0)

Rate = Callable[[Floats], Floats]
"""share of the topic's load that comes to a broker at each second"""


@dataclass(frozen=True)
class Scenario:
    """brokers: name -> rate; shifts: seconds at which traffic moves at once; burst: b
    clumps: broker -> messages that come together, at each second; 1: one by one
    kind: poisson, periodic, or groups (publishers that send together within milliseconds)"""

    name: str
    brokers: Mapping[str, Rate]
    shifts: tuple[float, ...] = ()
    contract: Part = _CONTRACT
    kind: str = "poisson"
    clumps: Mapping[str, Rate] | None = None

    def arrivals(self, seed: int) -> dict[str, Arrivals]:
        random = np.random.default_rng([seed, len(self.name), sum(map(ord, self.name))])
        found = {}
        for name, rate in self.brokers.items():
            times = np.concatenate(
                [self._second(random, name, rate, at) for at in np.arange(0.0, SECONDS)]
            )
            times = np.sort(times[times < SECONDS])
            found[name] = Arrivals(times, np.ones(times.size))
        return found

    def _second(self, random: np.random.Generator, name: str, rate: Rate, at: float) -> Floats:
        middle = np.array([at + 0.5])
        count = float(rate(middle)[0]) * LOAD * self.contract.rate
        if count <= 0:
            return np.empty(0)
        if self.kind == "periodic":
            phase = random.uniform()
            return np.asarray(at + (np.arange(int(count)) + phase) / count, dtype=np.float64)
        clump = 1 if self.clumps is None else int(self.clumps[name](middle)[0])
        if self.kind == "groups":
            clump = max(clump, 10)
        begins = random.uniform(at, at + 1, random.poisson(count / clump))
        if clump == 1:
            return begins
        spread: Floats = random.exponential(0.002, begins.size * clump)
        return np.repeat(begins, clump) + spread


def constant(share: float) -> Rate:
    return lambda at: np.full(at.shape, share)


def steps(*pairs: tuple[float, float]) -> Rate:
    """(from second, share), in order."""
    begins = np.array([begin for begin, _ in pairs])
    shares = np.array([share for _, share in pairs])
    return lambda at: shares[np.searchsorted(begins, at, side="right") - 1]


def ramp(first: float, last: float, begins: float, ends: float) -> Rate:
    return lambda at: first + (last - first) * np.clip((at - begins) / (ends - begins), 0, 1)


def wave(mean: float, height: float, period: float, phase: float) -> Rate:
    return lambda at: mean + height * np.sin(2 * np.pi * (at / period + phase))


def on_off(share: float, on: float, period: float) -> Rate:
    return lambda at: np.where(at % period < on, share, 0.0)


def _swap(kind: str) -> Scenario:
    return Scenario(
        f"swap, {kind}",
        {"b1": steps((0, 0.85), (60, 0.15)), "b2": steps((0, 0.15), (60, 0.85))},
        (60.0,),
        kind=kind,
    )


_CALM, _CLUMPED = 1.0, 40.0
SCENARIOS = (
    Scenario(
        "step",
        {"b1": steps((0, 0.75), (60, 0.25)), "b2": constant(0.25), "b3": steps((0, 0), (60, 0.5))},
        (60.0,),
    ),
    Scenario("ramp", {"b1": ramp(0.9, 0.1, 30, 90), "b2": ramp(0.1, 0.9, 30, 90)}),
    _swap("poisson"),
    _swap("periodic"),
    _swap("groups"),
    Scenario("on-off", {"b1": constant(0.35), "b2": on_off(0.65, 10, 40)}, (40.0, 80.0)),
    Scenario("diurnal", {f"b{n}": wave(1 / 6, 0.15, 60, n / 6) for n in range(6)}),
    Scenario(
        "burstiness moves",
        {"b1": constant(0.5), "b2": constant(0.5)},
        (60.0,),
        Part(1_000.0, 100.0),
        clumps={
            "b1": steps((0, _CLUMPED), (60, _CALM)),
            "b2": steps((0, _CALM), (60, _CLUMPED)),
        },
    ),
    Scenario("stationary", {"b1": constant(0.6), "b2": constant(0.3), "b3": constant(0.1)}),
    Scenario("stationary, groups", {"b1": constant(0.5), "b2": constant(0.5)}, kind="groups"),
)  # fmt: skip
CHOOSING = (
    Scenario("other step", {"b1": steps((0, 0.3), (47, 0.7)), "b2": steps((0, 0.7), (47, 0.3))}),
    Scenario("other ramp", {"b1": ramp(0.8, 0.3, 20, 55), "b2": ramp(0.2, 0.7, 20, 55)}),
    Scenario("other on-off", {"b1": constant(0.5), "b2": on_off(0.5, 7, 25)}),
    Scenario("other wave", {f"b{n}": wave(1 / 4, 0.2, 45, n / 4) for n in range(4)}),
    Scenario("other clumps", {"b1": constant(0.6), "b2": constant(0.4)}, kind="groups"),
)
"""Scenarios on which settings are chosen; what is judged is judged on SCENARIOS."""
