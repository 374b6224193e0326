"""What one number of brokers showed: token waits by message, pooled over rounds, with intervals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from benchmarks.harness.trial import percentile_ms
from srtm.limits.contract import Limit
from srtm.limits.queueing import Floats, mean_token_wait, mean_token_wait_eq1

JOINT_CONFIDENCE = 0.95
"""The confidence of all numbers of brokers together (Bonferroni): one wrong verdict in twenty
runs."""
_FEWEST_BATCHES = 20
_WIDEST = 0.5
"""Half-width over mean. A wider interval, fewer batches, or one of them without any wait: too few
separate spells of waiting to tell (simulated: of such intervals up to a third miss)."""
_RESAMPLES = 10_000
PERCENTILES = ("p50", "p95", "p99")


@dataclass(frozen=True)
class Split:
    """One load on k brokers. Times and waits in seconds, one for each message by arrival.

    offered:     messages/s that each broker is sent
    share:       the contract of each
    unsplit:     waits of the same arrivals in one bucket
    scheduled_mean: what the exact buckets give for the intended times, after the warm-up
    sketch_mean: the gateways' own figure, warm-up included
    read_late:   share of reads that met the bucket after one with a later stamp
    load:        the generator's document
    """

    offered: tuple[float, ...]
    share: Limit
    arrivals: Floats
    measured: Floats
    exact: Floats
    unsplit: Floats
    warmup: float
    scheduled_mean: float
    sketch_mean: float
    read_late: float
    load: dict[str, Any]

    @property
    def brokers(self) -> int:
        return len(self.offered)

    def over_brokers(self, form: Callable[[float, float, float], float]) -> float:
        """The mean over the messages of what it gives for (rate, r, b) of each broker."""
        each = [form(rate, self.share.rate, self.share.burst) for rate in self.offered]
        return float(np.average(each, weights=self.offered))

    @property
    def send_lag_p99_ms(self) -> float:
        return percentile_ms(self.load["send_lag"], "p99")

    def mean(self, waits: Floats) -> float:
        """The mean of `waits` over the messages after the warm-up, in seconds."""
        return float(np.mean(waits[self.arrivals >= self.warmup]))

    @property
    def deviation(self) -> float:
        """The relative deviation of the measured mean from that of the exact bucket."""
        exact, measured = self.mean(self.exact), self.mean(self.measured)
        return abs(measured - exact) / exact if exact else float(measured > 0)

    @property
    def sketch_off(self) -> float:
        """The gateways' own mean (to 1 % for each message) over the record's, less 1."""
        recorded = float(np.mean(self.measured))
        return self.sketch_mean / recorded - 1 if recorded else float(self.sketch_mean > 0)

    def document(self) -> dict[str, Any]:
        return {
            "brokers": self.brokers,
            "offered_per_second": self.offered,
            "share": self.share.document(),
            "messages": self.arrivals.size,
            "waiting_share": float(np.mean(self.measured > 0)),
            "mean_token_wait": {
                "measured": self.mean(self.measured),
                "exact_bucket": self.mean(self.exact),
                "unsplit_bucket": self.mean(self.unsplit),
                "scheduled": self.scheduled_mean,
                "gateways_sketch": self.sketch_mean,
            },
            "token_wait_p99": float(np.quantile(self.measured, 0.99)),
            "deviation": self.deviation,
            "sketch_off": self.sketch_off,
            "read_late": self.read_late,
            "largest_difference": float(np.max(np.abs(self.measured - self.exact))),
            "load": self.load,
        }


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval of a mean wait, in seconds, from batch means."""

    mean: float
    low: float
    high: float
    batches: int
    empty_batches: int

    @property
    def doubt(self) -> str:
        if self.batches < _FEWEST_BATCHES:
            return f"{self.batches} batches, and {_FEWEST_BATCHES} are needed"
        if self.empty_batches:
            return f"{self.empty_batches} of {self.batches} batches have no wait"
        half = (self.high - self.low) / 2
        return f"the interval is +-{half / self.mean:.0%}" if half > _WIDEST * self.mean else ""

    def distance(self, value: float) -> float:
        """How far `value` is from the mean; 1 at either end of the interval."""
        width = self.high - self.mean if value > self.mean else self.mean - self.low
        return abs(value - self.mean) / width if width > 0 else float(value != self.mean)


