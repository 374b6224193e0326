"""How long a broker takes over messages: a model of three figures, fitted to measured capacities.

A message takes `base` whatever the load, and waits behind those before it at one server that works
`event` on each batch that a connection brings and `message` on each message of it. So a publisher
of batches costs a broker less than one of single messages, as SRTM section 6.3 found. For Poisson
batches this is an M/D/1 queue, whose tail is known exactly.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from srtm.limits.queueing import unfinished_work_exceeds
from srtm.limits.slo import SLO

_FULL = 1 - 1e-6
"""load of the server at which its queue counts as without end"""


@dataclass(frozen=True, slots=True)
class Service:
    """Seconds. base: the latency of a message that waits for nobody, at the percentile that the
    capacities were measured at; event, message: the server's work."""

    base: float
    event: float
    message: float

    def __post_init__(self) -> None:
        if not (self.base >= 0 and self.event >= 0 and self.message >= 0 and self.batch(1) > 0):
            raise ValueError(f"a broker's times must be 0 or more, and its work above 0: {self}")

    def batch(self, messages: float) -> float:
        """Work on a batch of so many."""
        return self.event + messages * self.message

    def scaled(self, factor: float) -> "Service":
        """A broker that is slower by `factor` in everything."""
        return Service(self.base * factor, self.event * factor, self.message * factor)

    def late_share(self, rate: float, batch: int, target: float) -> float:
        """The share of `rate` messages/s in Poisson batches that take over `target` seconds; 1 in
        overload."""
        work = self.batch(batch)
        load = rate / batch * work
        if load >= _FULL:
            return 1.0
        own = self.event + self.message * np.arange(1, batch + 1)
        left = (target - self.base - own) / work
        return float(np.mean(unfinished_work_exceeds(load, left)))

    def _excess(self, slo: SLO, batch: int, rate: float) -> float:
        """Share of late messages over the one that is allowed; not above 0 where it holds."""
        return self.late_share(rate, batch, slo.target_seconds) - slo.allowed_late_share

    def latency(self, rate: float, batch: int, percentile: float) -> float:
        """Seconds at `percentile` of `rate` messages/s in Poisson batches; infinite in overload."""
        if rate / batch * self.batch(batch) >= _FULL:
            return float("inf")
        high = self.base + self.batch(batch)
        while self.late_share(rate, batch, high) > 1 - percentile:
            high *= 2
        return _least(lambda x: self.late_share(rate, batch, x) - (1 - percentile), high)

    def capacity(self, slo: SLO, batch: int = 1) -> float:
        """The most messages/s in Poisson batches that it holds within `slo`; 0: none."""
        most = batch / self.batch(batch)
        return most - _least(lambda less: self._excess(slo, batch, most - less), most)


def fit(capacities: Mapping[int, float], slo: SLO, base: float = 0.0) -> Service:
    """The broker that holds these many messages/s of Poisson batches within `slo`.

    capacities: by messages of a batch, one or two of them. One says nothing of what a batch itself
    costs, and it is taken to be nothing. Two may be out of the model's reach, as large batches cost
    a server from 1/n of what single messages cost up to as much: the nearest is given then.
    base: seconds. Raises ValueError for no or more capacities, and for a base that leaves nothing
    of the target.
    """
    if not 1 <= len(capacities) <= 2 or not all(
        batch >= 1 and rate > 0 for batch, rate in capacities.items()
    ):
        raise ValueError(f"a fit needs one or two capacities above 0 (got {dict(capacities)})")
    if not base < slo.target_seconds:
        raise ValueError(f"the base of {base:g} s leaves nothing of the target of {slo}")
    (small, held), *more = sorted(capacities.items())

    def with_part(event: float) -> Service:
        """The service with this part of a single message's work in `event`, and the capacity of
        `small`."""

        def of(work: float) -> Service:
            return Service(base, event * work, (1 - event) * work)

        most = small / of(1.0).batch(small) * small / held  # all of the time, and more
        less = _least(lambda x: of(most - x)._excess(slo, small, held), most * (1 - 1e-9))
        return of(most - less)

    if not more:
        return with_part(0.0)
    [(large, second)] = more
    return with_part(_least(lambda part: with_part(part)._excess(slo, large, second), 1.0))


def _least(excess: Callable[[float], float], high: float) -> float:
    """The smallest x of [0, high] at which it is not above 0; `high` where none below it is. It
    falls as x grows."""
    if excess(0.0) <= 0:
        return 0.0
    if excess(high) > 0:
        return high
    from scipy.optimize import brentq  # 0.7 s of CPU to import

    return float(brentq(excess, 0.0, high, xtol=1e-12 * high, rtol=1e-12))
