"""ICCBDC 2022: AutoScaleCG (section 3.2 and appendix), and its counts with Kafka's assignment.

Least-loaded FFD into consumers of mu events/s and mu * w_sla events; the number of consumers
follows at once, in both directions. Read out of the text or mended:
- A partition with more than mu * w_sla events counts as just that many (section 3.2): it fills a
  consumer. One above mu gets a consumer of its own, where the appendix's loop would never end.
- The cooldown of section 4.2 (30 s after a scaling; section 4.1 names none, so 0 by default)
  suspends scaling, not the reassignment of the last branch: that is no scale action.
- "Trigger a rebalance" that would change no assignment is left out.
- A partition without owner is seen by no line; Kafka itself rebalances then.
It runs at every decision interval but during a rebalance, as CLOSER's (closer.py says why);
consumers that start count.
"""

from dataclasses import replace
from typing import Final

from srtm.autoscaler.decision import Decision, Handover
from srtm.autoscaler.observation import Observation, PartitionSeen
from srtm.autoscaler.packing import Item, least_loaded_ffd
from srtm.autoscaler.policies.closer import assignment_violates_the_sla
from srtm.autoscaler.policies.group import (
    bins_of,
    consumers,
    items_of,
    members_of,
    nothing,
    wanted,
)
from srtm.autoscaler.policies.kafka import adopt_orphans, scale_to
from srtm.autoscaler.policies.paper import PaperPolicy
from srtm.autoscaler.policies.settings import Settings
from srtm.autoscaler.policies.timeline import Cooldown

COOLDOWN_SECONDS: Final = 0.0


def clamped_items(seen: Observation, w_sla: float) -> tuple[list[Item], list[str]]:
    """Items with their lag clamped to mu * w_sla, and a note for each that was."""
    most = max([seen.new_mu, *(c.mu for c in seen.consumers)]) * w_sla
    notes = [
        f"partition {p.id} has more than {most:g} events (mu * w_sla): it counts as {most:g}, all "
        "that one consumer may have (ICCBDC section 3.2); some of them are late"
        for p in seen.partitions
        if p.lag > most
    ]

    def lag(partition: PartitionSeen) -> float:
        return min(partition.lag, most)

    return items_of(seen, lag), notes


class Iccbdc(PaperPolicy):
    """AutoScaleCG with load-aware assignment."""

    def __init__(self, name: str, settings: Settings) -> None:
        super().__init__(name, settings)
        self._cooldown = Cooldown(settings.cooldown(COOLDOWN_SECONDS))

    def _decide(self, seen: Observation) -> Decision:
        if self._timeline.went_back:
            self._cooldown.since = None
        if seen.rebalancing:
            return nothing("a rebalance is under way")
        w_sla, have = self.settings.w_sla, len(seen.consumers)
        items, notes = clamped_items(seen, w_sla)
        packing = least_loaded_ffd(items, bins_of(seen, 1.0, w_sla))
        load = f"{seen.rate:g}/s and {seen.lag:g} events"
        if packing.count != have:
            if have and (left := self._cooldown.left(seen.at)):
                said = f"{load} want {consumers(packing.count)}; cooldown for {left:g} s more"
                return nothing(said, notes)
            self._cooldown.begin(seen.at)
            reason = f"{load} want {consumers(packing.count)}, {have} are there"
            return wanted(seen, members_of(packing), reason, notes)
        if seen.orphans or assignment_violates_the_sla(seen, 1.0, w_sla):
            reason = f"an assignment over mu: {load} anew over {consumers(have)}"
            return wanted(seen, members_of(packing), reason, notes)
        return nothing(f"{consumers(have)} hold {load}", notes)


class IccbdcCounts(PaperPolicy):
    """AutoScaleCG's numbers of consumers, with partitions assigned by Kafka: the baseline of
    section 4.

    It "scales exactly similar" to the load-aware run, where lag stays small and the rates alone
    drive the packing (section 4.2, end). So lag is left out here: with its own lag, which grows
    without bound, this group would scale quite differently. Kafka assigns when members change.
    """

    def __init__(self, name: str, settings: Settings, handover: Handover) -> None:
        super().__init__(name, settings)
        self._cooldown = Cooldown(settings.cooldown(COOLDOWN_SECONDS))
        self._handover = handover

    def _decide(self, seen: Observation) -> Decision:
        if self._timeline.went_back:
            self._cooldown.since = None
        return replace(self._scaled(seen), handover=self._handover)

    def _scaled(self, seen: Observation) -> Decision:
        if seen.rebalancing:
            return nothing("a rebalance is under way")
        have = len(seen.consumers)
        packing = least_loaded_ffd(items_of(seen), bins_of(seen, 1.0))  # no limit of lag
        said = f"{seen.rate:g}/s want {consumers(packing.count)}, {have} are there"
        if packing.count == have:
            return adopt_orphans(seen, self._handover, said)
        if have and (left := self._cooldown.left(seen.at)):
            return adopt_orphans(seen, self._handover, f"{said}; cooldown for {left:g} s more")
        self._cooldown.begin(seen.at)
        return scale_to(seen, packing.count, self._handover, said)
