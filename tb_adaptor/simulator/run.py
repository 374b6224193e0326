"""A topic's brokers under one policy: they report, are told shares as live ones are, and wait.

Shares travel by the distributor's own leases (tb_adaptor/leases.py), so that one grows
only once the others have shrunk and said so, and a batch bigger than its broker's share waits for
the whole contract. A report and its answer take no time.
"""

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from srtm.limits.queueing import Floats
from tb_adaptor.leases import Holder, Share, TopicLeases
from tb_adaptor.policies import POLICIES
from tb_adaptor.policies.policy import EARLIEST_SECONDS, Policy
from tb_adaptor.share import Part, even
from tb_adaptor.simulator.bucket import Bucket
from tb_adaptor.turns import Waiting
from tb_adaptor.window import Window, WindowReport, nothing_of

GROWING_SECONDS = 0.1
CHANGED_SECONDS = 0.05
_LOOK_SECONDS = 0.1
"""The distributor looks so often whether a decision is due."""
_LEASE_SECONDS = 10.0


@dataclass(frozen=True)
class Arrivals:
    """The arrivals at one broker: seconds, sorted, shape (n,), and messages of each batch, shape
    (n,)."""

    times: Floats
    counts: Floats


@dataclass(frozen=True)
class Settings:
    """seconds: window of the policy, its period, and the brokers' reports; phase: how much later
    than the arrivals the reports begin"""

    window: float = 10.0
    every: float = 10.0
    report: float = 1.0
    phase: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """waits: of each message in seconds, broker by broker in order of arrival; arrived, went: when;
    sizes: of the batches. shares: (seconds, split), the whole map at each change."""

    waits: Floats
    arrived: Floats
    went: Floats
    sizes: Floats
    shares: list[tuple[float, dict[str, Part]]]


def simulate(
    name: str,
    contract: Part,
    arrivals: Mapping[str, Arrivals],
    initial: Mapping[str, Part] | None = None,
    settings: Settings = Settings(),
) -> Outcome:
    """initial: the split at 0 s; an even one by default. Raises ValueError where b is too small."""
    entry = POLICIES[name]
    brokers = list(arrivals)
    split = dict(initial) if initial and not entry.starts_even else even(contract, brokers)
    return _Run(entry.make(), contract, arrivals, split, settings).outcome()


class _Run:
    def __init__(
        self,
        policy: Policy,
        contract: Part,
        arrivals: Mapping[str, Arrivals],
        split: dict[str, Part],
        settings: Settings,
    ) -> None:
        self._policy = policy
        self._contract = contract
        self._settings = settings
        self._window = Window(settings.window)
        self._buckets = {
            name: Bucket(split[name], each.times, each.counts, len(split) == 1)
            for name, each in arrivals.items()
        }
        self._reported = dict.fromkeys(arrivals, 0)
        self._leases = TopicLeases(
            Share(*contract),
            {name: Share(*part) for name, part in split.items()},
            {name: Holder(((0, Share(*part)),), _LEASE_SECONDS) for name, part in split.items()},
        )
        self._epochs = dict.fromkeys(arrivals, 0)
        self._reported_at = self._decided_at = math.inf  # until the first report
        self._waits = False  # at any broker, since the last decision
        self.shares = [(0.0, dict(split))]
        self._ends_at = max(
            (float(e.times[-1]) for e in arrivals.values() if e.times.size), default=0
        )

    def outcome(self) -> Outcome:
        count = len(self._buckets)
        reports = [
            (self._settings.phase + (place + 1) * self._settings.report / count, name)
            for place, name in enumerate(self._buckets)
        ]
        heapq.heapify(reports)
        while reports[0][0] <= self._ends_at or any(
            each.is_stuck for each in self._buckets.values()
        ):
            now, name = heapq.heappop(reports)
            heapq.heappush(reports, (now + self._report(name, now), name))
        for bucket in self._buckets.values():
            bucket.finish()
        return _outcome(list(self._buckets.values()), self.shares)

    def _report(self, name: str, now: float) -> float:
        """Seconds until its next one."""
        self._decide_before(now)
        bucket, leases = self._buckets[name], self._leases
        bucket.advance(now)
        times, counts = bucket.arrivals(self._reported[name])
        self._reported[name] = bucket.arrived
        # In a turn nobody has the share that the policy gives.
        if leases.turns.broker is None and bucket.part.rate:
            self._window.add(
                name,
                WindowReport(now, bucket.part, times, counts, bucket.waiting, bucket.most_waiting),
            )
        bucket.most_waiting = bucket.waiting
        head = bucket.head if bucket.head > 1 else 0
        leases.report(name, Waiting(head, bucket.waiting, bucket.debt), now)
        leases.holders[name] = leases.holders[name].heard(now, self._epochs[name])
        leases.pass_turn(name, now)
        self._waits = self._waits or bucket.waiting > 0
        self._reported_at, self._decided_at = now, min(self._decided_at, now)
        share = leases.share(name, now, keep_floor=True)
        changed = share != leases.holders[name].last
        if changed:
            self._epochs[name] += 1
            is_whole = share.burst >= self._contract.burst
            bucket.rescale(Part(share.rate, share.burst), now, is_whole)
            after = {each: other.part for each, other in self._buckets.items()}
            if self.shares[-1][0] == now:
                self.shares.pop()
            self.shares.append((now, after))
        leases.holders[name] = leases.holders[name].told(
            self._epochs[name], share, now + _LEASE_SECONDS
        )
        if changed:
            return CHANGED_SECONDS
        if leases.turns.broker is not None or share != leases.target(name, now):
            return GROWING_SECONDS
        return self._settings.report

    def _decide_before(self, now: float) -> None:
        """What was due by then. Between two reports nothing is new."""
        while self._leases.turns.broker is None:
            early = self._waits and self._policy.acts_early
            due = self._decided_at + (EARLIEST_SECONDS if early else self._settings.every)
            at = max(due, self._reported_at)
            if at >= now:
                return
            at = min(now, _LOOK_SECONDS * math.ceil(at / _LOOK_SECONDS - 1e-9))
            self._decide(at)

    def _decide(self, now: float) -> None:
        seen = self._window.seen(now)
        for broker, bucket in self._buckets.items():
            seen.setdefault(broker, nothing_of(bucket.part, now))
        self._decided_at, self._waits = now, False
        found = self._policy.rescale(self._contract, seen, now)
        if found is not None:
            self._leases.place({name: Share(*part) for name, part in found.split.items()})


def _outcome(buckets: Sequence[Bucket], shares: list[tuple[float, dict[str, Part]]]) -> Outcome:
    sizes = np.concatenate([each._counts for each in buckets])
    arrived = np.concatenate([each._times for each in buckets])
    went = np.concatenate([each.left for each in buckets])
    waits = np.repeat(went - arrived, sizes.astype(int))
    return Outcome(waits, arrived, went, sizes, shares)
