"""A live group in tables, and as JSON."""

import json
import time
from collections.abc import Mapping
from typing import Any, Protocol

import click

from srtm.autoscaler.live.monitor import Reading
from srtm.autoscaler.live.observe import LiveConsumer
from srtm.autoscaler.policies.registry import SIZES_BY_CONTRACT
from srtm.cli.looks import Looks
from srtm.text.terminal import Column, Table, show

UNKNOWN_MU = (
    "what one consumer serves (mu) is not known: none has had more work than it could do since "
    "this watch began; set mu in [group] to see what policies would do"
)


def document(
    reading: Reading,
    consumers: tuple[LiveConsumer, ...],
    policies: Mapping[str, dict[str, Any]],
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
        "policies": policies,
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


def part_table(look: dict[str, Any]) -> Table:
    """The table of a channel's brokers, or of a share group's partitions."""
    part = look["part"]
    table = Table(
        Column(part, text=True),
        Column("messages/s"),
        Column("backlog"),
        Column("time lag s", 1),
        Column("state", text=True),
    )
    for each in look[f"{part}s"]:
        table.add(
            each[part],
            f"{each['rate']:,.1f}",
            f"{each['backlog']:,}",
            f"{each['time_lag_seconds']:.2f}",
            each["fault"] or "answers",
        )
    return table


def client_table(look: dict[str, Any]) -> Table:
    """The table of a pool's consumers."""
    table = Table(Column("consumer", text=True), Column("mu"))
    for each in look["consumers"]:
        table.add(each["consumer"], f"{each['mu']:,.0f}" if each["mu"] else "not known")
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


def show_decisions(decisions: list[dict[str, Any]], as_json: bool) -> None:
    """Oldest first."""
    if as_json:
        click.echo(json.dumps(decisions, indent=2))
        return
    table = Table(
        Column("at", text=True),
        Column("action", text=True),
        Column("consumers"),
        Column("moved", 2),
        Column("stood still s", 1),
        Column("late (foretold)", 2),
        Column("took s", 3),
        Column("because", sentence=True),
    )
    for each in decisions:
        table.add(
            str(each.get("at")),
            str(each.get("action")),
            f"{each.get('consumers_before')} -> {each.get('consumers')}",
            str(each.get("moved", "-")),
            str(each.get("stopped_seconds", "-")),
            _late(each),
            str(each.get("took_seconds", "-")),
            str(each.get("reason")),
        )
    if not decisions:
        click.echo("no decision has been taken yet")
        return
    show(table)


def _late(decision: dict[str, Any]) -> str:
    late, foretold = decision.get("late", "-"), decision.get("late_foretold")
    return f"{late}" if foretold is None else f"{late} ({foretold:.0f})"


class Looking(Protocol):
    def look(self) -> dict[str, Any]: ...

    def close(self) -> None: ...


def show_looks(watch: Looking, interval_seconds: float, count: int, as_json: bool) -> None:
    """Print one look an interval; count 0: until it is stopped."""
    try:
        time.sleep(interval_seconds)
        for _ in Looks(interval_seconds, count):
            look = watch.look()
            if as_json:
                click.echo(json.dumps(look))
                continue
            pool = "part" in look
            show(part_table(look) if pool else partition_table(look), "")
            if look["consumers"]:
                show(client_table(look) if pool else consumer_table(look), "")
            if look["policies"]:
                show(policy_table(look), "")
            warnings = [
                note
                for name, each in look["policies"].items()
                if not pool or name == SIZES_BY_CONTRACT  # others warn of partitions
                for note in each["notes"]
            ]
            for note in dict.fromkeys([*look["notes"], *warnings]):
                click.echo(f"note: {note}", err=True)
    finally:
        watch.close()
