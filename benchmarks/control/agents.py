"""Real agents of gateways in one process, without messages: what they hold together is known at
every change."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import fsum

from srtm.gateway.agent import Agent, Identity
from srtm.gateway.lease import Changes, Known
from srtm.gateway.topic import Topic
from srtm.host.clock import NS, boottime_ns
from srtm.http.client import Endpoint
from srtm.limits.contract import Limit

logging.getLogger("srtm.gateway").addHandler(logging.NullHandler())
"""so that agents do not write a line each when their distributor is gone, as is meant here"""


@dataclass
class Held:
    """What agents hold of each topic, at every change.

    contract: the r and b of a topic
    most:     the largest part of a contract, in r or in b, that was held at any instant
    changes:  of shares
    """

    contract: Callable[[str], tuple[float, float]]
    of: dict[str, dict[str, Limit]] = field(default_factory=dict)
    most: float = 0.0
    changes: int = 0

    def change(self, broker: str, changes: Changes) -> None:
        for topic, limit in changes.items():
            held = self.of.setdefault(topic, {})
            held.pop(broker, None)
            if limit is not None:
                held[broker] = limit
            self.changes += 1
            rate, burst = self.contract(topic)
            self.most = max(
                self.most,
                fsum(each.rate for each in held.values()) / rate,
                fsum(each.burst for each in held.values()) / burst,
            )


class _NoFile:
    """The state file of a gateway whose disk never fails."""

    def write_soon(self) -> None: ...

    async def written(self) -> None: ...


class _Topics:
    """A gateway's topics as its agent knows them; no message comes."""

    def __init__(self, broker: str, held: Held) -> None:
        self.state_file = _NoFile()
        self.by_name: dict[bytes, Topic] = {}
        self.tell_soon = lambda: None
        self._broker = broker
        self._held = held

    def lease(self, changes: Changes) -> bool:
        self._held.change(self._broker, changes)
        return True

    def observe(self, names: frozenset[str]) -> None: ...

    def count_senders(self, names: frozenset[str]) -> None: ...

    def empty(self, name: str) -> None: ...

    def set_keys(self, keys: object) -> None: ...

    def know(self, known: Known) -> bool:
        return False

    def kept_knowledge(self) -> Known:
        return Known()

    def kept_leases(self) -> dict[str, Limit]:
        return {}


@asynccontextmanager
async def running(
    service: Callable[[], Endpoint], count: int, capacity: int, held: Held
) -> AsyncIterator[list[Agent]]:
    """Agents of brokers b0, b1, ... that report for the time of a `with` block. service: makes what
    one agent reports to; which of several addresses serves, each finds out by itself"""
    agents = [
        Agent(
            service(),
            Identity(name, f"{name}:4150", f"{name}:4151", capacity, name),
            _Topics(name, held),  # type: ignore[arg-type]
        )
        for name in (f"b{n}" for n in range(count))
    ]
    async with asyncio.TaskGroup() as group:
        lives = [group.create_task(each.run()) for each in agents]
        try:
            yield agents
        finally:
            for task in lives:
                task.cancel()
            for agent in agents:
                agent.close()


async def all_answered(agents: Sequence[Agent], since: int, most: float) -> tuple[float, float]:
    """Seconds from `since` until the first agent, and every agent, had an answer; `most` where
    some had none until then. since: nanoseconds since boot"""
    while True:
        told = [each.contact_at for each in agents]
        heard = [at for at in told if at is not None and at > since]
        waited = (boottime_ns() - since) / NS
        if len(heard) == len(agents) or waited > most:
            first = (min(heard) - since) / NS if heard else most
            last = (max(heard) - since) / NS if len(heard) == len(agents) else most
            return first, last
        await asyncio.sleep(0.01)
