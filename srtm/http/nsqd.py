"""What nsqd, or the gateway before it, answers to /stats."""

from typing import Any
from urllib.parse import quote

from srtm.http.client import Answer, request
from srtm.text.errors import UnavailableError


def stats_path(
    topic: str = "", channel: str = "", clients: bool = False, memory: bool = False
) -> str:
    """topic, channel: the only ones that are asked for; without, all."""
    return (
        f"/stats?format=json&topic={quote(topic, safe='')}&channel={quote(channel, safe='')}"
        f"&include_clients={str(clients).lower()}&include_mem={str(memory).lower()}"
    )


def read_stats(answer: Answer, where: str) -> dict[str, Any]:
    """The answer's document. A gateway whose nsqd is away says so by its status, 503, and tells
    its own part all the same. Raises UnavailableError."""
    document = answer.document if answer.status in (200, 503) else None
    if not isinstance(document, dict) or not isinstance(document.get("topics", 0), list | None):
        raise UnavailableError(f"{where}: /stats answered {answer.status}: {answer.error}")
    return document


def stats(address: str, topic: str = "", channel: str = "") -> dict[str, Any]:
    """Topics and channels; a gateway's own part is under `srtm`. Raises UnavailableError."""
    return read_stats(request(address, "GET", stats_path(topic, channel)), address)
