"""Deployments and topics as tables on a terminal."""

from typing import Any

from srtm.deploy.topics import Report, TopicStatus
from srtm.deployment.document import Deployment
from srtm.text.address import Address
from srtm.text.terminal import Column, Table

_Shown = Address | str | None


def addresses_table(deployment: Deployment) -> Table:
    """Where clients connect to; nsqd itself listens on unix sockets only."""
    rows: list[tuple[str, _Shown, _Shown, _Shown]] = [
        (each.name, each.tcp_address, each.http_address, each.https_address)
        for each in deployment.brokers
    ]
    distributor, lookupd, nsqadmin = deployment.distributor, deployment.lookupd, deployment.nsqadmin
    if distributor and distributor.speaks_tls:
        rows.append(("distributor", None, None, distributor.http_address))
    elif distributor:
        rows.append(("distributor", None, distributor.http_address, None))
    if lookupd:
        rows.append(("nsqlookupd", lookupd.tcp_address, lookupd.http_address, None))
    if nsqadmin:
        rows.append(("nsqadmin", None, nsqadmin.http_address, None))
    heads = ["part", "TCP", "HTTP", *(["HTTPS"] if any(row[3] for row in rows) else [])]
    table = Table(*(Column(each, text=True) for each in heads))
    for row in rows:
        table.add(*(str(each or "") for each in row[: len(heads)]))
    return table


def topics_table(report: Report) -> Table:
    """One row a topic, summed over the brokers."""
    table = Table(Column("topic", text=True), Column("owner", text=True), *_COLUMNS)
    for each in report.topics:
        cells = _cells(each.document(), each.worst_wait_p99_seconds)
        table.add(each.topic, _owner(each), *cells)
    return table


def broker_table(status: TopicStatus) -> Table:
    """One row a broker, and their sum."""
    table = Table(Column(status.topic, text=True), *_COLUMNS)
    for name, row in status.brokers.items():
        table.add(name, *_cells(row, (row.get("token_wait") or {}).get("p99")))
    for name in sorted(status.silent):
        table.add(f"{name}: no answer", *_cells({}, None))
    table.add(_whole(status), *_cells(status.document(), status.worst_wait_p99_seconds))
    return table


def _owner(status: TopicStatus) -> str:
    return f"{status.owner}, last known" if status.is_last_known else status.owner


def _whole(status: TopicStatus) -> str:
    placed = status.placed
    if placed is None:
        return f"all, by the {_owner(status)}" if status.is_last_known else "all"
    return f"all, by the distributor ({placed.placed:,} of {placed.publishers:,} publishers placed)"


_COLUMNS = (
    Column("rate/s"),
    Column("burst"),
    Column("mode", 6, text=True),
    Column("max-wait", 7),
    Column("SLO", 3, text=True),
    Column("offered", 4),
    Column("admitted", 5),
    Column("rejected", 2),
    Column("waiting", 1),
    Column("throttled", 2, text=True),
    Column("p99 wait ms", 1),
)


def _cells(row: dict[str, Any], p99_seconds: float | None) -> tuple[str, ...]:
    return (
        number(row.get("rate")),
        number(row.get("burst")),
        *(str(row.get(key) or "-") for key in ("mode", "max-wait", "slo")),
        *(number(row.get(key)) for key in ("offered", "admitted", "rejected", "waiting")),
        "yes" if row.get("throttled") else "no",
        "-" if p99_seconds is None else f"{p99_seconds * 1e3:,.2f}",
    )


def number(value: Any) -> str:
    """1234.5 -> 1,234.5; 366.667 -> 366.67; no figure -> -."""
    if not isinstance(value, int | float):
        return "-"
    return f"{value:,.2f}".rstrip("0").rstrip(".")
