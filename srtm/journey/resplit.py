"""When a journey's SLO is split again, and whether the new split takes the place of the old. Pure.

A split stands until it is broken or clearly dear: a leg has drifted when for three minutes in a row
it was surely late more often than its part allows, and a cheaper split is worth its change when it
saves a tenth. What was measured is kept by the minute, so one bad minute decides nothing.

Consumers may do worse than the simulated ones by which the split was made, though they keep the SLO
that they were given. So the whole is looked at too: where it breaks the journey's SLO while no leg
is late, only SLOs of the consumers that take more of them are planned from then on, for hours,
since a simulation would choose the old one again.
"""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from scipy.stats import beta

from srtm.journey.causes import Leg
from srtm.journey.plan import JourneyPlan
from srtm.journey.planning import why_not
from srtm.journey.split import Impossible
from srtm.limits.bins import Bins, above
from srtm.limits.slo import SLO

Places = Mapping[Leg, tuple[str, ...]]
"""where each leg of a journey is (`place_of`)"""
Weights = Mapping[Leg, int]
"""messages for which one of a leg's stands at most, where not all are measured (`Ages.weight`)"""
_ALL_MEASURED: Weights = {}
LOOK_SECONDS = 60.0
_MINUTES = 10
"""that a plan is made of"""
_FIRST_MINUTES = 2
_DRIFT_MINUTES = 3
_SETTLE_SECONDS = 300.0
"""from a split, or a plan, to the next plan at least: parts take it up, and a minute shows it"""
_AGAIN_SECONDS = 1800.0
"""from one plan to the next where nothing drifts: traffic may have made another one cheaper"""
_BROKE_SECONDS = 6 * 3600.0
"""for which an SLO of the consumers that did not do is remembered: traffic changes with the day"""
_WORTH = 0.1
_CONFIDENCE = 0.99


@dataclass(frozen=True, slots=True)
class Standing:
    """The split in force.

    whole:     the journey's SLO, which is split
    slos:      of each leg
    consumers: that it was to cost
    since:     seconds of the wall clock
    places:    where each leg is
    broke:     the last SLO of the consumers with which the journey's was broken, and when; None:
               none was
    """

    whole: SLO
    slos: Mapping[Leg, SLO]
    consumers: float
    since: float
    places: Places
    broke: tuple[SLO, float] | None = None

    def splits(self, slo: SLO, places: Places) -> bool:
        """Is it a split of this SLO over the legs at these places?"""
        return self.whole == slo and self.places == places

    def stricter_than(self, wall: float) -> SLO | None:
        """The SLO of the consumers than which another has to be stricter, as it did not do of late;
        None: any will do."""
        if self.broke is None or wall - self.broke[1] > _BROKE_SECONDS:
            return None
        return self.broke[0]


