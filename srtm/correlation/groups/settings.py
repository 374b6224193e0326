"""What counts as a coincidence, and how sure a group has to be."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """windows_us: |difference of two arrivals| that may be one coincidence; all are tried, and p is
                multiplied by their number. The widest covers two jitters of 16 ms
    floor:      share of the instants of either publisher, beyond chance, that have to coincide: a
                member may send as much of its own as its bursts (then a half of them coincide)
    rate:       false discovery rate of the pairs (Benjamini-Hochberg, over all possible pairs)
    least:      instants of a publisher, and coincidences of a pair, below which it is not judged
    spread_us:  standard deviation of lags, at most: two even jitters of 16 ms have 6.5 ms, chance
                within the widest window has 18.5 ms
    steady:     share of equal steps above which coincidences keep a beat
    errors:     standard errors within which lag and travel of a periodic pair have to be 0
    delay_us:   by which one member of a periodic group may always be later than another
    """

    windows_us: tuple[int, ...] = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000)
    floor: float = 0.3
    rate: float = 0.01
    least: int = 4
    spread_us: float = 11_000
    steady: float = 0.5
    errors: float = 3.0
    delay_us: int = 500

    @property
    def widest_us(self) -> int:
        return self.windows_us[-1]
