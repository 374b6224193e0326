"""One gateway for each broker's name, because two would each get the broker's whole share.

A gateway is its instance, an id in its state file, so that a restart is the same one. Its process
shows where two run with copies of one state file: the one that another has replaced comes back.
"""

from dataclasses import replace

from distributor.control.state import FORMER, ControlState, Gateway
from distributor.errors import Conflict
from distributor.gateway_api import BrokerAsked
from tb_adaptor.leases import Holder, Share, Term

_REPLACED = 16
"""processes that are remembered; more restarts than that within one report's delay are none"""


def require_one(gateway: Gateway, asked: BrokerAsked, now: float, lease_seconds: float) -> None:
    """Raises Conflict where another gateway goes by this name."""
    row = gateway.row
    if asked.process and asked.process in gateway.replaced:
        raise Conflict(
            f"broker {row.name}: another gateway with a copy of this one's --state-file took over, "
            f"at {row.tcp_address}; remove the copy, and give one of them another --broker-name"
        )
    until = gateway.silent_until(lease_seconds)
    if row.instance and asked.instance != row.instance and now < until:
        raise Conflict(
            f"broker {row.name} is another gateway, at {row.tcp_address}, until it has been "
            f"silent for a lease ({until - now:.0f} s more): give this one another --broker-name"
        )


def take(state: ControlState, gateway: Gateway, process: str) -> None:
    """`process` is the gateway from now on."""
    if gateway.process and gateway.process != process:
        for topic, leases in state.leases.items():
            leases.turns.restarted(gateway.row.name, leases.total.burst)
            if not leases.is_calm:
                state.stir(topic)
        if len(gateway.replaced) >= _REPLACED:
            gateway.replaced.clear()
        gateway.replaced.add(gateway.process)
    gateway.process = process


def count_replaced(state: ControlState, gateway: Gateway, asked: BrokerAsked) -> Gateway | None:
    """A process that another with a copy of its state file has replaced runs on with the floors of
    what it had: they are counted under a name of its own until somebody forgets it. The broker of
    that name; None where there is nothing new to count."""
    if not asked.process or asked.process not in gateway.replaced:
        return None
    name = f"{gateway.row.name}{FORMER}{asked.process[:8]}"
    held = {each.topic: Share(each.rate, each.burst, each.batch).floor for each in asked.held}
    known = {topic: share for topic, share in held.items() if topic in state.topics}
    if name in state.gateways or not known:
        return None
    former = state.gateways[name] = Gateway(replace(gateway.row, name=name, draining=True))
    for topic, share in known.items():
        state.leases[topic].holders[name] = Holder(((state.next_epoch(), share),))
        state.stir(topic)
        former.topics.add(topic)
    return former


def leave_behind(state: ControlState, gateway: Gateway, instance: str) -> Gateway | None:
    """Another instance takes the name over. The one before may run on, cut off, with the floors of
    what it had: they are counted under a name of its own until somebody forgets it. The broker of
    that name; None where it had nothing."""
    row = gateway.row
    if not row.instance or row.instance == instance or not gateway.topics:
        return None
    name = f"{row.name}{FORMER}{row.instance[:8]}"
    former = state.gateways.get(name)
    if former is None:
        former = Gateway(replace(row, name=name, draining=True))
        state.gateways[name] = former
    gateway.resting.clear()
    gateway.term = Term()  # what is left behind goes on no longer
    for topic in gateway.topics & state.leases.keys():
        holders = state.leases[topic].holders
        held = holders.pop(row.name, None)
        if held is not None:  # else a write failed after this was done, and it is done again
            holders[name] = held.besides(holders.get(name))
            former.topics.add(topic)
            state.stir(topic)
    return former
