"""The splits in force and the last decisions, in one JSON file that outlives a restart."""

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from srtm.host.files import json_of, read_file, write_whole
from srtm.journey.causes import Leg
from srtm.journey.resplit import Standing
from srtm.limits.slo import SLO
from srtm.text.errors import UsageError

log = logging.getLogger("srtm.journey")

_MOST_BYTES = 8 << 20
_MOST_DECISIONS = 50
"""of a journey"""


class State:
    """standing: by journey; decisions: the last ones of each, oldest first"""

    def __init__(self, path: Path) -> None:
        """Raises UsageError where nothing can be kept there. What cannot be read counts as
        nothing."""
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise UsageError(
                f"{path.parent}: cannot be written; set state-folder of [journeys] to a folder "
                "that can"
            )
        self._path = path
        self.standing: dict[str, Standing] = {}
        self.decisions: dict[str, list[dict[str, Any]]] = {}
        self._read()

    def decide(self, journey: str, standing: Standing | None, decision: Mapping[str, Any]) -> None:
        """Keep the split that is in force from now on, and what was decided."""
        if standing is not None:
            self.standing[journey] = standing
        self.decisions.setdefault(journey, []).append(dict(decision))
        del self.decisions[journey][:-_MOST_DECISIONS]
        document = {
            name: {"standing": _written(self.standing.get(name)), "decisions": decisions}
            for name, decisions in self.decisions.items()
        }
        try:
            write_whole(self._path, json.dumps({"journeys": document}).encode())
        except OSError as error:
            log.warning("%s: not kept: %s", self._path, error.strerror)

    def _read(self) -> None:
        try:
            found = json_of(read_file(self._path, _MOST_BYTES))
            for name, kept in found["journeys"].items():
                standing = kept["standing"]
                decisions = [dict(each) for each in kept["decisions"]]
                if standing is not None:
                    self.standing[name] = _standing(standing)
                self.decisions[name] = decisions
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            log.warning("%s: cannot be read (%s); it begins anew", self._path, error)
            self.standing, self.decisions = {}, {}


def _written(standing: Standing | None) -> dict[str, Any] | None:
    if standing is None:
        return None
    return {
        "slos": {leg: str(slo) for leg, slo in standing.slos.items()},
        "consumers": standing.consumers,
        "since": standing.since,
    }


def _standing(document: Any) -> Standing:
    """Raises ValueError, TypeError, KeyError or AttributeError."""
    slos = {Leg(leg): SLO.parse(slo) for leg, slo in document["slos"].items()}
    return Standing(slos, float(document["consumers"]), float(document["since"]))
