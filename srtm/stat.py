"""`srtm stat`: the table that users of nsq_stat know, and under it contract and latency."""

import json
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
from rich.text import Text

from distributor.remote import Remote, remote_or_none
from srtm.address import Address
from srtm.bearer import read_token
from srtm.deploy.deployment import Deployment, find
from srtm.duration import parse_duration
from srtm.errors import SrtmError, UnavailableError, UsageError
from srtm.http_client import get_json, request
from srtm.slo import SLO
from srtm.terminal import Column, Table, show


@dataclass(frozen=True)
class StatSource:
    name: str
    http_address: str


@dataclass(frozen=True)
class Row:
    """One topic on one broker; counts in messages, latencies in seconds.

    nsq:  nsqd's part: depth, in flight, deferred, requeued, timed out, messages, clients; empty
          while nsqd is away
    srtm: the gateway's part, as /stats gives it under "srtm"; empty on a plain nsqd
    timestamps: where the gateway's arrival times come from, and why; empty on a plain nsqd
    distributor: contact, epoch and lease of its Load Distributor; empty where it has none
    trace: what the gateway's trace of arrivals has and lacks; empty where it keeps none
    away: why nsqd's part is missing; empty where it is there
    """

    broker: str
    topic: str
    nsq: dict[str, int]
    srtm: dict[str, Any]
    timestamps: dict[str, Any]
    distributor: dict[str, Any]
    offered_per_second: float | None
    away: str = ""
    trace: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return {
            "broker": self.broker,
            "topic": self.topic,
            **self.nsq,
            "offered_per_second": self.offered_per_second,
            "timestamps": self.timestamps,
            "distributor": self.distributor,
            "trace": self.trace,
            "away": self.away,
            "srtm": self.srtm,
        }


def read_rows(brokers: list[StatSource], topic: str) -> tuple[list[Row], dict[str, str]]:
    """What every broker says now, and why some say nothing or only a part. Raises UnavailableError
    where none says anything."""
    rows, away = [], {}
    path = f"/stats?format=json&include_clients=false&include_mem=false&topic={quote(topic)}"
    for broker in brokers:
        try:
            document = _stats(broker.http_address, path)
        except UnavailableError as error:
            if len(brokers) == 1:
                raise
            away[broker.name] = str(error)
            continue
        gateway = document.get("srtm", {})
        if gateway.get("nsqd_away"):
            away[broker.name] = gateway["nsqd_away"]
        ours = {entry["topic"]: entry for entry in gateway.get("topics", [])}
        theirs = {entry["topic_name"]: entry for entry in document["topics"] or []}
        rows += [
            Row(
                broker.name,
                name,
                {} if gateway.get("nsqd_away") else _nsq(theirs.get(name)),
                ours.get(name, {}),
                gateway.get("timestamps", {}),
                gateway.get("distributor") or {},
                None,
                gateway.get("nsqd_away", ""),
                gateway.get("trace") or {},
            )
            for name in sorted(ours.keys() | theirs.keys())
        ]
    if not rows and len(away) == len(brokers):
        raise UnavailableError("; ".join(f"{name}: {why}" for name, why in away.items()))
    return rows, away


def _stats(address: str, path: str) -> dict[str, Any]:
    """A gateway whose nsqd is away says so by its status, and tells its own part all the same.
    Raises UnavailableError."""
    answer = request(address, "GET", path)
    document = answer.document if answer.status in (200, 503) else None
    if not isinstance(document, dict) or "topics" not in document:
        raise UnavailableError(f"{address}: /stats answered {answer.status}: {answer.error}")
    return document


def with_rates(rows: list[Row], before: list[Row], seconds: float) -> list[Row]:
    """`rows` with the offered rate since `before`, where the broker counted on."""
    known = {(row.broker, row.topic): row.srtm.get("offered") for row in before}
    result = []
    for row in rows:
        now, then = row.srtm.get("offered"), known.get((row.broker, row.topic))
        rate = None
        if now is not None and then is not None and now >= then:
            rate = (now - then) / seconds
        result.append(replace(row, offered_per_second=rate))
    return result


