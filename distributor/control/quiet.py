"""Shares that rest: of topics to which nothing has happened since their broker reported last. They
are what they were, and nobody looks at them until something happens.

A share rests at a broker that has, and has acknowledged, all that the placement gives it, while the
topic is calm: nobody outside the placement may hold anything of it, and no batch waits for the
whole contract. What another broker of the placement does, and time, then change nothing: a share
that has reached its target neither grows nor shrinks by itself. Its lease goes on with the others
of its broker (`Term`). Whoever changes a topic, or what may be held of it, stirs its shares
(`ControlState.stir`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from distributor.control.state import ControlState, Gateway
from distributor.gateway_api import Report
from tb_adaptor.leases import TopicLeases


class _Calm(NamedTuple):
    """A topic that is calm before a report is taken in. seen: as `TopicLeases` has it"""

    name: str
    leases: TopicLeases
    seen: int


def wake(gateway: Gateway, report: Report) -> None:
    """Topics whose messages wait are looked at."""
    for each in report.topics:
        if each.waiting or each.debt or each.batch:
            gateway.resting.discard(each.topic)


def calm(state: ControlState, names: Iterable[str]) -> Sequence[_Calm]:
    """Those of these topics whose shares may rest elsewhere."""
    found = ((name, state.leases.get(name)) for name in names)
    return [_Calm(name, leases, leases.seen) for name, leases in found if leases and leases.is_calm]


def stir_changed(state: ControlState, before: Iterable[_Calm]) -> None:
    """Stir the shares of topics to which a report has brought something."""
    for name, leases, seen in before:
        if not leases.is_calm or leases.seen != seen:
            state.stir(name)


def rest(state: ControlState, gateway: Gateway, names: Iterable[str]) -> None:
    """Let those of the broker's shares rest that can, now that it has been told of them."""
    for name in names:
        if _can_rest(state, gateway.row.name, name):
            gateway.resting.add(name)
            holders = state.leases[name].holders
            holders[gateway.row.name] = replace(holders[gateway.row.name], within=gateway.term)


def _can_rest(state: ControlState, broker: str, name: str) -> bool:
    topic, leases = state.topics.get(name), state.leases[name]
    holder, target = leases.holders[broker], leases.targets.get(broker)
    if topic is None or target is None or topic.is_fitted or not holder.settled:
        return False
    return (holder.last.rate, holder.last.burst) == (target.rate, target.burst) and leases.is_calm
