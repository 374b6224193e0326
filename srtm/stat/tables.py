"""The tables of `srtm stat`: rows in, tables out."""

from typing import Any

from rich.text import Text

from srtm.limits.slo import SLO
from srtm.stat.rows import Row
from srtm.text.terminal import Column, Table
from srtm.text.words import counted

_NAMES = (Column("topic", text=True), Column("broker", text=True))


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


def throttled_table(rows: list[Row]) -> Table:
    """Publishers whose messages wait for tokens: those with most, and how many others there are."""
    table = Table(
        *_NAMES,
        Column("throttled publisher", text=True),
        Column("waiting"),
    )
    for row in rows:
        found = row.srtm.get("throttled_publishers")
        if not found:
            continue
        for each in found["most"]:
            table.add(row.topic, row.broker, each["publisher"], _count(each["waiting"]))
        others = found["count"] - len(found["most"])
        if others:
            left = row.srtm["waiting"] - sum(each["waiting"] for each in found["most"])
            table.add(row.topic, row.broker, f"{others:,} more", _count(left))
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
    """The table of each gateway's contact with its Load Distributor."""
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
            _lease_word(ours),
        )
    return table


def _lease_word(ours: dict[str, Any]) -> Text | str:
    """What a gateway's shares are, as its agent tells."""
    if not ours["safe_share"]:
        return str(ours["error"])
    kept = len(ours.get("kept_shares", ()))  # older gateways keep none
    return Text(f"safe shares, {counted(kept, 'share')} kept" if kept else "safe shares", "red")


def penalties_table(penalties: list[dict[str, Any]]) -> Table:
    """Token waits of the last minute, measured and as in one bucket, in milliseconds; and tokens
    that were stranded meanwhile."""
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
        Column("stranded tokens"),
        Column("at most", 2),
        Column("", sentence=True),
    )
    for each in penalties:
        cells = [
            _milliseconds((each[name] or {}).get(figure))
            for figure in ("mean", "p99")
            for name in ("token_wait", "unsplit", "penalty", "error")
        ]
        stranded = each.get("stranded") or {}
        cells += [_count(each["messages"]), *(_mean(stranded.get(n)) for n in ("least", "most"))]
        why = f"not known: {each['unknown']}" if each["unknown"] else ""
        table.add(each["topic"], *cells, why)
    return table


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


def bridge_table(bridge: str, routes: list[dict[str, Any]]) -> Table:
    """A table of the routes: what each carried, its latency in milliseconds, and its SLO."""
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
        name = route["route"]
        if "*" in str(route.get("from")) and route.get("topic"):
            name += f" ({route['topic']})"
        table.add(
            name,
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


def _mean(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value * 1e3:.2f}"
