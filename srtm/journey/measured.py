"""One journey while it is measured: what is known of it, joined from what others tell."""

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from srtm.host.clock import NS, monotonic_ns
from srtm.host.offsets import Offset
from srtm.journey.ages import Ages
from srtm.journey.causes import Leg
from srtm.journey.consumers import Consumers
from srtm.journey.file import Journey
from srtm.journey.gateways import Gateways
from srtm.journey.leg_report import LegReport, Place, place_of
from srtm.journey.rates import Rates
from srtm.journey.summary import Summary, summarised
from srtm.limits.bins import Bins
from srtm.limits.rolling import RollingBudget
from srtm.limits.slo import SLO
from srtm.text.duration import format_duration

_MINUTE_SECONDS = 60.0
_SILENT_SECONDS = 60.0
"""after which a leg that tells nothing is silent; each tells every five seconds"""
_SLACK_SECONDS = 8.0
"""Rates are told so much later, and consumers tell once a second what they are done with."""
_CLOCKS_PART = 0.1
"""of the target, by which an age may be wrong"""


class Measured:
    """One journey while it is measured."""

    def __init__(self, journey: Journey) -> None:
        self.journey = journey
        self._begun = monotonic_ns()
        self.ages = Ages(round(journey.slo.target_seconds * NS))
        self.budget = RollingBudget(journey.slo)
        self._window_seconds = max(_MINUTE_SECONDS, 2 * journey.slo.target_seconds)
        minute = replace(journey.slo, window_seconds=self._window_seconds)
        self.minute = RollingBudget(minute)
        self.rates = Rates()
        self.gateways = Gateways(journey, self._arrived)
        self._summary: Summary | None = None
        self._summarised_at = 0
        self.consumers = Consumers()
        self.told: dict[Leg, tuple[LegReport, int]] = {}
        """what a leg told of itself last, and when; monotonic ns"""
        self.contract: SLO | None = None
        """of the topic, as it was read last"""
        self.legs = (Leg.BROKER, *([Leg.BRIDGE] if journey.route else []), Leg.CONSUMER)
        self.places = {leg: place_of(journey, leg) for leg in self.legs}

    def _arrived(self, document: Any, clock: Offset) -> None:
        """Raises ValueError."""
        self.ages.arrived(document, clock)
        self.rates.add(document)

    def tick(self, now: int) -> None:
        self.ages.settle(now)
        served, late = self.ages.take_late()
        for budget in (self.budget, self.minute):
            budget.add(now / NS, served, late)

    @property
    def sets(self) -> bool:
        """Do the legs get the SLOs of its split?"""
        return self.journey.split == "auto"

    def lately_told(self, leg: Leg, now: int) -> LegReport | None:
        """What a leg told of itself last; None where that was long ago."""
        told, at = self.told.get(leg, (None, 0))
        return told if now - at <= _SILENT_SECONDS * NS else None

    @property
    def fault(self) -> str:
        """Why less is known than could be; "" when all is well."""
        if self.gateways.fault:
            return self.gateways.fault
        if not self.consumers.present(monotonic_ns()):
            return (
                "no consumer tells of its messages: give [consumer] of its file journey-address, "
                "and start it"
            )
        if self._is_stuck:
            return (
                f"messages of topic {self.journey.topic} arrive, and its consumers have been done "
                f"with none for {format_duration(self._window_seconds)}: see whether they are "
                "stuck, and whether what they read from is paused"
            )
        error, target = self.ages.clock_error_ns / NS, self.journey.slo.target_seconds
        if error > _CLOCKS_PART * target:
            return (
                f"clocks of two hosts may differ by {format_duration(round(error, 6))}, too much "
                f"for a target of {format_duration(target)}: synchronise them, or shorten the way "
                "between the consumers and this service"
            )
        return ""

    @property
    def _is_stuck(self) -> bool:
        """Were consumers done with nothing since messages arrived, half a window ago or longer?"""
        idle = (monotonic_ns() - (self.ages.handled_at or self._begun)) / NS
        half = self._window_seconds / 2
        last = self.rates.last(time.time_ns() - round(half * NS))
        since = round(min(half, idle - half - _SLACK_SECONDS))
        return idle >= self._window_seconds and sum(last[-since:]) >= 1

    def summary(self, now: int) -> Summary:
        """Made once a second, however many ask."""
        if self._summary is None or now - self._summarised_at >= NS:
            self._summary = summarised(self.ages, self.legs, self.budget, self.minute, now)
            self._summarised_at = now
        return self._summary

    def document(self, now: int) -> dict[str, Any]:
        ages = self.ages
        return {
            "journey": self.journey.name,
            "topic": self.journey.topic,
            "slo": str(self.journey.slo),
            "fault": self.fault,
            "consumers": self.consumers.present(now),
            "gateways": self.gateways.faults,
            "message_count": ages.count,
            "matched_count": ages.matched,
            "unmatched_count": ages.unmatched,
            "lost_count": self.consumers.lost,
            "unknown_count": self.consumers.unknown,
            "clock_error_seconds": ages.clock_error_ns / NS,
            **_finite(self.summary(now).document()),
            "rates": self.rates.last(time.time_ns()),
            "bins": self.bins(now),
            "weights": self.weights(now),
            "told": self._told(now),
        }

    def bins(self, now: int) -> dict[Leg, Bins]:
        """The durations of each leg over the last minute."""
        return {leg: self.ages.legs[leg].recent_bins(now) for leg in self.legs}

    def weights(self, now: int) -> dict[Leg, int]:
        """Messages for which one in these stands at most."""
        return {leg: self.ages.weight(now) if leg is Leg.BROKER else 1 for leg in self.legs}

    def _told(self, now: int) -> dict[Leg, dict[str, Any]]:
        found: dict[Leg, dict[str, Any]] = {
            leg: {**told.document(), "seconds_ago": round((now - at) / NS, 1)}
            for leg, (told, at) in self.told.items()
        }
        if self.contract is not None:
            found[Leg.BROKER] = {"slo": str(self.contract)}
        return found


def by_place(journeys: Iterable[Measured]) -> Mapping[Place, Sequence[Measured]]:
    """The journeys that have each leg."""
    found: defaultdict[Place, list[Measured]] = defaultdict(list)
    for each in journeys:
        for at in each.places.items():
            found[at].append(each)
    return dict(found)


def _finite(found: Any) -> Any:
    """The document with null in place of what is not known: JSON has no NaN."""
    if isinstance(found, dict):
        return {key: _finite(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [_finite(value) for value in found]
    return None if isinstance(found, float) and not math.isfinite(found) else found
