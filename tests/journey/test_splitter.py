"""Splitting again and again, by minutes that pass at once and plans that are given."""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from srtm.host.clock import NS, monotonic_ns
from srtm.journey import splitter
from srtm.journey.causes import Leg
from srtm.journey.contracts import ContractSlos
from srtm.journey.file import read_journeys
from srtm.journey.leg_report import LegReport, place_of
from srtm.journey.measured import Measured
from srtm.journey.plan import JourneyPlan
from srtm.journey.planning import inputs
from srtm.journey.split import Impossible, Option, Split
from srtm.journey.splitter import Splitter
from srtm.journey.state import State
from srtm.limits.bins import key_of
from srtm.limits.rolling import RollingBudget
from srtm.limits.sketch import LatencySketch
from srtm.limits.slo import SLO
from srtm.text.errors import UnavailableError, UsageError

WHOLE = SLO.parse("0.99@1s over 1h")
# What a group is asked for, and what it does, differ: targets need not add up.
SLOS = {Leg.BROKER: SLO.parse("0.998@310ms"), Leg.CONSUMER: SLO.parse("0.992@900ms over 1h")}
OPTIONS: Any = {"consumer": Option("x", 2.5, None)}  # type: ignore[arg-type]
SET = JourneyPlan(WHOLE, Split(OPTIONS, {}, 2.0), SLOS, 2.5, 3.0)
BROKEN = JourneyPlan(WHOLE, Impossible("broker", 0.02, 1.5), {}, None, None)


class World:
    """One journey, of which every leg is measured, and what its splitter asks for and sets."""

    def __init__(self, folder: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "pool.toml").write_text(
            '[nsq]\ntopic = "t"\nchannel = "c"\nlookupd = ["127.0.0.1:1"]\n'
            '[group]\nslo = "0.9@2s"\nmu = 45'
        )
        path = folder / "journeys.toml"
        path.write_text(
            f'[[journey]]\ntopic = "t"\nslo = "0.99@1s"\nconsumers = "pool.toml"\nsplit = "{mode}"'
        )
        self.measured = Measured(read_journeys(path).all[0])
        (folder / "journeys.state.json").unlink(missing_ok=True)
        self.state = State(folder / "journeys.state.json")
        self.splitter = Splitter([self.measured], self.state, ("--deployment", "d"))
        self.plans: list[JourneyPlan | Exception] = []
        self.contract: SLO | None = None
        self.others: dict[str, SLO | None] = {}
        self.away: list[str] = []
        self.set: list[tuple[str, str]] = []
        self.refusal = ""
        legs = {Leg.BROKER: Counter({key_of(0.01): 500}), Leg.CONSUMER: Counter({key_of(0.2): 500})}
        monkeypatch.setattr(splitter, "LOOK_SECONDS", 0.001)
        monkeypatch.setattr(splitter, "planned_apart", self._planned)
        monkeypatch.setattr(splitter, "contract_slos", lambda journey: self.contracts())
        monkeypatch.setattr(splitter, "set_contract_slo", self._set)
        monkeypatch.setattr(self.measured, "bins", lambda now: dict(legs))
        monkeypatch.setattr(self.measured.rates, "last", lambda now: [30.0] * 100)

    def contracts(self) -> ContractSlos:
        return ContractSlos({"h:1": self.contract, **self.others}, self.away)

    async def _planned(self, given: dict[str, Any]) -> JourneyPlan:
        assert given["legs"][Leg.BROKER][key_of(0.01)] >= 1_000  # of two minutes at least
        plan = self.plans.pop(0)
        if isinstance(plan, Exception):
            raise plan
        return plan

    async def _set(self, topic: str, slo: SLO, owner: Any) -> str:
        assert owner == ("--deployment", "d")
        self.set.append((topic, str(slo)))
        if not self.refusal:
            self.contract = slo
        return self.refusal

    def run(self, until: Any) -> None:
        async def work() -> None:
            task = asyncio.create_task(self.splitter.run())
            for _ in range(5_000):
                await asyncio.sleep(0.001)
                if until():
                    break
            else:
                pytest.fail("it never came to it")
            task.cancel()

        asyncio.run(work())

    def wanted(self, leg: Leg) -> SLO | None:
        return self.splitter.wanted(leg, place_of(self.measured.journey, leg))

    @property
    def shown(self) -> dict[str, Any]:
        return self.splitter.document(self.measured)


