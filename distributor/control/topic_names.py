"""The names of all topics that have a contract: gateways let none of them pass unlimited."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Names:
    """version: the same for the same names, whoever leads."""

    all: tuple[str, ...]
    version: str

    @classmethod
    def of(cls, names: Iterable[str]) -> "Names":
        found = tuple(sorted(names))
        return cls(found, hashlib.sha256("\n".join(found).encode()).hexdigest()[:16])
