"""Generated cases: a workload, its surroundings and an SLO, all from one seed."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from srtm.autoscaler.decision import Handover
from srtm.autoscaler.simulator.arrivals import ArrivalModel, Arrivals, arrivals_by_partition
from srtm.autoscaler.simulator.setting import Setting
from srtm.limits.ceiling import Ceiling
from srtm.limits.excess import worst_excess
from srtm.limits.slo import SLO

Floats = NDArray[np.float64]
Random = np.random.Generator

_LEAST = 5.0
"""events/s: a topic that falls silent says nothing of a policy."""


def walk(random: Random, seconds: int, level: float) -> Floats:
    """A random walk about its level, drawn back to it within some minutes."""
    width, memory = random.uniform(0.2, 0.35) * level, random.uniform(60, 240)
    steps = random.normal(0, width * np.sqrt(2 / memory), seconds)
    rates, now = np.empty(seconds), 0.0
    for second, step in enumerate(steps):
        now += step - now / memory
        rates[second] = level + now
    return rates


def crowds(random: Random, seconds: int, level: float) -> Floats:
    """A low base; two or three crowds of about a minute come within seconds and go slowly."""
    time, rates = np.arange(seconds), np.full(seconds, 0.4 * level)
    for part in range(count := int(random.integers(2, 4))):
        start = seconds * (part + random.uniform(0.1, 0.6)) / count
        rise, stay, fall = random.uniform((5, 30, 10), (20, 80, 30))
        knots = np.cumsum([start, rise, stay, fall])
        rates += random.uniform(1.2, 2.2) * level * np.interp(time, knots, [0, 1, 1, 0])
    return rates


def tides(random: Random, seconds: int, level: float) -> Floats:
    """A sine of minutes, nearly down to nothing."""
    period, depth = random.uniform(90, 300), random.uniform(0.5, 0.85)
    phase = random.uniform(0, 2 * np.pi)
    wave: Floats = level * (1 + depth * np.sin(2 * np.pi * np.arange(seconds) / period + phase))
    return wave


def steps(random: Random, seconds: int, level: float) -> Floats:
    """Levels that last one to three minutes, and change from one second to the next."""
    rates = np.empty(0)
    while len(rates) < seconds:
        rates = np.append(
            rates, np.full(int(random.uniform(60, 180)), level * random.uniform(0.4, 1.6))
        )
    return rates[:seconds]


def ramps(random: Random, seconds: int, level: float) -> Floats:
    """Straight lines between levels, each one to four minutes long."""
    at, levels = [0.0], [level * random.uniform(0.3, 1.7)]
    while at[-1] < seconds:
        at.append(at[-1] + random.uniform(60, 240))
        levels.append(level * random.uniform(0.3, 1.7))
    return np.interp(np.arange(seconds), at, levels)


def on_off(random: Random, seconds: int, level: float) -> Floats:
    """A source that is on for about a minute and off for about as long, over a base."""
    rates, on = np.empty(0), bool(random.integers(2))
    while len(rates) < seconds:
        rates = np.append(
            rates, np.full(int(random.uniform(30, 100)), level * (1.5 if on else 0.4))
        )
        on = not on
    return rates[:seconds]


def spikes(random: Random, seconds: int, level: float) -> Floats:
    """A calm base, and every minute or two some seconds of three times as much."""
    rates, at = np.full(seconds, 0.6 * level), random.uniform(10, 60)
    while at < seconds:
        rates[int(at) : int(at + random.uniform(4, 12))] = level * random.uniform(1.5, 2.2)
        at += random.uniform(30, 110)
    return rates


SHAPES: dict[str, Callable[[Random, int, float], Floats]] = {
    "walk": walk,
    "crowds": crowds,
    "tides": tides,
    "steps": steps,
    "ramps": ramps,
    "on-off": on_off,
    "spikes": spikes,
}


def rates_of(shape: str, random: Random, seconds: int, level: float) -> Floats:
    """The rates of one shape, with a noise of its own in each second; level: about their mean."""
    rates = SHAPES[shape](random, seconds, level)
    noisy = rates * random.lognormal(0, random.uniform(0, 0.08), seconds)
    return np.maximum(_LEAST, noisy)


def even(random: Random, partitions: int, seconds: int) -> Floats:
    """The share of each partition in each second, shape (partitions, seconds)."""
    return np.full((partitions, seconds), 1 / partitions)


def skewed(random: Random, partitions: int, seconds: int) -> Floats:
    """Two partitions have a third of the events; the others' parts differ too."""
    shares = random.uniform(0.7, 1.3, partitions)
    shares[:2] *= 0.5 * (partitions - 2) / 2
    return np.repeat((shares / shares.sum())[:, None], seconds, axis=1)


