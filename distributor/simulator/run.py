"""Messages through sub-buckets and brokers, exactly: whole arrays, broker by broker.

A message waits for its token in the sub-bucket of its broker (limits.queueing), and from then on
for its turn at the broker, which serves all topics in the order in which they are released.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from distributor.fitting.batches import work_before
from distributor.model import Placement, Publisher
from distributor.placement.srtm import SubBucket
from distributor.simulator.service import Service
from distributor.simulator.traffic import Integers, Traffic
from srtm.limits.queueing import Floats, token_waits
from srtm.limits.slo import SLO


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedTopic:
    """broker_of: number of each publisher's broker, -1: it has none and sends nothing; shares:
    (r_l, b_l) by number of the broker; a broker without one limits nothing."""

    traffic: Traffic
    broker_of: Integers
    shares: Mapping[int, SubBucket]


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What the messages of one topic see, in the traffic's order, of shape (n,): when each came, at
    which broker, its token wait and its latency from arrival to the end of its service. Seconds."""

    arrivals: Floats
    brokers: Integers
    token_waits: Floats
    latencies: Floats

    def after(self, seconds: float) -> "Seen":
        """What is seen, without the messages of the first so many seconds."""
        kept = self.arrivals >= seconds
        return Seen(
            self.arrivals[kept], self.brokers[kept], self.token_waits[kept], self.latencies[kept]
        )

    def of(self, broker: int) -> "Seen":
        mine = self.brokers == broker
        return Seen(
            self.arrivals[mine], self.brokers[mine], self.token_waits[mine], self.latencies[mine]
        )

    def latency(self, percentile: float) -> float:
        """Seconds, by nearest rank; NaN without messages."""
        return _nearest(self.latencies, percentile)

    def token_wait(self, percentile: float) -> float:
        return _nearest(self.token_waits, percentile)

    def worst(self, percentile: float) -> float:
        """The latency at the broker where it is longest: every publisher is promised the SLO."""
        return max(
            (self.of(each).latency(percentile) for each in np.unique(self.brokers).tolist()),
            default=float("nan"),
        )

    def late_share(self, slo: SLO) -> float:
        return float(np.mean(self.latencies > slo.target_seconds)) if self.latencies.size else 0.0


def placed(
    placement: Placement, publishers: Sequence[Publisher], names: Sequence[str], sent: Traffic
) -> SimulatedTopic:
    """A placement over brokers of these names; publishers in the order of the traffic's numbers."""
    number = {name: at for at, name in enumerate(names)}
    where = [number.get(placement.assignment.get(each.id, ""), -1) for each in publishers]
    shares = {number[each.name]: (each.r, each.b) for each in placement.brokers}
    return SimulatedTopic(sent, np.array(where, dtype=np.int64), shares)


def simulate(topics: Sequence[SimulatedTopic], services: Sequence[Service]) -> list[Seen]:
    """What each topic sees. Every bucket starts full, and every broker idle."""
    seen = [_Topic(each) for each in topics]
    for broker, service in enumerate(services):
        parts = [(each, where) for each in seen if (where := each.released(broker)).size]
        if not parts:
            continue
        released = np.concatenate([each.out[where] for each, where in parts])
        work = np.concatenate([each.work(where, service) for each, where in parts])
        order = np.argsort(released, kind="stable")
        ahead = np.empty(released.size)
        ahead[order] = work_before(released[order], work[order], 1.0)
        done = released + ahead + work + service.base
        ends = np.cumsum([where.size for _, where in parts])[:-1]
        for (each, where), times in zip(parts, np.split(done, ends), strict=True):
            each.done[where] = times
    return [each.seen() for each in seen]


class _Topic:
    """Batches in order of broker, then of time; messages follow their batches."""

    def __init__(self, topic: SimulatedTopic) -> None:
        sent = topic.traffic
        owner = topic.broker_of[sent.publishers]
        self._order = np.argsort(owner, kind="stable")
        self._batch = sent.batch
        self._shares = topic.shares
        sorted_owner = owner[self._order]
        self._brokers, starts = np.unique(sorted_owner, return_index=True)
        self._ends = np.append(starts, owner.size) * sent.batch
        self._owner = np.repeat(sorted_owner, sent.batch)
        self._times = np.repeat(sent.times[self._order], sent.batch)
        self.out = self._times.copy()
        self.done = np.full(self._times.size, np.nan)

    def released(self, broker: int) -> Integers:
        """Where its messages of this topic stand, with `out` set to when they get their tokens."""
        at = int(np.searchsorted(self._brokers, broker))
        if at == self._brokers.size or self._brokers[at] != broker:
            return np.arange(0)
        where = np.arange(self._ends[at], self._ends[at + 1])
        share = self._shares.get(broker)
        if share is not None:
            self.out[where] += token_waits(self._times[where], *share)
        return where

    def work(self, where: Integers, service: Service) -> Floats:
        """The broker's work for each message; that for a batch as such comes with its first
        message."""
        work = np.full(where.size, service.message)
        work[:: self._batch] += service.event
        return work

    def seen(self) -> Seen:
        """What the messages that have a broker see, in order of the traffic."""
        numbers = self._order[:, np.newaxis] * self._batch + np.arange(self._batch)
        order = np.argsort(numbers.ravel(), kind="stable")
        order = order[self._owner[order] >= 0]
        times = self._times[order]
        return Seen(times, self._owner[order], self.out[order] - times, self.done[order] - times)


def _nearest(values: Floats, percentile: float) -> float:
    if not values.size:
        return float("nan")
    return float(np.quantile(values, percentile, method="inverted_cdf"))
