"""/stats in nsqd's shape: publishers shown as themselves, the probe left out, ours under "srtm"."""

import asyncio
import time
from typing import Any
from urllib.parse import quote

from srtm.clock import NS, monotonic_ns
from srtm.errors import UnavailableError
from srtm.gateway import sender
from srtm.gateway.agent import Agent
from srtm.gateway.client import Client
from srtm.gateway.host import Host
from srtm.gateway.http.metrics import TOPICS_PER_TURN
from srtm.gateway.measure.meter import SKETCHES
from srtm.gateway.measure.probe import CHANNEL
from srtm.gateway.topic import Topic


async def stats_document(
    gateway: Host, topic: str, channel: str, include_clients: bool, include_mem: bool
) -> dict[str, Any]:
    """Without nsqd's part where nsqd does not answer: `nsqd_away` says why then, "" otherwise."""
    away = ""
    try:
        document = await gateway.nsqd_http.get(
            f"/stats?format=json&topic={quote(topic)}&channel={quote(channel)}"
            f"&include_clients={_flag(include_clients)}&include_mem={_flag(include_mem)}"
        )
        if not isinstance(document, dict):
            raise UnavailableError(
                f"nsqd at {gateway.nsqd_http.address} answered /stats with no object"
            )
    except UnavailableError as error:
        away = str(error)
        document = {
            "version": gateway.info.get("version", ""),
            "health": f"NOK - {away}",
            "start_time": gateway.info.get("start_time", 0),
            "topics": [],
        }
    for found in document.get("topics") or []:
        found["channels"] = [
            _plain(kept) for kept in found["channels"] or [] if kept["channel_name"] != CHANNEL
        ]
    document["producers"] = [
        entry
        for client in gateway.clients
        if include_clients and client.published
        for entry in _producer(client, topic)
    ]
    document["srtm"] = {"nsqd_away": away, **await srtm_document(gateway, topic)}
    return document


async def srtm_document(gateway: Host, topic: str = "") -> dict[str, Any]:
    """What only the gateway knows: contracts, tokens, counts in messages, latency in seconds.
    Messages have their turn between the topics."""
    by_name = gateway.topics.by_name
    topics = [by_name[name] for name in sorted(by_name) if not topic or name == topic.encode()]
    documents = []
    for number, found in enumerate(topics):
        if number % TOPICS_PER_TURN == 0:
            await asyncio.sleep(0)
        documents.append({**topic_document(found), **_whole(gateway, found)})
    return {
        "timestamps": {
            "source": gateway.stamps.name,
            "reason": gateway.stamps.reason,
            "degraded_bytes": gateway.stamps.degraded_bytes,
            "lost_records": gateway.stamps.lost_records,
        },
        "sender": {"io_uring": not sender.why_slower, "reason": sender.why_slower},
        "connections": len(gateway.clients),
        "refused_connections": gateway.tcp.refused,
        "distributor": _distributor(gateway.agent) if gateway.agent else None,
        "trace": gateway.trace_process.document() if gateway.trace_process else None,
        "topics": documents,
    }


def _whole(gateway: Host, topic: Topic) -> dict[str, Any]:
    """Of a topic that a Load Distributor limits: its contract over all brokers, as it was told
    last."""
    name = topic.name.decode()
    whole = gateway.agent.lease.known.contracts.get(name) if gateway.agent else None
    if whole is None or not gateway.topics.is_leased(name):
        return {}
    return {"contract": {"rate": whole[0], "burst": whole[1]}}


def _distributor(agent: Agent) -> dict[str, Any]:
    """capacity: messages/s that it registers with; 0: what the distributor has stays."""
    return {**agent.document(), "capacity": agent.broker.capacity}


def topic_document(topic: Topic) -> dict[str, Any]:
    meter = topic.meter
    now = monotonic_ns()
    document: dict[str, Any] = {"topic": topic.name.decode()}
    if topic.limit is not None and topic.bucket is not None:
        document.update(topic.limit.document())
        document["tokens"] = topic.bucket.level(now)
    document.update(
        placed_elsewhere=topic.is_shut,
        throttled=topic.throttled,
        offered=meter.offered,
        admitted=meter.admitted,
        waiting=topic.waiting,
        rejected=meter.rejected,
        abandoned=meter.abandoned,
        failed=meter.failed,
        unknown=meter.unknown,
        unmatched=meter.unmatched,
        backlog_bytes=topic.backlog.bytes,
    )
    for name in SKETCHES:
        document[name] = getattr(meter, name).quantiles(now).document()
    return document


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _plain(channel: dict[str, Any]) -> dict[str, Any]:
    """Consumers by their own address: on nsqd's unix socket they are bound to a name like it."""
    for client in channel.get("clients") or []:
        client["remote_address"] = client["remote_address"].removeprefix("@")
    return channel


