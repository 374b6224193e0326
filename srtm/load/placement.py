"""A topic's publishers as the Load Distributor has placed them: who, how fast, in which group and
at which gateway."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from srtm.http.client import Endpoint, call, lines
from srtm.text.errors import UnavailableError, UsageError

_SETTLE_SECONDS = 15.0
"""a publisher is sent to a broker once that has its share; one report, a second, is the rule"""


@dataclass(frozen=True, slots=True)
class PlacedPublisher:
    """key: None for one that sends alone; rate: messages/s; address: host:port of its gateway"""

    id: str
    key: str | None
    rate: float
    address: str


def read_placement(endpoint: Endpoint, topic: str) -> list[PlacedPublisher]:
    """Everybody of the placement in force, in order of id, once all their brokers have their
    shares. Raises UsageError without a placement of all publishers, UnavailableError where the
    distributor, or a share, does not come."""
    return asyncio.run(_read(endpoint, topic))


def settings_of(placed: Sequence[PlacedPublisher]) -> dict[str, Any]:
    """The part of LoadSettings that says who publishes where."""
    addresses = list(dict.fromkeys(each.address for each in placed))
    groups = list(dict.fromkeys(_group(each) for each in placed))
    address_number = {address: number for number, address in enumerate(addresses)}
    group_number = {group: number for number, group in enumerate(groups)}
    return {
        "publishers": len(placed),
        "ids": tuple(each.id for each in placed),
        "rates": tuple(each.rate for each in placed),
        "groups": tuple(group_number[_group(each)] for each in placed),
        "publish_addresses": tuple(addresses),
        "assignment": tuple(address_number[each.address] for each in placed),
    }


def _group(publisher: PlacedPublisher) -> tuple[str, bool]:
    return publisher.key or publisher.id, publisher.key is None


async def _read(endpoint: Endpoint, topic: str) -> list[PlacedPublisher]:
    path = f"/v1/topics/{quote(topic, safe='')}"
    try:
        answer = await call(endpoint, "GET", f"{path}/placements/current")
    except UnavailableError as error:
        last = f"; the last one, {error}" if endpoint.count > 1 else f": {error}"
        raise UnavailableError(f"no distributor answers at {endpoint.address}{last}") from None
    who = endpoint.now().address
    if answer.is_foreign:
        raise UnavailableError(f"{who} is no distributor (HTTP {answer.status})")
    if answer.status in (401, 403, 404):
        raise UsageError(f"distributor {who}: {answer.error}")
    if answer.status != 200:
        raise UnavailableError(f"distributor {who}: {answer.error}")
    plan = answer.document
    unplaced, everybody = len(plan["unplaced"]), len(plan["unplaced"] + plan["assignments"])
    if unplaced:
        raise UsageError(
            f"topic {topic}: {unplaced} of {everybody} publishers have no broker; "
            f"srtm placement explain {topic} says why"
        )
    wanted = {each["publisher"]: each["broker"] for each in plan["assignments"]}
    found: dict[str, PlacedPublisher] = {}
    try:
        async with asyncio.timeout(_SETTLE_SECONDS):
            await _follow(endpoint, f"{path}/watch", wanted, found)
    except TimeoutError:
        late = sorted({broker for each, broker in wanted.items() if each not in found})
        raise UnavailableError(
            f"topic {topic}: after {_SETTLE_SECONDS:g} s {len(wanted) - len(found)} publishers "
            f"are not sent to their broker yet, as it has no share: {', '.join(late)}"
        ) from None
    return [found[each] for each in sorted(found)]


async def _follow(
    endpoint: Endpoint, path: str, wanted: dict[str, str], found: dict[str, PlacedPublisher]
) -> None:
    """Follow the watch until each one of `wanted` is where it is meant to be."""
    body = json.dumps({"ids": list(wanted)}).encode()
    async with aclosing(lines(endpoint, path, body, _SETTLE_SECONDS)) as stream:
        async for place in stream:
            name = place.get("id")
            if name in wanted and place["broker"] == wanted[name] and place["rate"]:
                found[name] = PlacedPublisher(
                    name, place["key"], place["rate"], place["tcp_address"]
                )
            if len(found) == len(wanted):
                return
    raise UnavailableError(f"distributor {endpoint.address}: {path} was ended")
