"""A live group in tables, and as JSON."""

from collections.abc import Mapping
from typing import Any

from srtm.autoscaler.decision import Decision
from srtm.autoscaler.live.monitor import Reading
from srtm.autoscaler.live.observe import LiveConsumer
from srtm.terminal import Column, Table


def document(
    reading: Reading,
    consumers: tuple[LiveConsumer, ...],
    decisions: Mapping[str, Decision],
    notes: tuple[str, ...],
    unit: str,
) -> dict[str, Any]:
    """One look at the group. unit: events or bytes, of rates (each second), lags and mu; times in
    seconds."""
    owners = {p: each.id for each in consumers for p in each.partitions}
    return {
        "unit": unit,
        "partitions": [
            {
                "partition": each.id,
                "rate": round(each.rate, 3),
                "lag": int(each.lag),
                "time_lag_seconds": round(reading.time_lags[each.id], 3),
                "consumer": owners.get(each.id),
            }
            for each in reading.partitions
        ],
        "consumers": [
            {
                "consumer": each.id,
                "state": str(each.state),
                "mu": each.mu and round(each.mu, 3),
                "partitions": list(each.partitions),
            }
            for each in consumers
        ],
        "served": reading.served,
        "late": reading.late,
        "staying_seconds": reading.staying_seconds,
        "policies": {
            name: {
                "action": str(decision.action),
                "consumers": len(decision.members) or len(consumers),
                "reason": decision.reason,
                "notes": list(decision.notes),
            }
            for name, decision in decisions.items()
        },
        "notes": list(notes),
    }


def partition_table(look: dict[str, Any]) -> Table:
    table = Table(
        Column("partition"),
        Column(f"{look['unit']}/s"),
        Column("lag"),
        Column("time lag s", 1),
        Column("consumer", text=True),
    )
    for each in look["partitions"]:
        table.add(
            str(each["partition"]),
            f"{each['rate']:,.1f}",
            f"{each['lag']:,}",
            f"{each['time_lag_seconds']:.2f}",
            each["consumer"] or "-",
        )
    return table


def consumer_table(look: dict[str, Any]) -> Table:
    rates = {each["partition"]: each["rate"] for each in look["partitions"]}
    table = Table(
        Column("consumer", text=True),
        Column("state", text=True),
        Column("partitions"),
        Column(f"{look['unit']}/s"),
        Column("mu"),
        Column("load", 1),
    )
    for each in look["consumers"]:
        rate = sum(rates.get(p, 0.0) for p in each["partitions"])
        mu = each["mu"]
        table.add(
            each["consumer"],
            each["state"],
            str(len(each["partitions"])),
            f"{rate:,.1f}",
            f"{mu:,.0f}" if mu else "not known",
            f"{rate / mu:.0%}" if mu else "-",
        )
    return table


def policy_table(look: dict[str, Any]) -> Table:
    table = Table(
        Column("policy", text=True),
        Column("would", text=True),
        Column("consumers"),
        Column("because", sentence=True),
    )
    for name, each in look["policies"].items():
        would = "do nothing" if each["action"] == "none" else each["action"]
        table.add(name, would, str(each["consumers"]), each["reason"])
    return table
