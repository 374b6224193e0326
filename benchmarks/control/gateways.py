"""Gateways that only report: the real protocol to a real distributor, without messages."""

import asyncio
import json
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Any

from distributor.remote import Remote
from srtm.http.client import Answer, Endpoint, call, get_json
from srtm.http.exchange import REPORTS_PROTOCOL, Exchange
from srtm.text.errors import UnavailableError

_TIMEOUT_SECONDS = 10.0
CAPACITY = 1_000_000.0
"""messages/s of a broker"""


class Way(StrEnum):
    """How a gateway reports.

    SINGLE: a request on a connection of its own, with each of its topics; the answer has all of
            them too
    LINE:   on one connection, with the topics that have something to tell; the answer has topics
            where something is new
    """

    SINGLE = "single"
    LINE = "line"


@dataclass
class Gateway:
    """pace: reports in a second; number: of its reports so far"""

    service: Endpoint
    name: str
    pace: int = 4
    topics: list[str] = field(default_factory=list)
    epoch: int = 0
    names_version: str = ""
    number: int = 0
    exchange: Exchange | None = None
    round_trip: float = 0.001

    def register(self, remote: Remote) -> None:
        """Raises SrtmError."""
        document = {
            "name": self.name,
            "tcp_address": f"{self.name}:4150",
            "http_address": f"{self.name}:4151",
            "capacity": CAPACITY,
            "process": self.name,
        }
        remote.call("POST", "brokers", body=document)

    async def report(self, way: Way, busy: int) -> None:
        """busy: of its topics, those to which messages came. Raises UnavailableError."""
        self.number += 1
        of = len(self.topics)
        counted = {self.topics[(self.number + n) % of] for n in range(min(busy, of))}
        is_whole = way is Way.SINGLE or not self.epoch
        begun = time.monotonic()
        head = {
            "applied_epoch": self.epoch,
            "process": self.name,
            "names_version": self.names_version,
            "seconds": 1 / self.pace,
            "answered": self.number,
            "round_trip": self.round_trip,
            "clock": int(begun * 1e3),
            "whole": is_whole,
            "topics": self.entries(counted, way is Way.SINGLE),
        }
        answer = await self._send(way, json.dumps(head).encode())
        self.round_trip = time.monotonic() - begun
        self.take(answer.json())

    def entries(self, counted: Collection[str], tells_all: bool) -> list[dict[str, Any]]:
        """What a report tells of topics. counted: those to which messages came"""
        told = self.topics if tells_all else sorted(counted)
        rate = 10.0 + self.number % 7
        return [entry(each, rate if each in counted else 0.0) for each in told]

    async def _send(self, way: Way, body: bytes) -> Answer:
        path = f"/v1/brokers/{self.name}/report"
        if way is Way.SINGLE:
            return await call(self.service, "POST", path, body, _TIMEOUT_SECONDS)
        if self.exchange is None:
            self.exchange = await Exchange.open(
                self.service, f"{path}s", REPORTS_PROTOCOL, _TIMEOUT_SECONDS
            )
        return await self.exchange.ask(body, _TIMEOUT_SECONDS)

    def take(self, answer: dict[str, Any]) -> None:
        self.epoch, self.names_version = answer["epoch"], answer["names_version"]
        if answer["topics"] is not None:
            self.topics = [each["topic"] for each in answer["topics"]]

    def hang_up(self) -> None:
        if self.exchange is not None:
            self.exchange.close()
            self.exchange = None


def is_leading(address: str) -> bool:
    """Does the distributor there lead?"""
    try:
        return bool(get_json(address, "/v1/health")["leading"])
    except UnavailableError:
        return False


def entry(topic: str, rate: float) -> dict[str, Any]:
    """As `srtm.gateway.agent` tells of a topic with an SLO."""
    counts = dict.fromkeys(("backlog", "waiting", "near", "late", "late_at_broker"), 0)
    return {"topic": topic, "offered": rate, "admitted": rate, "served": round(rate), **counts}


def register(remote: Remote, name: str, per_gateway: int) -> None:
    """A topic with one publisher, of which a broker holds so many. Raises SrtmError."""
    contract = {"rate": 100.0, "burst": 50.0, "slo": "0.99@5ms"}
    remote.call("PUT", "topics", name, body=contract)
    publisher = {"id": "p", "rate": 0.8 * CAPACITY / per_gateway}
    remote.call("POST", "topics", name, "publishers", body={"publishers": [publisher]})
    remote.call("POST", "topics", name, "placements", body={})


async def settle(gateways: Sequence[Gateway]) -> None:
    """Until all have their shares, and have said so."""
    for _ in range(4):
        for each in gateways:
            await each.report(Way.SINGLE, 0)


async def measure(
    gateways: Sequence[Gateway],
    way: Way,
    seconds: int,
    cpu_seconds: Callable[[], float],
    warm_seconds: int = 0,
) -> tuple[float, list[float]]:
    """Each reports at its pace, whether the reports of others have been answered or not;
    one topic of each has messages. cpu_seconds: of the distributor until now; returned is what it
    spent, and the seconds from when each report was due to its answer: infinite where there was
    none. warm_seconds: of reports before those that count"""
    for gateway in gateways:  # whoever opens a connection pays for that once, and not each second
        await gateway.report(way, 1)
    waits: list[float] = []
    before = 0.0

    async def warm() -> None:
        nonlocal before
        await asyncio.sleep(warm_seconds)
        before = cpu_seconds()

    async def each(number: int, gateway: Gateway) -> None:
        for report in range((warm_seconds + seconds) * gateway.pace):
            due = begun + (report + number / len(gateways)) / gateway.pace
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            try:
                await gateway.report(way, 1)
                waited = time.monotonic() - due
            except UnavailableError:
                waited = inf
            if report >= warm_seconds * gateway.pace:
                waits.append(waited)

    begun = time.monotonic()
    await asyncio.gather(warm(), *(each(*numbered) for numbered in enumerate(gateways)))
    spent = cpu_seconds() - before
    for gateway in gateways:
        gateway.hang_up()
    return spent, waits
