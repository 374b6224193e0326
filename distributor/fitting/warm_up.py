"""Which samples of a round count: not those that remember the split of before."""

from dataclasses import dataclass

from srtm.limits.contract import Contract

LONGEST_SECONDS = 30.0
"""The longest warm-up; a bucket that remembers for longer is emptied first."""

SHORTEST_SECONDS = 8.0
"""The shortest time of samples in favour of a broker. Late messages that come in stretches of a
second can be away for three or four; a wrong yes lasts, while a wrong no costs a broker."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """seconds, from when everybody has moved.

    memory:       b / (r - λ): how long a bucket remembers the level that it started with
    empty_first:  the round starts with empty buckets
    holds_from:   samples from here on may show that a broker holds its share
    holds_after:  and there are enough of them from here on
    violated_from: samples from here on may show that it does not, whatever made messages late;
                  what a broker is late with beside its bucket counts from the start
    """

    memory: float
    empty_first: bool
    holds_from: float
    holds_after: float
    violated_from: float


def warm_up(contract: Contract, offered: float) -> WarmUp:
    """offered: λ, messages/s of the whole topic; the sub-buckets (r λ_l / λ, b λ_l / λ) all have
    the memory of the contract. Raises ValueError unless λ < r.

    A bucket that starts with the level it had after another split says nothing until it has been
    able to fill up. What follows is measured for as long again: token waits come in clusters that
    are apart by that much. Where this takes too long, the bucket starts empty: then it is late too
    often at first and never too seldom, so that samples in favour of the broker count at once.
    """
    if not offered < contract.rate:
        raise ValueError(
            f"offered rate {offered:g} must be under r = {contract.rate:g}: waits grow without end"
        )
    memory = contract.burst / (contract.rate - offered)
    if memory > LONGEST_SECONDS:
        return WarmUp(memory, True, 0.0, SHORTEST_SECONDS, memory)
    return WarmUp(memory, False, memory, memory + max(memory, SHORTEST_SECONDS), memory)
