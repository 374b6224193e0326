"""`srtm journey plan`: from what is measured to a plan, and the plan as tables."""

import json
import math
import sys
from collections import Counter
from typing import Any

import click

from srtm.autoscaler.simulator.arrivals import even_shares
from srtm.consumer.file import GroupFile
from srtm.journey.causes import Leg
from srtm.journey.file import Journey, Journeys
from srtm.journey.plan import LEAST_SECONDS, JourneyPlan, planned
from srtm.journey.simulated import Group
from srtm.journey.split import Impossible
from srtm.limits.bins import Bins
from srtm.limits.slo import SLO
from srtm.text.duration import format_duration
from srtm.text.errors import UnavailableError, UsageError
from srtm.text.terminal import Column, Table, show

_SHARES = 12
"""Equal ones, at least so many, while no controller tells of the group's partitions."""
_REBALANCE_SECONDS = 0.5
_STARTUP_SECONDS = 5.0
"""until the controller tells"""


def plan_journeys(
    journeys: Journeys,
    told: dict[str, Any],
    mu: float | None,
    startup: float | None,
    as_json: bool,
) -> None:
    """told: by journey, what /stats says. Raises SrtmError."""
    plans = {}
    for journey in journeys.all:
        if journey.name not in told:
            continue
        plans[journey.name] = _plan(journey, told[journey.name], mu, startup)
    if as_json:
        click.echo(json.dumps([_document(name, plan) for name, plan in plans.items()]))
        return
    for name, plan in plans.items():
        show(*_tables(name, plan), "")


def inputs(
    journey: Journey, told: dict[str, Any], mu: float | None = None, startup: float | None = None
) -> dict[str, Any]:
    """The arguments of `planned`. told: what /stats says of the journey, with what the group's
    controller told; mu, startup: in place of what is known. Raises SrtmError."""
    leg = told["told"].get(Leg.CONSUMER, {})
    file = journey.consumers
    is_group = isinstance(file, GroupFile)
    counts_bytes = isinstance(file, GroupFile) and file.group.weigh == "bytes"
    mu = mu or leg.get("mu") or (None if counts_bytes else file.group.mu)
    if mu is None:
        raise UsageError(
            f"journey {journey.name}: nobody says how many messages/s one consumer can serve: give "
            "--mu, or start the controller, which learns it"
        )
    rates = [float(each) for each in told["rates"]]
    legs = {Leg(name): _bins(bins) for name, bins in told["bins"].items()}
    empty = [leg for leg, bins in legs.items() if not bins]
    if empty or len(rates) < LEAST_SECONDS:
        why = f"nothing is known of {' and '.join(empty)}" if empty else "too little was measured"
        raise UnavailableError(
            f"journey {journey.name}: {why}: srtm journey run has to measure messages for "
            f"{LEAST_SECONDS} s, and the last of them not longer ago than a minute"
        )
    rate_of = leg.get("shares", [])
    whole = sum(rate_of)
    even = even_shares(max(_SHARES, file.group.max))
    group = Group(
        file,
        mu,
        [each / whole for each in rate_of] if whole else even,
        leg.get("rebalance_seconds", _REBALANCE_SECONDS) if is_group else 0.0,
        leg.get("startup_seconds", _STARTUP_SECONDS) if startup is None else startup,
    )
    now = SLO.parse(leg["slo"]) if leg else file.group.slo
    return {
        "slo": journey.slo,
        "legs": legs,
        "rates": rates,
        "group": group,
        "now": now,
        "kept": now,
        "weights": {Leg(name): int(weight) for name, weight in told["weights"].items()},
    }


def _plan(
    journey: Journey, told: dict[str, Any], mu: float | None, startup: float | None
) -> JourneyPlan:
    """Raises SrtmError."""
    given = inputs(journey, told, mu, startup)
    label = f"simulates {journey.name}"
    with click.progressbar(length=1000, label=label, file=sys.stderr) as bar:
        return planned(**given, progress=lambda done: bar.update(round(done * 1000) - bar.pos))


def _bins(document: dict[str, int]) -> Bins:
    return Counter({int(key): int(count) for key, count in document.items()})


def _tables(name: str, plan: JourneyPlan) -> list[Any]:
    found = plan.found
    if isinstance(found, Impossible):
        return [f"{name}: {why_not(plan, found)}"]
    table = Table(
        Column("leg", text=True),
        Column("SLO to set", text=True),
        Column("as simulated or measured", text=True),
        Column("consumers"),
    )
    for leg, slo in plan.slos.items():
        option = found.options[str(leg)]
        cost = f"{option.cost:.2f}" if leg is Leg.CONSUMER else "-"
        seen = "simulated" if leg is Leg.CONSUMER else "measured"
        table.add(leg, str(slo), seen, cost)
    headroom = "any factor" if math.isinf(found.headroom) else f"a factor of {found.headroom:.2f}"
    lines: list[Any] = [
        f"{name}: {plan.slo} is promised with {found.cost:.2f} consumers on average; every leg may "
        f"be late more often than it was by {headroom}",
        table,
    ]
    if plan.equal is None:
        lines.append("an equal split of the target and of the late share would not keep it")
    else:
        lines.append(f"an equal split would take {plan.equal:.2f} consumers")
    return lines


def why_not(plan: JourneyPlan, found: Impossible) -> str:
    """Why no split keeps the SLO, and which one could be kept."""
    said = (
        f"{plan.slo} cannot be promised: at least {100 * found.late_share:.4g}% may be late, and "
        f"{100 * plan.slo.allowed_late_share:.4g}% are allowed; {found.leg} is what keeps it most"
    )
    if found.needs_seconds is None:
        return f"{said}. No target would do: more messages, or a lower percentile, are needed"
    return f"{said}. It could be promised within {format_duration(found.needs_seconds)}"


def _document(name: str, plan: JourneyPlan) -> dict[str, Any]:
    found = plan.found
    if isinstance(found, Impossible):
        return {
            "journey": name,
            "slo": str(plan.slo),
            "leg": found.leg,
            "late_share": found.late_share,
            "needs_seconds": found.needs_seconds,
        }
    return {
        "journey": name,
        "slo": str(plan.slo),
        "slos": {leg: str(slo) for leg, slo in plan.slos.items()},
        "consumers": found.cost,
        "consumers_of_equal_split": plan.equal,
        "headroom": None if math.isinf(found.headroom) else found.headroom,
    }
