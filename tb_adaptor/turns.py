"""Whose turn it is to have a topic's whole contract. Pure: time is passed in.

A batch that is bigger than its broker's share of b can go nowhere else, and must not go under a
debt of that broker alone: the others hold the rest of b, and the sum would exceed the contract. So
one broker after the other gets all of (r, b) while the others hold nothing. Likewise where messages
come to a broker without a share, and b has no room for one more:

    a broker owes        --> its turn: the whole contract pays, as one bucket would
    a batch waits, and can be served --> its broker
    a turn               -- nothing waits there, or its time is up --> the next that waits
    a turn               -- no batch waits anywhere --> nobody

A debt can show after the turn in which it was made: the answer that ended that turn was on its way.
Its broker has another turn then, of which the time is up: it pays, and may owe no more.

A broker that owes may be forgotten, or come back as a process that does not know of it. Nobody can
pay that in a turn of its own, so nobody has a share for as long as the whole contract takes to pay
it, as one bucket would; nor before a process that comes back has told what it knows.

Messages of one broker never wait for a batch elsewhere for longer than the turns of the brokers
before it.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass, field
from math import inf

TURN_SECONDS = 1.0
"""A turn that others wait for, beside the time in which b fills twice, from when its broker has
what it waited for: to hand the contract over takes about 0.2 s, so four fifths of it are used."""


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
NOBODY = ""
"""whose turn it is while that is paid which nobody knows to owe"""


@dataclass(slots=True)
class Turns:
    """waiting: brokers at which something waits, or that owe; broker: whose turn it is; None:
    everyone has a share; is_up: others wait, so that a broker which owes may only pay; began_at:
    seconds; inf: its broker has not yet what it waits for; before: what brokers owed by the last
    report of a process that has ended, until the next one tells what it knows of that; unpaid:
    tokens that nobody who is there knows to owe"""

    waiting: dict[str, Waiting] = field(default_factory=dict)
    broker: str | None = None
    is_up: bool = False
    began_at: float = 0.0
    before: dict[str, float] = field(default_factory=dict)
    unpaid: float = 0.0

    def restarted(self, broker: str, burst: float) -> None:
        """The broker is another process than the one that reported last. burst: the contract's b"""
        debt = self._left_by(broker, burst)
        if debt > 0:
            self.before[broker] = debt

    def forget_others(self, brokers: Container[str], burst: float) -> None:
        """Drop the brokers that are none of `brokers`: they are forgotten, or have another name."""
        for name in {*self.waiting, *self.before}:
            if name not in brokers:
                self.unpaid += self._left_by(name, burst)

    def _left_by(self, broker: str, burst: float) -> float:
        """What it owes at most: a batch that waited may have gone since its last report."""
        waiting = self.waiting.pop(broker, NONE)
        return max(waiting.debt, waiting.batch - burst, self.before.pop(broker, 0.0))

    def report(self, broker: str, waiting: Waiting) -> None:
        self.unpaid += max(0.0, self.before.pop(broker, 0.0) - waiting.debt)
        if waiting == NONE:
            self.waiting.pop(broker, None)
        else:
            self.waiting[broker] = waiting

    def begin(self, now: float) -> None:
        """Its broker has what it waits for, and has told so; or nobody has a share any more."""
        self.began_at = min(self.began_at, now)

    def decide(
        self,
        is_there: Callable[[str], bool],
        needs: Callable[[str, int], bool],
        can: Callable[[str, int], bool],
        longest: float,
        rate: float,
        now: float,
    ) -> None:
        """is_there: is that broker in contact? Else it has no turn. needs, can: of so many messages
        together at that broker: do they go in a turn only, and do they go in one? longest: seconds
        of a turn that others wait for; rate: at which is paid what nobody knows to owe"""
        there = {name: each for name, each in sorted(self.waiting.items()) if is_there(name)}
        waits = [n for n, each in there.items() if each.messages and can(n, max(1, each.batch))]
        owing = [name for name, each in there.items() if each.debt > 0]
        if owing and self.broker not in owing:
            self.broker, self.began_at = owing[0], -inf
        self.is_up = now >= self.began_at + longest and any(name != self.broker for name in waits)
        if owing:
            return
        if self.broker == NOBODY:
            self._pay(rate, now)
        if self.unpaid or any(is_there(name) for name in self.before):
            if self.broker != NOBODY:
                self.broker, self.began_at, self.is_up = NOBODY, inf, False
            return
        wanting = [name for name in waits if needs(name, max(1, there[name].batch))]
        if wanting and self.broker in waits and not self.is_up:
            return
        self.broker = self._next(wanting, waits) if wanting else None
        self.began_at, self.is_up = inf, False

    def _pay(self, rate: float, now: float) -> None:
        if self.began_at < now:
            self.unpaid = max(0.0, self.unpaid - rate * (now - self.began_at))
            self.began_at = now

    def _next(self, wanting: list[str], waits: list[str]) -> str:
        """The first turn is for a batch; the next ones go round all who wait."""
        if self.broker is None:
            return wanting[0]
        return next((name for name in waits if name > (self.broker or "")), waits[0])
