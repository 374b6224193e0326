"""What every policy is: from a window to another split, or to none."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tb_adaptor.share import Part
from tb_adaptor.window import Seen

NEGLIGIBLE = 0.05
"""A rescale that changes no part by more of it than this is not made."""
RATE_FLOOR = 0.05
"""of an even part: what an idle broker keeps of r, so that it can start again"""


EARLIEST_SECONDS = 0.2
"""between two decisions of a policy that acts early"""


@dataclass(frozen=True)
class Rescale:
    """Another split. reasons: sentences that a person can read"""

    split: dict[str, Part]
    reasons: tuple[str, ...]


class Policy(Protocol):
    """acts_early: it is asked with each report of a broker where messages wait, not only once in
    the period"""

    acts_early: bool

    def rescale(self, contract: Part, seen: Mapping[str, Seen], now: float) -> Rescale | None:
        """The split to change to; None: the split stays as it is."""


def is_negligible(before: Mapping[str, Seen], after: Mapping[str, Part]) -> bool:
    """Would only noise move?"""
    return all(
        abs(after[name].rate - seen.part.rate) <= NEGLIGIBLE * seen.part.rate
        and abs(after[name].burst - seen.part.burst) <= NEGLIGIBLE * seen.part.burst
        for name, seen in before.items()
    )
