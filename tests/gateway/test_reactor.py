"""The hot loop alone: descriptors and alarms."""

import contextlib
import os
import random
import socket

import pytest

from srtm.gateway import reactor as module
from srtm.gateway.reactor import Reactor
from srtm.host.clock import monotonic_ns


def test_a_descriptor_is_served_once_in_a_wake_up() -> None:
    """It is readable at both looks; a second call could meet its successor of the same number."""
    reactor = Reactor()
    ends = os.pipe()
    calls = []

    def handler(mask: int) -> None:
        calls.append(mask)
        reactor.let_asyncio_run()

    try:
        reactor.watch(ends[0], handler)
        os.write(ends[1], b"message")
        reactor.serve(None)
    finally:
        reactor.close()
        for fd in ends:
            os.close(fd)
    assert calls == [module.READABLE]


def test_an_event_is_not_of_who_has_the_number_next() -> None:
    """One handler closes another's connection, a new one gets its number, and the event that was
    there for the old one is not told to the new one's handler."""
    reactor = Reactor()
    first, second = socket.socketpair(), socket.socketpair()
    number = second[0].fileno()
    told: list[str] = []

    def reopen(_: int) -> None:
        reactor.forget(first[0].fileno())
        reactor.forget(number)
        second[0].close()
        anew = socket.socketpair()
        os.dup2(anew[0].fileno(), number)
        opened.extend(anew)
        reactor.watch(number, lambda mask: told.append(f"new {mask}"))

    opened: list[socket.socket] = []
    reactor.watch(first[0].fileno(), reopen)
    reactor.watch(number, lambda mask: told.append("old"))
    first[1].send(b"x")
    second[1].close()
    reactor.serve(0.01)
    assert told == []
    opened[1].send(b"y")
    reactor.serve(0.01)
    assert told[0] == f"new {module.READABLE}"
    for each in (*first, *opened):
        each.close()
    with contextlib.suppress(OSError):  # one of these had the number itself
        os.close(number)
    reactor.close()


def test_an_alarm_that_fails_silences_no_other() -> None:
    reactor = Reactor()
    rung = []

    def fail(_now: int) -> None:
        raise ValueError("a fault of ours")

    def ring(now: int) -> None:
        rung.append(now)
        reactor.let_asyncio_run()

    soon = monotonic_ns() + 1_000_000
    try:
        for at, alarm in ((soon, fail), (soon, ring), (soon + 1_000_000, ring)):
            reactor.call_at(at, alarm)
        while len(rung) < 2:  # a slow machine rings both at once
            reactor.serve(None)
    finally:
        reactor.close()
    assert len(rung) == 2
    assert rung[1] >= soon + 1_000_000


class Server:
    """Connections that answer what they are sent, or fail as they are told to."""

    def __init__(self) -> None:
        self.reactor = Reactor()
        self.links: list[Link] = []

    def link(self) -> "Link":
        self.links.append(Link(self))
        return self.links[-1]

    def serve(self) -> None:
        self.reactor.serve(0.02)

    def close(self) -> None:
        self.reactor.close()
        for each in self.links:
            each.ours.close()
            each.far.close()


class Link:
    """The two ends of one connection."""

    def __init__(self, server: Server) -> None:
        self.reactor = server.reactor
        self.ours, self.far = socket.socketpair()
        self.ours.setblocking(False)
        self.far.settimeout(2)
        self.fails_to_close = self.has_failed = False
        self.reactor.watch(self.ours.fileno(), self.on_event, end=self.close)

    def on_event(self, _mask: int) -> None:
        data = self.ours.recv(100)
        if b"fail" in data:
            self.has_failed = True
            raise ValueError("a fault of ours")
        self.ours.send(data)

    def close(self) -> None:
        if self.fails_to_close:
            raise KeyError("it cannot even be closed")
        self.reactor.forget(self.ours.fileno())
        self.ours.close()

    @property
    def is_ended(self) -> bool:
        """For whoever is at the far end."""
        return self.far.recv(100) == b""


@pytest.mark.parametrize("seed", range(20))
def test_whoever_fails_is_closed_and_all_others_are_served(seed: int) -> None:
    chance = random.Random(seed)
    server = Server()
    try:
        for _ in range(chance.randint(1, 30)):
            server.link().fails_to_close = chance.random() < 0.3
        for _ in range(5):
            alive = [each for each in server.links if not each.has_failed]
            for each in alive:
                each.far.send(b"fail" if chance.random() < 0.2 else b"echo")
            server.serve()
            for each in alive:
                if each.has_failed:
                    assert each.is_ended
                else:
                    assert each.far.recv(100) == b"echo"
        failed = sum(each.has_failed for each in server.links)
        not_closed = sum(each.has_failed and each.fails_to_close for each in server.links)
        assert server.reactor.faults == failed + not_closed
    finally:
        server.close()


def test_a_fault_is_logged_once_for_its_place(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    try:
        for each in [server.link() for _ in range(5)]:
            each.far.send(b"fail")
        server.serve()
        assert server.reactor.faults == 5
        assert [record.exc_info is not None for record in caplog.records] == [True]
    finally:
        server.close()


def test_a_stage_that_fails_keeps_nobody_from_running() -> None:
    reactor = Reactor()
    ran = []

    def fail(_now: int, _horizon: int) -> bool:
        raise ValueError("a fault of ours")

    def run(now: int, _horizon: int) -> bool:
        ran.append(now)
        return False

    try:
        reactor.add_stage(fail)
        reactor.add_stage(run)
        reactor.soon()
        reactor.serve(0)
        assert (len(ran), reactor.faults) == (1, 1)
    finally:
        reactor.close()
