"""The controller's states (Landau, Fig. 4.6), as a table; a second controller is in standby."""

from enum import StrEnum
from typing import Final


class State(StrEnum):
    STANDBY = "standby"
    """Another one leads, or nobody yet."""
    SYNCHRONIZE = "synchronize"
    """The controller claims to lead, and reads who has what."""
    SENTINEL = "sentinel"
    """The controller watches, and asks the policy once an interval."""
    REASSIGN = "reassign"
    """The policy wants another group; bounds are put to it."""
    MANAGE = "manage"
    """Consumers start, partitions move, consumers leave."""


class Event(StrEnum):
    CLAIMED = "claimed"
    SYNCHRONIZED = "synchronized"
    TRIGGERED = "triggered"
    ASSIGNED = "assigned"
    DONE = "done"
    DEPOSED = "deposed"


STEPS: Final[dict[State, dict[Event, State]]] = {
    State.STANDBY: {Event.CLAIMED: State.SYNCHRONIZE},
    State.SYNCHRONIZE: {Event.SYNCHRONIZED: State.SENTINEL, Event.DEPOSED: State.STANDBY},
    State.SENTINEL: {Event.TRIGGERED: State.REASSIGN, Event.DEPOSED: State.STANDBY},
    State.REASSIGN: {Event.ASSIGNED: State.MANAGE},
    State.MANAGE: {
        Event.DONE: State.SENTINEL,
        Event.TRIGGERED: State.REASSIGN,
        Event.DEPOSED: State.STANDBY,
    },
}


def step(state: State, event: Event) -> State:
    """Raises ValueError for a step that the table does not have."""
    try:
        return STEPS[state][event]
    except KeyError:
        raise ValueError(f"the controller cannot take {event} in state {state}") from None
