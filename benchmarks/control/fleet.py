"""A fleet whose gateways share their topics: what a report costs then.

Each topic is on twenty gateways, and each gateway has twenty topics, one of which gets messages
from one report to the next. Where several gateways share a topic, arrivals are reported, shares
follow them, and the live penalty is computed.
"""

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from benchmarks.control.gateways import CAPACITY, Gateway, Way, entry, settle
from distributor.remote import Remote
from srtm.http.client import Endpoint
from srtm.limits.bins import ZERO

SHARERS = 20
"""gateways of a topic"""
_RATE, _BURST = 100.0, 50.0
"""of a share"""
_MESSAGES = 10
"""of a busy topic in a second, evenly: none waits, and the bucket is full again"""


@dataclass
class Member(Gateway):
    """A gateway of the fleet; it tells of its topics as `srtm.gateway.agent` does. idle: topics
    that it has told to be idle, and need not be named"""

    pace: int = 1
    idle: set[str] = field(default_factory=set)

    def entries(self, counted: Collection[str], tells_all: bool) -> list[dict[str, Any]]:
        told = [each for each in self.topics if tells_all or each not in self.idle - {*counted}]
        self.idle = {*self.topics} - {*counted}
        clock = int(time.monotonic() * 1e3)
        return [_shared(each, _MESSAGES if each in counted else 0, clock) for each in told]


def _shared(topic: str, messages: int, clock: int) -> dict[str, Any]:
    ages = [(50.0 + 1e3 * n / max(messages, 1), 1) for n in range(messages)]
    waits = {
        "clock": clock,
        "seconds": 0.0,
        "bins": [(ZERO, messages)] if messages else [],
        "held": 0,
        "tokens": _BURST,
    }
    return {**entry(topic, float(messages)), "arrivals": ages, "batches": [], "waits": waits}


def begin(address: str, count: int) -> list[Member]:
    """Gateways, as many topics, and their placement. Raises SrtmError."""
    remote = Remote(Endpoint(address))
    members = [Member(Endpoint(address), f"m{n}") for n in range(count)]
    for each in members:
        each.register(remote)
    for number in range(count):
        topic = f"s{number}"
        contract = {"rate": SHARERS * _RATE, "burst": SHARERS * _BURST, "slo": "0.99@5ms"}
        remote.call("PUT", "topics", topic, body=contract)
        rate = 0.8 * CAPACITY / SHARERS
        publishers = [{"id": f"p{n}", "rate": rate} for n in range(SHARERS)]
        remote.call("POST", "topics", topic, "publishers", body={"publishers": publishers})
        remote.call("POST", "topics", topic, "placements", body={"policy": "lb"})
    asyncio.run(_settle(members))
    return members


async def _settle(members: list[Member]) -> None:
    await settle(members)
    for each in members:
        await each.report(Way.LINE, 0)
        each.hang_up()
