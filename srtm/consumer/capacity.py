"""What a consumer can serve at full batches, as it measures itself. Pure.

A cycle over n records takes a + b n seconds: a is what each batch costs (commit, sink), b what each
record does. Small batches, which is what a consumer with room to spare has, say little of what it
would do when pressed; a line through all of them does: n / (a + b n) at a full batch.
"""

from dataclasses import dataclass

_FADE = 0.98
"""of older cycles, with each new one: the last fifty count"""
_ENOUGH = 5.0
"""cycles before anything is said"""


@dataclass(slots=True)
class SelfMeasure:
    """full: records of a full batch"""

    full: int
    _n: float = 0.0
    _x: float = 0.0
    _y: float = 0.0
    _xx: float = 0.0
    _xy: float = 0.0

    def see(self, records: int, seconds: float) -> None:
        """A cycle from the batch in hand to its commit, without the wait for records."""
        for name, value in (
            ("_n", 1.0),
            ("_x", records),
            ("_y", seconds),
            ("_xx", records * records),
            ("_xy", records * seconds),
        ):
            setattr(self, name, _FADE * getattr(self, name) + value)

    @property
    def mu(self) -> float:
        """Events/s; 0 while too little is known."""
        if self._n < _ENOUGH or self._x <= 0 or self._y <= 0:
            return 0.0
        mean_x, mean_y = self._x / self._n, self._y / self._n
        spread = self._xx / self._n - mean_x**2
        each = (self._xy / self._n - mean_x * mean_y) / spread if spread > 1e-9 * mean_x**2 else 0.0
        if each <= 0 or mean_y - each * mean_x < 0:  # no line: the mean of what was done
            return self._x / self._y
        # No further out than a few times what was seen: a line says less and less there.
        n = min(float(self.full), 4 * (mean_x + spread**0.5))
        return float(n / (mean_y - each * mean_x + each * n))
