"""When each publisher sends: an open-loop schedule as arrays. Pure: no clock, no socket.

An event is one write of one publisher: `batch` messages at one instant. All members of a
correlation group have the same instants, each moved by its own jitter.
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
    size = settings.group_size
    groups = -(-settings.publishers // size)
    if settings.trace is not None:
        instants = _trace_instants(settings, rng)
        group = rng.integers(0, groups, len(instants))
    else:
        assert settings.rate_per_second is not None
        rate = settings.rate_per_second / settings.batch
        draw = _poisson_instants if settings.arrivals == "poisson" else _periodic_instants
        instants, group = draw(rate, settings.seconds, groups, rng)
    offsets = np.repeat(instants, size)
    publishers = (group[:, None] * size + np.arange(size)).ravel()
    real = publishers < settings.publishers  # the last group may be smaller
    offsets, publishers = offsets[real], publishers[real]
    if settings.jitter_seconds:
        offsets = offsets + rng.random(len(offsets)) * settings.jitter_seconds
    offsets_ns = (offsets * _NS).astype(np.int64)
    order = np.argsort(offsets_ns, kind="stable")
    return Schedule(offsets_ns[order], publishers[order])


def _poisson_instants(
    rate: float, seconds: float, groups: int, rng: np.random.Generator
) -> tuple[Floats, Ints]:
    """Given its number, the points of a Poisson process lie evenly at random."""
    counts = rng.poisson(rate * seconds, groups)
    return rng.random(counts.sum()) * seconds, np.repeat(np.arange(groups), counts)


def _periodic_instants(
    rate: float, seconds: float, groups: int, rng: np.random.Generator
) -> tuple[Floats, Ints]:
    period = 1.0 / rate
    phases = rng.random(groups) * period
    counts = np.maximum(np.ceil((seconds - phases) / period), 0).astype(np.int64)
    group = np.repeat(np.arange(groups), counts)
    number = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
    instants = phases[group] + number * period
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
