"""/stats in nsqd's shape: publishers shown as themselves, the probe left out, ours under "srtm"."""

import asyncio
import time
from contextlib import suppress
from heapq import nlargest
from operator import itemgetter
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
_MOST_THROTTLED = 5
"""publishers of one topic that are named"""
_WHO = ("authed", "auth_identity", "auth_identity_url")
"""What nsqd knows of a tunnel is the gateway's own identity."""
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
    consumers = _consumers(gateway) if include_clients else {}
    for found in topics:
        found["channels"] = [_plain(kept, consumers) for kept in found["channels"] or []]
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
    if topic.throttled:
        document["throttled_publishers"] = _throttled(topic.waiting_by_publisher())
    for name in SKETCHES:
        document[name] = getattr(meter, name).quantiles(now).document()
    return document


def _throttled(waiting: dict[str, int]) -> dict[str, Any]:
    """Publishers that wait for tokens, and messages of those that have most waiting."""
    most = nlargest(_MOST_THROTTLED, waiting.items(), key=itemgetter(1))
    return {
        "count": len(waiting),
        "most": [{"publisher": name, "waiting": count} for name, count in most],
    }


def _consumers(gateway: Host) -> dict[str, Client]:
    """Consumers by the address of their tunnel, which nsqd sees: on its unix socket the tunnel is
    bound to a name like the client's own."""
    found: dict[str, Client] = {}
    for client in gateway.clients:
        if client.tunnel is not None:
            name = client.tunnel.local_name
            found[shown(name) if name else client.address] = client
    return found


def _plain(channel: dict[str, Any], consumers: dict[str, Client]) -> dict[str, Any]:
    """A channel with its clients as they are at the gateway, and not as their tunnels are."""
    for entry in channel.get("clients") or []:
        address = entry["remote_address"] = entry["remote_address"].removeprefix("@")
        client = consumers.get(address)
        if client is not None:
            tunnels = {name: value for name, value in entry.items() if name not in _WHO}
            own = {"remote_address": client.address, **_packing(client), **_tls(client)}
            entry.clear()
            for name, value in tunnels.items():
                entry[name] = own.get(name, value)
                if name == "user_agent":  # after which nsqd has them
                    entry.update(_who(client))
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
        **_packing(client),
        "user_agent": identity.user_agent,
        **_who(client),
        **({"pub_counts": counts} if counts else {}),
        **_tls(client),
    }


def _packing(client: Client) -> dict[str, Any]:
    return {"deflate": client.agreed.deflate, "snappy": client.agreed.snappy}


def _who(client: Client) -> dict[str, Any]:
    """Who a client has said to be, by AUTH."""
    found = client.authorization
    if found is None:
        return {}
    texts = {"auth_identity": found.identity, "auth_identity_url": found.identity_url}
    return {"authed": True, **{name: text for name, text in texts.items() if text}}


def _tls(client: Client) -> dict[str, Any]:
    tls = client.tls if client.is_secure else None
    return {
        "tls": tls is not None,
        "tls_cipher_suite": tls.cipher if tls else "",
        "tls_version": tls.version.replace("v", "") if tls else "",
        "tls_negotiated_protocol": "",
        "tls_negotiated_protocol_is_mutual": tls is not None,  # Go's is always true
    }
