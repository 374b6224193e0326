"""Several policies against the same arrivals: what `srtm autoscale simulate` runs."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from srtm.autoscaler.decision import Handover, Policy
from srtm.autoscaler.policies import DESCRIPTIONS, POLICIES, Settings, Trace
from srtm.autoscaler.policies.registry import meant
from srtm.autoscaler.simulator.arrivals import ArrivalModel, Arrivals, arrivals_of
from srtm.autoscaler.simulator.run import Run, simulate
from srtm.autoscaler.simulator.setting import Setting
from srtm.limits.ceiling import Ceiling
from srtm.text.errors import UsageError

_OWN = {
    "clairvoyant": "knows every arrival: the cheapest schedule that a search finds",
}


@dataclass(frozen=True, slots=True)
class Experiment:
    """One workload in one setting.

    rates:  events/s of the topic, one for each second
    shares: of each partition
    contract: what bounds the arrivals, as policies are told (None: nothing)
    """

    rates: Sequence[float]
    shares: Sequence[float]
    model: ArrivalModel
    setting: Setting
    contract: Ceiling | None = None

    def arrivals(self) -> Arrivals:
        """Raises ValueError for rates and shares that are none."""
        return arrivals_of(self.rates, self.shares, self.model, self.setting.seed)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run, and what a reader of its figures should know."""

    run: Run
    notes: tuple[str, ...]


def policy_names() -> dict[str, str]:
    """Every name that `run_policy` takes, with one line on what it is."""
    return DESCRIPTIONS | _OWN


def check_names(names: Sequence[str]) -> None:
    """Raises UsageError for a name that is not known, with the one that looks like it."""
    known = policy_names()
    for name in names:
        if name not in known:
            raise UsageError(f"--policy {name!r} is not known; {meant(name, known)}")
        if names.count(name) > 1:
            raise UsageError(f"--policy {name!r} is given twice")


def run_policy(
    name: str,
    experiment: Experiment,
    arrivals: Arrivals,
    progress: Callable[[float], None] | None = None,
) -> Outcome:
    """One policy's run. `optimal` scales in no time, as its paper defines it."""
    setting, notes = experiment.setting, list[str]()
    if name == "optimal":
        setting = replace(
            setting,
            startup_seconds=0.0,
            rebalance_seconds=0.0,
            handover=Handover.DIRECT,
            lag_phase=0.0,
        )
        notes.append("takes no time to launch or to rebalance, as CLOSER section 5.1 defines it")
    if name == "clairvoyant":
        policy, notes = _clairvoyant(arrivals, setting)
    else:
        policy = _policy(name, experiment, setting)
    run = simulate(policy, arrivals, setting, progress=progress)
    notes += _kinds(run.notes)
    if run.unserved:
        notes.append(f"{run.unserved} events were never served: they count as late")
    return Outcome(run, tuple(f"{name}: {note}" for note in notes))


def _policy(name: str, experiment: Experiment, setting: Setting) -> Policy:
    settings = Settings(
        setting.slo,
        setting.mu,
        setting.decision_seconds,
        handover=setting.handover,
        contract=experiment.contract,
        shares=tuple(share / math.fsum(experiment.shares) for share in experiment.shares),
    )
    return POLICIES[name](settings, Trace(experiment.rates, experiment.shares))


def _clairvoyant(arrivals: Arrivals, setting: Setting) -> tuple[Policy, list[str]]:
    """Its search, and its lower bound with the gap."""
    from srtm.autoscaler.simulator.clairvoyant import Clairvoyant, plan  # as above

    if setting.mus:
        raise UsageError("--policy clairvoyant knows consumers of one mu only; give one --mu")
    found = plan(arrivals, setting)
    notes = [found.remedy] if found.remedy else []
    if math.isfinite(found.lower_bound):
        gap = 100 * (found.replica_minutes / found.lower_bound - 1)
        notes.append(
            f"no schedule that keeps the SLO takes less than {found.lower_bound:.2f} "
            f"replica-minutes; this one is {gap:.1f} % above that, the best of {found.runs}"
        )
    return Clairvoyant(found), notes


def _kinds(notes: dict[str, int]) -> list[str]:
    """Notes that differ in their numbers only count as one, shown by the first."""
    kinds: dict[str, tuple[str, int]] = {}
    for note, count in notes.items():
        kind = re.sub(r"[0-9][0-9.,e+]*", "#", note)
        first, before = kinds.get(kind, (note, 0))
        kinds[kind] = first, before + count
    return [
        note if count == 1 else f"{note} (and {count - 1} more like it)"
        for note, count in kinds.values()
    ]
