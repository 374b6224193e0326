"""What all policies share: the notes that depend on no paper, and what time does to them."""

import abc
from collections.abc import Iterator
from dataclasses import replace

from srtm.autoscaler.decision import Decision
from srtm.autoscaler.observation import Observation
from srtm.autoscaler.policies.settings import Settings
from srtm.autoscaler.policies.timeline import Timeline


class PaperPolicy(abc.ABC):
    """A policy: `decide` adds the common notes to what the paper's `_decide` answers."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self.settings = settings
        self._timeline = Timeline(settings.decision_seconds)

    def decide(self, seen: Observation) -> Decision:
        odd = self._timeline.step(seen.at)
        decision = self._decide(seen)
        return replace(
            decision, notes=(*odd, *cannot_be_met(seen, self.settings.w_sla), *decision.notes)
        )

    @abc.abstractmethod
    def _decide(self, seen: Observation) -> Decision:
        """What the paper answers, with the paper's own notes. A policy that remembers forgets when
        `_timeline.went_back`: what it knows lies in the future then."""


def cannot_be_met(seen: Observation, w_sla: float) -> Iterator[str]:
    """What no policy can meet here, each with its remedy. Like all notes without a figure that
    changes by the second, so that a run can count them."""
    fastest = max([seen.new_mu, *(consumer.mu for consumer in seen.consumers)])
    takes = 1 / fastest
    if takes > w_sla:
        yield (
            f"an event takes {takes:g} s and w_sla is {w_sla:g} s: every one is late; make "
            "consumers faster or allow a longer latency"
        )
    for partition in seen.partitions:
        if partition.rate > fastest:
            yield (
                f"partition {partition.id} brings more than the {fastest:g}/s that a consumer "
                "serves: its lag grows whatever is done; add partitions or a faster consumer"
            )
    count, most = len(seen.consumers), len(seen.partitions)
    if count > most:
        yield (
            f"{count} consumers and {most} partitions: {count - most} can have nothing to do; "
            "start fewer or add partitions"
        )
    if seen.rebalance_seconds > w_sla:
        yield (
            f"a rebalance takes {seen.rebalance_seconds:g} s and w_sla is {w_sla:g} s: what "
            "arrives during one is late; hand over directly, or allow a longer latency"
        )
