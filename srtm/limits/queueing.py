"""How long messages wait for tokens: Poisson arrivals in theory, any arrivals exactly.

A bucket (rate r, burst b) is a queue that serves one message in 1/r seconds and starts idle, only
that a message waits for what is ahead of it beyond b - 1 messages (SRTM appendix A, Eq. 2):

    wait = max(0, U + 1 - b) / r,   U = unfinished work, in messages, that the message finds

Times are seconds, rates messages/s, bursts messages (real numbers, at least 1: a bucket that
cannot hold one token admits nothing).
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.integer[Any]]

_LEVELS = 128
"""Queue lengths computed one by one; from here on the tail is its exponential asymptote to double
precision: the next pole is 8 times further out at load 1, 2.4 times at load 0.1."""
_TERMS = 64
"""Terms of a Poisson series of mean <= 1: what is left is under 1e-89."""
_MAX_LOAD = 1 - 1e-9  # past it 1 - load, and so every result, has lost too many digits
_SLACK = 1e-9  # messages; a smaller lack of tokens is rounding (1e-10 after 1e6 messages), no wait


def unfinished_work_exceeds(rho: float, x: ArrayLike) -> Floats:
    """P(U > x) of the stationary M/D/1 queue with load `rho` and unit service time.

    x: any shape, in service times (messages); the result has its shape. All terms are positive, so
    that no digits are lost at large x or rho, unlike the alternating series of COST 242 (Roberts,
    Mocci, Virtamo) section 15.1 that SRTM section 2.1 cites: with k = floor(x) + 1,
    P(U > x) = sum over j of Poisson(j; rho (k - x)) P(queue length > k - j), after Franx (2001).
    Raises ValueError unless 0 <= rho < 1 and no x is NaN.
    """
    points = np.asarray(x, dtype=np.float64)
    _check_load(rho)
    if np.isnan(points).any():
        raise ValueError("x has a NaN: leave out the unknown points")
    if rho == 0:
        return np.where(points < 0, 1.0, 0.0)
    tail = _tail(rho)
    near = np.where(points < _LEVELS, np.maximum(points, 0), 0)
    k = np.floor(near).astype(np.int64) + 1
    mean = rho * (k - near)
    weight, total = np.exp(-mean), np.zeros_like(near)
    for j in range(_TERMS):
        total += weight * tail.levels[np.maximum(k - j, 0)]
        weight *= mean / (j + 1)
    far = tail.scale * np.exp(-tail.decay * np.maximum(points, _LEVELS))
    return np.where(points < 0, 1.0, np.where(points < _LEVELS, total, far))


def mean_token_wait_eq1(arrival_rate: float, rate: float, burst: float) -> float:
    """Mean token wait in seconds by SRTM Eq. (1): P(U > b - 1) / (2 r (1 - arrival_rate / r)).

    Exact for b = 1 only: it takes what a waiting message waits for to be as long as if b were 1.
    For whole b >= 2 it is 18 to 26 % too high at load 0.5, 2.7 to 3.3 % at 0.909, and never too
    low. Here to compare with the paper; judge by `mean_token_wait`. Raises ValueError as that does.
    """
    rho = _load(arrival_rate, rate, burst)
    return float(unfinished_work_exceeds(rho, burst - 1)) / (2 * rate * (1 - rho))


def mean_token_wait(arrival_rate: float, rate: float, burst: float) -> float:
    """Mean token wait in seconds of Poisson arrivals, exactly: E[(U + 1 - b)+] / r.

    Arrivals see the stationary U (PASTA), so this is the integral of P(U > x) from b - 1 on, over
    r. As P(U > x) = rho * integral of P(U > u) from x - 1 to x (Takacs), that integral is a sum:
    of P(U > b - 1 + i) / rho over i = 1, 2, ... Raises ValueError on a rate or burst out of range
    and unless arrival_rate < rate.
    """
    rho = _load(arrival_rate, rate, burst)
    if rho == 0:
        return 0.0
    steps = max(0, _LEVELS - int(burst - 1))
    points = burst - 1 + np.arange(1, steps + 1)
    tail = _tail(rho)
    rest = tail.scale * math.exp(-tail.decay * (burst - 1 + steps)) / tail.decay
    return (float(unfinished_work_exceeds(rho, points).sum()) / rho + rest) / rate


def token_wait_quantile(arrival_rate: float, rate: float, burst: float, p: float) -> float:
    """The smallest wait in seconds that a share `p` of Poisson arrivals does not exceed.

    Zero where P(wait = 0) = P(U <= b - 1) is at least p. Raises ValueError as `mean_token_wait`
    does, and unless 0 <= p < 1.
    """
    rho = _load(arrival_rate, rate, burst)
    if not 0 <= p < 1:
        raise ValueError(f"p must be at least 0 and below 1 (got {p}): write 0.99 for p99")
    late = 1 - p
    low = burst - 1
    if unfinished_work_exceeds(rho, low) <= late:
        return 0.0
    high = max(low, -math.log(late) / _tail(rho).decay)  # P(U > x) <= exp(-decay x) (Lundberg)
    while low < (middle := (low + high) / 2) < high:
        if unfinished_work_exceeds(rho, middle) > late:
            low = middle
        else:
            high = middle
    return (high - (burst - 1)) / rate


def token_waits(arrivals: Floats, rate: float, burst: float) -> Floats:
    """Exact waits in seconds of unit messages in one bucket that starts full (SRTM Eq. 2).

    arrivals: float64 seconds, shape (n,), sorted; equal times are a batch, met in the order given.
    Returns shape (n,). Times near 0 keep more digits than Unix times (1e-7 s). Raises ValueError
    on a rate or burst out of range and on arrivals that are not sorted and finite.
    """
    _check_bucket(rate, burst)
    lack = _unfinished_work(_checked(arrivals), rate) + 1 - burst
    return np.where(lack > _SLACK, lack, 0.0) / rate


def split_token_waits(
    arrivals: Floats, brokers: Integers, rates: ArrayLike, bursts: ArrayLike
) -> Floats:
    """Exact waits in seconds when message i meets sub-bucket brokers[i], each starting full.

    arrivals: as in `token_waits`, shape (n,); brokers: integers in [0, k), shape (n,); rates and
    bursts: shape (k,). Returns shape (n,), in the order of arrivals. Raises ValueError on shapes or
    brokers that do not fit and as `token_waits` does.
    """
    times, owner, shares = _checked(arrivals), np.asarray(brokers), _shares(rates, bursts)
    if owner.shape != times.shape or owner.dtype.kind not in "iu":
        raise ValueError(
            f"brokers must be integers, one for each arrival (got {owner.dtype} of shape "
            f"{owner.shape} for {times.size} arrivals): give np.array([...], dtype=int)"
        )
    if owner.size and not (owner.min() >= 0 and owner.max() < len(shares)):
        raise ValueError(
            f"brokers must lie in 0..{len(shares) - 1} (got {owner.min()}..{owner.max()}): give a "
            "rate and a burst for each"
        )
    waits = np.zeros(times.shape)
    for broker, (rate, burst) in enumerate(shares):
        mine = owner == broker
        waits[mine] = token_waits(times[mine], rate, burst)
    return waits


def drl_penalty(arrivals: Floats, brokers: Integers, rates: ArrayLike, bursts: ArrayLike) -> float:
    """The DRL penalty in seconds: mean wait in the sub-buckets minus mean wait in one bucket.

    Arguments and errors of `split_token_waits`; the one bucket has the sums of rates and bursts.
    No arrivals, no penalty.

    Never negative but for rounding (SRTM Proposition 1). Precisely: for unit messages, batches of
    them included, any assignment, any real b_l >= 1, sum r_l <= r and sum b_l <= b, at no instant
    do fewer messages wait in the sub-buckets than in the one bucket. So the delay accrued up to any
    time is no less either, nor the sum of the waits of the first m messages, nor their mean. None
    of it holds of single messages, percentiles, those that wait, or atomic batches of any size.
    """
    split = split_token_waits(arrivals, brokers, rates, bursts)
    shares = _shares(rates, bursts)
    rate, burst = math.fsum(r for r, _ in shares), math.fsum(b for _, b in shares)
    return float((split - token_waits(arrivals, rate, burst)).mean()) if split.size else 0.0


@dataclass(frozen=True)
class BurstFit:
    """A bucket fitted to a trace: what `smallest_burst` found."""

    rate: float  # messages/s
    burst: int  # messages
    late_share: float  # of the trace's messages, those that wait at all at (rate, burst)

    @property
    def proposed_burst(self) -> int:
        """Twice the paper's burst, for a contract.

        The smallest burst leaves as many messages late as the percentile allows, 1 % at 0.99: any
        traffic above the trace, and any split, then misses an SLO at that percentile.
        """
        return 2 * self.burst


def smallest_burst(arrivals: Floats, headroom: float = 1.1, percentile: float = 0.99) -> BurstFit:
    """The smallest whole burst with no token wait at `percentile` of a trace (SRTM section 6).

    arrivals: as in `token_waits`, spanning some time. The rate is headroom times the trace's mean:
    messages after the first instant over the time since. A message needs a burst of U + 1 to pass
    at once, so the answer is a quantile of that, rounded up. Raises ValueError on arrivals as
    `token_waits` does, unless headroom > 1, and unless 0 < percentile <= 1.
    """
    times = _checked(arrivals)
    if not 1 < headroom < math.inf:
        raise ValueError(
            f"headroom must be above 1 (got {headroom}): at the trace's own rate the burst would "
            "grow with its length; SRTM uses 1.1"
        )
    if not 0 < percentile <= 1:
        raise ValueError(f"percentile must be above 0 and at most 1 (got {percentile}): write 0.99")
    if not times.size or times[0] == times[-1]:
        raise ValueError(
            f"the trace must span some time (got {times.size} arrivals at one instant or none): "
            "record for longer"
        )
    rate = headroom * float(np.count_nonzero(times > times[0]) / (times[-1] - times[0]))
    needed = _unfinished_work(times, rate) + 1
    last = max(1, math.ceil(percentile * times.size - _SLACK)) - 1
    burst = max(1, math.ceil(float(np.partition(needed, last)[last]) - _SLACK))
    return BurstFit(rate, burst, float(np.mean(needed - burst > _SLACK)))


@dataclass(frozen=True, eq=False)
class _Tail:
    """P(U > n) at whole n, and where they lead: P(U > x) -> scale * exp(-decay * x)."""

    levels: Floats  # [n] = P(more than n messages in system) for n = 1.._LEVELS; [0] = 1
    scale: float
    decay: float


@lru_cache(maxsize=256)
def _tail(rho: float) -> _Tail:
    decay = -2 * math.log(rho)
    for _ in range(64):  # decay = rho (exp(decay) - 1), as a contraction by at least 1/2
        decay = -math.log(rho) - math.log(-math.expm1(-decay) / decay)
    scale = (1 - rho) / (decay - (1 - rho))  # Cramer-Lundberg
    # Messages left behind by a departure: the flow up over a level is the flow down (all positive).
    poisson = math.exp(-rho) * np.cumprod(np.append(1.0, rho / np.arange(1, 2 * _LEVELS)))
    at_least = np.cumsum(poisson[::-1])[::-1]  # [n] = P(n or more arrivals in a service)
    length = np.zeros(_LEVELS + 1)
    length[0] = 1 - rho
    for n in range(_LEVELS):
        up = length[0] * at_least[n + 1] + length[1 : n + 1] @ at_least[n + 1 : 1 : -1]
        length[n + 1] = up / poisson[0]
    beyond = scale * math.exp(-decay * _LEVELS)
    levels = np.append(length[1:], beyond)[::-1].cumsum()[::-1]
    levels[0] = 1.0
    return _Tail(levels, scale, decay)


def _unfinished_work(times: Floats, rate: float) -> Floats:
    """U just before each message, in messages: Lindley's recursion by a cumulative maximum."""
    order = np.arange(times.size)
    ahead = rate * (times - times[:1]) - order  # its maximum so far is where the busy period began
    began = np.maximum.accumulate(np.where(ahead >= np.maximum.accumulate(ahead), order, 0))
    # Counted from there, not from the first arrival: no digits go to the time in between.
    work: Floats = order - began - rate * (times - times[began])
    return np.maximum(work, 0.0)


