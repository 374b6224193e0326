"""What a controller tells at its HTTP door."""

from typing import Any

from srtm.autoscaler.live.controller import Controller
from srtm.autoscaler.live.states import State

GAUGES = {
    "leads": "1 while this controller leads its group.",
    "consumers": "Consumers of the group that have joined.",
    "budget_left": "What is left of the late events that the SLO allows over its time; negative: "
    "overspent.",
    "late_share": "Share of late events over that time.",
    "hand_over_p50_seconds": "How long a partition that moved stood still, of the last 1,000.",
    "hand_over_p99_seconds": "The same.",
}
COUNTERS = {
    "replica_seconds": "Consumers times seconds, as they are billed: from the launch on.",
    "up_count": "Decisions for more consumers.",
    "down_count": "Decisions for fewer.",
    "reassign_count": "Decisions that moved partitions only.",
}


def document(controller: Controller) -> dict[str, Any]:
    budget, counts = controller.budget, controller.counts
    stopped = sorted(controller.learnt.stops)
    roster = controller.roster
    return {
        "group": controller.group.id,
        "topic": controller.group.topic,
        "controller": controller.name,
        "leader": controller.ledger.leader,
        "epoch": controller.ledger.epoch,
        "state": str(controller.state),
        "health": f"NOK - {controller.fault}" if controller.fault else "OK",
        "notes": list(controller.warned.now),
        "leads": float(controller.state not in (State.STANDBY, State.SYNCHRONIZE)),
        "consumers": controller.running(),
        "starting": sorted(roster.launched),
        "leaving": sorted(roster.leaving),
        "parts": {id_: list(part) for id_, part in dict(roster.parts).items()},
        "slo": str(controller.group.slo),
        "served": budget.served,
        "late": budget.late,
        "budget_left": budget.left,
        "late_share": budget.late / budget.served if budget.served else 0.0,
        "startup_seconds": controller.learnt.startup,
        "rebalance_seconds": controller.learnt.rebalance,
        "hand_over_p50_seconds": _quantile(stopped, 0.5),
        "hand_over_p99_seconds": _quantile(stopped, 0.99),
        "replica_seconds": controller.replica_seconds,
        **{f"{action}_count": count for action, count in counts.items()},
    }


def _quantile(values: list[float], share: float) -> float | None:
    return values[min(int(share * len(values)), len(values) - 1)] if values else None


def metrics(controller: Controller) -> str:
    """Prometheus text."""
    return prometheus(document(controller), controller.group.id)


def prometheus(found: dict[str, Any], group: str) -> str:
    lines = []
    label = '{group="' + group.replace("\\", r"\\").replace('"', r"\"") + '"}'
    kinds = {**dict.fromkeys(GAUGES, "gauge"), **dict.fromkeys(COUNTERS, "counter")}
    for name, text in {**GAUGES, **COUNTERS}.items():
        full = f"srtm_autoscale_{name}" + ("_total" if kinds[name] == "counter" else "")
        value = found.get(name, 0.0)
        lines.append(f"# HELP {full} {text}\n# TYPE {full} {kinds[name]}\n")
        if value is not None:
            lines.append(f"{full}{label} {float(value)!r}\n")
    return "".join(lines)
