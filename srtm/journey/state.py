"""The splits in force and the last decisions, in one JSON file that outlives a restart."""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from srtm.host.files import json_of, locked, read_file, write_whole
from srtm.journey.causes import Leg
from srtm.journey.numbers import number
from srtm.journey.resplit import Standing
from srtm.limits.slo import SLO
from srtm.text.errors import UnavailableError, UsageError

log = logging.getLogger("srtm.journey")

_MOST_BYTES = 8 << 20
_MOST_DECISIONS = 50
"""of a journey"""
_MOST_NUMBER = 1 << 36
"""of seconds since 1970, in 2,000 years"""


@dataclass(frozen=True, slots=True)
class SplitDecision:
    """at: seconds of the wall clock; why: a plan was made; decision: what came of it; slos: of the
    plan, by leg"""

    at: float
    why: str
    decision: str
    slos: Mapping[str, str]


class State:
    """standing: by journey; decisions: the last ones of each, oldest first; fault: why the file is
    older than these, "" where it is not"""

    def __init__(self, path: Path) -> None:
        """Raises UsageError where nothing can be kept there, or what is kept may not be read. What
        makes no sense counts as nothing."""
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise UsageError(
                f"{path.parent}: cannot be written; set state-folder of [journeys] to a folder "
                "that can"
            )
        self._path = path
        self.standing: dict[str, Standing] = {}
        self.decisions: dict[str, list[SplitDecision]] = {}
        self.fault = ""
        self._read()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Raises UnavailableError where another process keeps its splits in this file, UsageError
        where nothing can be kept there."""
        with ExitStack() as held:
            try:
                held.enter_context(locked(self._path.with_name(f".{self._path.name}.lock")))
            except BlockingIOError:
                raise UnavailableError(
                    f"{self._path}: another srtm journey run keeps its splits there: end it first"
                ) from None
            except OSError as error:
                raise UsageError(f"{self._path}: {error.strerror}") from None
            yield

    def decide(self, journey: str, standing: Standing | None, decision: SplitDecision) -> None:
        """Keep the split that is in force from now on, and what was decided."""
        if standing is not None:
            self.standing[journey] = standing
        self.decisions.setdefault(journey, []).append(decision)
        del self.decisions[journey][:-_MOST_DECISIONS]
        document = {
            name: {
                "standing": _written(self.standing.get(name)),
                "decisions": [asdict(each) for each in decisions],
            }
            for name, decisions in self.decisions.items()
        }
        try:
            write_whole(self._path, json.dumps({"journeys": document}).encode())
            self.fault = ""
        except OSError as error:
            self.fault = f"{self._path}: the split is not kept: {error.strerror}"
            log.warning("%s", self.fault)

    def _read(self) -> None:
        try:
            found = json_of(read_file(self._path, _MOST_BYTES))
            for name, kept in found["journeys"].items():
                standing = kept["standing"]
                decisions = [_decision(each) for each in kept["decisions"]]
                if standing is not None:
                    self.standing[name] = _standing(standing)
                self.decisions[name] = decisions
        except FileNotFoundError:
            return
        except OSError as error:
            raise UsageError(f"{self._path}: {error.strerror}: make it readable") from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            log.warning("%s: cannot be read (%s); it begins anew", self._path, error)
            self.standing, self.decisions = {}, {}


def _written(standing: Standing | None) -> dict[str, Any] | None:
    if standing is None:
        return None
    return {
        "whole": str(standing.whole),
        "slos": {leg: str(slo) for leg, slo in standing.slos.items()},
        "consumers": standing.consumers,
        "since": standing.since,
        "places": standing.places,
        "broke": standing.broke and (str(standing.broke[0]), standing.broke[1]),
    }


def _standing(document: Any) -> Standing:
    """Raises ValueError, TypeError, KeyError or AttributeError."""
    slos = {Leg(leg): SLO.parse(slo) for leg, slo in document["slos"].items()}
    if Leg.CONSUMER in slos and slos[Leg.CONSUMER].window_seconds is None:
        raise ValueError("an SLO of consumers without a window")
    places = {Leg(leg): tuple(map(str, place)) for leg, place in document["places"].items()}
    if places.keys() != slos.keys():
        raise ValueError("an SLO of a leg that is nowhere")
    consumers, since = (
        number(document["consumers"], 0, _MOST_NUMBER),
        number(document["since"], 0, _MOST_NUMBER),
    )
    broke = document.get("broke")
    if broke is not None:
        slo, at = broke
        broke = SLO.parse(slo), number(at, 0, _MOST_NUMBER)
    return Standing(SLO.parse(document["whole"]), slos, consumers, since, places, broke)


def _decision(document: Any) -> SplitDecision:
    """Raises ValueError, TypeError, KeyError or AttributeError."""
    slos = {str(leg): str(slo) for leg, slo in document["slos"].items()}
    why, decision = str(document["why"]), str(document["decision"])
    return SplitDecision(number(document["at"], 0, _MOST_NUMBER), why, decision, slos)
