"""A program is told to end."""

import signal
import time

from srtm.host.clock import NS, monotonic_ns

_POLL_SECONDS = 0.05


class Stop:
    """Was it? An Event would take a lock, which a second signal, or one that comes into a wait,
    waits for for ever."""

    def __init__(self) -> None:
        self.asked = False

    def heed(self, *numbers: signal.Signals) -> None:
        """Let these signals ask for the stop from now on. In the main thread only."""
        for number in numbers:
            signal.signal(number, lambda *_: self.ask())

    def ask(self) -> None:
        self.asked = True

    def wait(self, seconds: float) -> bool:
        """Wait for the stop, at most so long, which may be infinite; is it asked for?"""
        until_ns = monotonic_ns() + seconds * NS
        while not self.asked and (left_ns := until_ns - monotonic_ns()) > 0:
            time.sleep(min(left_ns / NS, _POLL_SECONDS))
        return self.asked
