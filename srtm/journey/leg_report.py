"""What the legs of journeys tell of themselves, and which journeys they are legs of. Pure."""

from dataclasses import dataclass
from typing import Any

from srtm.autoscaler.live.figures import MOST_SHARES
from srtm.journey.causes import Leg
from srtm.journey.file import Journey
from srtm.journey.numbers import number
from srtm.limits.slo import SLO

Place = tuple[Leg, tuple[str, ...]]
"""one leg of one or several journeys: which kind, and where (`place_of`)"""
_MOST_NAME = 300
_FACTS = {"mu": (1e-3, 1e9), "startup_seconds": (0.0, 3600.0), "rebalance_seconds": (0.0, 3600.0)}
"""figures of a group, and the least and the most that they can be"""


@dataclass(frozen=True, slots=True)
class LegReport:
    """One leg.

    place:     which one it is, as `place_of` has it
    slo:       that it keeps; None: none
    facts:     of a group, what a plan needs: mu, startup_seconds, rebalance_seconds, shares
    stands_by: another program leads there, and this one only wants to know
    """

    leg: Leg
    place: tuple[str, ...]
    slo: SLO | None
    facts: dict[str, Any]
    stands_by: bool = False

    def document(self) -> dict[str, Any]:
        return {"slo": None if self.slo is None else str(self.slo), **self.facts}


def place_of(journey: Journey, leg: Leg) -> tuple[str, ...]:
    """What tells one leg from all others: topic and channel, or topic and group, of consumers; of
    a bridge the topic, the channel and Kafka's topic."""
    if leg is Leg.BRIDGE:
        return journey.topic, journey.channel, journey.kafka_topic
    return (journey.topic,) if leg is Leg.BROKER else journey.ends_at


def read_leg(document: Any) -> LegReport:
    """What a program tells of one of its legs. Raises ValueError."""
    try:
        leg = Leg(document["leg"])
        if leg is Leg.BROKER:
            raise ValueError("the contract of a topic is asked for, and not told")
        names = ["topic", "group" if "group" in document else "channel"]
        if leg is Leg.BRIDGE:
            names.append("kafka_topic")
        place = tuple(str(document[name])[:_MOST_NAME] for name in names)
        slo = document["slo"]
        facts: dict[str, Any] = {
            name: number(document[name], *bounds)
            for name, bounds in _FACTS.items()
            if name in document
        }
        if "shares" in document:
            shares = list(document["shares"])
            if len(shares) > MOST_SHARES:
                raise ValueError(f"{len(shares)} shares: {MOST_SHARES} at most")
            facts["shares"] = [number(each, 0.0, 1e9) for each in shares]
        kept = None if slo is None else SLO.parse(str(slo)[:100])
        if leg is Leg.CONSUMER and (kept is None or kept.window_seconds is None):
            raise ValueError("no leg of a journey: the SLO of consumers has a window")
        return LegReport(leg, place, kept, facts, document.get("stands_by") is True)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no leg of a journey: {error!r}"[:300]) from None


def strictest(slos: list[SLO]) -> SLO | None:
    """One SLO that keeps all of them; None where there are none."""
    if not slos:
        return None
    first = min(slos, key=lambda each: (each.target_seconds, -each.percentile))
    return SLO(max(each.percentile for each in slos), first.target_seconds, first.window_seconds)