def test_a_split_that_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, "auto", monkeypatch)
    assert world.wanted(Leg.CONSUMER) is None
    world.plans = [SET]
    world.run(lambda: world.set)
    assert world.wanted(Leg.CONSUMER) == SLOS[Leg.CONSUMER]
    assert world.splitter.wanted(Leg.CONSUMER, ("t", "another")) is None
    assert world.set == [("t", "0.998@310ms")]
    assert world.shown["slos"] == {"broker": "0.998@310ms", "consumer": "0.992@900ms over 1h"}
    assert [each["why"] for each in world.shown["decisions"]] == ["nothing is set yet"]
    world.contract = SLO.parse("0.5@1s")  # somebody else sets another one
    world.run(lambda: len(world.set) == 2)
    world.others = {"h:2": SLO.parse("0.5@1s")}  # one gateway of two has another
    world.run(lambda: len(world.set) == 3)
    again = Splitter([world.measured], State(tmp_path / "journeys.state.json"), ())
    assert again.document(world.measured)["slos"] == world.shown["slos"]


def test_a_split_that_is_proposed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, "propose", monkeypatch)
    world.plans = [SET]
    world.run(lambda: world.shown["decisions"])
    assert world.shown["slos"] != {}
    assert world.wanted(Leg.CONSUMER) is None
    assert world.set == []


def test_a_proposal_is_kept_by_nobody_and_does_not_drift(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, "propose", monkeypatch)
    world.plans = [SET]
    world.run(lambda: world.shown["decisions"])
    late = {Leg.BROKER: Counter({key_of(0.01): 500}), Leg.CONSUMER: Counter({key_of(2.0): 500})}
    monkeypatch.setattr(world.measured, "bins", lambda now: dict(late))
    minutes = world.splitter._minutes["t"]
    world.run(lambda: list(minutes.legs).count(late) == 10)
    assert not minutes.drifts


def test_after_a_restart_a_split_stands_for_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, "auto", monkeypatch)
    world.plans = [SET]
    world.run(lambda: world.set)
    world.splitter = Splitter([world.measured], world.state, ("--deployment", "d"))
    world.run(lambda: len(world.splitter._minutes["t"].legs) == 10)
    assert [each["why"] for each in world.shown["decisions"]] == ["nothing is set yet"]


def test_a_plan_is_compared_with_the_split_that_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []
    world = World(tmp_path, "propose", monkeypatch)
    world.plans = [SET]
    world.run(lambda: world.shown["decisions"])

    async def planned(what: dict[str, Any]) -> JourneyPlan:
        given.append(what)
        return SET

    monkeypatch.setattr(splitter, "planned_apart", planned)
    world.splitter._minutes["t"].planned_at = None
    world.run(lambda: given)
    assert given[0]["now"] == SLOS[Leg.CONSUMER]
    assert str(given[0]["kept"]) == "0.9@2s over 1h"  # its controller never asked


def test_a_gateway_that_is_away_gets_its_contract_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, "auto", monkeypatch)
    world.plans, world.away = [SET], ["h:2 does not answer"]
    asked = LegReport(Leg.CONSUMER, ("t", "c"), SLOS[Leg.CONSUMER], {})
    world.measured.told[Leg.CONSUMER] = asked, monotonic_ns()
    world.run(lambda: world.set and world.shown["fault"] == "h:2 does not answer")
    seen = world.splitter._minutes["t"].legs
    seen.clear()
    world.run(lambda: len(seen) == 10)
    assert len(world.set) == 1
    # It is given once more where one has another, and not for ever where that does not help.
    world.others = {"h:3": None}
    told = "was given SLO 0.998@310ms, and yet: 0.998@310ms at h:1, None at h:3"
    world.run(lambda: told in world.shown["fault"])
    assert len(world.set) == 2


