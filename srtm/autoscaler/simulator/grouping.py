"""Groups that a schedule may choose among, and what each would cost, seen from the arrivals."""

import numpy as np
from numpy.typing import NDArray

from srtm.autoscaler.decision import Handover
from srtm.autoscaler.simulator.arrivals import Arrivals
from srtm.autoscaler.simulator.setting import Setting

Floats = NDArray[np.float64]
Parts = tuple[tuple[int, ...], ...]
"""The partitions of each consumer; which consumer has which part is settled when it is played."""

_WORTH_MOVING = 0.01
"""The least gain of a move or swap, as a share of the square of a consumer's mean load: one that
betters the sum of squared loads by less is not made, so that partitions that are equal but for
chance stay where they are."""
_MOST_GROUPS = 16
"""The most numbers of consumers that have a group: with more partitions some numbers are left out,
as the search is slow with many."""
_SMOOTH_TICKS = 5
"""Ticks over which the rate at a hand-over is averaged."""


def groups_for(arrivals: Arrivals, setting: Setting) -> tuple[Parts, ...]:
    """The group that the run starts with, then for each number of consumers one that is balanced
    over the whole trace. Each is made from the one before with few moves."""
    weights = [
        len(times) + 1.0 for times in arrivals.times
    ]  # one without events goes somewhere too
    members = min(setting.initial, len(weights))
    start = tuple(tuple(range(first, len(weights), members)) for first in range(members))
    chain: list[Parts] = [(tuple(range(len(weights))),)]
    while len(chain) < len(weights):
        chain.append(_balanced((*chain[-1], ()), weights))
    if len(chain) > _MOST_GROUPS:
        few = np.geomspace(1, len(chain), _MOST_GROUPS).round().astype(int)
        chain = [chain[size - 1] for size in few.tolist()]
    return tuple(dict.fromkeys([start, *chain]))


def _balanced(parts: Parts, weights: list[float]) -> Parts:
    """Steepest descent of the sum of squared loads, by moves and swaps."""
    current = [set(part) for part in parts]
    load = [sum(weights[p] for p in part) for part in current]
    least = _WORTH_MOVING * (sum(weights) / len(parts)) ** 2
    while True:
        best = (-least, -1, -1, -1, -1)
        for a in range(len(current)):
            for b in range(len(current)):
                for p in current[a]:
                    for q in (-1, *current[b]) if a != b else ():
                        moved = weights[p] - (weights[q] if q >= 0 else 0.0)
                        gain = 2 * moved * (load[b] - load[a] + moved)
                        best = min(best, (gain, a, b, p, q))
        _, a, b, p, q = best
        if a < 0:
            return tuple(sorted(tuple(sorted(part)) for part in current))
        current[a].remove(p)
        current[b].add(p)
        if q >= 0:
            current[b].remove(q)
            current[a].add(q)
        load = [sum(weights[p] for p in part) for part in current]


def late_by_tick(arrivals: Arrivals, setting: Setting, groups: tuple[Parts, ...]) -> Floats:
    """[group, tick]: late events of those that come between this tick and the next, were that group
    there all the time. One that would wait for more than twice the target is late and not served,
    so that an overload is forgotten soon after its end."""
    edges = setting.lag_phase + setting.decision_seconds * np.arange(ticks(arrivals, setting) + 1)
    known: dict[tuple[int, ...], Floats] = {}
    for part in {part for parts in groups for part in parts}:
        times = np.sort(np.concatenate([np.empty(0), *(arrivals.times[p] for p in part)]))
        late = _late_times(times.tolist(), setting.mu, setting.slo.target_seconds)
        known[part] = np.histogram(late, edges)[0].astype(np.float64)
    return np.array([sum(known[part] for part in parts) for parts in groups])


def _late_times(times: list[float], mu: float, target: float) -> list[float]:
    service = 1.0 / mu
    longest = target - service + 1e-9
    given_up = 2 * target
    late = []
    free = 0.0
    for at in times:
        wait = free - at
        if wait > longest:
            late.append(at)
            if wait > given_up:
                continue
        free = (free if wait > 0 else at) + service
    return late


def ticks(arrivals: Arrivals, setting: Setting) -> int:
    """Decisions of a run."""
    return max(0, int(np.ceil((arrivals.seconds - setting.lag_phase) / setting.decision_seconds)))


def handover_late(arrivals: Arrivals, setting: Setting, groups: tuple[Parts, ...]) -> Floats:
    """[tick, from, to]: a guess of the late events of a change that takes effect at that tick.

    A partition that stands still for s with new events at rate r, taken up by a consumer with load
    rho: those come late that find more than w of it left, r (s - w) / (1 - rho) of them.
    """
    count = ticks(arrivals, setting)
    edges = setting.lag_phase + setting.decision_seconds * np.arange(count + 1)
    rates = np.array([np.histogram(t, edges)[0] for t in arrivals.times]) / setting.decision_seconds
    kernel = np.ones(_SMOOTH_TICKS) / _SMOOTH_TICKS
    rates = np.array([np.convolve(row, kernel, mode="full")[-count:] for row in rates])
    late = np.zeros((count, len(groups), len(groups)))
    for b, after in enumerate(groups):
        served = np.zeros_like(rates)
        for part in after:
            served[list(part)] = rates[list(part)].sum(axis=0)
        spare = np.maximum(0.1, 1 - served / setting.mu)
        for a, before in enumerate(groups):
            if a != b:
                moved = moved_partitions(before, after)
                stop = _stops(setting, len(before), len(after), moved, len(rates))
                over = np.maximum(0, stop - setting.slo.target_seconds / 2)
                late[:, a, b] = (rates * over[:, None] / spare).sum(axis=0)
    return late


def _stops(
    setting: Setting, before: int, after: int, moved: tuple[int, ...], partitions: int
) -> Floats:
    """How long each partition stands still, on average over the phases of heartbeats."""
    stop = np.zeros(partitions)
    told = setting.heartbeat_seconds  # the last of k members is told after k/(k+1) of it
    apart = 0.0 if setting.told_together else told  # and until then those told first stand still
    staying = min(before, after)
    if setting.handover is Handover.DIRECT:
        stop[list(moved)] = setting.rebalance_seconds
    elif setting.handover is Handover.COOPERATIVE:
        stop[list(moved)] = setting.rebalance_seconds + told * staying / (staying + 1)
    else:
        stop[:] = setting.rebalance_seconds + apart * max(0.0, staying / (staying + 1) - 0.5)
        if after < before:
            stop[list(moved)] += told / 2
    return stop


def moved_partitions(before: Parts, after: Parts) -> tuple[int, ...]:
    """Partitions that change hands when each part goes to who has the most of it."""
    kept = {p for old, new in matched(before, after) for p in set(before[old]) & set(after[new])}
    return tuple(sorted({p for part in after for p in part} - kept))


def matched(before: Parts, after: Parts) -> list[tuple[int, int]]:
    """Pairs (index before, index after), those with the most partitions in common first; each
    index is used once."""
    common = sorted(
        (-len(set(old) & set(new)), i, j)
        for i, old in enumerate(before)
        for j, new in enumerate(after)
    )
    pairs: list[tuple[int, int]] = []
    for _, i, j in common:
        if all(i != a and j != b for a, b in pairs):
            pairs.append((i, j))
    return pairs