def moving(random: Random, partitions: int, seconds: int) -> Floats:
    """Keys come and go: each partition's part swings in its own time of minutes."""
    periods = random.uniform(150, 600, partitions)[:, None]
    phases = random.uniform(0, 2 * np.pi, partitions)[:, None]
    parts = 1 + 0.6 * np.sin(2 * np.pi * np.arange(seconds) / periods + phases)
    shares: Floats = parts / parts.sum(axis=0)
    return shares


SHARES: dict[str, Callable[[Random, int, int], Floats]] = {
    "even": even,
    "skewed": skewed,
    "moving": moving,
}


PARTITIONS = 9
"""Five to eight consumers are equal then: one of them has two partitions."""
TARGET_SECONDS = 0.5
ASKED = (0.9, 0.99, 0.999)
LEVELS = (150.0, 450.0)
"""events/s, between which a workload's level is drawn; a consumer serves MU."""
MU = 200.0
HIGHEST = 0.85
"""The most that a partition has, as a part of what a consumer of its own serves within the target:
a case that no group keeps says nothing. Of a second's events that come at once, that consumer
serves MU * TARGET_SECONDS."""
WARM = 0.8
"""A warm group begins with consumers for its first rate, each used so far."""
MIXED_MUS = (140.0, 200.0, 260.0)
"""The mus of consumers that differ, in the order of their launches; their mean is MU."""
CONTRACT_QUANTILE = 0.95
REPORTED_SEEDS = (1001, 1002, 1003)
MIXED_SEEDS = (1004,)
TUNING_SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class Case:
    """One workload in one setting. rates: events/s, shape (partitions, seconds)."""

    name: str
    rates: Floats = field(repr=False)
    model: ArrivalModel
    setting: Setting

    @cached_property
    def arrivals(self) -> Arrivals:
        return arrivals_by_partition(self.rates.tolist(), self.model, self.setting.seed)

    @cached_property
    def ceiling(self) -> Ceiling:
        """A contract that the arrivals just keep to: with a rate that they exceed for a twentieth
        of the time, the least burst."""
        rate = float(np.quantile(self.rates.sum(axis=0), CONTRACT_QUANTILE))
        times = np.sort(np.concatenate(self.arrivals.times))
        return Ceiling(rate, max(1.0, worst_excess(times, rate, 0.0)))

    @property
    def asked(self) -> float:
        return self.setting.slo.percentile

    @property
    def least(self) -> int:
        """Consumers that serve the mean rate: no constant group is smaller."""
        return max(1, math.ceil(float(self.rates.sum(axis=0).mean()) / self.setting.mu))


def reported(seconds: int = 900) -> Iterator[Case]:
    """The cases of the benchmark: of equal consumers, then of consumers that differ."""
    yield from generated(REPORTED_SEEDS, seconds)
    yield from generated(MIXED_SEEDS, seconds, MIXED_MUS)


def generated(
    seeds: tuple[int, ...], seconds: int = 900, mus: tuple[float, ...] = ()
) -> Iterator[Case]:
    """The cases of these seeds: for each seed, every shape with every percentile; shares, arrivals
    within a second, and cold or warm starts change between them."""
    for seed in seeds:
        number = seed
        for place, shape in enumerate(SHAPES):
            for asked in ASKED:
                number += 1
                shares = list(SHARES)[number % len(SHARES)]
                model = (ArrivalModel.POISSON, ArrivalModel.BURST)[(number // 2) % 2]
                warm = number % 4 > 1
                yield case(seed * 100 + place, shape, asked, shares, model, warm, seconds, mus)


def case(
    seed: int,
    shape: str,
    asked: float,
    shares: str,
    model: ArrivalModel,
    warm: bool,
    seconds: int = 900,
    mus: tuple[float, ...] = (),
) -> Case:
    """One generated case. The same seed, shape, shares, model, seconds and mus make the same
    rates."""
    random = np.random.default_rng(seed)
    rates = rates_of(shape, random, seconds, random.uniform(*LEVELS))
    split = rates * SHARES[shares](random, PARTITIONS, seconds)
    served = MU * (TARGET_SECONDS if model is ArrivalModel.BURST else 1.0)
    slowest = min(mus, default=MU) / MU  # it may be the one that has the fullest partition
    split *= min(1.0, HIGHEST * served * slowest / float(split.max()))
    setting = Setting(
        SLO(asked, TARGET_SECONDS), mu=MU, handover=Handover.DIRECT, seed=seed % 1000 + 1, mus=mus
    )
    if warm:
        first = float(split[:, :5].sum(axis=0).mean()) * MU / served
        enough = math.ceil(first / (WARM * MU))
        setting = replace(setting, initial=min(PARTITIONS, max(1, enough)))
    start = "warm" if warm else "cold"
    name = f"{shape} {seed}, {shares}, {model.value}, {start}, {100 * asked:g} %"
    name += ", mixed" if mus else ""
    return Case(name, split, model, setting)
