"""What consumers serve while they have something in hand. Pure.

By the utilization law, what one can serve is what it does serve over the share of time in which it
has work. A batch that waits to be full counts as work, so this is too little where there is little
to do, never too much: a bound from below, for an estimate that was made while something was wrong.
"""

from dataclasses import dataclass

_FADE = 0.98
"""of older looks, with each new one: the last fifty count"""
_ENOUGH = 10.0
"""looks that found work, before anything is said"""


@dataclass(slots=True)
class Busy:
    """mu: messages/s of one consumer; None while too little is known"""

    _served: float = 0.0
    _seconds: float = 0.0
    _looks: float = 0.0
    _last: tuple[float, int] | None = None

    @property
    def mu(self) -> float | None:
        return self._served / self._seconds if self._looks >= _ENOUGH and self._served else None

    def see(self, at: float, finished: int, busy: int) -> None:
        """finished: FINs of all connections; busy: how many of those have messages in hand"""
        last, self._last = self._last, (at, finished)
        if last is None or finished < last[1]:  # somebody has connected anew
            return
        self._served = _FADE * self._served + finished - last[1]
        self._seconds = _FADE * self._seconds + busy * (at - last[0])
        self._looks = _FADE * self._looks + bool(busy)
