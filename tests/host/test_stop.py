"""Signals that ask a program to end."""

import math
import os
import signal
import threading
from collections.abc import Iterator

import pytest

from srtm.host.stop import Stop


@pytest.fixture
def stop() -> Iterator[Stop]:
    before = signal.getsignal(signal.SIGUSR1)
    found = Stop()
    found.heed(signal.SIGUSR1)
    yield found
    signal.signal(signal.SIGUSR1, before)


def test_a_signal_ends_a_wait(stop: Stop) -> None:
    assert not stop.wait(0.0)
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    assert stop.wait(math.inf)
    assert stop.wait(math.inf), "it stays asked for"


def test_a_second_signal_while_the_first_is_handled(stop: Stop) -> None:
    class Twice(Stop):
        def ask(self) -> None:
            if not self.asked:
                super().ask()
                os.kill(os.getpid(), signal.SIGUSR1)

    twice = Twice()
    twice.heed(signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert twice.wait(math.inf)
