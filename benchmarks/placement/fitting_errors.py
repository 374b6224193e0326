"""How often the sequential test errs on clustered late messages of a known share."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from statistics import median

import numpy as np

from benchmarks.placement.fitting_model import (
    BATCH,
    SLOT_SECONDS,
    TARGET,
    Workload,
    lates,
    topic,
    workload,
)
from distributor.fitting.batches import Floats
from distributor.fitting.round import SHORTEST_SECONDS
from distributor.fitting.samples import Slots
from distributor.fitting.settings import LOOK_PART, LOOK_SECONDS
from distributor.fitting.spread import spread
from distributor.fitting.verdict import LONGEST_SECONDS, Answer, by_test

SHARES = (0.005, 0.015)
"""Half of the allowed 1 %, to be accepted, and one and a half, to be rejected."""
DISPERSIONS = (30.0, 50.0, 70.0)
"""Variance over mean of what `made` draws."""
RATES = (1_667.0, 10_000.0)  # messages/s of a broker: one of six, and one alone
_RUNS, _QUICK_RUNS = 400, 50
_TRACES, _QUICK_TRACES = 8, 1  # of 3,000 s, for errors on modelled arrivals
_SPLITS = ((5, 1), (10, 2), (20, 4), (30, 6))  # (group size, brokers) whose errors are modelled
_SEED = 2_000
_ON, _ON_SECONDS = 0.3, 1.0  # of the harsher kind: clusters come in stretches of this length


@dataclass(frozen=True, slots=True)
class Errors:
    """kind: whose late messages; wrong, undecided: parts of `runs`; undecided ones were judged by
    the estimate after LONGEST_SECONDS and are in `wrong` where that is wrong. dispersion: variance
    over mean of the counts of seconds."""

    kind: str
    late_share: float
    dispersion: float
    runs: int
    wrong: float
    undecided: float
    median_seconds: float


def errors(
    kind: str, late_share: float, runs: list[tuple[Floats, Floats]], together: float = 1.0
) -> Errors:
    """runs: counts of messages and of late ones, by slots of SLOT_SECONDS."""
    wrong = undecided = 0
    seconds = []
    spreads = []
    right = Answer.HOLDS if late_share < TARGET.allowed_late_share else Answer.VIOLATED
    for messages, late in runs:
        answer, after, sure = _answer(messages, late, together)
        wrong += answer is not right
        undecided += not sure
        seconds.append(after)
        spreads.append(_by_second(late))
    counts = np.concatenate(spreads)
    return Errors(
        kind,
        late_share,
        float(counts.var() / counts.mean()),
        len(runs),
        wrong / len(runs),
        undecided / len(runs),
        median(seconds),
    )


def _by_second(late: Floats) -> Floats:
    width = round(1 / SLOT_SECONDS)
    used = len(late) // width * width
    summed: Floats = late[:used].reshape(-1, width).sum(axis=1)
    return summed


def _answer(messages: Floats, late: Floats, together: float) -> tuple[Answer, float, bool]:
    """(answer, after how many seconds, is it sure), asked as the fitting asks: of one broker alone
    and after its warm-up."""
    nothing = Slots(messages[:0], late[:0], late[:0], late[:0])
    now = 0.0
    while True:
        now += max(LOOK_SECONDS, LOOK_PART * now)
        count = int(now / SLOT_SECONDS)
        found = Slots(messages[:count], late[:count], late[:count] * 0, late[:count])
        over = now >= LONGEST_SECONDS
        favourable = found if now >= SHORTEST_SECONDS else None
        allowed = TARGET.allowed_late_share
        verdict = by_test(nothing, found, favourable, allowed, together, 1, over)
        if verdict.answer is not Answer.UNSURE:
            return verdict.answer, now, not over


_SLOTS = int(1.1 * (LONGEST_SECONDS + 1) / SLOT_SECONDS)


def made(
    random: np.random.Generator, rate: float, share: float, dispersion: float, stretches: bool
) -> tuple[Floats, Floats]:
    """Poisson clusters of geometric size; in stretches, clusters are dense for a second and away
    for two: variance over mean grows with the time looked at, up to several times `dispersion`."""
    messages = np.full(_SLOTS, rate * SLOT_SECONDS)
    mean_size = (dispersion + 1) / 2  # variance over mean of a geometric sum is 2 x mean - 1
    density = np.ones(_SLOTS)
    if stretches:
        state, on = random.random() < _ON, np.zeros(_SLOTS)
        for at in range(_SLOTS):
            on[at] = state
            length = _ON_SECONDS if state else _ON_SECONDS * (1 - _ON) / _ON
            state = bool(state) != (random.random() < SLOT_SECONDS / length)
        density = on / _ON
    clusters = random.poisson(share * messages / mean_size * density)
    sizes = random.geometric(1 / mean_size, int(clusters.sum()))
    owner = np.repeat(np.arange(_SLOTS), clusters)
    late = np.bincount(owner, sizes, minlength=_SLOTS).astype(np.float64)
    return messages, np.minimum(late, messages)


def modelled(load: Workload, count: int, share: float) -> Iterator[tuple[Floats, Floats]]:
    """Stretches of one broker of `count` in an even split, with the latency target moved so that
    over the whole trace the late share is `share`."""
    placement = spread(topic(load), count)
    mine = placement.brokers[0]
    messages = load.members(placement.assignment)[mine.name][load.groups] * BATCH
    there = messages > 0
    times, messages = load.times[there], messages[there]
    low, high = 0.0006, 1.0
    for _ in range(30):
        target = (low * high) ** 0.5
        if lates(times, messages, mine.r, mine.b, target=target).late_share > share:
            low = target
        else:
            high = target
    found = lates(times, messages, mine.r, mine.b, target=high)
    slot = (times / SLOT_SECONDS).astype(np.int64)
    counts = np.bincount(slot, messages).astype(np.float64)
    late = np.bincount(slot, found.late, minlength=len(counts)).astype(np.float64)
    for first in range(0, len(counts) - _SLOTS, _SLOTS):
        yield counts[first : first + _SLOTS], late[first : first + _SLOTS]


def every_error(quick: bool) -> tuple[list[Errors], list[Errors]]:
    """The errors of the sequential test: of what is claimed, and of late messages in stretches."""
    count, traces = (_QUICK_RUNS, _QUICK_TRACES) if quick else (_RUNS, _TRACES)
    judged, harsher = [], []
    for share in SHARES:
        for rate, dispersion, stretches in product(RATES, DISPERSIONS, (False, True)):
            if quick and stretches:
                continue
            random = np.random.default_rng(_SEED)
            found = [made(random, rate, share, dispersion, stretches) for _ in range(count)]
            kind = f"clusters, {rate:,.0f}/s, {dispersion:g}"
            if stretches:
                harsher.append(errors(f"{kind}, in stretches", share, found))
            else:
                judged.append(errors(kind, share, found))
        for size, brokers in _SPLITS:
            loads = (workload(size, "poisson", _SEED + trace) for trace in range(traces))
            found = [each for load in loads for each in modelled(load, brokers, share)]
            kind = f"groups of {size} on 1 of {brokers} brokers"
            judged.append(errors(kind, share, found, BATCH * size / brokers))
    return judged, harsher
