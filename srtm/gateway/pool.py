"""The gateway's connections to nsqd as a whole, and when one of them may be used."""

import contextlib
from collections.abc import Callable

from srtm.gateway.reactor import Reactor
from srtm.gateway.topic import Topic
from srtm.gateway.upstream import NsqdAddress, Upstream
from srtm.host.clock import monotonic_ns

POOL_SIZE = 4
"""Connections that known topics share; each topic holds to one while something of it is there."""
_MAX_SIDE = 16
"""First publishes to new topics under way: nsqd asks nsqlookupd synchronously for each."""


class Pool:
    """The connections of one gateway: a few for known topics, and one aside for each new topic,
    whose first PUB may wait seconds for a hanging nsqlookupd.

    Messages are checked by the limits of one nsqd process, so none goes over a connection to
    another one. A new connection counts once it is known to be to the same process: nsqd has
    answered its IDENTIFY while an older one was still there. Where there is none, `on_stranger`
    is told, and `welcome` lets in those that nsqd had answered before its limits were asked for
    and that are still there. A process that ends closes its connections before another one can
    answer at its address. `on_filled` is told when there is again one that topics share: those
    that found none wait for it."""

    def __init__(
        self,
        reactor: "Reactor",
        address: NsqdAddress,
        on_empty: Callable[[], None],
        on_stranger: Callable[[], None],
        on_filled: Callable[[], None],
    ) -> None:
        self._reactor = reactor
        self._address = address
        self._on_empty = on_empty
        self._on_stranger = on_stranger
        self._on_filled = on_filled
        self._shared: list[Upstream] = []
        self._side: set[Upstream] = set()
        self._coming: dict[Upstream, bool] = {}  # not known yet to be usable; is it a side one?
        self._waiting: dict[Topic, None] = {}
        self._draining = False

    @property
    def connected(self) -> bool:
        return bool(self._shared)

    @property
    def connections(self) -> list[Upstream]:
        return [*self._shared, *self._side, *self._coming]

    @property
    def strangers(self) -> list[Upstream]:
        """The connections that nsqd has answered, and of which nobody knows to which process they
        are."""
        return [upstream for upstream in self._coming if upstream.identified]

    def connect(self) -> None:
        """Fill the pool. Raises OSError when nsqd takes no connection."""
        coming = sum(not is_side for is_side in self._coming.values())
        for _ in range(POOL_SIZE - len(self._shared) - coming):
            self._begin(is_side=False)

    def _begin(self, is_side: bool) -> None:
        upstream = Upstream(self._reactor, self._address, self._lost, self._identified)
        if is_side:
            upstream.on_idle = self._serve_waiting
        self._coming[upstream] = is_side

    def _identified(self, upstream: Upstream) -> None:
        if any(other.is_there for other in (*self._shared, *self._side)):
            self._let_in(upstream)
        else:
            self._on_stranger()

    def welcome(self, asked: list[Upstream]) -> None:
        """The limits of nsqd's process are in force that were asked for when `asked` were there:
        they are its own if one of those still is, and so are all others that nsqd has answered."""
        if any(upstream.is_there for upstream in asked):
            for upstream in self.strangers:
                self._let_in(upstream)

    def _let_in(self, upstream: Upstream) -> None:
        if self._coming.pop(upstream):
            self._side.add(upstream)
        else:
            self._shared.append(upstream)
            if len(self._shared) == 1:
                self._on_filled()

    def carrier(self, topic: "Topic") -> Upstream | None:
        """A connection with little on it; a connection of its own for a new topic."""
        if not self._shared or self._draining:
            return None
        if topic.known:
            return min(self._shared, key=_load)
        for side in self._side:
            if not side.in_flight:
                return side
        self._waiting[topic] = None
        coming = sum(self._coming.values())
        if coming < len(self._waiting) and len(self._side) + coming < _MAX_SIDE:
            with contextlib.suppress(OSError):
                self._begin(is_side=True)
        return None

    @property
    def heard_at(self) -> int:
        """When nsqd last said anything on one of them."""
        return max((upstream.heard_at for upstream in self.connections), default=0)

    def retire_side(self) -> None:
        """Close side connections that nobody needs now."""
        for side in [side for side in self._side if not side.in_flight]:
            side.close("its topic is known")
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        """New topics that found no side connection free, first come first served."""
        while self._waiting and (
            len(self._side) < _MAX_SIDE or not all(side.in_flight for side in self._side)
        ):
            topic = next(iter(self._waiting))
            del self._waiting[topic]
            topic.pump(monotonic_ns())
            if topic in self._waiting:
                return  # until another connection is there

    def drop_silent(self, before: int) -> None:
        """Give up connections that owe an answer since before `before`: nsqd is frozen."""
        silent = [upstream for upstream in self.connections if upstream.is_silent(before)]
        for upstream in silent:
            self._forget(upstream)  # first all, so that none gets what another did not send
        for upstream in silent:
            upstream.close("nsqd does not answer")
        if silent and not self._shared:
            self._on_empty()

    def close(self) -> None:
        self._draining = True
        for upstream in self.connections:
            upstream.close("the gateway stops")

    def _lost(self, upstream: Upstream) -> None:
        if self._forget(upstream) and not self._draining:
            if upstream.failed:
                with contextlib.suppress(OSError):
                    self.connect()
                    return  # nsqd is there: it has just answered
            self._on_empty()

    def _forget(self, upstream: Upstream) -> bool:
        """Send nothing more on it; True where others shared it."""
        self._side.discard(upstream)
        self._coming.pop(upstream, None)
        if upstream not in self._shared:
            return False
        self._shared.remove(upstream)
        return True


def _load(upstream: Upstream) -> int:
    return len(upstream.in_flight)
