"""What an ideal fair server gives, and how even shares are. Pure."""

from collections import Counter
from collections.abc import Sequence
from heapq import heappop, heappush
from math import fsum, inf


def ideal_waits(times: Sequence[float], publishers: Sequence[str], rate: float) -> list[float]:
    """Seconds that each message waits for its token where publishers share `rate` evenly as a
    fluid at every instant (GPS: Parekh and Gallager, 1993), and a message has its token once its
    own part of the fluid has come, less the 1 / rate that a token takes by itself. times: of
    arrival, in order, seconds."""
    served = 0.0  # messages of each publisher that has had something waiting all the time
    now = 0.0
    finishes = dict[str, float]()  # of the last message of each publisher, as `served`
    waiting = Counter[str]()
    coming: list[tuple[float, int]] = []  # (finish, message)
    waits = [0.0] * len(times)
    at = 0
    while at < len(times) or coming:
        share = rate / len(waiting) if waiting else inf
        leaves = now + (coming[0][0] - served) / share if coming else inf
        if at < len(times) and times[at] <= leaves:
            publisher = publishers[at]
            if waiting:
                served += (times[at] - now) * share
            now = times[at]
            finishes[publisher] = max(served, finishes.get(publisher, 0.0)) + 1
            waiting[publisher] += 1
            heappush(coming, (finishes[publisher], at))
            at += 1
            continue
        served, message = heappop(coming)
        now = leaves
        waits[message] = now - 1 / rate - times[message]
        publisher = publishers[message]
        waiting[publisher] -= 1
        if not waiting[publisher]:
            del waiting[publisher]
    return waits


def jain(parts: Sequence[float]) -> float:
    """Jain's index: 1 where all parts are equal, 1/n where one has all."""
    squares = fsum(part * part for part in parts)
    return fsum(parts) ** 2 / (len(parts) * squares) if squares else 0.0
