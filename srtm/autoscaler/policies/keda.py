"""KEDA's Apache Kafka scaler: the sum of lag, through a HorizontalPodAutoscaler.

Sources: KEDA's documentation of the Apache Kafka scaler (lagThreshold is an average for each
replica; replicas do not exceed the number of partitions unless allowIdleConsumers) and of
ScaledObject (pollingInterval, minReplicaCount), Kubernetes' of the HPA (see hpa.py).
- Li-Ku sets lagThreshold to 290, "five times the consumption rate of a single consumer": 5 * mu.
- Li-Ku sets the polling interval to 5 s and reads it as the interval of decisions; so do we. In
  KEDA it governs scaling from and to 0 (and cached metrics); an HPA syncs every 15 s by default.
- minReplicaCount is 1 (KEDA's default of 0 would end the group on an empty topic).
- The window of 300 s is Kubernetes' default. Li-Ku counts 0.75 scale-downs in runs of 210 s: their
  window was shorter, but it is not printed.
It decides while consumers start or partitions move: an HPA counts replicas, ready or not, and knows
of no rebalance.
"""

from typing import Final

from srtm.autoscaler.decision import Decision
from srtm.autoscaler.observation import Observation
from srtm.autoscaler.policies.group import consumers
from srtm.autoscaler.policies.hpa import DOWN_WINDOW_SECONDS, Behavior, desired_replicas
from srtm.autoscaler.policies.kafka import adopt_orphans, scale_to
from srtm.autoscaler.policies.paper import PaperPolicy
from srtm.autoscaler.policies.settings import Settings
from srtm.autoscaler.policies.timeline import Cooldown

POLLING_SECONDS: Final = 5.0
THRESHOLD_SECONDS: Final = 5.0
"""lagThreshold in seconds of one consumer's work: 290 / 58."""


class Keda(PaperPolicy):
    def __init__(
        self, name: str, settings: Settings, down_window_seconds: float = DOWN_WINDOW_SECONDS
    ) -> None:
        super().__init__(name, settings)
        self.threshold = THRESHOLD_SECONDS * settings.mu
        self._behavior = Behavior(down_window_seconds)
        self._polled = Cooldown(POLLING_SECONDS)

    def _decide(self, seen: Observation) -> Decision:
        if self._timeline.went_back:
            self._behavior.clear()
            self._polled.since = None
        count, most = len(seen.consumers), len(seen.partitions)
        if left := self._polled.left(seen.at):
            return adopt_orphans(seen, self.settings.handover, f"polled again in {left:g} s")
        self._polled.begin(seen.at)
        lag, notes = seen.lag, list[str]()
        if lag > most * self.threshold:
            lag = most * self.threshold
            notes.append(f"lag over {lag:g} counts as {lag:g}: {most} partitions' worth (KEDA)")
        desired = max(1, desired_replicas(lag, self.threshold, count))
        replicas = min(self._behavior.replicas(seen.at, count, desired), most)
        said = (
            f"lag {seen.lag:g} at {self.threshold:g} for each replica asks for {desired}, "
            f"{consumers(count)} are there"
        )
        if replicas == count:
            return adopt_orphans(seen, self.settings.handover, said, notes)
        return scale_to(seen, replicas, self.settings.handover, said, notes)
