"""Splits the SLOs of journeys again and again while they are measured (see `resplit`)."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from srtm.host.clock import NS, monotonic_ns
from srtm.journey.apart import planned_apart
from srtm.journey.causes import Leg
from srtm.journey.contracts import ContractSlos, contract_slos, set_contract_slo
from srtm.journey.leg_report import strictest
from srtm.journey.measured import Measured, by_place
from srtm.journey.plan import JourneyPlan
from srtm.journey.planning import inputs
from srtm.journey.resplit import LOOK_SECONDS, Minutes, Standing, judged
from srtm.journey.state import SplitDecision, State
from srtm.limits.bins import Bins
from srtm.limits.slo import SLO
from srtm.text.errors import SrtmError

log = logging.getLogger("srtm.journey")

_SHOWN = 10
"""decisions of a journey at the door"""


class Splitter:
    """faults: by journey, why it is not split, or why its contract is not set; "" when all is
    well"""

    def __init__(self, measured: Sequence[Measured], state: State | None, owner: Sequence[str]):
        """state: None where no journey is to be split; owner: who holds the topics' contracts, as
        flags of `srtm topic set`"""
        self._measured = [each for each in measured if each.journey.split != "off"]
        self._state = state
        self._owner = owner
        self._minutes = {each.journey.name: Minutes() for each in self._measured}
        for each in self._measured:
            if self._standing(each):  # it was made of more than the minutes after a restart
                self._minutes[each.journey.name].begun(monotonic_ns() / NS)
        self._unplanned: dict[str, str] = {}  # by journey, why the last plan came to nothing
        self._at = by_place(self._measured)
        self._turn = asyncio.Semaphore(1)
        """One plan is made at a time: each takes a core."""
        self._set: dict[str, tuple[SLO, dict[str, SLO | None]]] = {}
        """by journey, the SLO that its contract was given, and what gateways had before"""
        self._planning = ""
        """the journey for which a plan is being made"""
        self.faults: dict[str, str] = {}

    async def run(self) -> None:
        """Look at each journey once a minute until cancelled. One whose plan is being made, or
        whose contract is being set, holds up no other."""
        await asyncio.gather(*map(self._follow, self._measured))

    async def _follow(self, measured: Measured) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._tell(measured, await self._looked(measured))

    async def _looked(self, measured: Measured) -> str:
        """Why something could not be done; "" where all could."""
        try:
            await self._look(measured)
            fault = await self._set_contract(measured)
        except Exception as error:
            log.exception("journey %s is not split", measured.journey.name)
            return f"journey {measured.journey.name} is not split: {error!r}"
        return self._unplanned.get(measured.journey.name, "") or fault or _silent(measured)

    def _tell(self, measured: Measured, fault: str) -> None:
        name = measured.journey.name
        if fault and fault != self.faults.get(name):
            log.warning("%s", fault)
        self.faults[name] = fault

    async def _look(self, measured: Measured) -> None:
        """Split the journey again if it is time to."""
        name, at = measured.journey.name, monotonic_ns()
        minutes, standing = self._minutes[name], self._standing(measured)
        # What is only proposed is kept by nobody.
        kept = standing if measured.sets else None
        minutes.add(measured.bins(at), kept, measured.weights(at), self._ages(measured, at))
        why = minutes.due(standing, at / NS)
        if not why:
            return
        told = measured.document(at)
        told |= {"bins": minutes.whole(), "weights": minutes.heaviest()}
        drifts, is_broken = minutes.drifts, minutes.is_broken
        try:
            given = inputs(measured.journey, told)
            if standing is not None:
                given["now"] = standing.slos[Leg.CONSUMER]
                known = standing.stricter_than(time.time())
                given["stricter_than"] = given["kept"] if is_broken else known
            minutes.begun(at / NS)
            plan = await self._planned(name, given)
        except SrtmError as error:
            self._unplanned[name] = str(error)
            return
        self._unplanned.pop(name, None)
        self._decide(measured, plan, standing, drifts, is_broken, why)

    def _ages(self, measured: Measured, at: int) -> Bins | None:
        """The ages of the last minute's messages from end to end, where they tell of the split: the
        SLO is overspent, and the consumers keep what they are given."""
        wanted = self.wanted(Leg.CONSUMER, measured.places[Leg.CONSUMER])
        told = measured.lately_told(Leg.CONSUMER, at)
        is_kept = told is not None and told.slo == wanted
        return measured.ages.age.recent_bins(at) if is_kept and measured.budget.left < 0 else None

    async def _planned(self, name: str, given: dict[str, Any]) -> JourneyPlan:
        """Raises SrtmError."""
        async with self._turn:
            self._planning = name
            try:
                return await planned_apart(given)
            finally:
                self._planning = ""

    def _decide(
        self,
        measured: Measured,
        plan: JourneyPlan,
        standing: Standing | None,
        drifts: bool,
        is_broken: bool,
        why: str,
    ) -> None:
        assert self._state is not None
        name, now = measured.journey.name, time.time()
        new, said = judged(plan, standing, drifts, now, measured.places, is_broken)
        slos = {str(leg): str(slo) for leg, slo in plan.slos.items()}
        self._state.decide(name, new, SplitDecision(now, why, said, slos))
        log.info("journey %s: %s: %s", name, why, said)
        if new is not standing:
            self._minutes[name].settled()
            self._minutes[name].begun(monotonic_ns() / NS)

    async def _set_contract(self, measured: Measured) -> str:
        """Read the SLO of the topic's contract, and set it where a gateway has another than is
        wanted; why that could not be done, "" where it could."""
        found = await self._read_contract(measured)
        wanted = self.wanted(Leg.BROKER, measured.places[Leg.BROKER])
        if wanted is None:
            return ""
        wanted = SLO(wanted.percentile, wanted.target_seconds)
        topic, name = measured.journey.topic, measured.journey.name
        # What does not answer gets its contract by the deployment, or by its distributor's leases.
        if found.slos and all(slo == wanted for slo in found.slos.values()):
            self._set.pop(name, None)
            return "; ".join(found.faults)
        if self._set.get(name) == (wanted, found.slos):
            told = ", ".join(f"{slo} at {address}" for address, slo in found.slos.items())
            said = told or "; ".join(found.faults)
            return f"the contract of {topic} was given SLO {wanted}, and yet: {said}"
        fault = await set_contract_slo(topic, wanted, self._owner)
        if fault:
            return f"the contract of {topic} does not get SLO {wanted}: {fault}"
        self._set[name] = wanted, found.slos
        log.info("topic %s: SLO %s; it was %s", topic, wanted, found.slo)
        await self._read_contract(measured)
        return ""

    async def _read_contract(self, measured: Measured) -> ContractSlos:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(None, contract_slos, measured.journey)
        measured.contract = found.slo
        return found

    def _standing(self, measured: Measured) -> Standing | None:
        """The split in force; None also where the journey's file has changed since, so that it is
        one of another SLO, or its legs are elsewhere."""
        if self._state is None:
            return None
        journey = measured.journey
        found = self._state.standing.get(journey.name)
        return found if found and found.splits(journey.slo, measured.places) else None

    # --- what is wanted of the legs ---------------------------------------------------------------

    def wanted(self, leg: Leg, place: tuple[str, ...]) -> SLO | None:
        """The SLO that the leg at this place is to keep, for all journeys that are split there;
        None: its own."""
        splits = [self._standing(each) for each in self._at.get((leg, place), ()) if each.sets]
        return strictest([standing.slos[leg] for standing in splits if standing])

    def document(self, measured: Measured) -> dict[str, Any]:
        """What is shown of a journey's split."""
        journey = measured.journey
        if self._state is None or journey.split == "off":
            return {
                "mode": journey.split,
                "planning": False,
                "slos": {},
                "decisions": [],
                "fault": "",
            }
        standing = self._standing(measured)
        return {
            "mode": journey.split,
            "planning": self._planning == journey.name,
            "slos": {leg: str(slo) for leg, slo in standing.slos.items()} if standing else {},
            "since": standing.since if standing else None,
            "consumers": standing.consumers if standing else None,
            "decisions": [
                asdict(each) for each in self._state.decisions.get(journey.name, [])[-_SHOWN:]
            ],
            "fault": self.faults.get(journey.name, "") or self._state.fault,
        }


def _silent(measured: Measured) -> str:
    """Which leg does not ask which SLO to keep, though it is to get one; "" where all do."""
    if not measured.sets:
        return ""
    now = monotonic_ns()
    for leg, who in ((Leg.BRIDGE, "the bridge"), (Leg.CONSUMER, "srtm autoscale run")):
        if leg in measured.legs and measured.lately_told(leg, now) is None:
            return (
                f"journey {measured.journey.name}: {who} does not ask which SLO the {leg} is to "
                "keep: start it, with journey-address in its file"
            )
    return ""
