"""What SLO each part of a journey should have, so that the whole is kept and costs least. Pure.

Broker and bridge stay as they are measured. The consumers' options are SLOs of their group: for
each, the simulator tells what the group would cost and how old its messages would be. A real
consumer also waits for its batch, for nsqd and for the network, which the simulator does not know;
so every simulated latency is raised by what the measured median is above the simulated one of the
SLO that was kept meanwhile.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from srtm.journey.causes import Leg
from srtm.journey.frontier import frontier_of
from srtm.journey.simulated import (
    Group,
    Simulated,
    base_seconds,
    is_stricter,
    keeps_its_own,
    raised,
    simulated,
    sobered,
)
from srtm.journey.split import Impossible, Option, Split, split
from srtm.journey.summary import CONFIDENCE
from srtm.limits.bins import Bins
from srtm.limits.slo import SLO

LEAST_SECONDS = 60
"""of arrivals; with fewer a policy has hardly begun to forecast"""
_TARGETS = (0.15, 0.3, 0.45, 0.6, 0.75, 0.9)
_LATE = (0.3, 0.8)
"""parts of the journey's target and late share that the consumers' options have"""
_SLACK = 1.5
"""times the late share of an SLO of its own that a group may exceed it by and keep it"""
_MORE = 1.01
"""times the consumers of an SLO that did not do, at least, that a stricter one has to take"""


@dataclass(frozen=True, slots=True)
class JourneyPlan:
    """slos:  what each part should have
    found: how the journey is kept then, or why it cannot be
    equal: the consumers that an equal split would take; None where that does not keep the SLO
    now:   those that the group's SLO of now takes; None where the SLO is not kept with it
    """

    slo: SLO
    found: Split | Impossible
    slos: Mapping[Leg, SLO]
    consumers: float | None
    equal: float | None
    now: float | None = None


def planned(
    slo: SLO,
    legs: Mapping[Leg, Bins],
    rates: Sequence[float],
    group: Group,
    now: SLO | None = None,
    kept: SLO | None = None,
    weights: Mapping[Leg, int] | None = None,
    stricter_than: SLO | None = None,
    progress: Callable[[float], None] = lambda done: None,
) -> JourneyPlan:
    """legs: what was measured; rates: messages/s of the topic, one for each second, at least
    LEAST_SECONDS; now: the group's SLO of now, which is looked at too; kept: the one that it kept
    while it was measured; weights: messages for which one of a leg's stands at most, where not all
    are measured; stricter_than: an SLO of the group that is known not to do: only stricter ones
    that take more consumers are options, or itself where there is none; progress: is told which
    part of the work is done"""
    fixed = {}
    for leg, bins in legs.items():
        if leg is not Leg.CONSUMER:
            seen = frontier_of(bins, CONFIDENCE, (weights or {}).get(leg, 1))
            fixed[str(leg)] = [Option("as it is", 0.0, seen)]
    alone = split(fixed, slo)
    if isinstance(alone, Impossible):
        return JourneyPlan(slo, alone, {}, None, None)
    share = slo.allowed_late_share
    asked = [
        _slo(share * late, slo.target_seconds * part, slo.window_seconds)
        for late in _LATE
        for part in _TARGETS
    ]
    even = _slo(share / len(legs), slo.target_seconds / len(legs), slo.window_seconds)
    runs = {}
    also = [each for each in (now, kept, stricter_than) if each is not None]
    looked_at = {str(each): each for each in (*asked, even, *also)}
    for number, each in enumerate(looked_at.values()):
        progress(number / len(looked_at))
        runs[str(each)] = simulated(each, rates, group)
    sober = {name: sobered(each, runs.values()) for name, each in runs.items()}
    base = base_seconds(legs[Leg.CONSUMER], [sober[str(kept)]] if kept else list(sober.values()))
    options = {name: raised(each, base) for name, each in sober.items()}

    def keeping(*slos: SLO) -> Split | Impossible:
        ways = [_option(options[str(each)]) for each in slos]
        return split({**fixed, str(Leg.CONSUMER): ways}, slo)

    able = [each for each in looked_at.values() if keeps_its_own(options[str(each)])]
    ways = able or list(looked_at.values())
    # With some slack, or a split would be replaced because of a message more or less.
    stands = now is not None and (not able or keeps_its_own(options[str(now)], _SLACK))
    is_kept = now is not None and stands and isinstance(keeping(now), Split)
    if stricter_than is not None:
        least = _MORE * runs[str(stricter_than)].consumers
        stricter = [each for each in ways if is_stricter(each, stricter_than)]
        more = [each for each in stricter if runs[str(each)].consumers >= least]
        ways = more or [stricter_than]
    found = keeping(*ways)
    is_even = isinstance(keeping(even), Split)
    return JourneyPlan(
        slo,
        found,
        _slos(found, options) if isinstance(found, Split) else {},
        found.cost if isinstance(found, Split) else None,
        options[str(even)].consumers if is_even else None,
        options[str(now)].consumers if is_kept else None,
    )


def _option(one: Simulated) -> Option:
    return Option(str(one.slo), one.consumers, frontier_of(one.latency, CONFIDENCE))


def _slos(found: Split, options: Mapping[str, Simulated]) -> dict[Leg, SLO]:
    """The group gets the SLO that was simulated, the others what the split leaves to them."""
    slos: dict[Leg, SLO] = {}
    for name, part in found.parts.items():
        leg = Leg(name)
        if leg is Leg.CONSUMER:
            slos[leg] = options[found.options[name].name].slo
        else:
            slos[leg] = _slo(part.late_share, part.seconds, None)
    return slos


def _slo(late_share: float, seconds: float, window_seconds: float | None) -> SLO:
    """An SLO in round numbers that allows no more than this."""
    digits = 1e5 if late_share > 1e-5 else 1e9
    percentile = math.ceil((1 - late_share) * digits - 1e-6) / digits
    target = math.floor(seconds * 1e4 + 1e-6) / 1e4
    return SLO(min(percentile, 1 - 1e-9), max(target, 1e-4), window_seconds)
