"""Publishers that keep to a contract, and gateways that are held up meanwhile.

One timeline holds the sends and the stalls, and one thread carries it out: each message is sent at
the same moment to every gateway, each on a connection of its own, and all gateways are held up
together. So the sources of arrival times are compared on the same arrivals.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.harness.arms import Node
from srtm.host.clock import monotonic_ns
from srtm.nsq.blocking import Blocking
from srtm.nsq.commands import pub
from srtm.text.errors import SrtmError

MS = 1_000_000
_LEAD_NS = 20 * MS  # from the start to the first send
_PAUSE_NS = 60 * MS  # from one stall to the next, and as long again as the stall
_TIMEOUT_SECONDS = 20.0
BODY = b"x" * 100


@dataclass(frozen=True, slots=True)
class Pattern:
    """How conformant publishers send.

    rate, burst: their contract
    publishers:  connections
    period_ns:   each publisher sends one message in this time
    groups:      those of a group send together, the groups one after the other
    """

    name: str
    rate: float
    burst: float
    publishers: int
    period_ns: int
    groups: int

    def sends(self, seconds: float) -> list[tuple[int, int]]:
        """(time in ns, publisher), sorted."""
        each = self.publishers // self.groups
        found = []
        for start in range(0, int(seconds * 1e9), self.period_ns):
            for publisher in range(self.publishers):
                group = publisher // each
                found.append((start + group * self.period_ns // self.groups, publisher))
        return found


PATTERNS = (
    # A message each 1 ms, a token each 0.9 ms; the sender may be some ms late.
    Pattern("periodic", 1_100.0, 8.0, 10, 10 * MS, 10),
    # 25 messages each 25 ms, which bring 27.5 tokens.
    Pattern("correlated groups", 1_100.0, 30.0, 50, 50 * MS, 2),
)


def stalls(seconds: float, stall_ms: int) -> list[int]:
    """When each stall begins, in ns."""
    step = _PAUSE_NS + 2 * stall_ms * MS
    return list(range(_PAUSE_NS // 2, int(seconds * 1e9) - stall_ms * MS, step))


class Stopped:
    """Holds the gateways up by SIGSTOP."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._pids = [node.pids["gateway"] for node in nodes]

    def begin(self, stall_ms: int) -> None:
        self._signal(signal.SIGSTOP)

    def end(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for pid in self._pids:
            os.kill(pid, number)


class Crowded:
    """Holds the gateways up by a neighbour on their core, which ends a stall by itself."""

    def __init__(self, core: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.harness.neighbour", str(core)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.priority = self._process.stdout.readline().strip()

    def begin(self, stall_ms: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{stall_ms}\n")
        self._process.stdin.flush()

    def end(self) -> None:
        pass

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


Staller = Stopped | Crowded


@contextmanager
def pinned(nodes: Sequence[Node], core: int) -> Iterator[None]:
    """The gateways on one core, this process on the others."""
    everywhere = os.sched_getaffinity(0)
    pids = [node.pids["gateway"] for node in nodes]
    try:
        os.sched_setaffinity(0, everywhere - {core})
        for pid in pids:
            os.sched_setaffinity(pid, {core})
        yield
    finally:
        for pid in (0, *pids):
            os.sched_setaffinity(pid, everywhere)


def drive(
    nodes: Sequence[Node],
    topic: str,
    pattern: Pattern,
    staller: Staller,
    stall_ms: int,
    seconds: float,
) -> dict[str, list[int]]:
    """Send, stall, and wait for every answer; when each message was sent, by node, monotonic ns.
    Raises SrtmError when an answer is missing."""
    command = pub(topic.encode(), BODY)
    with ExitStack() as stack:
        connections = {
            node.name: [
                stack.enter_context(_connect(node.gateway_tcp)) for _ in range(pattern.publishers)
            ]
            for node in nodes
        }
        sends = pattern.sends(seconds)
        begins = stalls(seconds, stall_ms)
        timeline: list[tuple[int, int, int]] = [(at, 1, publisher) for at, publisher in sends]
        timeline += [(at, 0, 0) for at in begins]
        timeline += [(at + stall_ms * MS, 2, 0) for at in begins]
        timeline.sort()
        sent: dict[str, list[int]] = {node.name: [] for node in nodes}
        start = monotonic_ns() + _LEAD_NS
        stack.callback(staller.end)
        for at, action, publisher in timeline:
            while (left := start + at - monotonic_ns()) > 0:
                time.sleep(left / 1e9)
            if action == 0:
                staller.begin(stall_ms)
            elif action == 2:
                staller.end()
            else:
                for name, sockets in connections.items():
                    sent[name].append(monotonic_ns())
                    sockets[publisher].write(command)
        count = len(sends) // pattern.publishers
        for sockets in connections.values():
            for connection in sockets:
                _await_oks(connection, count)
    return sent


def message_bytes(topic: str) -> int:
    return len(pub(topic.encode(), BODY))


def _connect(address: str) -> Blocking:
    return Blocking(address, {"client_id": "stalls"}, _TIMEOUT_SECONDS).identify()


def _await_oks(connection: Blocking, count: int) -> None:
    answered = 0
    with contextlib.suppress(OSError):
        while answered < count:
            answered += sum(each.data == b"OK" for each in connection.frames())
    if answered < count:
        raise SrtmError(f"{count} messages were sent, and {answered} answered OK")
