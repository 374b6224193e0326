"""What a path of the search asks for: a trial to measure, or that it is over."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from distributor.fitting.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Trial:
    """assignment: publisher id -> broker name, of those who take part; the others wait
    judged:     names of the brokers that a verdict is asked of
    reasons:    sentences for people
    """

    assignment: Mapping[str, str]
    judged: frozenset[str]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class End:
    """assignment: what holds; None where the path has found nothing that does"""

    assignment: Mapping[str, str] | None
    reasons: tuple[str, ...]


class Path(Protocol):
    """impatient: a round ends with the first broker that is surely violated, not with the last
    verdict."""

    @property
    def impatient(self) -> bool: ...

    def first(self) -> Trial | End:
        """Where it begins."""

    def after(self, verdicts: Mapping[str, Verdict]) -> Trial | End:
        """verdicts: by name of the brokers judged; those of an impatient path that were cut off are
        not there."""
