"""What a pool's controller knows again after a restart: one JSON file, whole or not at all."""

import json
import logging
import os
from pathlib import Path
from typing import Any

from srtm.consumer.wire import Note
from srtm.host.files import json_of, read_file, write_whole
from srtm.text.errors import UsageError

log = logging.getLogger("srtm.autoscale")

_MOST_BYTES = 8 << 20


def state_path(file: Path, folder: str) -> Path:
    return file.parent / folder / f"{file.stem}.state.json"


class PoolState:
    """decisions: by the number that the diary gives them; startup: seconds, as learnt; mu: of one
    consumer, messages/s, as learnt last."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError where nothing can be kept there. What cannot be read counts as
        nothing."""
        self.path = path
        self.decisions: dict[str, dict[str, Any]] = {}
        self.startup: float | None = None
        self.mu: float | None = None
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise UsageError(
                f"{path.parent}: cannot be written; set state-folder of [controller] to a folder "
                "that can"
            )
        found = read_state(path)
        self.decisions = found.get("decisions", {})
        self.startup = _positive(found.get("startup"))
        self.mu = _positive(found.get("mu"))

    def notes(self) -> list[Note]:
        """Oldest first."""
        found = [Note(name=name, document=each) for name, each in self.decisions.items()]
        return sorted(found, key=lambda note: _number(note.document))

    def write(self, note: Note) -> None:
        self.decisions[note.name] = dict(note.document)
        self.save()

    def save(self) -> None:
        document = {"decisions": self.decisions, "startup": self.startup, "mu": self.mu}
        try:
            write_whole(self.path, json.dumps(document).encode())
        except OSError as error:
            log.warning("%s: not kept: %s", self.path, error.strerror)


def read_state(path: Path) -> dict[str, Any]:
    """{} where there is none, or none that makes sense."""
    try:
        found = json_of(read_file(path, _MOST_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        log.warning("%s: cannot be read (%s); it begins anew", path, error)
        return {}
    decisions = found.get("decisions") if isinstance(found, dict) else None
    if not isinstance(decisions, dict) or not all(map(_is_decision, decisions.values())):
        log.warning("%s: not what a controller keeps; it begins anew", path)
        return {}
    return found  # type: ignore[no-any-return]


def _is_decision(value: object) -> bool:
    return isinstance(value, dict) and type(value.get("number", 0)) is int


def _positive(value: object) -> float | None:
    usual = isinstance(value, int | float) and 0 < value < 1e9
    return float(value) if usual else None  # type: ignore[arg-type]


def _number(document: dict[str, Any]) -> int:
    number = document.get("number")
    return number if isinstance(number, int) else 0