def _nsq(topic: dict[str, Any] | None) -> dict[str, int]:
    channels = (topic or {}).get("channels") or []
    columns = {
        "in_flight": "in_flight_count",
        "deferred": "deferred_count",
        "requeued": "requeue_count",
        "timed_out": "timeout_count",
        "clients": "client_count",
    }
    depth = (topic or {}).get("depth", 0) + sum(channel["depth"] for channel in channels)
    sums = {name: sum(channel.get(key, 0) for channel in channels) for name, key in columns.items()}
    return {"depth": depth, **sums, "messages": (topic or {}).get("message_count", 0)}


def queue_table(rows: list[Row]) -> Table:
    """What nsq_stat shows, in messages, and the offered rate."""
    table = Table(
        *_NAMES,
        Column("depth"),
        Column("inflt", 3),
        Column("def", 6),
        Column("req", 5),
        Column("t-o", 7),
        Column("msgs", 1),
        Column("clients", 4),
        Column("in/s", 2),
    )
    names = ("depth", "in_flight", "deferred", "requeued", "timed_out", "messages", "clients")
    for row in rows:
        figures = (_count(row.nsq.get(name)) for name in names)
        table.add(row.topic, row.broker, *figures, _number(row.offered_per_second))
    return table


def contract_table(rows: list[Row]) -> Table:
    """Contract and tokens, who waits, and latency of the last minute in milliseconds."""
    table = Table(
        *_NAMES,
        Column("r/s"),
        Column("b"),
        Column("tokens", 5),
        Column("waiting", 1),
        Column("rejected", 4),
        Column("wait p99 ms", 2),
        Column("p50 ms", 6),
        Column("p95 ms", 7),
        Column("p99 ms", 1),
        Column("state", text=True),
    )
    for row in rows:
        ours = row.srtm
        latency = ours.get("broker_latency", {})
        table.add(
            row.topic,
            row.broker,
            *(_number(ours.get(name)) for name in ("rate", "burst", "tokens")),
            *(_count(ours.get(name)) for name in ("waiting", "rejected")),
            _milliseconds(ours.get("token_wait", {}).get("p99")),
            *(_milliseconds(latency.get(name)) for name in ("p50", "p95", "p99")),
            _state(ours),
        )
    return table


def timestamps_table(rows: list[Row]) -> Table:
    """Where each gateway's arrival times come from, and why they do not come from a better one."""
    table = Table(
        Column("broker", text=True),
        Column("timestamps", text=True),
        Column("lost records", 1),
        Column("degraded bytes", 2),
        Column("why not better", sentence=True),
    )
    for name, source in {row.broker: row.timestamps for row in rows if row.timestamps}.items():
        table.add(
            name,
            source["source"],
            _count(source["lost_records"]),
            _count(source["degraded_bytes"]),
            source["reason"] or "-",
        )
    return table


def distributor_table(rows: list[Row]) -> Table:
    """Each gateway's word with its Load Distributor."""
    table = Table(
        Column("broker", text=True),
        Column("distributor", 3, text=True),
        Column("contact", text=True),
        Column("epoch", 2),
        Column("lease s"),
        Column("topics", 1),
        Column("state", sentence=True),
    )
    for name, ours in {row.broker: row.distributor for row in rows if row.distributor}.items():
        table.add(
            name,
            ours["address"],
            "yes" if ours["contact"] else Text("no", "red"),
            _count(ours["epoch"]),
            f"{ours['lease_left_seconds']:.1f}",
            _count(ours["topics"]),
            Text("safe shares", "red") if ours["safe_share"] else ours["error"],
        )
    return table


