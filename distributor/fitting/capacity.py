"""What rounds have taught about brokers: the late share to expect of a load, to start near it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import exp, isfinite, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TERMS = 4  # 1, ln rate, ln burst, ln connections
_PRIOR = 0.1
"""Weight, in rounds, of the belief that no feature matters: enough to keep the equations regular"""
_FEWEST_ROUNDS = 3
"""With fewer rounds nothing is predicted: a slope needs rounds on both sides."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a broker bears in a round.

    rate:        messages/s of all topics
    burst:       messages of the topic that arrive together, as the mean message sees it
    connections: publishers of the topic
    """

    rate: float
    burst: float
    connections: int

    def __post_init__(self) -> None:
        if not (self.rate > 0 and self.burst > 0 and self.connections > 0):
            raise ValueError(f"a load must be more than nothing (got {self})")

    @property
    def features(self) -> NDArray[np.float64]:
        return np.array([1.0, log(self.rate), log(self.burst), log(self.connections)])


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """What one broker's rounds add up to: their number, and the sums that a least-squares fit
    needs."""

    rounds: int
    squares: NDArray[np.float64]
    products: NDArray[np.float64]

    def plus(self, other: "_Sums") -> "_Sums":
        return _Sums(
            self.rounds + other.rounds,
            self.squares + other.squares,
            self.products + other.products,
        )


_NOTHING = _Sums(0, np.zeros((_TERMS, _TERMS)), np.zeros(_TERMS))


@dataclass(frozen=True, slots=True)
class CapacityModel:
    """A value: `learnt` gives the next one. Least squares of the late share's log odds on the
    logarithms of rate, burst and connections, for each broker; a broker without rounds of its own
    is taken to be like all others together. It says where to start, and through whom publishers may
    send that are outside a trial; it decides no verdict."""

    _sums: Mapping[str, _Sums] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        return sum(each.rounds for each in self._sums.values())

    def learnt(self, broker: str, load: Load, late: float, messages: float) -> "CapacityModel":
        """The model with one more round. late, messages: counts; without messages nothing is
        learnt."""
        if messages <= 0:
            return self
        odds = log((late + 0.5) / (messages - late + 0.5))
        row = load.features
        one = _Sums(1, np.outer(row, row), row * odds)
        return CapacityModel({**self._sums, broker: self._sums.get(broker, _NOTHING).plus(one)})

    def without(self, broker: str) -> "CapacityModel":
        """The model without a broker that is gone: another may get its name."""
        return CapacityModel({name: sums for name, sums in self._sums.items() if name != broker})

    def late_share(self, broker: str, load: Load) -> float | None:
        """Expected share of late messages, 0 to 1; None where too little is known."""
        sums = self._sums.get(broker, _NOTHING)
        if sums.rounds < _FEWEST_ROUNDS:
            sums = _together(self._sums.values())
        if sums.rounds < _FEWEST_ROUNDS:
            return None
        slopes = np.linalg.solve(sums.squares + _PRIOR * np.eye(_TERMS), sums.products)
        odds = min(max(float(slopes @ load.features), -700.0), 700.0)  # exp() overflows past it
        return 1 / (1 + exp(-odds))

    def document(self) -> dict[str, Any]:
        """The model as JSON, for a store."""
        return {
            name: {
                "rounds": sums.rounds,
                "squares": sums.squares.tolist(),
                "products": sums.products.tolist(),
            }
            for name, sums in sorted(self._sums.items())
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "CapacityModel":
        """What `document` wrote. Raises ValueError that names the broker."""
        found = {}
        for name, each in document.items():
            try:
                sums = _Sums(
                    int(each["rounds"]),
                    np.array(each["squares"], dtype=np.float64).reshape(_TERMS, _TERMS),
                    np.array(each["products"], dtype=np.float64).reshape(_TERMS),
                )
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    f"capacity model, broker {name}: {error!r}; remove this broker to learn anew"
                ) from None
            if not (sums.rounds >= 0 and isfinite(sums.squares.sum() + sums.products.sum())):
                raise ValueError(
                    f"capacity model, broker {name}: figures are not finite; remove this broker "
                    "to learn anew"
                )
            found[name] = sums
        return cls(found)


def _together(sums: Iterable[_Sums]) -> _Sums:
    total = _NOTHING
    for each in sums:
        total = total.plus(each)
    return total