def _producer(client: Client, topic: str) -> list[dict[str, Any]]:
    host = client.address.rpartition(":")[0]
    identity = client.identity
    counts = [
        {"topic": name.decode(), "count": count}
        for name, count in client.published.items()
        if not topic or name == topic.encode()
    ]
    if not counts:
        return []
    return [
        {
            "client_id": identity.client_id or host,
            "hostname": identity.hostname or host,
            "version": "V2",
            "remote_address": client.address,
            "state": 0,
            "ready_count": 0,
            "in_flight_count": 0,
            "message_count": 0,
            "finish_count": 0,
            "requeue_count": 0,
            "connect_ts": int(time.time() - (monotonic_ns() - client.connected_at) / NS),
            "sample_rate": identity.sample_rate,
            "deflate": False,
            "snappy": False,
            "user_agent": identity.user_agent,
            "tls": False,
            "tls_cipher_suite": "",
            "tls_version": "",
            "tls_negotiated_protocol": "",
            "tls_negotiated_protocol_is_mutual": False,
            "pub_counts": counts,
        }
    ]


def sender_line(found: dict[str, Any]) -> str:
    return "together, by io_uring" if found["io_uring"] else f"one by one: {found['reason']}"


def timestamps_line(timestamps: dict[str, Any]) -> str:
    """The source in use, and what is to be known of it."""
    line = str(timestamps["source"])
    if timestamps["reason"]:
        line += f" (no {timestamps['reason']})"
    if timestamps["degraded_bytes"] or timestamps["lost_records"]:
        line += (
            f", {timestamps['lost_records']} segments not recorded, "
            f"{timestamps['degraded_bytes']} bytes stamped by a worse source"
        )
    return line


def distributor_line(distributor: dict[str, Any]) -> str:
    """Contact, epoch and lease."""
    line = f"{distributor['address']} as {distributor['broker']}, epoch {distributor['epoch']}, "
    if distributor["safe_share"]:
        line += "lease ended: safe shares hold"
    else:
        line += f"lease {distributor['lease_left_seconds']:.1f}s"
    return line if distributor["contact"] else f"{line}; NO CONTACT: {distributor['error']}"


def trace_line(trace: dict[str, Any]) -> str:
    """Where it is, what is in it and what is not."""
    line = f"{trace['folder']}, {trace['written_messages']} messages written, "
    line += f"{trace['dropped_messages']} dropped"
    return f"{line}; FAILING: {trace['failing']}" if trace["failing"] else line


def _contract_lines(ours: dict[str, Any]) -> list[str]:
    """Nothing for a topic without a contract."""
    if "rate" not in ours:
        return []
    return [
        f"      contract {ours['rate']:g}/s burst {ours['burst']:g} "
        f"tokens: {ours['tokens']:.1f} waiting: {ours['waiting']} "
        f"rejected: {ours['rejected']}{' THROTTLED' if ours['throttled'] else ''}"
    ]


def as_text(document: dict[str, Any]) -> str:
    """For people: nsqd's own lines, and ours under each topic."""
    ours = {topic["topic"]: topic for topic in document["srtm"]["topics"]}
    lines = [
        f"nsqd v{document['version']} behind srtm",
        f"start_time {document['start_time']}",
        "",
        f"Health: {document['health']}",
        f"Timestamps: {timestamps_line(document['srtm']['timestamps'])}",
        f"Answers: {sender_line(document['srtm']['sender'])}",
        *(
            [f"Distributor: {distributor_line(document['srtm']['distributor'])}"]
            if document["srtm"]["distributor"]
            else []
        ),
        *([f"Trace: {trace_line(document['srtm']['trace'])}"] if document["srtm"]["trace"] else []),
        "",
        "Topics:" if document["topics"] or document["srtm"]["nsqd_away"] else "Topics: None",
    ]
    for topic in document["topics"] or []:
        lines.append(
            f"{'*P' if topic['paused'] else '  '} [{topic['topic_name']:<15}] "
            f"depth: {topic['depth']:<5} be-depth: {topic['backend_depth']:<5} "
            f"msgs: {topic['message_count']:<8}"
        )
        lines += _contract_lines(ours.pop(topic["topic_name"], {}))
        lines += [
            f"   {'*P' if channel['paused'] else '  '} [{channel['channel_name']:<25}] "
            f"depth: {channel['depth']:<5} be-depth: {channel['backend_depth']:<5} "
            f"inflt: {channel['in_flight_count']:<4} def: {channel['deferred_count']:<4} "
            f"re-q: {channel['requeue_count']:<5} timeout: {channel['timeout_count']:<5} "
            f"msgs: {channel['message_count']:<8}"
            for channel in topic["channels"]
        ]
    if document["srtm"]["nsqd_away"]:
        for name, mine in ours.items():
            lines += [f"   [{name:<15}] nsqd is away", *_contract_lines(mine)]
    lines += ["", "Producers:" if document["producers"] else "Producers: None"]
    lines += [
        f"   [V2 {producer['hostname']}:{producer['remote_address'].rpartition(':')[2]} "
        f"{producer['user_agent']}] "
        + " ".join(f"{count['topic']}={count['count']}" for count in producer["pub_counts"])
        for producer in document["producers"]
    ]
    return "\n".join(lines) + "\n"
