"""The fewest publishers that relieve a broker of enough, each with a place elsewhere.

Heaviest first, each to a target that holds it. That can take more moves than needed where the
heaviest do not fit together (of 4, 3 and 3 to a room of 6 the two light ones do what 4 alone does
not), so a search looks for fewer; it is exact as long as it ends within MOST_NODES steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from distributor.migration.settings import MOST_NODES

_SLACK = 1e-9
"""of a rate: sums of floats"""


@dataclass(frozen=True, slots=True)
class Candidate:
    """rate: messages/s; ranks: target -> how much it is wanted there, 0 most; no others are
    allowed"""

    rate: float
    ranks: Mapping[str, float]


def fewest(
    candidates: Sequence[Candidate], rooms: Mapping[str, float], need: float
) -> dict[int, str] | None:
    """Number of the candidate -> its target. None: no choice of them has rates of `need` in all and
    fits into `rooms` (messages/s by target); or none was found in time. Between candidates of
    one rate the earlier one goes."""
    if need <= 0:
        return {}
    order = sorted(range(len(candidates)), key=lambda at: -candidates[at].rate)
    sums = list(accumulate((candidates[at].rate for at in order), initial=0.0))
    at_least = next((count for count, sum_ in enumerate(sums) if _reaches(sum_, need)), None)
    if at_least is None:
        return None
    heaviest = _heaviest(candidates, order, rooms, need)
    most = len(order) if heaviest is None else len(heaviest) - 1
    search = _Search(candidates, order, sums)
    for count in range(at_least, most + 1):
        found = search.of(count, rooms, need)
        if found is not None:
            return found
        if search.nodes > MOST_NODES:
            break
    return heaviest


def _reaches(rates: float, need: float) -> bool:
    return rates >= need * (1 - _SLACK)


def _fits(rate: float, room: float) -> bool:
    return rate <= room * (1 + _SLACK)


def _targets(candidate: Candidate, rooms: Mapping[str, float]) -> list[str]:
    """The targets that hold the candidate: the most wanted first, then the fullest."""
    return sorted(
        (name for name in candidate.ranks if _fits(candidate.rate, rooms[name])),
        key=lambda name: (candidate.ranks[name], rooms[name], name),
    )


def _heaviest(
    candidates: Sequence[Candidate], order: Sequence[int], rooms: Mapping[str, float], need: float
) -> dict[int, str] | None:
    left, gone, found = dict(rooms), 0.0, {}
    for at in order:
        targets = _targets(candidates[at], left)
        if targets:
            found[at] = targets[0]
            left[targets[0]] -= candidates[at].rate
            gone += candidates[at].rate
            if _reaches(gone, need):
                return found
    return None


class _Search:
    """Depth first, heaviest first. nodes: steps so far"""

    def __init__(
        self, candidates: Sequence[Candidate], order: Sequence[int], sums: Sequence[float]
    ) -> None:
        self._candidates = candidates
        self._order = order
        self._sums = sums
        self.nodes = 0

    def of(self, count: int, rooms: Mapping[str, float], need: float) -> dict[int, str] | None:
        """A choice of `count` candidates, each with its target; None where none was found."""
        return self._from(0, count, rooms, need)

    def _from(
        self, first: int, count: int, rooms: Mapping[str, float], need: float
    ) -> dict[int, str] | None:
        if need <= 0:
            return {}
        last = len(self._order) - count
        for place in range(first, last + 1):
            self.nodes += 1
            if not count or self.nodes > MOST_NODES:
                return None
            if not _reaches(self._sums[place + count] - self._sums[place], need):
                return None  # nor will lighter ones do
            candidate = self._candidates[self._order[place]]
            left = 0.0 if _reaches(candidate.rate, need) else need - candidate.rate
            for name in _targets(candidate, rooms):
                others = {**rooms, name: rooms[name] - candidate.rate}
                found = self._from(place + 1, count - 1, others, left)
                if found is not None:
                    return {self._order[place]: name} | found
        return None
