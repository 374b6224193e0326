"""Warnings of decisions: each is logged when it begins, and shown for as long as it lasts. Pure."""

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

log = logging.getLogger("srtm.autoscale")

_LASTS_SECONDS = 60.0
"""A rate about a limit is over it every other second: that is one warning."""
_FIGURE = re.compile(r"[0-9.e+-]+(?=/s| s)")
"""What is measured changes by the second, and the warning is the same."""


@dataclass(slots=True)
class Warned:
    """now: what was warned of within the last minute"""

    _seen: dict[str, tuple[str, float]] = field(default_factory=dict)

    @property
    def now(self) -> tuple[str, ...]:
        return tuple(note for note, _ in self._seen.values())

    def tell(self, notes: Iterable[str], at: float) -> None:
        """notes: of the decision at `at`, seconds"""
        seen = {kind: each for kind, each in self._seen.items() if at - each[1] <= _LASTS_SECONDS}
        for note in notes:
            kind = _FIGURE.sub("", note)
            if kind not in seen:
                log.warning("%s", note)
            seen[kind] = note, at
        self._seen = seen
