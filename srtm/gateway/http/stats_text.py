"""/stats as text, for people and monitors that parse it: nsqd's own lines, then the gateway's."""

import time
from typing import Any

_MEMORY = (
    "heap_objects",
    "heap_idle_bytes",
    "heap_in_use_bytes",
    "heap_released_bytes",
    "gc_pause_usec_100",
    "gc_pause_usec_99",
    "gc_pause_usec_95",
    "next_gc_bytes",
    "gc_total_runs",
)
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))


def as_text(document: dict[str, Any], head: str) -> str:
    """The document of /stats. head: nsqd's own lines before its health"""
    topics = document["topics"] or []
    lines = [head, "", f"Health: {document['health']}"]
    if "memory" in document:
        memory = document["memory"]
        lines += ["", "Memory:", *(f"   {name:<25}\t{memory[name]}" for name in _MEMORY)]
    lines += ["", "Topics:" if topics else "Topics: None"]
    for number, topic in enumerate(topics):
        lines += [""] * bool(number) + _topic_lines(topic)
    producers = document["producers"] or []
    lines += ["", "Producers:" if producers else "Producers: None"]
    lines += [f"   {_client_line(producer)}" for producer in producers]
    return "\n".join([*lines, "", *_our_lines(document["srtm"])]) + "\n"


# --- nsqd's (printStats of its http.go) ---------------------------------------------------------


def _topic_lines(topic: dict[str, Any]) -> list[str]:
    lines = [
        f"{'*P' if topic['paused'] else '  '} [{topic['topic_name']:<15}] "
        f"depth: {topic['depth']:<5} be-depth: {topic['backend_depth']:<5} "
        f"msgs: {topic['message_count']:<8} e2e%: {_latencies(topic)}"
    ]
    for channel in topic["channels"]:
        lines.append(
            f"   {'*P' if channel['paused'] else '  '} [{channel['channel_name']:<25}] "
            f"depth: {channel['depth']:<5} be-depth: {channel['backend_depth']:<5} "
            f"inflt: {channel['in_flight_count']:<4} def: {channel['deferred_count']:<4} "
            f"re-q: {channel['requeue_count']:<5} timeout: {channel['timeout_count']:<5} "
            f"msgs: {channel['message_count']:<8} e2e%: {_latencies(channel)}"
        )
        lines += [f"        {_client_line(client)}" for client in channel["clients"] or []]
    return lines


def _latencies(of: dict[str, Any]) -> str:
    found = of["e2e_processing_latency"] or {}
    return ", ".join(_human(each["value"]) for each in found.get("percentiles") or [])


def _human(nanoseconds: float) -> str:
    for size, unit in _UNITS:
        if nanoseconds > size:
            return f"{nanoseconds / size:.1f}{unit}"
    return f"{nanoseconds:.1f}ns"


def _client_line(client: dict[str, Any]) -> str:
    name = f"{client['hostname']}:{client['remote_address'].rpartition(':')[2]}"
    name += f" {client['user_agent']}"
    connected = _duration(int(time.time() - client["connect_ts"]))
    counts = client.get("pub_counts")
    if counts:
        published = ",".join(f"{each['topic']}={each['count']}" for each in counts)
        return (
            f"[{client['version']} {name:<21}] msgs: {sum(each['count'] for each in counts):<8} "
            f"topics: {published} "
            f"connected: {connected}"
        )
    return (
        f"[{client['version']} {name:<21}] state: {client['state']} "
        f"inflt: {client['in_flight_count']:<4} rdy: {client['ready_count']:<4} "
        f"fin: {client['finish_count']:<8} re-q: {client['requeue_count']:<8} "
        f"msgs: {client['message_count']:<8} connected: {connected}"
    )


def _duration(seconds: int) -> str:
    """A duration of whole seconds, as Go writes it."""
    hours, rest = divmod(max(0, seconds), 3600)
    minutes, rest = divmod(rest, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


# --- ours -----------------------------------------------------------------------------------------


def _our_lines(ours: dict[str, Any]) -> list[str]:
    lines = [
        "SRTM:",
        *([f"   nsqd is away: {ours['nsqd_away']}"] if ours["nsqd_away"] else []),
        f"   Timestamps: {timestamps_line(ours['timestamps'])}",
        f"   Answers: {sender_line(ours['sender'])}",
    ]
    if ours["distributor"]:
        lines.append(f"   Distributor: {distributor_line(ours['distributor'])}")
    if ours["trace"]:
        lines.append(f"   Trace: {trace_line(ours['trace'])}")
    return lines + [_contract_line(topic) for topic in ours["topics"] if "rate" in topic]


def _contract_line(topic: dict[str, Any]) -> str:
    return (
        f"   [{topic['topic']:<15}] contract {topic['rate']:g}/s burst {topic['burst']:g} "
        f"tokens: {topic['tokens']:.1f} waiting: {topic['waiting']} "
        f"rejected: {topic['rejected']}{' THROTTLED' if topic['throttled'] else ''}"
    )


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
        if kept := distributor["kept_shares"]:
            line += "; kept by a lease grace: "
            line += ", ".join(f"{name} {left:.0f}s" for name, left in kept.items())
    else:
        line += f"lease {distributor['lease_left_seconds']:.1f}s"
    return line if distributor["contact"] else f"{line}; NO CONTACT: {distributor['error']}"


def trace_line(trace: dict[str, Any]) -> str:
    """Where it is, what is in it and what is not."""
    line = f"{trace['folder']}, {trace['written_messages']} messages written, "
    line += f"{trace['dropped_messages']} dropped"
    return f"{line}; FAILING: {trace['failing']}" if trace["failing"] else line
