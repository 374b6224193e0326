"""The token waits that a report tells the Load Distributor: what has been added since the last."""

from dataclasses import dataclass
from typing import Any

from srtm.gateway.topic import Topic
from srtm.host.clock import monotonic_ns
from srtm.limits.bins import Bins

MOST_COUNTED = 5_000
"""runs that wait for tokens; more of them are not counted one by one"""


@dataclass(frozen=True, slots=True)
class Waits:
    """The token waits of one topic since start: messages by bin of their wait, and the sum in
    seconds."""

    bins: Bins
    seconds: float


def waits_of(topic: Topic) -> Waits:
    """The topic's token waits as of now."""
    return Waits(*topic.meter.token_wait.counted(monotonic_ns()))


def added(known: Waits | None, now: Waits, topic: Topic, clock: int) -> dict[str, Any] | None:
    """What was added since `known`, and who waits and what the bucket holds now; None without
    `known`, or where the topic came anew. clock: monotonic milliseconds, of now"""
    if known is None or now.seconds < known.seconds:
        return None
    bins = [(key, count - known.bins[key]) for key, count in now.bins.items()]
    if any(count < 0 for _, count in bins) or known.bins.keys() - now.bins.keys():
        return None
    return {
        "clock": clock,
        "seconds": now.seconds - known.seconds,
        "bins": [(key, count) for key, count in bins if count],
        "held": topic.waiting if len(topic.held) < MOST_COUNTED else None,
        "tokens": 0.0 if topic.bucket is None else max(0.0, topic.bucket.level(monotonic_ns())),
    }
