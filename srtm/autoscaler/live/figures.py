"""The figures that a controller shows over HTTP."""

from collections import Counter
from typing import Any

from srtm.autoscaler.live.controller import Controller
from srtm.autoscaler.live.kafka_world import KafkaWorld
from srtm.autoscaler.live.learnt import Learnt
from srtm.autoscaler.live.states import State
from srtm.consumer.file import GroupTable
from srtm.http.metrics import Row, Text, latencies

MOST_SHARES = 1000
"""partitions whose shares a journey is told; of more it takes them for equal"""
METRICS: tuple[Row[dict[str, Any]], ...] = (
    Row("srtm_autoscale_leads", "gauge", "1 while this controller leads its group.",
        lambda d: d["leads"]),
    Row("srtm_autoscale_consumers", "gauge", "Consumers of the group that have joined.",
        lambda d: d.get("consumers", 0)),
    Row("srtm_autoscale_budget_left", "gauge",
        "What is left of the late events that the SLO allows over its time; negative: overspent.",
        lambda d: d.get("budget_left")),
    Row("srtm_autoscale_late_share", "gauge", "Share of late events over the time of the SLO.",
        lambda d: d.get("late_share")),
    Row("srtm_autoscale_oldest_wait_seconds", "gauge",
        "Wait so far of the event that has waited the longest.",
        lambda d: d.get("oldest_wait_seconds")),
    Row("srtm_autoscale_predicted_latency_ratio", "gauge",
        "Latency foretold at the SLO's percentile over its target, 10 at most; above 1 the SLO is "
        "about to be missed.",
        lambda d: d.get("predicted_latency_ratio")),
    Row("srtm_autoscale_rescales", "gauge", "Changes of the group in the last day.",
        lambda d: d.get("rescales", 0)),
    Row("srtm_autoscale_replica_seconds_total", "counter",
        "Seconds of all consumers together, each counted from its launch.",
        lambda d: d.get("replica_seconds", 0)),
    Row("srtm_autoscale_up_count_total", "counter", "Decisions for more consumers.",
        lambda d: d.get("up_count", 0)),
    Row("srtm_autoscale_down_count_total", "counter", "Decisions for fewer consumers.",
        lambda d: d.get("down_count", 0)),
    Row("srtm_autoscale_reassign_count_total", "counter", "Decisions that only moved partitions.",
        lambda d: d.get("reassign_count", 0)),
)  # fmt: skip
"""read off what /stats says of a group or a pool"""
GROUP_METRICS: tuple[Row[Learnt], ...] = (
    Row("srtm_autoscale_hand_over_seconds", "histogram",
        "How long a partition that moved stood still.",
        lambda learnt: latencies(*learnt.stood)),
)  # fmt: skip


def of_both(controller: Controller, running: int) -> dict[str, Any]:
    """What /stats of a group and of a pool have in common. running: consumers that have joined"""
    budget = controller.budget
    return {
        "state": str(controller.state),
        "startup_seconds": controller.learnt.startup,
        "starting": sorted(controller.roster.launched),
        "leaving": sorted(controller.roster.leaving),
        "consumers": running,
        "budget_left": budget.left,
        "late_share": budget.late / budget.served if budget.served else 0.0,
        "oldest_wait_seconds": controller.oldest_wait,
        "predicted_latency_ratio": controller.signal,
        "rescales": controller.changes,
        "replica_seconds": controller.replica_seconds,
        **{f"{action}_count": count for action, count in controller.counts.items()},
    }


def document(controller: Controller, world: KafkaWorld) -> dict[str, Any]:
    stopped = sorted(controller.learnt.stops)
    return {
        "group": world.group.id,
        "topic": world.group.topic,
        "controller": world.name,
        "leader": world.ledger.leader,
        "epoch": world.ledger.epoch,
        "health": f"NOK - {controller.fault}" if controller.fault else "OK",
        "notes": list(controller.warned.now),
        "leads": float(controller.state not in (State.STANDBY, State.SYNCHRONIZE)),
        "parts": {id_: list(part) for id_, part in dict(controller.roster.parts).items()},
        "slo": str(controller.group.slo),
        "served": controller.budget.served,
        "late": controller.budget.late,
        "rebalance_seconds": controller.learnt.rebalance,
        "hand_over_p50_seconds": _quantile(stopped, 0.5),
        "hand_over_p99_seconds": _quantile(stopped, 0.99),
        **of_both(controller, world.running()),
    }


def leg_of(controller: Controller, **whose: str) -> dict[str, Any]:
    """What a journey is told of the consumers: the SLO that they keep, and what a plan needs to
    know. whose: `topic`, with `group` or `channel`"""
    group = controller.group
    found: dict[str, Any] = {"leg": "consumer", **whose, "slo": str(group.slo)}
    if not controller.leads:
        return {**found, "stands_by": True}
    seen = controller.seen
    if not seen or (isinstance(group, GroupTable) and group.weigh == "bytes"):
        return found
    if len(seen[-1].partitions) <= MOST_SHARES:
        rates = Counter[int]()
        for each in seen:
            rates.update({partition.id: partition.rate for partition in each.partitions})
        there = [partition.id for partition in seen[-1].partitions]
        found["shares"] = [round(rates[id_] / len(seen), 3) for id_ in there]
    return found | {
        "mu": seen[-1].new_mu,
        "startup_seconds": seen[-1].startup_seconds,
        "rebalance_seconds": seen[-1].rebalance_seconds,
    }


def _quantile(values: list[float], share: float) -> float | None:
    return values[min(int(share * len(values)), len(values) - 1)] if values else None


def metrics(controller: Controller, world: KafkaWorld) -> Text:
    """What /metrics tells of a group."""
    text = told(document(controller, world), world.group.id)
    text.add(GROUP_METRICS, [({"group": world.group.id}, controller.learnt)])
    return text


def told(found: dict[str, Any], group: str) -> Text:
    """What /metrics tells of a group or a pool, of which /stats says `found`."""
    text = Text()
    text.add(METRICS, [({"group": group}, found)])
    return text
