"""The hot loop alone: descriptors and alarms."""

import os

from srtm.clock import monotonic_ns
from srtm.gateway import reactor as module
from srtm.gateway.reactor import Reactor


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
