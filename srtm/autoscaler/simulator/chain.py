"""A chain of simulated groups: what one group has served arrives at the next."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from srtm.autoscaler.simulator.arrivals import Arrivals, check_shares
from srtm.autoscaler.simulator.run import Run


@dataclass(frozen=True, slots=True)
class Feed:
    """The events that a run hands on. source: for each of them, in the order in which the next run
    has them, its place in the run before."""

    arrivals: Arrivals
    source: NDArray[np.int64]


def feed(run: Run, shares: Sequence[float], seed: int) -> Feed:
    """Every event that `run` served arrives at the next group as its service ends, in a partition
    that is drawn by `shares`, whichever it was in before: as a key of its own would choose it. The
    arrivals last as long as the run did, or until the last of them.

    Raises ValueError for shares that are no split of one.
    """
    check_shares(shares)
    served = np.flatnonzero(np.isfinite(run.latency))
    ends = (run.arrived + run.latency)[served]
    order = ends.argsort(kind="stable")
    served, ends = served[order], ends[order]
    chances = np.asarray(shares, dtype=np.float64)
    drawn = np.random.default_rng(seed).choice(len(shares), len(ends), p=chances / chances.sum())
    places = [np.flatnonzero(drawn == partition) for partition in range(len(shares))]
    seconds = max(run.seconds, int(ends[-1]) + 1 if len(ends) else 0)
    # A run has events of one moment in the order of their partitions.
    merged = np.concatenate(places)
    source = served[merged[ends[merged].argsort(kind="stable")]]
    return Feed(Arrivals(tuple(ends[place] for place in places), seconds), source)


def end_to_end(first: Run, others: Sequence[tuple[Feed, Run]]) -> NDArray[np.float64]:
    """Seconds from an event's first arrival until the last group has served it, shape (events of
    `first`,); inf where a group never did. others: each with what fed it"""
    latency = first.latency.copy()
    place = np.arange(len(latency))
    for fed, run in others:
        place = place[fed.source]
        latency[place] += run.latency
    return latency
