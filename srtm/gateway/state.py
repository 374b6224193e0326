"""What a gateway keeps over its own restart: limits set at run time, and token levels.

A contract that the file does not know is new, and its bucket starts full. One that it knows starts
with the level that a clean stop wrote, or empty: after a crash nobody can say what was spent.
"""

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from srtm.contract import Contract, Limit
from srtm.errors import UsageError, one_line


@dataclass
class Kept:
    """One topic of the file; `tokens` is None after an unclean stop; `own` is False for a topic
    that had the default limit, or only a share; `leased` is the share that a Load Distributor gave
    it, which `limit` waits behind."""

    limit: Limit
    tokens: float | None
    own: bool = True
    leased: Limit | None = None


@dataclass
class State:
    """The file's content, or an empty one where there is none."""

    path: Path | None
    topics: dict[str, Kept] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str) -> "State":
        """Raises UsageError where the file exists and is not ours."""
        if not path:
            return cls(None)
        file = Path(path)
        try:
            document = json.loads(file.read_text())
            clean = bool(document["clean"])
            topics = {}
            for name, kept in document["topics"].items():
                contract = Contract.model_validate({**kept["limit"], "topic": name})
                tokens = float(kept["tokens"])
                if not math.isfinite(tokens):
                    raise ValueError("no number of tokens")
                own = bool(kept.get("own", True))
                share = kept.get("leased")
                leased = share and Contract.model_validate({**share, "topic": name}).limit()
                topics[name] = Kept(contract.limit(), tokens if clean else None, own, leased)
        except FileNotFoundError:
            return cls(file)
        except OSError as error:
            raise UsageError(f"--state-file {path}: {error.strerror}") from None
        except ValidationError as error:
            raise one_line(error, f"--state-file {path}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise UsageError(
                f"--state-file {path}: not a gateway's state; remove it to start afresh"
            ) from None
        return cls(file, topics)

    def first_tokens(self, name: str) -> float | None:
        """Tokens that a contract of the start begins with; None: full. Without a state file
        nobody knows whether this is a restart, so it begins empty."""
        if self.path is None:
            return 0.0
        return self.kept_tokens(name)

    def kept_tokens(self, name: str) -> float | None:
        """Tokens that a topic begins with which comes up later; None: full, it is new."""
        kept = self.topics.get(name)
        if kept is None:
            return None
        return 0.0 if kept.tokens is None else kept.tokens

    def write(self, topics: dict[str, Kept], clean: bool) -> None:
        """Replace the file at once, or leave the old one."""
        if self.path is None:
            return
        document = {
            "clean": clean,
            "topics": {
                name: {
                    "limit": kept.limit.document(),
                    "tokens": kept.tokens,
                    "own": kept.own,
                    "leased": kept.leased and kept.leased.document(),
                }
                for name, kept in topics.items()
            },
        }
        partial = self.path.with_name(self.path.name + ".partial")
        with partial.open("w") as file:
            json.dump(document, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path)
