"""The loads of the benchmark `journey`: in slow motion, so that two cores carry them. Pure."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from srtm.limits.slo import SLO

MU = 8.0
"""messages/s of one consumer, which sleeps for 125 ms on each. That is slow, so targets, tides and
crowds are slow in proportion, and two cores carry them. Targets are 3 to 12 times as long: with
more, every split costs about the same, as consumers have to keep up with what comes anyway."""
RISE_SECONDS = 30
"""over which a load begins, or the first seconds would judge a cold start"""
TIDE_SECONDS = 90
_CROWD_EVERY_SECONDS, _CROWD_SECONDS = 40, 8


@dataclass(frozen=True, slots=True)
class Shape:
    """slo: of the journey; rate: messages/s by second and seed, once the load has risen; bridge: do
    messages go on to Kafka, where a group ends the journey? Else a pool of the channel does.
    in_turns: do arms take turns? Where they start many consumers at once, or consumers of Kafka,
    three are too much for two cores: a start would take several times as long as the plan knows"""

    name: str
    slo: SLO
    rate: Callable[[int, int], float]
    bridge: bool = False
    in_turns: bool = False

    def times(self, seed: int) -> Iterator[float]:
        """When each message is sent, without end: at random within each second."""
        rng = np.random.default_rng(seed)
        for second in count():
            rate = self.rate(second, seed) * min(1.0, second / RISE_SECONDS)
            arrivals = rng.random(rng.poisson(rate))
            yield from (second + float(at) for at in np.sort(arrivals))


def _steady(second: int, seed: int) -> float:
    return 3 * MU


def _tide(second: int, seed: int) -> float:
    return MU * (2 + 1.2 * math.sin(2 * math.pi * second / TIDE_SECONDS))


def _crowds(second: int, seed: int) -> float:
    """One crowd in every 40 s, which nothing announces."""
    number, at = divmod(second, _CROWD_EVERY_SECONDS)
    begin = random.Random(f"{seed} {number}").randrange(_CROWD_EVERY_SECONDS - _CROWD_SECONDS)
    return MU * (4.5 if begin <= at < begin + _CROWD_SECONDS else 1.5)


SHAPES = (
    Shape("steady", SLO.parse("0.95@350ms over 1h"), _steady),
    Shape("crowds", SLO.parse("0.95@1200ms over 1h"), _crowds, in_turns=True),
    Shape(
        "tide, bridge and Kafka",
        SLO.parse("0.95@1500ms over 1h"),
        _tide,
        bridge=True,
        in_turns=True,
    ),
)
