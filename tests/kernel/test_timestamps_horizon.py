"""Everything readable is read before the bucket is asked, also when the process is stopped, or
loses its core, on its way back from asking the kernel what is readable."""

import os
from collections.abc import Callable

import pytest

from srtm.gateway import reactor as module
from srtm.gateway.reactor import Reactor
from srtm.host.clock import monotonic_ns


def test_what_comes_before_the_horizon_is_read_before_it_is_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reactor = Reactor()
    first, second = os.pipe(), os.pipe()
    log: list[str] = []

    def reads(name: str, fd: int) -> Callable[[int], None]:
        def handler(_mask: int) -> None:
            log.append(f"{name} {os.read(fd, 9).decode()}")

        return handler

    def late_clock() -> int:
        """The second message comes between the kernel's answer and the first look at the clock."""
        if not log and not came:
            came.append(monotonic_ns())
            os.write(second[1], b"message")
        return monotonic_ns()

    def decide(_now: int, horizon: int) -> bool:
        log.append("decide")
        horizons.append(horizon)
        reactor.let_asyncio_run()
        return False

    came: list[int] = []
    horizons: list[int] = []
    try:
        reactor.watch(first[0], reads("first", first[0]))
        reactor.watch(second[0], reads("second", second[0]))
        reactor.add_stage(decide)
        os.write(first[1], b"message")
        monkeypatch.setattr(module, "monotonic_ns", late_clock)
        reactor.serve(None)
    finally:
        reactor.close()
        for fd in (*first, *second):
            os.close(fd)
    assert came[0] <= horizons[0], "it counts as arrived"
    assert log == ["first message", "second message", "decide"]