@dataclass(slots=True)
class Minutes:
    """What the legs did in each of the last minutes, and since when one is too late.

    broken_minutes: in a row, in which the journey broke its SLO though no leg was late
    """

    legs: deque[Mapping[Leg, Bins]] = field(default_factory=lambda: deque(maxlen=_MINUTES))
    weights: deque[Weights] = field(default_factory=lambda: deque(maxlen=_MINUTES))
    drifting: Counter[Leg] = field(default_factory=Counter)
    broken_minutes: int = 0
    planned_at: float | None = None

    def add(
        self,
        legs: Mapping[Leg, Bins],
        standing: Standing | None,
        weights: Weights = _ALL_MEASURED,
        ages: Bins | None = None,
    ) -> None:
        """A minute is over, in which the legs did this. ages: of the messages from end to end,
        where the SLO is overspent over its window, and the legs keep what they were given"""
        self.legs.append(legs)
        self.weights.append(weights)
        for leg, slo in standing.slos.items() if standing else ():
            drifts = late_surely(legs.get(leg, Counter()), slo, weights.get(leg, 1))
            self.drifting[leg] = self.drifting[leg] + 1 if drifts else 0
        is_broken = (
            standing is not None
            and ages is not None
            and not any(self.drifting.values())
            and late_surely(ages, standing.whole, weights.get(Leg.BROKER, 1))
        )
        self.broken_minutes = self.broken_minutes + 1 if is_broken else 0

    def whole(self) -> dict[Leg, Bins]:
        """What is planned by."""
        found: dict[Leg, Bins] = {}
        for minute in self.legs:
            for leg, bins in minute.items():
                found[leg] = found.get(leg, Counter()) + bins
        return found

    def heaviest(self) -> dict[Leg, int]:
        """The weights of what is planned by."""
        return {leg: max(each.get(leg, 1) for each in self.weights) for leg in Leg}

    def due(self, standing: Standing | None, at: float) -> str:
        """Why it is time to plan; "" when it is not. at: seconds, monotonic"""
        if len(self.legs) < _FIRST_MINUTES or not all(self.whole().values()):
            return ""
        since = None if self.planned_at is None else at - self.planned_at
        if since is not None and since < _SETTLE_SECONDS:
            return ""
        if standing is None:
            return "nothing is set yet"
        for leg, minutes in self.drifting.items():
            if minutes >= _DRIFT_MINUTES:
                slo = standing.slos[leg]
                return f"{leg} has been late more often than {slo} allows for {minutes} minutes"
        if self.is_broken:
            return f"{standing.whole} has been broken for {self.broken_minutes} minutes"
        if since is None or since >= _AGAIN_SECONDS:
            return "it is looked at again"
        return ""

    def begun(self, at: float) -> None:
        """A plan is being made, or what came of it is in force."""
        self.planned_at = at

    @property
    def drifts(self) -> bool:
        return any(minutes >= _DRIFT_MINUTES for minutes in self.drifting.values())

    @property
    def is_broken(self) -> bool:
        return self.broken_minutes >= _DRIFT_MINUTES

    def settled(self) -> None:
        """Another split is in force: what drifted by the old one does not count."""
        self.drifting.clear()
        self.broken_minutes = 0


def late_surely(bins: Bins, slo: SLO, weight: int = 1) -> bool:
    """Were more messages late than the SLO allows, and not by chance (Clopper and Pearson's lower
    bound)? weight: messages for which the one that counts most stands"""
    late, whole = above(bins, slo.target_seconds) / weight, sum(bins.values()) / weight
    if not late:
        return False
    return bool(beta.ppf(1 - _CONFIDENCE, late, whole - late + 1) > slo.allowed_late_share)


def judged(
    plan: JourneyPlan,
    standing: Standing | None,
    drifts: bool,
    wall: float,
    places: Places,
    is_broken: bool = False,
) -> tuple[Standing | None, str]:
    """The split that is in force from now on, and what is decided in words. drifts: does a leg?
    wall: seconds; places: of the legs that are planned for; is_broken: is the journey's SLO?"""
    found = plan.found
    if standing is not None and is_broken:
        standing = replace(standing, broke=(standing.slos[Leg.CONSUMER], wall))
    if isinstance(found, Impossible):
        return standing, why_not(plan, found)
    new = Standing(plan.slo, plan.slos, found.cost, wall, places)
    if standing is None:
        return new, f"set for {found.cost:.2f} consumers"
    if new.slos == standing.slos:
        return standing, "the split stays: no other is better"
    if is_broken and new.slos[Leg.CONSUMER] == standing.slos[Leg.CONSUMER]:
        return standing, "the split stays: no SLO of the consumers would take more of them"
    new = replace(new, broke=standing.broke)
    if drifts or is_broken or plan.now is None:
        return new, f"set for {found.cost:.2f} consumers: the old one did not keep the SLO"
    if found.cost <= (1 - _WORTH) * plan.now:
        return new, f"set for {found.cost:.2f} consumers in place of {plan.now:.2f}"
    return standing, (
        f"the split stays: another would take {found.cost:.2f} consumers in place of "
        f"{plan.now:.2f}, which is not worth the change"
    )
