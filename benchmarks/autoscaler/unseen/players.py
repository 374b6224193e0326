"""Who plays a case: the rivals, groups that never change, and ours."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.autoscaler.closer import POLICIES_COMPARED
from benchmarks.autoscaler.rivals import OURS
from benchmarks.autoscaler.unseen.cases import PARTITIONS, Case
from benchmarks.harness.side_by_side import side_by_side
from srtm.autoscaler.decision import Action, Decision, Handover, Member, Policy
from srtm.autoscaler.observation import Observation
from srtm.autoscaler.policies import POLICIES, Settings
from srtm.autoscaler.policies.srtm import Srtm
from srtm.autoscaler.policies.srtm.tuning import TUNING, Tuning
from srtm.autoscaler.simulator.run import simulate

CONSTANT = "constant "


class Constant:
    """A group of `count` from the first decision on, its partitions dealt out in turn."""

    def __init__(self, count: int) -> None:
        self.name = f"{CONSTANT}{count}"
        self._count = count
        self._begun = False

    def decide(self, seen: Observation) -> Decision:
        names = [c.id for c in seen.consumers][: self._count]
        begun, self._begun = self._begun, True
        if begun or len(seen.consumers) == self._count:
            return Decision(Action.NONE)
        group: list[str | None] = [*names, *[None] * (self._count - len(names))]
        ids = [p.id for p in seen.partitions]
        members = tuple(
            Member(name, tuple(ids[place :: self._count])) for place, name in enumerate(group)
        )
        action = Action.UP if self._count > len(seen.consumers) else Action.DOWN
        return Decision(action, members, f"always {self._count}", handover=Handover.DIRECT)


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one policy in one case. share: events in time; minutes: replica-minutes."""

    policy: str
    share: float
    minutes: float
    changes: int

    def document(self) -> dict[str, Any]:
        return {
            "policy": self.policy,
            "sla_percent": round(100 * self.share, 4),
            "replica_minutes": round(self.minutes, 3),
            "changes": self.changes,
        }


def rivals_of(case: Case) -> tuple[str, ...]:
    """The papers' policies and the constant groups that serve the mean rate."""
    constants = (f"{CONSTANT}{count}" for count in range(case.least, PARTITIONS + 1))
    return (*POLICIES_COMPARED, *constants)


def policy_of(name: str, case: Case, tuning: Tuning = TUNING) -> Policy:
    setting = case.setting
    if name.startswith(CONSTANT):
        return Constant(int(name.removeprefix(CONSTANT)))
    if name == OURS:
        return Srtm(setting.slo, setting.decision_seconds, tuning=tuning)
    settings = Settings(setting.slo, setting.mu, setting.decision_seconds)
    return POLICIES[name](settings, None)


def played(case: Case, name: str, tuning: Tuning = TUNING) -> Result:
    run = simulate(policy_of(name, case, tuning), case.arrivals, case.setting)
    changes = sum(n for action, n in run.actions.items() if action is not Action.NONE)
    return Result(run.policy, float(run.sla_share), float(run.replica_minutes), changes)


def _all(case: Case, names: tuple[str, ...], tuning: Tuning) -> list[Result]:
    np.seterr(all="ignore")
    return [played(case, name, tuning) for name in names]


def play_all(
    jobs: list[tuple[Case, tuple[str, ...]]], processes: int, tuning: Tuning = TUNING
) -> Iterator[list[Result]]:
    """The results of the jobs in their order, each as soon as it is there."""
    return side_by_side([partial(_all, case, names, tuning) for case, names in jobs], processes)
