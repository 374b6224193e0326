"""Topics to which nothing has happened since their broker reported last: their shares are what they
were, and need no second look.

A topic is quiet at a broker that has, and has acknowledged, all that the placement gives it, while
nobody outside the placement may hold anything of the topic, no batch waits for the whole contract,
and contract and placement are those of the last look. What another broker of the placement does,
and time, then change nothing: a share that has reached its target neither grows nor shrinks by
itself.
"""

from collections.abc import Iterable

from distributor.control.state import ControlState, Looked
from tb_adaptor.leases import Holder


def look(state: ControlState, broker: str, name: str) -> Looked | None:
    """What the share of a topic that is quiet from now on follows from; None: it is not quiet."""
    topic, leases = state.topics.get(name), state.leases[name]
    holder, target = leases.holders[broker], leases.targets.get(broker)
    if topic is None or target is None or not holder.settled:
        return None
    if (holder.last.rate, holder.last.burst) != (target.rate, target.burst):
        return None
    found = Looked(
        topic, topic.contract, topic.emptied, leases, leases.targets, leases.total, leases.seen
    )
    return found if is_quiet(state, name, found) else None


def is_quiet(state: ControlState, name: str, looked: Looked) -> bool:
    """Is the topic as it was then?"""
    topic, contract, emptied, leases, targets, total, seen = looked
    turns = leases.turns
    return (
        state.topics.get(name) is topic
        and topic.contract is contract
        and topic.emptied == emptied
        and not topic.is_fitted
        and state.leases.get(name) is leases
        and leases.targets is targets
        and leases.total is total
        and leases.seen == seen
        and not leases.claims
        and turns.broker is None
        and not (turns.waiting or turns.before or turns.unpaid)
        and leases.holders.keys() <= targets.keys()
    )


def go_on(state: ControlState, broker: str, quiet: Iterable[str], ends_at: float) -> None:
    """The broker may hold its shares of quiet topics until then."""
    for name in quiet:
        holders = state.leases[name].holders
        before = holders[broker]
        if ends_at > before.lease_ends_at:
            holders[broker] = Holder(before.granted, ends_at, before.had_all)
