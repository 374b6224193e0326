"""Deployments and topics as tables on a terminal."""

from collections.abc import Iterable
from typing import Any

from rich.table import Table

from srtm.deploy.deployment import Deployment
from srtm.deploy.topics import Report, TopicStatus
from srtm.duration import format_duration


def addresses_table(deployment: Deployment) -> Table:
    """Where clients connect to; nsqd itself listens on unix sockets only."""
    rows = []
    for broker in deployment.brokers:
        rows.append((broker.name, str(broker.tcp_address), str(broker.http_address)))
    if deployment.distributor:
        rows.append(("distributor", "", str(deployment.distributor.http_address)))
    if deployment.lookupd:
        lookupd = deployment.lookupd
        rows.append(("nsqlookupd", str(lookupd.tcp_address), str(lookupd.http_address)))
    if deployment.nsqadmin:
        rows.append(("nsqadmin", "", str(deployment.nsqadmin.http_address)))
    return _table(("", "TCP", "HTTP"), rows)


def topics_table(report: Report) -> Table:
    """One row a topic, summed over the brokers."""
    return _table(
        ("topic", "owner", *_COLUMNS),
        (
            (each.topic, _owner(each), *_cells(each.document(), each.worst_wait_p99_seconds))
            for each in report.topics
        ),
    )


def broker_table(status: TopicStatus) -> Table:
    """One row a broker, and their sum."""
    rows = [
        (name, *_cells(row, (row.get("token_wait") or {}).get("p99")))
        for name, row in status.brokers.items()
    ]
    rows += [(f"{name}: no answer", *_cells({}, None)) for name in sorted(status.silent)]
    rows.append((_whole(status), *_cells(status.document(), status.worst_wait_p99_seconds)))
    return _table((status.topic, *_COLUMNS), rows)


def _owner(status: TopicStatus) -> str:
    return f"{status.owner}, last known" if status.is_last_known else status.owner


def _whole(status: TopicStatus) -> str:
    placed = status.placed
    if placed is None:
        return f"all, by the {_owner(status)}" if status.is_last_known else "all"
    return f"all, by the distributor ({placed.placed:,} of {placed.publishers:,} publishers placed)"


_COLUMNS = (
    "rate/s", "burst", "mode", "max-wait", "SLO",
    "offered", "admitted", "rejected", "waiting", "throttled", "p99 wait",
)  # fmt: skip


def _cells(row: dict[str, Any], p99_seconds: float | None) -> tuple[str, ...]:
    return (
        number(row.get("rate")),
        number(row.get("burst")),
        *(str(row.get(key) or "-") for key in ("mode", "max-wait", "slo")),
        *(number(row.get(key)) for key in ("offered", "admitted", "rejected", "waiting")),
        "yes" if row.get("throttled") else "no",
        "-" if p99_seconds is None else format_duration(p99_seconds),
    )


def number(value: Any) -> str:
    """1234.5 -> 1,234.5; 366.667 -> 366.67; no figure -> -."""
    if not isinstance(value, int | float):
        return "-"
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def _table(columns: Iterable[str], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table
