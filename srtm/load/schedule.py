"""When each publisher sends: an open-loop schedule as arrays. Pure: no clock, no socket.

An event is one write of one publisher: `batch` messages at one instant. All members of a
correlation group have the same instants, each moved by its own jitter. Where their rates differ,
the instants are those of the highest, and each of the others sends at its part of them, drawn.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from srtm.load.settings import LoadSettings

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_NS = 1e9


@dataclass(frozen=True, slots=True)
class Schedule:
    """offsets_ns: intended times after the start, sorted; publishers: who, event by event."""

    offsets_ns: Ints
    publishers: Ints

    def __len__(self) -> int:
        return len(self.offsets_ns)


def build_schedule(settings: LoadSettings) -> Schedule:
    """The events of an open-loop run (a rate or a trace); the same seed gives the same events."""
    rng = np.random.default_rng(settings.seed)
    group_of = _group_of(settings)
    sizes = np.bincount(group_of)
    rates = _rates(settings)
    if settings.trace is not None:
        instants = _trace_instants(settings, rng)
        group = rng.integers(0, len(sizes), len(instants))
    else:
        highest = np.zeros(len(sizes))
        np.maximum.at(highest, group_of, rates)
        draw = _poisson_instants if settings.arrivals == "poisson" else _periodic_instants
        instants, group = draw(highest, settings.seconds, rng)
    offsets = np.repeat(instants, sizes[group])
    publishers = _members(group_of, sizes, group)
    if settings.rates is not None:
        part = rates / highest[group_of]
        sends = rng.random(len(publishers)) < part[publishers]
        offsets, publishers = offsets[sends], publishers[sends]
    if settings.jitter_seconds:
        offsets = offsets + rng.random(len(offsets)) * settings.jitter_seconds
    offsets_ns = (offsets * _NS).astype(np.int64)
    order = np.argsort(offsets_ns, kind="stable")
    return Schedule(offsets_ns[order], publishers[order])


def _group_of(settings: LoadSettings) -> Ints:
    """The number of each publisher's group."""
    if settings.groups is not None:
        return np.array(settings.groups, dtype=np.int64)
    return np.arange(settings.publishers) // settings.group_size


def _rates(settings: LoadSettings) -> Floats:
    """Events/s of each publisher, where it has a rate of its own."""
    rates = settings.rates or (settings.rate_per_second or 0.0,) * settings.publishers
    return np.array(rates, dtype=np.float64) / settings.batch


def _members(group_of: Ints, sizes: Ints, group: Ints) -> Ints:
    """The members of each group in `group`, one list after the other."""
    by_group = np.argsort(group_of, kind="stable")
    first = np.cumsum(sizes) - sizes
    ends = np.cumsum(sizes[group])
    within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - sizes[group], sizes[group])
    members: Ints = by_group[np.repeat(first[group], sizes[group]) + within]
    return members


def _poisson_instants(
    rates: Floats, seconds: float, rng: np.random.Generator
) -> tuple[Floats, Ints]:
    """The instants of all groups, and the group of each. Given its number, the points of a Poisson
    process lie evenly at random."""
    counts = rng.poisson(rates * seconds)
    return rng.random(counts.sum()) * seconds, np.repeat(np.arange(len(rates)), counts)


def _periodic_instants(
    rates: Floats, seconds: float, rng: np.random.Generator
) -> tuple[Floats, Ints]:
    periods = 1.0 / rates
    phases = rng.random(len(rates)) * periods
    counts = np.maximum(np.ceil((seconds - phases) / periods), 0).astype(np.int64)
    group = np.repeat(np.arange(len(rates)), counts)
    number = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
    instants = phases[group] + number * periods[group]
    inside = instants < seconds
    return instants[inside], group[inside]


def _trace_instants(settings: LoadSettings, rng: np.random.Generator) -> Floats:
    """Points at the trace's rate: even (or unit Poisson) points on the running sum of events.

    A trace counts messages: an event of a group of G with batches of B takes G * B of them.
    """
    assert settings.trace is not None
    seconds = np.minimum(np.arange(len(settings.trace) + 1), settings.seconds)
    rates = np.asarray(settings.trace) * settings.trace_scale
    rates = rates / (settings.group_size * settings.batch)
    running = np.concatenate([[0.0], np.cumsum(rates * np.diff(seconds))])
    total = running[-1]
    if settings.arrivals == "poisson":
        points = np.sort(rng.random(rng.poisson(total)) * total)
    else:
        points = np.arange(rng.random(), total, 1.0)
    instants: Floats = np.interp(points, running, seconds)
    return instants