def penalties_of(remote: Remote | None, rows: list[Row], topic: str) -> list[dict[str, Any]]:
    """Of the topics that several brokers share, as a distributor says it: the one that is named, or
    those that gateways tell, as far as these answer. Raises SrtmError for the one."""
    if remote is not None:
        found = remote.call("GET", "penalties", timeout_seconds=_ASKED_SECONDS)["penalties"]
    else:
        found = []
        for address in sorted({row.distributor["address"] for row in rows if row.distributor}):
            with suppress(SrtmError):
                told = Remote(Address.parse(address), "")
                answer = told.call("GET", "penalties", timeout_seconds=_ASKED_SECONDS)
                found += answer["penalties"]
    return [each for each in found if not topic or each["topic"] == topic]


def penalties_table(penalties: list[dict[str, Any]]) -> Table:
    """Token waits of the last minute, measured and as in one bucket, in milliseconds."""
    table = Table(
        Column("split topic", text=True),
        Column("mean wait ms"),
        Column("in one bucket", 1),
        Column("penalty ms"),
        Column("+-", 2),
        Column("p99 wait ms"),
        Column("in one bucket", 1),
        Column("penalty ms"),
        Column("+-", 2),
        Column("messages", 4),
        Column("", sentence=True),
    )
    for each in penalties:
        cells = [
            _milliseconds((each[name] or {}).get(figure))
            for figure in ("mean", "p99")
            for name in ("token_wait", "unsplit", "penalty", "error")
        ]
        why = f"not known: {each['unknown']}" if each["unknown"] else ""
        table.add(each["topic"], *cells, _count(each["messages"]), why)
    return table


_ASKED_SECONDS = 3.0


def trace_table(rows: list[Row]) -> Table:
    """What each gateway's trace of arrivals has and lacks, in messages."""
    table = Table(
        Column("broker", text=True),
        Column("trace", 1, text=True),
        Column("written"),
        Column("dropped"),
        Column("state", sentence=True),
    )
    for name, trace in {row.broker: row.trace for row in rows if row.trace}.items():
        written, dropped = trace["written_messages"], trace["dropped_messages"]
        state = Text(trace["failing"], "red")
        table.add(name, trace["folder"], _count(written), _count(dropped), state)
    return table


def routes_of(bridge: str) -> list[dict[str, Any]]:
    """Raises UnavailableError."""
    found: list[dict[str, Any]] = get_json(bridge, "/stats")["routes"]
    return found


def bridge_table(bridge: str, routes: list[dict[str, Any]]) -> Table:
    """Of each route: what it carried, its latency in milliseconds, and its SLO."""
    table = Table(
        Column(f"route of {bridge}", text=True),
        Column("state", sentence=True),
        Column("delivered"),
        Column("in flight", 2),
        Column("lag", 1),
        Column("dead letters", 2),
        Column("p50 ms", 3),
        Column("p95 ms", 4),
        Column("p99 ms"),
        Column("SLO", 3),
        Column("late", 1),
        Column("budget", 2),
    )
    for route in routes:
        late, budget = route.get("late_share"), route.get("error_budget")
        table.add(
            route["route"],
            route["state"] + (f": {route['reason']}" if route["reason"] else ""),
            _count(route["delivered_count"]),
            _count(route["in_flight_count"]),
            str(route.get("records_lag", "-")),
            _count(route["dead_letter_count"]),
            *(_milliseconds(route["latency"][name]) for name in ("p50", "p95", "p99")),
            route.get("slo", "-"),
            "-" if late is None else f"{late:.2%}",
            "-" if budget is None else f"{budget:.0%}",
        )
    return table


def _distributor_of(deployment: Deployment) -> Remote | None:
    """Raises UsageError for a token file that is wrong."""
    found = deployment.distributor
    if found is None:
        return None
    return Remote(found.http_address, read_token(found.token_file, "token-file"))


_NAMES = (Column("topic", text=True), Column("broker", text=True))


def _state(ours: dict[str, Any]) -> Text:
    words = []
    if ours.get("placed_elsewhere"):
        words.append(Text("no share here", "yellow"))
    elif ours.get("throttled"):
        words.append(Text("throttled", "yellow"))
    measured = ours.get("broker_latency", {}).get("p99")
    if "slo" in ours and measured is not None:
        slo = SLO.parse(ours["slo"])
        if slo.percentile == 0.99:
            met = slo.met_by(measured)
            words.append(Text(str(slo), "green") if met else Text(f"over {slo}", "red"))
    return Text(" ").join(words)


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value * 1e3:.2f}"