def _checked(arrivals: Floats) -> Floats:
    times = np.asarray(arrivals, dtype=np.float64)
    if times.ndim != 1:
        raise ValueError(f"arrivals must have one dimension (got shape {times.shape}): flatten it")
    bad = ~np.isfinite(times)
    bad[1:] |= times[1:] < times[:-1]
    if bad.any():
        at = int(np.argmax(bad))
        after = f" after {times[at - 1]}" if at else ""
        raise ValueError(
            f"arrivals must be sorted and finite (got {times[at]}{after} at index {at}): "
            "sort them and leave out values that are not finite"
        )
    return times


def _shares(rates: ArrayLike, bursts: ArrayLike) -> list[tuple[float, float]]:
    """(rate, burst) of each sub-bucket, checked."""
    first, second = np.asarray(rates, dtype=np.float64), np.asarray(bursts, dtype=np.float64)
    if first.ndim != 1 or not first.size or first.shape != second.shape:
        raise ValueError(
            f"rates and bursts must be lists of one length (got shapes {first.shape} and "
            f"{second.shape}): give one of each for every sub-bucket"
        )
    shares = list(zip(first.tolist(), second.tolist(), strict=True))
    for rate, burst in shares:
        _check_bucket(rate, burst)
    return shares


def _check_bucket(rate: float, burst: float) -> None:
    if not 0 < rate < math.inf:
        raise ValueError(f"rate must be above 0 messages/s and finite (got {rate}): give it a rate")
    if not 1 <= burst < math.inf:
        raise ValueError(
            f"burst must be at least 1 message and finite (got {burst}): a smaller bucket never "
            "holds a whole token; use fewer sub-buckets or a larger burst"
        )


def _load(arrival_rate: float, rate: float, burst: float) -> float:
    _check_bucket(rate, burst)
    _check_load(arrival_rate / rate)
    return arrival_rate / rate


def _check_load(rho: float) -> None:
    if not 0 <= rho <= _MAX_LOAD:
        raise ValueError(
            f"load (arrival rate / token rate) must be at least 0 and below 1 (got {rho}): waits "
            "would grow without end; lower the arrival rate or raise the token rate"
        )
