"""What every broker says of its topics, one row for each topic and broker."""

from dataclasses import dataclass, field, replace
from typing import Any

from srtm.http.nsqd import NsqdDoor, stats
from srtm.text.errors import UnavailableError


@dataclass(frozen=True)
class StatSource:
    name: str
    door: NsqdDoor


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
    for broker in brokers:
        try:
            document = stats(broker.door, topic)
            rows += _rows(broker, document)
        except UnavailableError as error:
            if len(brokers) == 1:
                raise
            away[broker.name] = str(error)
            continue
        if nsqd_away := document.get("srtm", {}).get("nsqd_away"):
            away[broker.name] = nsqd_away
    if not rows and len(away) == len(brokers):
        raise UnavailableError("; ".join(f"{name}: {why}" for name, why in away.items()))
    return rows, away


def _rows(broker: StatSource, document: dict[str, Any]) -> list[Row]:
    """Raises UnavailableError for what is no nsqd's."""
    try:
        gateway = document.get("srtm", {})
        ours = {str(entry["topic"]): entry for entry in gateway.get("topics", [])}
        theirs = {str(entry["topic_name"]): entry for entry in document["topics"] or []}
        return [
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
    except (KeyError, TypeError, AttributeError):
        raise UnavailableError(
            f"{broker.door.address}: its /stats has another shape than nsqd's"
        ) from None


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
