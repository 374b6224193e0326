"""How fast an experiment may run here: the product's capacity search on one broker says it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.experiments.scale import PAPER_SLO, Scale, scale_of
from benchmarks.experiments.world import Door
from benchmarks.harness.session import Session
from distributor.capacity.rounds import Rounds, searched, settings_for
from distributor.capacity.search import Search, least_rate
from distributor.simulator.service import Service, fit
from srtm.limits.slo import SLO
from srtm.text.errors import SrtmError

LADDER = (1 / 10, 1 / 20, 1 / 50, 1 / 100, 1 / 200)
QUICK_LADDER, FULL_LADDER = (1 / 50, 1 / 100), (1.0,)
"""Scales that are tried, the fastest first."""
_PART = 0.5
"""The part of the target within which one broker has to carry all that an experiment sends, as the
others share its host; what is over is left to token waits."""
_ROUND_SECONDS = 2.0
_PUBLISHERS = 50
_MOST = 100_000  # messages/s: a generator sends no more


@dataclass(frozen=True, slots=True)
class Calibration:
    """scale: of the experiment; held: messages/s of one broker within the SLO, by batch; base: its
    p99 at the lowest rate, seconds; at_least: batches of which more may be held; doubt: why nothing
    that is measured here decides a bar."""

    scale: Scale
    held: dict[int, float]
    base: float
    at_least: tuple[int, ...]
    doubt: str = ""

    def document(self) -> dict[str, Any]:
        service = self.scale.service
        return {
            "scale": self.scale.rate,
            "slo": str(self.scale.slo),
            "held_per_second": {str(batch): rate for batch, rate in self.held.items()},
            "at_least": self.at_least,
            "doubt": self.doubt,
            "base_seconds": service.base,
            "event_seconds": service.event,
            "message_seconds": service.message,
        }

    @property
    def words(self) -> str:
        rate = self.scale.rate
        said = f"rates are {rate:g} of SRTM's and times 1/{rate:g}: the SLO is {self.scale.slo}"
        if self.doubt:
            return f"{said}. {self.doubt}"
        held = ", ".join(
            f"{'at least ' if batch in self.at_least else ''}{each:,.0f}/s in batches of {batch}"
            for batch, each in self.held.items()
        )
        return (
            f"{said}. One broker alone holds {held} within it, p99 {self.base * 1e3:.3g} ms at the "
            "lowest rate"
        )


def calibrated(
    session: Session, door: Door, offered: float, ladder: Sequence[float]
) -> Calibration:
    """The fastest scale of the ladder at which one broker carries all of `offered`, messages/s at
    SRTM's scale, within half of the target. In a quick run the search ends there; else it goes on
    until it knows what a broker holds of single messages and of batches. Where none is held the
    last of the ladder is taken, with a doubt. Raises SrtmError without time."""
    for rate in ladder:
        slo = SLO(PAPER_SLO.percentile, PAPER_SLO.target_seconds / rate)
        half = replace(slo, target_seconds=_PART * slo.target_seconds)
        asked = round(offered * rate)
        seconds = max(_ROUND_SECONDS, 10 / (slo.allowed_late_share * asked))
        if session.seconds_left < 3 * seconds:
            raise SrtmError("no time is left to look for the scale that this machine holds")
        session.step(f"does a broker carry {asked:,}/s within {half}?")
        found, base = _searched(door, half, seconds, 1, asked, asked)
        if not found[0] and rate != ladder[-1]:
            continue
        doubt = ""
        if not found[0]:
            doubt = (
                f"one broker did not carry {asked:,}/s within {half} when nothing else came: "
                "the machine is too busy"
            )
        held, open_ended = {1: float(asked)}, [1]
        if not session.quick and not doubt:
            open_ended = []
            for batch in (1, 10):
                session.step(f"what a broker holds within {slo}, batches of {batch}")
                least = max(least_rate(slo.allowed_late_share, _ROUND_SECONDS), asked)
                (most, is_bound), lowest = _searched(door, slo, _ROUND_SECONDS, batch, least, _MOST)
                if most:
                    held[batch], base = float(most), min(base, lowest)
                if is_bound:
                    open_ended.append(batch)
        service = (
            Service(min(base, slo.target_seconds), 0.0, 1e-6)
            if session.quick or doubt
            else fit(held, slo, min(base, _PART * slo.target_seconds))
        )
        return Calibration(scale_of(rate, service), held, base, tuple(open_ended), doubt)
    raise AssertionError("the last of the ladder is always taken")


def _searched(
    door: Door, slo: SLO, seconds: float, batch: int, least: int, most: int
) -> tuple[tuple[int, bool], float]:
    """(messages/s, is it a lower bound), and the least p99 seen, in seconds."""
    settings = settings_for(door.tcp, seconds, _PUBLISHERS, batch=batch)
    search = Search(least, least, most)
    with Rounds(settings, door.http, slo) as rounds:
        found, done = searched(search, lambda rate: rounds.measure(rate, None))
    seen = [each.latency for each in done if each.latency is not None]
    return (found.rate, found.at_least), min(seen, default=float("inf"))
