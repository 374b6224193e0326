"""The benchmarks by name. One is imported only when it is run."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.harness.report import Report
from benchmarks.harness.session import Session


@dataclass(frozen=True, slots=True)
class Entry:
    """`module` of this package has `run(session) -> Report`. models: it can be run live too;
    lasts: for as many minutes as one likes."""

    module: str
    shows: str
    models: bool = False
    lasts: bool = False

    def load(self) -> Callable[[Session], Report]:
        run: Callable[[Session], Report] = importlib.import_module(f"benchmarks.{self.module}").run
        return run


BENCHMARKS = {
    "gateway": Entry("gateway.cost", "what the gateway costs and gains, against nsqd alone"),
    "drl-penalty": Entry(
        "gateway.drl_penalty", "what splitting a token bucket costs (SRTM Fig. 6a)"
    ),
    "limiter": Entry(
        "gateway.limiter", "does a bursty topic keep to its contract, and at what CPU cost"
    ),
    "admission-log": Entry("gateway.admission_log", "what logging admissions costs in CPU"),
    "trace": Entry("gateway.trace", "what tracing arrivals costs in CPU"),
    "placement": Entry("placement.speed", "how fast and how near the best publishers are placed"),
    "convergence": Entry(
        "placement.convergence", "how long online fitting takes (SRTM Table 1)", models=True
    ),
    "adaptor": Entry(
        "adaptor.run", "how well shares follow traffic from broker to broker", models=True
    ),
    "packing": Entry("autoscaler.packing", "how fast and how near the best partitions are packed"),
    "landau": Entry(
        "autoscaler.landau", "rebalance cost against consumers of every packing (Landau 4.4.6)"
    ),
    "closer": Entry(
        "autoscaler.closer", "autoscalers on CLOSER's two workloads (its Tables 2 and 3)"
    ),
    "iccbdc": Entry(
        "autoscaler.iccbdc", "load-aware assignment against Kafka's own (ICCBDC section 4)"
    ),
    "li-ku": Entry("autoscaler.li_ku", "autoscalers on a bursty load (Li and Ku's Tables 2 and 3)"),
    "clairvoyant": Entry(
        "autoscaler.clairvoyant", "ours against a schedule that knows every arrival"
    ),
    "hand-over": Entry(
        "autoscaler.hand_over", "how long a partition stands still as it changes consumers"
    ),
    "unseen": Entry(
        "autoscaler.unseen.run", "ours on generated workloads that it was not tuned on"
    ),
    "decision-cost": Entry("autoscaler.decision_cost", "what one decision of ours costs in CPU"),
    "timestamps": Entry(
        "gateway.timestamps", "whom a late gateway delays, by source of arrival times"
    ),
    "bridge": Entry("bridge.run", "the Kafka bridge beside a plain loop and each side alone"),
    "correlation-groups": Entry(
        "correlation.run", "are planted groups found, and how fast as traces grow (Spark)"
    ),
    "soak": Entry(
        "soak.run", "faults at random: what is lost, let in too much, or grows", lasts=True
    ),
}
