"""Generated cases: a workload, its surroundings and an SLO, all from one seed."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from benchmarks.autoscaler.unseen.shapes import SHAPES, SHARES, rates_of
from srtm.autoscaler.decision import Handover
from srtm.autoscaler.simulator.arrivals import ArrivalModel, Arrivals, arrivals_by_partition
from srtm.autoscaler.simulator.setting import Setting
from srtm.limits.slo import SLO

Floats = NDArray[np.float64]

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
