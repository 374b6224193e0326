"""What publishers send: the very schedule that `srtm load` would send by, as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distributor.model import Publisher
from srtm.limits.queueing import Floats
from srtm.load.schedule import build_schedule
from srtm.load.settings import Arrivals, LoadSettings

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """times: seconds, sorted, one for each batch; publishers: whose, by number; batch: messages of
    each. times and publishers have the shape (n,)."""

    times: Floats
    publishers: Integers
    batch: int

    def counts(self) -> Floats:
        return np.full(self.times.size, float(self.batch))


@dataclass(frozen=True, slots=True)
class Sending:
    """How publishers send. Those of one key send at the same instants, each up to `jitter` seconds
    later."""

    arrivals: Arrivals = "poisson"
    batch: int = 1
    jitter: float = 0.0


def traffic(publishers: Sequence[Publisher], how: Sending, seconds: float, seed: int) -> Traffic:
    """What the publishers send in `seconds` seconds. Raises UsageError for more messages than a
    load may have."""
    keys: dict[tuple[str, bool], int] = {}
    groups = tuple(
        keys.setdefault((each.key or each.id, not each.key), len(keys)) for each in publishers
    )
    rates = tuple(each.rate for each in publishers)
    same = len(set(rates)) == 1
    settings = LoadSettings(
        topic="simulated",
        publish_addresses=("127.0.0.1:1",),  # nothing is sent
        publishers=len(publishers),
        rate_per_second=rates[0] if same else None,
        rates=None if same else rates,
        groups=None if len(keys) == len(publishers) else groups,
        arrivals=how.arrivals,
        batch=how.batch,
        jitter_seconds=how.jitter,
        duration_seconds=seconds,
        seed=seed,
    )
    schedule = build_schedule(settings)
    return Traffic(schedule.offsets_ns / 1e9, schedule.publishers, how.batch)