@click.command("stat")
@click.option(
    "--nsqd-http-address",
    "addresses",
    multiple=True,
    metavar="HOST:PORT",
    help="HTTP address of a gateway (or a plain nsqd); may be given several times",
)
@click.option(
    "--bridge-http-address",
    "bridges",
    multiple=True,
    metavar="HOST:PORT",
    help="HTTP address of an `srtm bridge`: its routes too; may be given several times",
)
@click.option(
    "--deployment",
    envvar="SRTM_DEPLOYMENT",
    default="./srtm-data",
    help="data path or file of `srtm up`, when no address is given [default: ./srtm-data]",
)
@remote_or_none
@click.option("--topic", default="", help="only this topic")
@click.option(
    "--interval", help="between two tables, of which there is more than one then [default: 2s]"
)
@click.option(
    "--count",
    type=click.IntRange(min=0),
    help="tables before it ends; 0: until it is stopped [default: 0 on a terminal, 1 in a pipe]",
)
@click.option("--json", "as_json", is_flag=True, help="one JSON list for each table")
def stat(
    addresses: tuple[str, ...],
    bridges: tuple[str, ...],
    deployment: str,
    remote: Remote | None,
    topic: str,
    interval: str | None,
    count: int | None,
    as_json: bool,
) -> None:
    """Watch topics: depth and messages as nsq_stat, and contract, tokens, throttling, latency.

    \b
      srtm stat --nsqd-http-address 127.0.0.1:4151
      srtm stat --deployment ./srtm-data --topic sensors --count 1 --json
      srtm stat --bridge-http-address 127.0.0.1:4190

    p50, p95 and p99 are broker latency: from arrival to delivery to a consumer that is always
    ready, of the last minute. "wait" is the delay in the token bucket alone. Of a topic that
    several brokers share its Load Distributor says what the split costs: the wait beside that of
    the same messages in one bucket, and by how much the clocks may make that wrong.
    """
    try:
        seconds = parse_duration(interval or "2s")
    except ValueError as error:
        raise UsageError(f"--interval: {error}") from None
    if addresses or bridges:
        brokers = [StatSource(address, address) for address in addresses]
    else:
        found = find(Path(deployment))
        brokers = [StatSource(broker.name, str(broker.http_address)) for broker in found.brokers]
        remote = remote or _distributor_of(found)
    if count is None:  # whoever reads a pipe waits for its end
        count = 0 if interval or sys.stdout.isatty() else 1
    before: list[Row] = []
    shown, then = 0, 0.0
    while True:
        rows, away = read_rows(brokers, topic) if brokers else ([], {})
        if topic and not rows and not away:
            raise UsageError(
                f"no broker knows topic {topic}; without --topic all that they know are shown"
            )
        now = time.monotonic()
        rated = with_rates(rows, before, now - then) if before else rows
        try:
            penalties = penalties_of(remote, rows, topic)
        except SrtmError as error:
            penalties, away["distributor"] = [], str(error)
        if as_json:
            routes = [{"bridge": each, **route} for each in bridges for route in routes_of(each)]
            costs = [{"topic": each["topic"], "penalty": each} for each in penalties]
            click.echo(json.dumps([row.document() for row in rated] + costs + routes))
        else:
            tables: list[Table] = []
            if brokers:
                made = (
                    queue_table,
                    contract_table,
                    timestamps_table,
                    distributor_table,
                    trace_table,
                )
                tables += [each(rated) for each in made]
            tables.append(penalties_table(penalties))
            tables += [bridge_table(each, routes_of(each)) for each in bridges]
            for table in tables:
                if len(table):
                    show(table, "")
        for name, why in away.items():
            click.echo(f"{name}: {why}", err=True)
        before, then = rows, now
        shown += 1
        if shown == count:
            return
        time.sleep(seconds)
