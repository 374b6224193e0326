"""/stats in nsqd's shape: publishers shown as themselves, the probe left out, ours under "srtm"."""

import asyncio
import time
from contextlib import suppress
from typing import Any

from srtm.gateway import sender
from srtm.gateway.agent import Agent
from srtm.gateway.client import Client
from srtm.gateway.host import Host
from srtm.gateway.listening import shown
from srtm.gateway.measure.meter import SKETCHES
from srtm.gateway.topic import Topic
from srtm.host.clock import NS, monotonic_ns
from srtm.nsq.names import PROBE_TOPIC
from srtm.text.errors import UnavailableError

_TOPICS_PER_TURN = 4
"""So many take about a millisecond."""
_NO_TOPIC = "/stats?topic=%20&include_clients=false&include_mem=false"
"""A page of nsqd's that is nothing but its head: no topic has this name."""


async def stats_document(
    gateway: Host, topic: str, channel: str, include_clients: bool, include_mem: bool
) -> dict[str, Any]:
    """The document of /stats, without nsqd's part where nsqd does not answer: `nsqd_away` says why
    then, "" otherwise."""
    away = ""
    try:
        document = await gateway.nsqd_http.stats(topic, channel, include_clients, include_mem)
    except UnavailableError as error:
        away = str(error)
        document = {
            "version": gateway.info.get("version", ""),
            "health": f"NOK - {away}",
            "start_time": gateway.info.get("start_time", 0),
            "topics": [],
        }
    topics = document.get("topics") or []
    topics[:] = [found for found in topics if found["topic_name"] != PROBE_TOPIC.decode()]
    addresses = _consumers(gateway) if include_clients else {}
    for found in topics:
        found["channels"] = [_plain(kept, addresses) for kept in found["channels"] or []]
    producers = [
        _producer(client, topic)
        for client in gateway.clients
        if client.published and (document.get("topics") is not None or not topic)
    ]
    document["producers"] = producers if include_clients and producers else None
    document["srtm"] = {"nsqd_away": away, **await srtm_document(gateway, topic)}
    return document


async def nsqds_head(gateway: Host, document: dict[str, Any]) -> str:
    """The first lines of nsqd's own text: what built it and since when it runs, which its JSON does
    not say."""
    if not document["srtm"]["nsqd_away"]:
        with suppress(UnavailableError):
            answer = await gateway.nsqd_http.call("GET", _NO_TOPIC)
            head, _, rest = answer.body.decode("utf-8", "replace").partition("\n\n")
            if rest.startswith("Health"):
                return head
    return f"nsqd v{document['version']}\nstart_time {document['start_time']}"


async def srtm_document(gateway: Host, topic: str = "") -> dict[str, Any]:
    """What only the gateway knows: contracts, tokens, counts in messages, latency in seconds.
    Messages have their turn between the topics."""
    by_name = gateway.topics.by_name
    topics = [by_name[name] for name in sorted(by_name) if not topic or name == topic.encode()]
    documents = []
    for number, found in enumerate(topics):
        if number % _TOPICS_PER_TURN == 0:
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
    """The contract over all brokers, as it was told last, of a topic that a Load Distributor
    limits; nothing for any other."""
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


def _consumers(gateway: Host) -> dict[str, str]:
    """Addresses of consumers by that of their tunnel, which nsqd sees."""
    names = [(client.tunnel and client.tunnel.local_name, client) for client in gateway.clients]
    return {shown(name): client.address for name, client in names if name}


def _plain(channel: dict[str, Any], addresses: dict[str, str]) -> dict[str, Any]:
    """Consumers by their own address: on nsqd's unix socket they are bound to a name like it."""
    for client in channel.get("clients") or []:
        address = client["remote_address"].removeprefix("@")
        client["remote_address"] = addresses.get(address, address)
    return channel


def _producer(client: Client, topic: str) -> dict[str, Any]:
    """A client as nsqd shows a producer: for one that has not published to `topic`, no counts."""
    host = client.address.rpartition(":")[0].strip("[]")
    identity = client.identity
    counts = [
        {"topic": name.decode(), "count": count}
        for name, count in client.published.items()
        if not topic or name == topic.encode()
    ]
    return {
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
        **({"pub_counts": counts} if counts else {}),
        "tls": False,
        "tls_cipher_suite": "",
        "tls_version": "",
        "tls_negotiated_protocol": "",
        "tls_negotiated_protocol_is_mutual": False,
    }
