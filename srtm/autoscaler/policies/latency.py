"""Kubernetes' HPA on predicted latency over the SLO's target, as LLM serving is scaled by it.

The signal is `srtm.autoscaler.signal`, what a controller offers at /metrics; the law is the HPA's,
with a target of 1: replicas times the signal, rounded up, within its tolerance, windows and limits
(hpa.py). A latency is no load: a group that is half as large has more than twice of it, so the law
asks for too few where the signal is low, and comes back from there step by step.
"""

from srtm.autoscaler.decision import Decision
from srtm.autoscaler.observation import Observation
from srtm.autoscaler.policies.group import consumers
from srtm.autoscaler.policies.hpa import PERIOD_SECONDS, Behavior, desired_replicas
from srtm.autoscaler.policies.kafka import adopt_orphans, scale_to
from srtm.autoscaler.policies.paper import PaperPolicy
from srtm.autoscaler.policies.settings import Settings
from srtm.autoscaler.policies.timeline import Cooldown
from srtm.autoscaler.signal import latency_signal


class Latency(PaperPolicy):
    def __init__(self, name: str, settings: Settings) -> None:
        super().__init__(name, settings)
        self._behavior = Behavior()
        self._synced = Cooldown(PERIOD_SECONDS)

    def _decide(self, seen: Observation) -> Decision:
        if self._timeline.went_back:
            self._behavior.clear()
            self._synced.since = None
        if left := self._synced.left(seen.at):
            return adopt_orphans(seen, self.settings.handover, f"the HPA syncs in {left:g} s")
        self._synced.begin(seen.at)
        count, most = len(seen.consumers), len(seen.partitions)
        signal = latency_signal(seen, self.settings.slo, self.settings.decision_seconds)
        desired = max(1, desired_replicas(signal * count, 1.0, count))
        replicas = min(self._behavior.replicas(seen.at, count, desired), most)
        said = (
            f"predicted latency is {signal:.2f} of the SLO's target: that asks for {desired}, "
            f"{consumers(count)} are there"
        )
        if replicas == count:
            return adopt_orphans(seen, self.settings.handover, said)
        return scale_to(seen, replicas, self.settings.handover, said)
