"""Rows that cannot be taken, counted by reason with an example of each."""

from dataclasses import dataclass

_EXAMPLE = 40
"""characters of a value that is shown"""


@dataclass(slots=True)
class Reason:
    rows: int = 0
    example: str | None = None


class Odd:
    """In the order in which reasons were first met."""

    def __init__(self) -> None:
        self.reasons: dict[str, Reason] = {}

    def count(self, why: str, rows: int = 1, example: object = None) -> None:
        """example: the value of one of them, None: it has none"""
        if not rows:
            return
        found = self.reasons.setdefault(why, Reason())
        found.rows += rows
        if found.example is None and example is not None:
            shown = repr(example)
            found.example = shown if len(shown) <= _EXAMPLE else f"{shown[:_EXAMPLE]}..."

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.reasons.values())

    def lines(self) -> list[str]:
        return [
            f"{found.rows:,} row{'s' * (found.rows > 1)} left out: {why}"
            + (f", such as {found.example}" if found.example is not None else "")
            for why, found in self.reasons.items()
        ]
