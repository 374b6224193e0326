"""What a controller has seen, kept in the group's topic for the one after it. Pure.

A policy's own memory is whatever it made of the observations that it was shown, so these are kept,
the last `KEPT` of them, and shown again to the policy of the next controller. The rolling budget is
kept beside them. Nothing in these records is run, and what is not understood is passed over.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from srtm.autoscaler.observation import ConsumerSeen, ConsumerState, Observation, PartitionSeen
from srtm.consumer.wire import Memory
from srtm.limits.rolling import RollingBudget
from srtm.limits.slo import SLO

KEPT = 300
_BUDGET = "budget"
_STALE_SECONDS = 900.0
"""What was seen longer ago by the wall clock says nothing of now; a clock that was stepped makes a
controller forget, and no more."""
_MOST_NUMBERS = 20_000
"""of one observation: a topic of more partitions is not remembered"""
_MOST_EVENTS = 2**53


def written(seen: Observation) -> dict[str, Any]:
    """The observation as a JSON document."""
    return {
        "at": seen.at,
        "partitions": [[each.id, each.rate, each.lag, *each.slots] for each in seen.partitions],
        "consumers": [
            [each.id, each.mu, str(each.state), *each.partitions] for each in seen.consumers
        ],
        "seconds": [seen.rebalance_seconds, seen.startup_seconds],
        "stopped": seen.stopped_seconds,
        "staying": seen.staying_seconds,
        "new_mu": seen.new_mu,
        "rebalancing": seen.rebalancing,
        "served": seen.served,
        "late": seen.late,
    }


def read(document: Mapping[str, Any]) -> Observation:
    """Raises ValueError, TypeError, KeyError or IndexError for what nobody has written so."""
    rebalance, startup = map(float, document["seconds"])
    return Observation(
        at=float(document["at"]),
        partitions=tuple(
            PartitionSeen(int(id_), float(rate), float(lag), tuple(map(int, slots)))
            for id_, rate, lag, *slots in document["partitions"]
        ),
        consumers=tuple(
            ConsumerSeen(str(id_), float(mu), tuple(map(int, part)), ConsumerState(state))
            for id_, mu, state, *part in document["consumers"]
        ),
        new_mu=float(document["new_mu"]),
        rebalancing=bool(document["rebalancing"]),
        rebalance_seconds=rebalance,
        startup_seconds=startup,
        stopped_seconds=_number(document["stopped"]),
        staying_seconds=_number(document["staying"]),
        served=_count(document["served"]),
        late=_count(document["late"]),
    )


def _count(value: Any) -> int:
    """Raises ValueError for what no group can have served; sums of it stay finite."""
    count = int(value)
    if not 0 <= count <= _MOST_EVENTS:
        raise ValueError("nobody serves so many events")
    return count


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


@dataclass(frozen=True, slots=True)
class Recalled:
    """past: oldest first, on the clock of who recalls it; budget: None where none was kept"""

    past: tuple[Observation, ...] = ()
    budget: RollingBudget | None = None


@dataclass(slots=True)
class Keeper:
    """write: to the group's topic; wall: seconds since 1970, for how long ago something was"""

    write: Callable[[Memory], None]
    wall: Callable[[], float]
    _number: int = 0
    _budget_at: float | None = None

    def keep(self, seen: Observation) -> None:
        """Keep an observation for the next controller; called once an interval."""
        numbers = sum(4 + len(each.slots) for each in seen.partitions)
        if numbers > _MOST_NUMBERS:
            return
        self._number += 1
        document = {"number": self._number, "wall": self.wall(), **written(seen)}
        self.write(Memory(name=f"{self._number % KEPT:04}", document=document))

    def keep_budget(self, at: float, budget: RollingBudget) -> None:
        """Keep the budget, as often as a cell of it is full; what came after it stands in the
        observations."""
        if self._budget_at is not None and at - self._budget_at < budget.cell_seconds:
            return
        self._budget_at = at
        document = {"number": self._number, "wall": self.wall(), "cells": budget.ages(at)}
        self.write(Memory(name=_BUDGET, document=document))

    def recall(
        self, memories: Iterable[Memory], slo: SLO, now: float, interval_seconds: float
    ) -> Recalled:
        """What the controller before this one kept; now: seconds of this one's clock."""
        found, kept = [], None
        for memory in memories:
            try:
                number, wall = int(memory.document["number"]), float(memory.document["wall"])  # type: ignore[call-overload, arg-type]
                if not math.isfinite(wall):
                    continue
                if memory.name == _BUDGET:
                    kept = (number, wall, memory.document["cells"])
                else:
                    found.append((number, wall, read(memory.document)))
            except (ValueError, TypeError, KeyError, IndexError, OverflowError):
                continue
        found.sort(key=lambda each: each[0])
        self._number = found[-1][0] if found else 0
        budget = self._budget(kept, found, slo, now)
        if not found or self.wall() - found[-1][1] > _STALE_SECONDS:
            return Recalled(budget=budget)
        return Recalled(_redated([each[2] for each in found], now, interval_seconds), budget)

    def _budget(
        self,
        kept: tuple[int, float, Any] | None,
        found: Iterable[tuple[int, float, Observation]],
        slo: SLO,
        now: float,
    ) -> RollingBudget | None:
        if kept is None:
            return None
        number, wall, cells = kept
        gone = max(self.wall() - wall, 0.0)
        budget = RollingBudget(slo)
        try:
            for age, served, late in cells:
                if age >= 0 and late <= served:
                    budget.add(now - gone - float(age), _count(served), _count(late))
        except (ValueError, TypeError, OverflowError):
            return None
        for each, seen_wall, seen in found:
            if each > number:
                age = max(self.wall() - seen_wall, 0.0)
                budget.add(now - min(age, gone), seen.served, seen.late)
        return budget


def _redated(
    past: list[Observation], now: float, interval_seconds: float
) -> tuple[Observation, ...]:
    """The last one an interval ago, as if nothing lay in between; where a clock was another's, or
    nobody looked for a while, an interval is put."""
    found, at = [], now
    later: float | None = None
    for seen in reversed(past):
        apart = later - seen.at if later is not None else interval_seconds
        at -= apart if 0 < apart <= 5 * interval_seconds else interval_seconds
        later = seen.at
        found.append(replace(seen, at=at))
    return tuple(reversed(found))
