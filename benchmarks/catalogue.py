"""The benchmarks by name. One is imported only when it is run."""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.harness.report import Report
from benchmarks.harness.session import Session


@dataclass(frozen=True, slots=True)
class Entry:
    """`module` of this package, or MODULE:FUNCTION of it, has `run(session) -> Report`. models:
    --full runs more of it; lasts: for as many minutes as one likes; spans: over the hosts of an
    inventory; part: its second argument, where it has one."""

    module: str
    shows: str
    models: bool = False
    lasts: bool = False
    spans: bool = False
    part: str = ""

    @property
    def method(self) -> str:
        """How it measures: what its function or its module says of itself."""
        found = self._function()
        return inspect.getdoc(found) or inspect.getdoc(inspect.getmodule(found)) or ""

    def load(self) -> Callable[[Session], Report]:
        run = self._function()
        return (lambda session: run(session, self.part)) if self.part else run

    def _function(self) -> Callable[..., Report]:
        module, _, function = self.module.partition(":")
        found = importlib.import_module(f"benchmarks.{module}")
        run: Callable[..., Report] = getattr(found, function or "run")
        return run


PAPERS = "papers"
BENCHMARKS = {
    PAPERS: Entry(
        "papers.run", "every table and figure of the five papers beside ours, from kept results"
    ),
    "gateway": Entry("gateway.cost", "what the gateway costs and gains, against nsqd alone"),
    "gateway-secure": Entry("gateway.secure", "what TLS, snappy and deflate cost"),
    "garbage": Entry(
        "gateway.garbage", "does collecting garbage less often shorten nsqd's tail (SRTM 5.3)"
    ),
    "drl-penalty": Entry(
        "gateway.drl_penalty", "what splitting a token bucket costs (SRTM Fig. 6)"
    ),
    "limiter": Entry(
        "gateway.limiter", "does a bursty topic keep to its contract, and at what CPU cost"
    ),
    "fairness": Entry(
        "gateway.fairness", "does a noisy publisher of a fair topic delay itself alone"
    ),
    "admission-log": Entry(
        "gateway.recording:admission_log", "what logging admissions costs in CPU"
    ),
    "trace": Entry("gateway.recording:trace", "what tracing arrivals costs in CPU"),
    "placement": Entry("placement.speed", "how fast and how near the best publishers are placed"),
    "concentration": Entry(
        "experiments.paper:concentration",
        "a topic on the fewest brokers, or on all (SRTM Fig. 7)",
    ),
    "max-min": Entry(
        "experiments.paper:max_min",
        "its smallest share as large as can be, or not (SRTM Fig. 8)",
    ),
    "correlation": Entry(
        "experiments.paper:correlation",
        "keeping those apart who send together (SRTM Fig. 9, 10)",
    ),
    "noisy-correlation": Entry(
        "experiments.paper:noisy_correlation",
        "the same where they send about together (SRTM Fig. 11)",
    ),
    **{
        f"srtm-{panel}": Entry(
            "experiments.live",
            f"the same on real brokers, one panel (SRTM Fig. {panel})",
            models=True,
            spans=True,
            part=panel,
        )
        for panel in ("7a", "7b", "7c", "7d", "8a", "8b", "8c", "8d", "9a", "9b", "11a", "11b")
    },
    "simulator": Entry(
        "experiments.growth", "what simulating a placement costs, up to 1,000 brokers"
    ),
    "convergence": Entry(
        "placement.convergence", "how long online fitting takes (SRTM Table 1)", models=True
    ),
    "scale-out": Entry(
        "placement.scale_out", "brokers that come for those without one, and go (SRTM 4.2)"
    ),
    "moves": Entry("placement.moves", "publishers moved as traffic shifts (SRTM 7)"),
    "adaptor": Entry(
        "adaptor.run", "how well shares follow traffic from broker to broker", models=True
    ),
    "packing": Entry("autoscaler.packing", "how fast and how near the best partitions are packed"),
    "landau": Entry(
        "autoscaler.landau", "rebalance cost against consumers of every packing (Landau 4.4.6)"
    ),
    "monitor": Entry(
        "autoscaler.landau_monitor", "how soon a monitor follows a step (Landau Fig. 4.2, 4.3, 5.2)"
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
        "autoscaler.live.hand_over", "how long a partition stands still as it changes consumers"
    ),
    "autoscale-live": Entry(
        "autoscaler.live.autoscale",
        "real groups on Kafka, beside what the simulator says",
        lasts=True,
    ),
    "closer-live": Entry(
        "autoscaler.live.closer", "CLOSER's two algorithms on a real Kafka (its section 5)"
    ),
    "chain": Entry(
        "autoscaler.chain", "an SLO over a chain of groups, each feeding the next (CLOSER 6)"
    ),
    "landau-live": Entry(
        "autoscaler.live.landau", "phases of a consumer, and one that crashed (Landau 4.3)"
    ),
    "unseen": Entry(
        "autoscaler.unseen.run", "ours on generated workloads that it was not tuned on"
    ),
    "contract": Entry(
        "autoscaler.contract.run", "consumers sized by a contract, against the worst that it allows"
    ),
    "decision-cost": Entry("autoscaler.decision_cost", "what one decision of ours costs in CPU"),
    "timestamps": Entry(
        "gateway.timestamps", "whom a late gateway delays, by source of arrival times"
    ),
    "bridge": Entry("bridge.run", "the Kafka bridge beside a plain loop and each side alone"),
    "correlation-groups": Entry(
        "correlation.run",
        "are planted groups found, and how fast as traces grow (Spark)",
        models=True,
    ),
    "inferred-groups": Entry(
        "correlation.inferred", "token wait with groups that Spark found, users named, and none"
    ),
    "control": Entry("control.run", "what a gateway's report costs the distributor"),
    "takeover": Entry(
        "control.takeover", "distributors killed, frozen and cut off: what is exceeded or lost"
    ),
    "restart": Entry(
        "control.restart", "a distributor that begins with a large store: how soon it serves"
    ),
    "shards": Entry(
        "control.shards.run", "several leaders on one store, simulated: do sums hold, at what cost"
    ),
    "journey-ages": Entry(
        "journey.ages", "how old messages are from end to end, against a client's own measure"
    ),
    "journey": Entry(
        "journey.run", "what a planned split of an SLO costs, against the best equal one"
    ),
    "faults": Entry(
        "faults.run",
        "each fault by itself over several hosts: what is lost, late or let in",
        lasts=True,
    ),
    "soak": Entry(
        "soak.run", "faults at random: what is lost, let in too much, or grows", lasts=True
    ),
}
