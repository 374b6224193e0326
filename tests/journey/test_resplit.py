"""When a journey is split again, and whether the new split takes the place of the old."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.journey.causes import Leg
from srtm.journey.plan import JourneyPlan
from srtm.journey.resplit import Minutes, Standing, judged, late_surely
from srtm.journey.split import Impossible, Option, Split
from srtm.limits.bins import Bins, key_of
from srtm.limits.slo import SLO

WHOLE = SLO.parse("0.99@1s over 1h")
SLOS = {Leg.BROKER: SLO.parse("0.998@100ms"), Leg.CONSUMER: SLO.parse("0.992@900ms over 1h")}
PLACES = {Leg.BROKER: ("t",), Leg.CONSUMER: ("t", "c")}
STANDING = Standing(WHOLE, SLOS, 3.0, 1_000.0, PLACES)


def bins(count: int, late: int = 0, late_seconds: float = 0.5) -> Bins:
    return Counter({key_of(0.01): count - late, key_of(late_seconds): late})


def minute(late: int = 0) -> dict[Leg, Bins]:
    """A minute in which so many of 1,000 messages were late at the broker."""
    return {Leg.BROKER: bins(1000, late), Leg.CONSUMER: bins(1000)}


def after(*late: int, standing: Standing | None = STANDING) -> Minutes:
    minutes = Minutes()
    for each in late:
        minutes.add(minute(each), standing)
    return minutes


def test_the_first_split_waits_for_two_minutes() -> None:
    assert after(0, standing=None).due(None, 60) == ""
    assert after(0, 0, standing=None).due(None, 120) == "nothing is set yet"


def test_without_messages_of_every_leg_nothing_is_planned() -> None:
    minutes = Minutes()
    for _ in range(5):
        minutes.add({Leg.BROKER: bins(1000), Leg.CONSUMER: Counter()}, None)
    assert minutes.due(None, 300) == ""


@pytest.mark.parametrize(
    ("late", "drifts"),
    [
        pytest.param([0, 0, 0, 0], False, id="in-time"),
        pytest.param([500, 500], False, id="two-minutes"),
        pytest.param([50, 50, 50], True, id="three-minutes"),
        pytest.param([50, 0, 50, 50], False, id="not-in-a-row"),
        pytest.param([3, 3, 3], False, id="within-chance"),
    ],
)
def test_a_leg_that_drifts(late: list[int], drifts: bool) -> None:
    minutes = after(*late)
    minutes.planned_at = 0.0
    why = minutes.due(STANDING, 400.0)
    assert bool(why) == minutes.drifts == drifts
    if drifts:
        assert why == "broker has been late more often than 0.998@100ms allows for 3 minutes"


def test_a_plan_has_time_to_show() -> None:
    minutes = after(50, 50, 50)
    minutes.begun(1_000.0)
    assert minutes.due(STANDING, 1_299.0) == ""
    assert minutes.due(STANDING, 1_300.0) != ""
    minutes.settled()
    assert minutes.due(STANDING, 1_300.0) == ""
    assert minutes.due(STANDING, 2_800.0) == "it is looked at again"


def test_a_plan_is_made_of_ten_minutes() -> None:
    minutes = after(*[1] * 15)
    assert minutes.whole()[Leg.BROKER] == bins(10_000, 10)


@given(st.integers(0, 2**32 - 1))
def test_chance_alone_is_seldom_taken_for_lateness(seed: int) -> None:
    """100 legs that are late exactly as often as their SLO allows."""
    slo = SLO.parse("0.95@100ms")
    rng = np.random.default_rng(seed)
    taken = [late_surely(bins(400, int(rng.binomial(400, 0.05))), slo) for _ in range(100)]
    assert sum(taken) <= 12  # 1 % each: more than twelve of a hundred happen once in 10^10


def test_a_sample_that_stands_for_many_is_one_draw() -> None:
    """2,000 draws of which each stands for eight messages: as often late as allowed."""
    slo = SLO.parse("0.99@100ms")
    drawn = np.random.default_rng(5).binomial(2_000, 0.01, 1_000)
    taken = [late_surely(bins(16_000, 8 * int(late)), slo, weight=8) for late in drawn]
    assert sum(taken) <= 20
    assert sum(late_surely(bins(16_000, 8 * int(late)), slo) for late in drawn) > 100


def plan(cost: float, now: float | None, slos: dict[Leg, SLO] | None = None) -> JourneyPlan:
    options: Any = {"consumer": Option("x", cost, None)}  # type: ignore[arg-type]
    slos = slos or {**SLOS, Leg.BROKER: SLO.parse("0.999@50ms")}
    return JourneyPlan(WHOLE, Split(options, {}, 2.0), slos, cost, None, now)


def test_what_broke_the_journey_is_remembered_for_hours() -> None:
    assert STANDING.stricter_than(2_000.0) is None
    stricter = {**SLOS, Leg.CONSUMER: SLO.parse("0.995@600ms over 1h")}
    new, _ = judged(plan(4.0, 3.0, stricter), STANDING, False, 2_000.0, PLACES, is_broken=True)
    assert new is not None
    assert new.broke == (SLOS[Leg.CONSUMER], 2_000.0)
    assert new.stricter_than(2_000.0 + 6 * 3600) == SLOS[Leg.CONSUMER]
    assert new.stricter_than(2_001.0 + 6 * 3600) is None
    newer, _ = judged(plan(3.0, 4.0, SLOS), new, False, 3_000.0, PLACES)
    assert newer is not None
    assert newer.broke == new.broke


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(
            JourneyPlan(WHOLE, Impossible("consumer", 0.02, 1.5), {}, None, None), id="impossible"
        ),
        pytest.param(plan(4.0, 3.0, {**SLOS, Leg.BROKER: SLO.parse("0.999@50ms")}), id="no-other"),
    ],
)
def test_what_broke_it_is_remembered_where_nothing_would_help(made: JourneyPlan) -> None:
    found, said = judged(made, STANDING, False, 2_000.0, PLACES, is_broken=True)
    assert found == replace(STANDING, broke=(SLOS[Leg.CONSUMER], 2_000.0))
    assert "take more of them" in said or "cannot be promised" in said


LATE = bins(1000, 50, 2.0)


@pytest.mark.parametrize(
    "better",
    [
        pytest.param({"ages": bins(1000)}, id="in-time"),
        pytest.param({"ages": bins(1000, 12, 2.0)}, id="late-by-chance"),
        pytest.param({"ages": None}, id="tells-nothing-of-the-split"),
        pytest.param({"legs": minute(50), "ages": LATE}, id="a-leg-is-late"),
        pytest.param({"standing": None, "ages": LATE}, id="no-split"),
    ],
)
def test_one_other_minute_ends_what_was_broken(better: dict[str, Any]) -> None:
    usual = {"legs": minute(), "standing": STANDING, "ages": LATE}
    minutes = Minutes()
    for more in ({}, {}, better, {}, {}):
        minutes.add(**(usual | more))
        assert not minutes.is_broken
    minutes.add(**usual)  # type: ignore[arg-type]
    assert minutes.due(STANDING, 1.0) == "0.99@1s over 1h has been broken for 3 minutes"
    minutes.settled()
    assert not minutes.is_broken


@pytest.mark.parametrize(
    ("slo", "places", "same"),
    [
        ("0.99@1s over 1h", PLACES, True),
        ("0.99@2s over 1h", PLACES, False),
        ("0.99@999ms over 1h", PLACES, False),
        ("0.991@1s over 1h", PLACES, False),
        ("0.99@1s over 1h", {**PLACES, Leg.BRIDGE: ("t", "c", "k")}, False),
        ("0.99@1s over 1h", {**PLACES, Leg.BROKER: ("another",)}, False),
        ("0.99@1s over 1h", {**PLACES, Leg.CONSUMER: ("t", "another")}, False),
    ],
)
def test_a_split_of_another_file_is_none(slo: str, places: Any, same: bool) -> None:
    assert STANDING.splits(SLO.parse(slo), places) == same


@pytest.mark.parametrize(
    ("made", "standing", "drifts", "adopted", "said"),
    [
        pytest.param(plan(2.0, None), None, False, True, "set for 2.00", id="first"),
        pytest.param(plan(2.0, 2.0, SLOS), STANDING, True, False, "no other", id="the-same"),
        pytest.param(plan(2.8, 3.0), STANDING, False, False, "not worth", id="a-little-cheaper"),
        pytest.param(plan(2.7, 3.0), STANDING, False, True, "in place of 3.00", id="a-tenth"),
        pytest.param(plan(4.0, 3.0), STANDING, True, True, "did not keep", id="drift"),
        pytest.param(plan(4.0, None), STANDING, False, True, "did not keep", id="not-kept-now"),
        pytest.param(
            JourneyPlan(WHOLE, Impossible("broker", 0.02, 1.5), {}, None, None),
            STANDING,
            True,
            False,
            "broker is what keeps it most. It could be promised within 1.5s",
            id="impossible",
        ),
    ],
)
def test_which_split_is_in_force(
    made: JourneyPlan, standing: Standing | None, drifts: bool, adopted: bool, said: str
) -> None:
    found, words = judged(made, standing, drifts, 5_000.0, PLACES)
    assert said in words
    if adopted:
        assert found == Standing(WHOLE, made.slos, made.consumers or 0.0, 5_000.0, PLACES)
    else:
        assert found is standing