@dataclass(frozen=True, slots=True)
class Pooled:
    """All rounds on one number of brokers. Closed forms in seconds, at nominal rates."""

    runs: tuple[Split, ...]
    interval: Interval
    eq1: float
    closed: float

    @property
    def brokers(self) -> int:
        return self.runs[0].brokers

    @property
    def distance(self) -> float:
        """How far the exact closed form is from the measured mean; 1 at either end of the
        interval."""
        return self.interval.distance(self.closed)

    @property
    def doubt(self) -> str:
        """Why this run cannot tell whether the closed form holds."""
        if self.interval.doubt:
            return self.interval.doubt
        moved = abs(self.mean_ms(lambda run: run.exact) - self.scheduled_ms)
        if moved > (self.interval.high - self.interval.low) / 2 * 1e3:
            return f"the generator's lateness moved the mean by {moved:.3g} ms: not Poisson"
        return ""

    @property
    def scheduled_ms(self) -> float:
        return float(np.mean([run.scheduled_mean for run in self.runs])) * 1e3

    def end_to_end_ms(self, name: str) -> float:
        return median(percentile_ms(run.load["end_to_end_latency"], name) for run in self.runs)

    def mean_ms(self, of: Callable[[Split], Floats]) -> float:
        """Over all rounds' messages after the warm-up."""
        sizes = [int(np.sum(run.arrivals >= run.warmup)) for run in self.runs]
        return float(np.average([run.mean(of(run)) for run in self.runs], weights=sizes)) * 1e3

    def document(self) -> dict[str, Any]:
        return {
            "brokers": self.brokers,
            "end_to_end_ms": {name: self.end_to_end_ms(name) for name in PERCENTILES},
            "mean_token_wait_ms": {
                "measured": self.mean_ms(lambda run: run.measured),
                "exact_bucket": self.mean_ms(lambda run: run.exact),
                "unsplit_bucket": self.mean_ms(lambda run: run.unsplit),
                "scheduled": self.scheduled_ms,
                "gateways_sketch": median(run.sketch_mean for run in self.runs) * 1e3,
                "eq1": self.eq1 * 1e3,
                "closed_form": self.closed * 1e3,
                "interval": [self.interval.low * 1e3, self.interval.high * 1e3],
            },
            "interval_batches": self.interval.batches,
            "joint_confidence": JOINT_CONFIDENCE,
            "doubt": self.doubt,
        }


def pool(splits: Sequence[Split], batches: int) -> list[Pooled]:
    """The rounds of each number of brokers together."""
    numbers = sorted({split.brokers for split in splits})
    confidence = 1 - (1 - JOINT_CONFIDENCE) / max(len(numbers), 1)
    pooled = []
    for brokers in numbers:
        runs = tuple(split for split in splits if split.brokers == brokers)
        means = [mean for run in runs for mean in batch_means(run, batches)]
        eq1 = runs[0].over_brokers(mean_token_wait_eq1)
        closed = runs[0].over_brokers(mean_token_wait)
        pooled.append(Pooled(runs, interval(means, confidence), eq1, closed))
    return pooled


def batch_means(run: Split, batches: int) -> list[float]:
    """Mean measured wait in each of `batches` equal stretches of time after the warm-up."""
    kept = run.arrivals >= run.warmup
    arrivals, waits = run.arrivals[kept], run.measured[kept]
    edges = np.linspace(run.warmup, arrivals[-1], batches + 1)[1:-1]
    return [float(np.mean(part)) for part in np.split(waits, np.searchsorted(arrivals, edges))]


def interval(means: Sequence[float], confidence: float) -> Interval:
    """Around the mean of batch means, by the bootstrap-t.

    Waits come in rare spells, so batch means are skewed: a sample without a long spell has a low
    mean and a small spread, and Student's interval then misses three to six times too often
    (simulated at load 0.909, b = 13, 30 batches; this one: 1 to 2 % at a nominal 0.8 %).
    """
    values = np.array(means)
    rng = np.random.default_rng(1)
    drawn = values[rng.integers(0, values.size, (_RESAMPLES, values.size))]
    errors = drawn.std(axis=1, ddof=1)
    used = errors > 0
    mean, error = float(values.mean()), float(values.std(ddof=1))
    scores = (drawn[used].mean(axis=1) - mean) / errors[used]
    low, high = 0.0, 0.0
    if error:
        low, high = np.quantile(scores, [(1 - confidence) / 2, (1 + confidence) / 2]).tolist()
    return Interval(
        mean,
        mean - high * error,
        mean - low * error,
        values.size,
        int(np.count_nonzero(values == 0)),
    )
