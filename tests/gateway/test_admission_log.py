"""`srtm gateway --admission-log`: what it writes, through kill -9, rotation and a full disk."""

import json
import resource
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.distributors import srtm
from tests.support.servers import GatewayProcess, Servers, http, wait_for
from tests.support.v2 import V2


def audit(topic: str, *arguments: str | Path) -> dict[str, Any]:
    answer = srtm("audit", topic, *map(str, arguments), "--json")
    assert answer.returncode in (0, 1), answer.stderr
    document: dict[str, Any] = json.loads(answer.stdout)
    assert answer.returncode == document["exceeded"]
    return document


def publish(gateway: GatewayProcess, topic: str, count: int, batches: tuple[int, ...] = ()) -> None:
    """`count` single messages, and batches; returns with the last OK."""
    with V2(gateway.tcp) as client:
        for _ in range(count):
            client.send(b"PUB %s\n" % topic.encode(), b"x")
        for size in batches:
            client.mpub(topic, [b"x"] * size)
        for _ in range(count + len(batches)):
            assert client.answer() == b"OK"
