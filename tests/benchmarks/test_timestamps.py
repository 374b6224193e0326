"""The benchmark of the timestamp sources: its schedule, its second witness and its bars."""

import socket
from contextlib import closing

import numpy as np
import pytest

from benchmarks.gateway.stalls import MS, PATTERNS, Pattern, stalls
from benchmarks.gateway.timestamps import Held, bars
from benchmarks.harness.capture import Capture, Segment, message_times
from benchmarks.harness.trial import Round, Trial
from srtm.host.clock import monotonic_ns
from srtm.limits.queueing import token_waits
from srtm.text.errors import UnavailableError

# --- the schedule ----------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_the_publishers_keep_to_their_contract(pattern: Pattern) -> None:
    times = np.array([at for at, _ in pattern.sends(2.0)]) / 1e9
    assert float(token_waits(times, pattern.rate, pattern.burst).max()) <= 1e-9


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_every_publisher_sends_as_often_as_the_others(pattern: Pattern) -> None:
    sends = pattern.sends(1.0)
    assert sends == sorted(sends)
    counts = np.bincount([publisher for _, publisher in sends])
    assert set(counts) == {1_000 * MS // pattern.period_ns}
    assert len(counts) == pattern.publishers


@pytest.mark.parametrize("stall_ms", [1, 5, 20, 50])
def test_stalls_lie_apart_and_inside_the_run(stall_ms: int) -> None:
    begins = stalls(0.6, stall_ms)
    assert len(begins) >= 3
    ends = [at + stall_ms * MS for at in begins]
    assert all(end < after for end, after in zip(ends, begins[1:], strict=False))
    assert ends[-1] <= 600 * MS


# --- the capture -----------------------------------------------------------------------------


def segment(seq: int, length: int, time_ns: int, sender: int = 5, port: int = 9) -> Segment:
    return Segment(sender, port, seq % (1 << 32), length, time_ns)


TOP = (1 << 32) - 15
SEEN = {
    "one-message-in-a-segment": ([segment(0, 10, 7), segment(10, 10, 8)], [7, 8]),
    "two-in-a-segment": ([segment(0, 20, 7)], [7, 7]),
    "without-payload": ([segment(0, 0, 6), segment(0, 10, 7), segment(10, 0, 8)], [7]),
    "a-probe-for-a-lost-tail": ([segment(0, 10, 7), segment(0, 10, 8)], [7]),
    "a-probe-that-brings-more": ([segment(0, 10, 7), segment(0, 20, 8)], [7, 8]),
    "the-sequence-wraps": ([segment(TOP, 10, 7), segment(TOP + 10, 10, 8)], [7, 8]),
    "another-port": ([segment(0, 10, 7), segment(10, 10, 8, port=1)], [7]),
    "another-sender": ([segment(0, 10, 7), segment(0, 10, 8, sender=6)], [7, 8]),
    "the-version-is-no-message": ([segment(0, 4, 6), segment(4, 10, 7)], [7]),
}


@pytest.mark.parametrize(("segments", "times"), SEEN.values(), ids=SEEN.keys())
def test_messages_have_the_time_of_their_first_segment(
    segments: list[Segment], times: list[int]
) -> None:
    assert message_times(segments, 9, 10).tolist() == times


def test_the_capture_sees_each_segment_of_its_ports_once() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        port = listener.getsockname()[1]
        try:
            capture = Capture([1, port])
        except UnavailableError as error:
            pytest.skip(str(error))
        with closing(capture):
            before = monotonic_ns()
            for address in (listener.getsockname(), other.getsockname()):
                with closing(socket.create_connection(address, 10)) as client:
                    sender = client.getsockname()[1]
                    client.sendall(b"0123456789")
                    if address[1] == port:
                        ours = sender
            found = [each for each in capture.finish() if each.length]
    (only,) = found
    assert (only.sender, only.port, only.length) == (ours, port, 10)
    assert before - 5_000_000 <= only.time_ns <= monotonic_ns()


# --- the bars --------------------------------------------------------------------------------


def held(source: str, delayed: int, error_us: float = 10.0, captured: bool = True) -> Held:
    capture = (1.0, error_us) if captured else None
    return Held(source, "stopped", "periodic", 20, 100, 90, delayed, 0.0, (1.0, 5.0), capture)


def rounds(**cpu_us: float) -> list[Round]:
    """Two, both with these figures by source."""
    return [{name: Trial({}, {"gateway": each}, 1.0, 100, 0) for name, each in cpu_us.items()}] * 2


COSTS = rounds(ebpf=11, clock=10)


@pytest.mark.parametrize(
    ("runs", "costs", "doubt", "met"),
    [
        pytest.param([held("ebpf", 0)], COSTS, "", [True, True, True], id="all-met"),
        pytest.param([held("ebpf", 1)], COSTS, "", [False, True, True], id="one-delayed"),
        pytest.param(
            [held("ebpf", 0), held("clock", 9, 5e4)],
            COSTS,
            "",
            [True, True, True],
            id="others-are-shown-and-not-judged",
        ),
        pytest.param([held("ebpf", 0, 101.0)], COSTS, "", [True, False, True], id="stamps-are-off"),
        pytest.param(
            [held("ebpf", 0)],
            rounds(ebpf=12, clock=10),
            "",
            [True, True, False],
            id="too-dear",
        ),
        pytest.param(
            [held("ebpf", 0, captured=False)],
            COSTS,
            "",
            [None, None, True],
            id="nobody-else-saw-it",
        ),
        pytest.param(
            [held("clock", 9)], rounds(clock=10), "no ebpf", [None, None, None], id="no-ebpf"
        ),
    ],
)
def test_the_bars_judge_ebpf(
    runs: list[Held], costs: list[Round], doubt: str, met: list[bool | None]
) -> None:
    assert [bar.met for bar in bars(runs, costs, quick=False, doubt=doubt)] == met
