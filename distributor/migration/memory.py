"""What was moved and who was in trouble, so that nobody goes to and fro. Time is passed in."""

from dataclasses import dataclass

from distributor.migration.settings import (
    COOL_DOWN_SECONDS,
    MOST_MOVES,
    MOVE_EVERY_SECONDS,
    RECOVERED_SECONDS,
    RETURN_SECONDS,
)


@dataclass(frozen=True, slots=True)
class _Gone:
    """from_: the broker that it left"""

    at: float
    from_: str


@dataclass(slots=True)
class _Ill:
    """A broker in trouble. holds: what it was found to hold, messages/s"""

    at: float
    holds: float


class Memory:
    """What was moved and who was in trouble, over all topics and brokers; bounded, as moves are.
    now: where earlier moves are still to be learnt, no later than the first of them."""

    def __init__(self, now: float) -> None:
        self._gone: dict[tuple[str, str], list[_Gone]] = {}
        self._ill: dict[str, _Ill] = {}
        self._budget = float(MOST_MOVES)
        self._budget_at = now

    # --- what has happened --------------------------------------------------------------------

    def moved(self, topic: str, publisher: str, from_: str, at: float) -> None:
        """Note that a publisher was moved; called in order of time."""
        self._refill(at)
        self._budget = max(0.0, self._budget - 1)
        self._gone.setdefault((topic, publisher), []).append(_Gone(at, from_))

    def in_trouble(self, broker: str, holds: float, now: float) -> None:
        self._ill[broker] = _Ill(now, holds)

    def forget_old(self, now: float) -> None:
        for who, gone in list(self._gone.items()):
            kept = [each for each in gone if now < each.at + RETURN_SECONDS]
            if kept:
                self._gone[who] = kept
            else:
                del self._gone[who]
        old = [name for name, ill in self._ill.items() if now >= ill.at + RETURN_SECONDS]
        for name in old:
            del self._ill[name]

    # --- what is allowed ----------------------------------------------------------------------

    def moves_left(self, now: float) -> int:
        self._refill(now)
        return int(self._budget)

    def _refill(self, now: float) -> None:
        since = max(0.0, now - self._budget_at)
        self._budget = min(MOST_MOVES, self._budget + since / MOVE_EVERY_SECONDS)
        self._budget_at = max(now, self._budget_at)

    def rests(self, topic: str, publisher: str, now: float) -> float:
        """Seconds until it may be moved again; 0: it may."""
        gone = self._gone.get((topic, publisher))
        return max(0.0, gone[-1].at + COOL_DOWN_SECONDS - now) if gone else 0.0

    def may_go(self, topic: str, publisher: str, broker: str, now: float) -> bool:
        """Back to a broker that it left it goes only once that has been well for long."""
        left = [each.at for each in self._gone.get((topic, publisher), ()) if each.from_ == broker]
        if not left:
            return True
        ill = self._ill.get(broker)
        last = max(left) if ill is None else max(*left, ill.at)
        return now >= last + RETURN_SECONDS

    def recovers(self, broker: str, now: float) -> float:
        """Seconds until somebody may be moved there; 0: at once."""
        ill = self._ill.get(broker)
        return max(0.0, ill.at + RECOVERED_SECONDS - now) if ill else 0.0

    def holds(self, broker: str, capacity: float) -> float:
        """Its capacity, or less where it was late with less."""
        ill = self._ill.get(broker)
        return capacity if ill is None else min(capacity, ill.holds)
