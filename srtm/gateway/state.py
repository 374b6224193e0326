"""The state that a gateway keeps over a restart: limits set at run time, and token levels.

A topic that the file knows starts with the level that a clean stop wrote. After a crash nobody can
say what was spent, nor whether a topic that the file does not know had its burst: all start empty,
or with the largest debt that a batch bigger than the bucket may have left. With the first file, and
after a clean stop, a topic that it does not know is new and starts full.
"""

import json
import math
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from srtm.gateway.lease import Known, Unplaced
from srtm.host.atomic import replacing
from srtm.host.files import json_in
from srtm.limits.contract import Contract, Limit
from srtm.text.errors import UsageError, one_line


@dataclass
class Kept:
    """One topic of the file; `tokens` is not above 0 after an unclean stop; `own` is False for a
    topic that had the default limit, or only a share; `leased` is the share that a Load Distributor
    gave it, which `limit` waits behind. A topic without a limit is here for what it owes."""

    limit: Limit | None
    tokens: float
    own: bool = True
    leased: Limit | None = None


@dataclass
class SavedState:
    """The file's content, or an empty one where there is none.

    complete: a topic that is not in it was never limited here
    instance: this gateway's id at the Load Distributor; the same as long as the file is there
    known:    what the distributor told
    """

    path: Path | None
    topics: dict[str, Kept] = field(default_factory=dict)
    complete: bool = True
    instance: str = field(default_factory=lambda: secrets.token_hex(8))
    known: Known = field(default_factory=Known)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _number: int = 0
    _written: int = 0

    @classmethod
    def read(cls, path: str) -> "SavedState":
        """Raises UsageError where the file exists and is not ours."""
        if not path:
            return cls(None, complete=False, instance="")
        file = Path(path)
        try:
            document = json_in(file)
            clean = bool(document["clean"])
            topics = {}
            for name, kept in document["topics"].items():
                limit = kept["limit"] and _limit(kept["limit"], name)
                tokens = float(kept["tokens"])
                if not math.isfinite(tokens):
                    raise ValueError("no number of tokens")
                if not clean:
                    tokens = min(tokens, 0.0)
                own = bool(kept.get("own", True))
                share = kept.get("leased")
                topics[name] = Kept(limit, tokens, own, share and _limit(share, name))
            state = cls(file, topics, clean)
            state.instance = str(document.get("instance") or state.instance)
            if "distributor" in document:
                state.known = _known(document["distributor"])
            return state
        except FileNotFoundError:
            return cls(file)
        except OSError as error:
            raise UsageError(f"--state-file {path}: {error.strerror}") from None
        except ValidationError as error:
            raise one_line(error, f"--state-file {path}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            raise UsageError(
                f"--state-file {path}: not a gateway's state; remove it to start afresh"
            ) from None

    def require_writable(self) -> None:
        """Check at the start that the file can be written: later nobody could be told. Raises
        UsageError."""
        if self.path is None:
            return
        try:
            self._partial.open("a").close()
        except OSError as error:
            raise UsageError(
                f"--state-file {self.path}: {self._partial} cannot be written: {error.strerror}; "
                "name a file in a folder that this user may write to"
            ) from None

    @property
    def _partial(self) -> Path:
        assert self.path is not None
        return self.path.with_name(self.path.name + ".partial")

    def first_tokens(self, name: str) -> float | None:
        """Tokens that a topic has at the start of the gateway; None: full, it is new. Without a
        state file nobody knows whether this is a restart, so it has none."""
        kept = self.topics.get(name)
        if kept is None:
            return None if self.complete else 0.0
        return kept.tokens

    def later_tokens(self, name: str) -> float | None:
        """The tokens of a topic that nsqd did not have at the start; None: full, it is new. Without
        a state file it is new."""
        return None if self.path is None else self.first_tokens(name)

    def write(self, topics: dict[str, Kept], clean: bool) -> None:
        """Replace the file at once, or leave the old one. Raises OSError."""
        self.writer(topics, clean)()

    def writer(self, topics: dict[str, Kept], clean: bool) -> Callable[[], None]:
        """Does the same from any thread, with what is known now; nothing where something newer has
        been written meanwhile."""
        if self.path is None:
            return _nothing
        document = self._document(topics, clean)
        self._number += 1
        return partial(self._replace, self._number, document)

    def _document(self, topics: dict[str, Kept], clean: bool) -> dict[str, Any]:
        return {
            "clean": clean,
            "instance": self.instance,
            "distributor": {
                "store": self.known.store,
                "newest": self.known.newest,
                "proof": self.known.proof,
                "contracts": dict(self.known.contracts),
                "names": sorted(self.known.names),
                "names_version": self.known.names_version,
                "unplaced": self.known.unplaced,
                "suspended": sorted(self.known.suspended),
            },
            "topics": {
                name: {
                    "limit": kept.limit and kept.limit.document(),
                    "tokens": kept.tokens,
                    "own": kept.own,
                    "leased": kept.leased and kept.leased.document(),
                }
                for name, kept in topics.items()
            },
        }

    def _replace(self, number: int, document: dict[str, Any]) -> None:
        assert self.path is not None
        with self._lock:
            if number < self._written:
                return
            with replacing(self.path, self._partial) as file:
                file.write(json.dumps(document).encode())  # an indented one takes ten times as long
            self._written = number


def _nothing() -> None:
    """Write nothing: there is no file."""


def _limit(document: dict[str, Any], topic: str) -> Limit:
    """Raises ValidationError."""
    return Contract.model_validate({**document, "topic": topic}).limit()


def _known(document: dict[str, Any]) -> Known:
    """Raises KeyError, TypeError or ValueError for something else."""
    contracts = {str(k): (float(r), float(b)) for k, (r, b) in document["contracts"].items()}
    return Known(
        str(document["store"]),
        int(document["newest"]),
        str(document["proof"]),
        contracts,
        frozenset(map(str, document["names"])),
        str(document["names_version"]),
        Unplaced(document["unplaced"]),
        frozenset(map(str, document.get("suspended", ()))),
    )
