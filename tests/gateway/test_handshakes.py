"""Handshakes have turns and an end, and clients that have left are kept by nobody."""

import gc
import weakref
from collections.abc import Callable

from srtm.gateway.handshakes import PATIENCE_NS, Handshakes
from srtm.host.clock import monotonic_ns


class World:
    """The reactor: alarms ring when the test says so."""

    def __init__(self) -> None:
        self.alarms: list[tuple[int, Callable[[int], None]]] = []
        self.faults: list[str] = []

    def soon(self) -> None: ...

    def fault(self, _error: Exception, what: str) -> None:
        self.faults.append(what)

    def call_at(self, when: int, alarm: Callable[[int], None]) -> None:
        self.alarms.append((when, alarm))

    def ring(self, now: int) -> None:
        due = [alarm for when, alarm in self.alarms if when <= now]
        self.alarms = [each for each in self.alarms if each[0] > now]
        for alarm in due:
            alarm(now)


class Shaker:
    def __init__(self, handshakes: Handshakes, fails: bool = False) -> None:
        self._handshakes = handshakes
        self._fails = fails
        self.closed = False
        self.late = False

    def shake(self) -> bool:
        return True

    def shake_late(self) -> None:
        self.late = True
        if self._fails:
            raise RuntimeError("a fault of ours")
        self._handshakes.left(self)


def begun(count: int = 1, fails: bool = False) -> tuple[World, Handshakes, list[Shaker]]:
    world = World()
    handshakes = Handshakes(world)  # type: ignore[arg-type]
    clients = [Shaker(handshakes, fails) for _ in range(count)]
    for client in clients:
        handshakes.begin(client)
    return world, handshakes, clients


def test_who_lets_us_wait_is_told_at_its_time_and_each_has_its_own() -> None:
    world, handshakes, (first,) = begun()
    world.ring(monotonic_ns() + PATIENCE_NS - 1_000_000_000)
    assert not first.late
    later = Shaker(handshakes)
    handshakes.begin(later)
    assert len(world.alarms) == 1, "one for all of them"
    world.ring(world.alarms[0][0])
    assert first.late
    assert not later.late
    world.ring(world.alarms[0][0])
    assert later.late
    assert not world.alarms
    assert (handshakes.done, handshakes.failed) == (0, 2)


def test_who_waits_for_its_turn_has_not_let_us_wait() -> None:
    world, handshakes, (client,) = begun()
    handshakes.want(client)
    world.ring(world.alarms[0][0])
    assert not client.late
    handshakes.stage(monotonic_ns(), 0)
    assert handshakes.done == 1
    world.ring(world.alarms[0][0] + PATIENCE_NS)
    assert not client.late
    assert not world.alarms


def test_a_client_that_has_left_is_kept_by_nobody_until_its_time() -> None:
    world, handshakes, clients = begun(100)
    kept = [weakref.ref(client) for client in clients]
    while clients:
        handshakes.left(clients.pop())
    del world
    gc.collect()
    assert not any(each() for each in kept)
    assert handshakes.failed == 100


def test_one_that_cannot_be_ended_in_order_takes_the_alarm_from_no_other() -> None:
    world, handshakes, clients = begun(3, fails=True)
    world.ring(monotonic_ns() + PATIENCE_NS)
    assert all(client.late for client in clients)
    assert len(world.faults) == 3
    last = Shaker(handshakes)
    handshakes.begin(last)
    world.ring(world.alarms[0][0])
    assert last.late
