"""How the SLOs of journeys are split, as tables, from what /stats of `srtm journey run` says."""

import time
from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType

from srtm.text.terminal import Column, Table

_MODES = {
    "off": 'it is not split: give split = "propose" or "auto" in its file',
    "propose": "a split is proposed, and not set,",
    "auto": "a split is set",
}


def explanations(journeys: list[dict[str, Any]]) -> Iterator[RenderableType]:
    for each in journeys:
        split = each["split"]
        yield f"{each['journey']}: {each['slo']}; {_state(split)}"
        yield _legs(each)
        if split["decisions"]:
            yield _decisions(split["decisions"])
        if split["fault"]:
            yield f"{each['journey']}: {split['fault']}"
        yield ""


def _state(split: dict[str, Any]) -> str:
    if split["mode"] == "off":
        return _MODES["off"]
    if split["slos"]:
        since, consumers = _at(split["since"]), split["consumers"]
        return f"{_MODES[split['mode']]} since {since}, for {consumers:.2f} consumers"
    if split["planning"]:
        return "not split yet: the group is being simulated, which takes some minutes"
    return "not split yet: it takes two minutes of messages, and a plan"


def _legs(journey: dict[str, Any]) -> Table:
    table = Table(
        Column("leg", text=True),
        Column("SLO of the split", text=True),
        Column("SLO that it keeps", text=True),
        Column("told", text=True),
    )
    for leg in journey["legs"]:
        name = leg["leg"]
        told = journey["told"].get(name)
        ago = None if told is None else told.get("seconds_ago")
        table.add(
            name,
            journey["split"]["slos"].get(name, "-"),
            "-" if told is None else told["slo"] or "none",
            "-" if ago is None else f"{ago:.0f} s ago",
        )
    return table


def _decisions(decisions: list[dict[str, Any]]) -> Table:
    table = Table(
        Column("at", text=True),
        Column("because", sentence=True),
        Column("decision", sentence=True),
    )
    for each in decisions:
        table.add(_at(each["at"]), each["why"], each["decision"])
    return table


def _at(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