def test_a_journey_that_is_broken_though_no_leg_is_late_gets_a_stricter_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []
    stricter = SLO.parse("0.995@600ms over 1h")
    world = World(tmp_path, "auto", monkeypatch)
    world.plans = [SET]
    world.run(lambda: world.set)

    async def planned(what: dict[str, Any]) -> JourneyPlan:
        given.append(what)
        return replace(SET, slos={**SLOS, Leg.CONSUMER: stricter}, now=2.5)

    monkeypatch.setattr(splitter, "planned_apart", planned)
    late = Counter({key_of(0.2): 400, key_of(2.0): 100})
    monkeypatch.setattr(LatencySketch, "recent_bins", lambda self, now: late)
    monkeypatch.setattr(RollingBudget, "left", -1.0)
    asked = LegReport(Leg.CONSUMER, ("t", "c"), SLOS[Leg.CONSUMER], {})
    world.measured.told[Leg.CONSUMER] = asked, monotonic_ns()
    world.splitter._minutes["t"].planned_at = monotonic_ns() / NS - 400
    world.run(lambda: world.wanted(Leg.CONSUMER) == stricter)
    assert given[0]["stricter_than"] == SLOS[Leg.CONSUMER]
    assert world.shown["decisions"][-1]["why"] == "0.99@1s over 1h has been broken for 3 minutes"
    assert "did not keep the SLO" in world.shown["decisions"][-1]["decision"]
    late.clear()
    world.splitter._minutes["t"].planned_at = None
    world.run(lambda: len(given) == 2)
    assert given[1]["stricter_than"] == SLOS[Leg.CONSUMER]  # it is remembered


def refused(journey: object, told: object) -> dict[str, Any]:
    raise UsageError("nobody says how many")


def test_what_fails_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, "auto", monkeypatch)
    world.plans = [UnavailableError("the process that simulates has ended")]
    world.run(lambda: "has ended" in world.shown["fault"])
    world.run(lambda: "has ended" in world.shown["fault"])  # until a plan has been made
    assert world.shown["decisions"] == []
    world = World(tmp_path, "auto", monkeypatch)
    monkeypatch.setattr(splitter, "inputs", refused)
    world.run(lambda: world.shown["fault"] == "nobody says how many")
    monkeypatch.setattr(splitter, "inputs", inputs)
    world.plans = [SET]
    world.run(lambda: world.set and "srtm autoscale run does not ask" in world.shown["fault"])
    told = LegReport(Leg.CONSUMER, ("t", "c"), None, {})
    world.measured.told[Leg.CONSUMER] = told, monotonic_ns()
    world.run(lambda: world.shown["fault"] == "")
    world = World(tmp_path, "auto", monkeypatch)
    world.plans = [ZeroDivisionError("a slip")]
    world.run(lambda: "slip" in world.shown["fault"])
    assert "journey t is not split: ZeroDivisionError('a slip')" in world.shown["fault"]
    world = World(tmp_path, "auto", monkeypatch)
    world.plans, world.refusal = [SET], "no deployment"
    world.run(lambda: len(world.set) > 3)
    assert world.shown["fault"] == ("the contract of t does not get SLO 0.998@310ms: no deployment")
    assert caplog.text.count("no deployment") == 1


def test_a_split_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, "auto", monkeypatch)
    world.plans = [BROKEN]
    world.run(lambda: world.shown["decisions"])
    assert "broker is what keeps it most" in world.shown["decisions"][0]["decision"]
    assert world.shown["slos"] == {}
    assert world.wanted(Leg.BROKER) is None


def test_a_journey_that_is_not_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, "off", monkeypatch)
    asyncio.run(asyncio.wait_for(world.splitter.run(), 5))
    assert (world.shown["mode"], world.shown["slos"]) == ("off", {})


def test_a_plan_of_one_journey_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, "auto", monkeypatch)
    (tmp_path / "others.toml").write_text(
        (tmp_path / "journeys.toml").read_text() + '\nname = "other"'
    )
    other = Measured(read_journeys(tmp_path / "others.toml").all[0])
    legs = {Leg.BROKER: Counter({key_of(0.01): 500}), Leg.CONSUMER: Counter({key_of(0.2): 500})}
    monkeypatch.setattr(other, "bins", lambda now: dict(legs))
    monkeypatch.setattr(other.rates, "last", lambda now: [30.0] * 100)
    plans = 0

    async def endless(given: dict[str, Any]) -> JourneyPlan:
        nonlocal plans
        plans += 1
        await asyncio.sleep(60)
        raise AssertionError

    monkeypatch.setattr(splitter, "planned_apart", endless)
    world.splitter = Splitter([world.measured, other], world.state, ("--deployment", "d"))
    monkeypatch.setattr(world.measured, "bins", lambda now: {Leg.BROKER: Counter()})
    seen = world.splitter._minutes["t"].legs
    world.run(lambda: world.splitter.document(other)["planning"] and len(seen) == 10)
    assert plans == 1
