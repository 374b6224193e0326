"""Rates of a topic, generated: events/s, one for each second, of the shapes that loads have."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

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
