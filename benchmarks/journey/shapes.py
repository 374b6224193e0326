"""The loads of the benchmark `journey`: in slow motion, so that two cores carry them. Pure."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from srtm.limits.slo import SLO

MU = 10.0
"""messages/s of one consumer, which sleeps for the rest of 100 ms on each: what a call of another
service takes. Ten times as slow as usual, and so are targets, tides and crowds."""
TIDE_SECONDS = 60
_CROWD_EVERY_SECONDS, _CROWD_SECONDS = 20, 4


@dataclass(frozen=True, slots=True)
class Shape:
    """slo: of the journey; rate: messages/s by second and seed; bridge: do messages go on to Kafka,
    where a group ends the journey? Else a pool of the channel does."""

    name: str
    slo: SLO
    rate: Callable[[int, int], float]
    bridge: bool = False

    def times(self, seed: int) -> Iterator[float]:
        """When each message is sent, without end: at random within each second."""
        rng = np.random.default_rng(seed)
        for second in count():
            arrivals = rng.random(rng.poisson(self.rate(second, seed)))
            yield from (second + float(at) for at in np.sort(arrivals))


def _steady(second: int, seed: int) -> float:
    return 3 * MU


def _tide(second: int, seed: int) -> float:
    return MU * (2 + 1.2 * math.sin(2 * math.pi * second / TIDE_SECONDS))


def _crowds(second: int, seed: int) -> float:
    """One crowd in every 20 s, which nothing announces."""
    number, at = divmod(second, _CROWD_EVERY_SECONDS)
    begin = random.Random(f"{seed} {number}").randrange(_CROWD_EVERY_SECONDS - _CROWD_SECONDS)
    return MU * (4.5 if begin <= at < begin + _CROWD_SECONDS else 1.5)


SHAPES = (
    Shape("steady", SLO.parse("0.98@1s over 1h"), _steady),
    Shape("crowds", SLO.parse("0.95@4s over 1h"), _crowds),
    Shape("tide, bridge and Kafka", SLO.parse("0.95@3s over 1h"), _tide, bridge=True),
)
