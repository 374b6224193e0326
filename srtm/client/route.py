"""The way to a publisher's gateway, and the moves of it: a state machine without I/O.

    homeless -> connecting -> open -> leaving -> connecting -> open ...
                  |   ^         |
                  v   |         v
                 waiting  <-----+   the connection broke

Who is placed nowhere any more is held: it stays connected, and sends nothing until it has a place.

A move stops sending, waits until everything sent is answered, then connects to the new gateway and
goes on. So nothing is lost by it, and no message overtakes another.
"""

from enum import Enum

from srtm.client.place import Place


class State(Enum):
    HOMELESS = "homeless"  # no gateway is known
    CONNECTING = "connecting"
    OPEN = "open"  # the only state in which messages are sent
    HELD = "held"  # connected, and placed nowhere
    LEAVING = "leaving"  # what was sent waits for its answers
    WAITING = "waiting"  # a connection could not be had, or broke; later again
    CLOSED = "closed"


class Event(Enum):
    PLACED = "placed elsewhere"
    UNPLACED = "placed nowhere"
    RETURNED = "placed where it was"
    CONNECTED = "connected"
    ANSWERED = "all answered"
    BROKEN = "connection broken"
    RETRY = "time to try again"
    CLOSE = "closed by its user"


TABLE: dict[State, dict[Event, State]] = {
    State.HOMELESS: {Event.PLACED: State.CONNECTING, Event.CLOSE: State.CLOSED},
    State.CONNECTING: {
        Event.PLACED: State.CONNECTING,
        Event.UNPLACED: State.HOMELESS,
        Event.CONNECTED: State.OPEN,
        Event.BROKEN: State.WAITING,
        Event.CLOSE: State.CLOSED,
    },
    State.OPEN: {
        Event.PLACED: State.LEAVING,
        Event.UNPLACED: State.HELD,
        Event.BROKEN: State.WAITING,
        Event.CLOSE: State.CLOSED,
    },
    State.HELD: {
        Event.PLACED: State.LEAVING,
        Event.RETURNED: State.OPEN,
        Event.BROKEN: State.HOMELESS,
        Event.CLOSE: State.CLOSED,
    },
    State.LEAVING: {
        Event.PLACED: State.LEAVING,
        Event.UNPLACED: State.HELD,
        Event.RETURNED: State.OPEN,
        Event.ANSWERED: State.CONNECTING,
        Event.BROKEN: State.CONNECTING,
        Event.CLOSE: State.CLOSED,
    },
    State.WAITING: {
        Event.PLACED: State.CONNECTING,
        Event.UNPLACED: State.HOMELESS,
        Event.RETRY: State.CONNECTING,
        Event.CLOSE: State.CLOSED,
    },
    State.CLOSED: {},
}


class Route:
    """Where one publisher sends now (`address`), and where it should (`place`).

    failures: attempts in a row that gave no connection, for the backoff
    moves:    how often it has gone from one gateway to another
    """

    def __init__(self) -> None:
        self.state = State.HOMELESS
        self.place: Place | None = None
        self.address = ""
        self.failures = 0
        self.moves = 0

    def placed(self, place: Place) -> bool:
        """The distributor's word; True when the state has changed, or the target of a connection
        that is being made. A place of an older epoch is ignored."""
        if self.state is State.CLOSED or (self.place and place.epoch < self.place.epoch):
            return False
        known, self.place = self.place, place
        if known is not None and known.address == place.address:
            return False
        if not place.address:
            if self.state is State.HOMELESS:
                return False
            self.step(Event.UNPLACED)
        elif self.state in (State.LEAVING, State.HELD) and place.address == self.address:
            self.step(Event.RETURNED)
        else:
            self.failures = 0
            self.step(Event.PLACED)
        return True

    def step(self, event: Event) -> State:
        """Raises ValueError for an event that cannot come in this state."""
        following = TABLE[self.state].get(event)
        if following is None:
            raise ValueError(f"publisher: {event.value!r} cannot come while {self.state.value}")
        if event is Event.CONNECTED:
            self.failures = 0
        elif following is State.WAITING:
            self.failures += 1
        if following is State.CONNECTING:
            assert self.place is not None, "nothing leads here without a place"
            if self.address and self.address != self.place.address:
                self.moves += 1
            self.address = self.place.address
        self.state = following
        return following
