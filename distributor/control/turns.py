"""Whose turn it is to have a topic's whole contract. Pure: time is passed in.

A batch that is bigger than its broker's share of b can go nowhere else, and must not go under a
debt of that broker alone: the others hold the rest of b, and the sum would exceed the contract. So
one broker after the other gets all of (r, b) while the others hold nothing. Likewise where messages
come to a broker without a share, and b has no room for one more:

    nobody -- a batch waits, and can be served --> its broker
    a broker -- nothing of it waits, or its time is up --> the next one with waiting messages
    a broker -- no batch waits anywhere --> nobody
    a broker in debt keeps its turn: the whole contract pays, as one bucket would

Messages of one broker never wait for a batch elsewhere for longer than the turns of the brokers
before it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

TURN_SECONDS = 1.0
"""A turn that others wait for, beside the time in which b fills twice: to hand the contract over
takes about 0.2 s, so four fifths of it are used."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits at one broker, by its last report.

    batch:    messages of the batch that is first; 0: none
    messages: all that have no token
    debt:     tokens that a batch bigger than b has left to be paid
    """

    batch: int = 0
    messages: float = 0.0
    debt: float = 0.0


NONE = Waiting()


@dataclass(slots=True)
class Turns:
    """waiting: brokers at which something waits; broker: whose turn it is; None: everyone has a
    share; began_at: seconds"""

    waiting: dict[str, Waiting] = field(default_factory=dict)
    broker: str | None = None
    began_at: float = 0.0

    def report(self, broker: str, waiting: Waiting) -> None:
        if waiting == NONE:
            self.waiting.pop(broker, None)
        else:
            self.waiting[broker] = waiting

    def decide(self, is_served: Callable[[str, int], bool], longest: float, now: float) -> None:
        """is_served: can so many messages go together at that broker in a turn, and not without?
        longest: seconds of a turn that others wait for"""
        wanting = [
            name
            for name, each in sorted(self.waiting.items())
            if each.messages and is_served(name, max(1, each.batch))
        ]
        if self.broker is not None:
            own = self.waiting.get(self.broker, NONE)
            if own.debt > 0:
                return
            is_waited_for = any(
                each.messages for name, each in self.waiting.items() if name != self.broker
            )
            is_over = is_waited_for and now >= self.began_at + longest
            if wanting and own.messages and not is_over:
                return
        self.broker = self._next(wanting) if wanting else None
        self.began_at = now

    def _next(self, wanting: list[str]) -> str:
        """The first turn is for a batch; the next ones go round all who wait."""
        if self.broker is None:
            return wanting[0]
        names = sorted(name for name, each in self.waiting.items() if each.messages)
        return next((name for name in names if name > (self.broker or "")), names[0])
