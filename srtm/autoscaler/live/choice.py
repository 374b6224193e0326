"""The policies that can run on a live group, by name."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from srtm.autoscaler.decision import Handover, Policy
from srtm.autoscaler.live.bounds import possible
from srtm.autoscaler.observation import Announcement, Observation
from srtm.autoscaler.policies import POLICIES, Settings
from srtm.autoscaler.policies.registry import SIZES_BY_CONTRACT, meant
from srtm.autoscaler.policies.srtm import Srtm
from srtm.autoscaler.policies.srtm.tuning import TUNING
from srtm.autoscaler.policies.taken_back import TakenBack
from srtm.consumer.file import GroupTable, ScaledTable
from srtm.limits.slo import SLO
from srtm.text.errors import UsageError

_KNOWING = ("optimal", "peak")
"""They need the arrivals of the whole run."""

HANDOVERS: Final = {
    "direct": Handover.DIRECT,
    "assignor": Handover.EAGER,
    "kip-848": Handover.COOPERATIVE,
}

LIVE = tuple(name for name in POLICIES if name not in _KNOWING)

_LANDAU = "landau-mbfp"
"""the packing of Landau's own that `watch` shows; the others are shown where they are asked for"""


def watched(names: tuple[str, ...], group: ScaledTable, where: str) -> tuple[str, ...]:
    """The policies that `watch` shows: `names`, or that of the file and one of each kind; without a
    contract none that sizes by it. Raises UsageError."""
    check_policy(group.policy, where)
    for name in names:
        check_policy(name, "--policy")
    if SIZES_BY_CONTRACT in names and group.contract is None:
        raise UsageError(
            f"--policy {SIZES_BY_CONTRACT} sizes by a contract: give {where} [group] contract = "
            '"rate=1000,burst=200", the topic\'s own'
        )
    usual = (name for name in LIVE if group.contract or name != SIZES_BY_CONTRACT)
    return names or tuple(
        name for name in usual if name in (group.policy, _LANDAU) or not name.startswith("landau-")
    )


def check_policy(name: str, where: str) -> None:
    """Raises UsageError that names the one that looks like it."""
    if name in LIVE:
        return
    if name in _KNOWING:
        raise UsageError(
            f"{where}: {name} knows the whole workload beforehand: it can be simulated, not run"
        )
    raise UsageError(f"{where}: policy {name!r} is not known; {meant(name, LIVE)}")


class Asked:
    """Policies that are asked what they would do, and not followed. make: one of `names`, with the
    mu of a consumer; announced: load that is known to come"""

    def __init__(
        self,
        names: tuple[str, ...],
        group: ScaledTable,
        make: Callable[[str, float], Policy],
        announced: Callable[[], tuple[Announcement, ...]] = tuple,
    ) -> None:
        self._names = names
        self._group = group
        self._make = make
        self._announced = announced
        self._policies: dict[str, Policy] = {}

    def ask(self, seen: Observation) -> dict[str, dict[str, Any]]:
        """What each would do within the group's bounds, as `watch` shows it."""
        seen = replace(seen, announced=self._announced())
        if not self._policies:
            self._policies = {name: self._make(name, seen.new_mu) for name in self._names}
        found = {}
        for name, policy in self._policies.items():
            decision = possible(seen, policy.decide(seen), self._group.min, self._group.max)
            found[name] = {
                "action": str(decision.action),
                "consumers": len(decision.members) or len(seen.consumers),
                "reason": decision.reason,
                "notes": list(decision.notes),
            }
        return found


def make_pool_policy(name: str, group: ScaledTable, mu: float, slo: SLO | None = None) -> Policy:
    """The policy for a pool, in which nothing stands still as it changes, and nobody ends a poll
    first. slo: the file's, where none is given"""
    slo = slo or group.slo
    if name == "srtm":
        tuning = replace(TUNING, longest_poll_seconds=0.0)
        made = Srtm(slo, group.interval, (Handover.DIRECT,), group.max, tuning, group.contract)
        return TakenBack(made, slo)
    settings = Settings(
        slo,
        mu,
        group.interval,
        handover=Handover.DIRECT,
        contract=group.contract,
        pooled=True,
    )
    return POLICIES[name](settings, None)


def make_policy(name: str, group: GroupTable, mu: float, slo: SLO | None = None) -> Policy:
    """The policy for the group's kind of hand-over. mu: events/s, as known now; slo: the file's,
    where none is given"""
    handover = HANDOVERS[group.handover]
    slo = slo or group.slo
    if name == "srtm":
        made = Srtm(slo, group.interval, (handover,), group.max, ceiling=group.contract)
        return TakenBack(made, slo)
    settings = Settings(slo, mu, group.interval, handover=handover, contract=group.contract)
    return POLICIES[name](settings, None)
