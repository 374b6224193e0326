"""`send_all`: one contract for the ring, the loop in C and the loop in Python."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from errno import EAGAIN, EBADF, EPIPE

import pytest

from srtm.gateway.http.stats_text import sender_line
from srtm.gateway.sender import NO_RING, NOT_COMPILED, send_each

try:
    from srtm.gateway import _sender
except ImportError:
    _sender = None  # type: ignore[assignment]

SendAll = Callable[[list[int], list[bytes]], list[tuple[int, int]]]
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(params=["io_uring", "send", "write"])
def send_all(request: pytest.FixtureRequest) -> Iterator[SendAll]:
    if request.param == "write":
        yield send_each
        return
    if _sender is None:
        pytest.skip("_sender.c is not compiled here")
    ring = request.param == "io_uring"
    if _sender.use_ring(ring) != ring:
        pytest.skip("this kernel gives no io_uring")
    yield _sender.send_all
    _sender.use_ring(True)


@contextlib.contextmanager
def pairs(count: int) -> Iterator[list[Pair]]:
    made = [socket.socketpair() for _ in range(count)]
    try:
        for ours, _ in made:
            ours.setblocking(False)
        yield made
    finally:
        for pair in made:
            for end in pair:
                end.close()


def fds_of(made: list[Pair]) -> list[int]:
    return [ours.fileno() for ours, _ in made]


@pytest.mark.parametrize("count", [0, 1, 2, 127, 128, 129, 300])
def test_each_piece_reaches_its_own_socket(send_all: SendAll, count: int) -> None:
    with pairs(count) as made:
        for turn in range(3):  # the ring goes round
            pieces = [b"%d of turn %d" % (index, turn) for index in range(count)]
            assert send_all(fds_of(made), pieces) == []
            assert [theirs.recv(100) for _, theirs in made] == pieces


def test_pieces_of_one_socket_keep_their_order(send_all: SendAll) -> None:
    with pairs(1) as made:
        pieces = [b"%d " % index for index in range(200)]
        assert send_all(fds_of(made) * 200, pieces) == []
        assert made[0][1].recv(10_000) == b"".join(pieces)


def test_what_was_not_taken_whole_is_told_and_holds_up_nobody(send_all: SendAll) -> None:
    big = bytes(10_000_000)
    with pairs(6) as made:
        full, gone = made[2], made[4]
        with contextlib.suppress(BlockingIOError):
            while full[0].send(big):
                pass
        gone[1].close()
        closed = os.dup(made[5][0].fileno())
        os.close(closed)
        fds = [*fds_of(made[:5]), closed]
        shorts = dict(send_all(fds, [b"a", big, b"c", b"d", b"e", b"f"]))
        taken = shorts.pop(1)
        assert 0 < taken < len(big)
        assert shorts == {2: -EAGAIN, 4: -EPIPE, 5: -EBADF}
        assert (made[0][1].recv(10), made[3][1].recv(10)) == (b"a", b"d")
        made[1][1].settimeout(5)
        assert len(made[1][1].recv(taken, socket.MSG_WAITALL)) == taken


def test_an_empty_piece_goes_nowhere(send_all: SendAll) -> None:
    with pairs(2) as made:
        assert send_all([-1, *fds_of(made), 1_000_000], [b"", b"x", b"y", b""]) == []
        assert [theirs.recv(10) for _, theirs in made] == [b"x", b"y"]
        assert send_all([-1, 1_000_000, made[0][0].fileno()], [b"", b"", b"z"]) == []
        made[0][1].setblocking(False)
        assert made[0][1].recv(10) == b"z"


def test_the_place_of_a_failure_counts_the_empty_pieces(send_all: SendAll) -> None:
    with pairs(2) as made:
        made[1][1].close()
        first, second = fds_of(made)
        assert send_all([-1, first, -1, second], [b"", b"x", b"", b"y"]) == [(3, -EPIPE)]


@pytest.mark.parametrize(
    ("fds", "pieces"),
    [
        pytest.param([1, 2], [b"x"], id="lists-of-two-lengths"),
        pytest.param((1,), (b"x",), id="no-lists"),
        pytest.param(["1"], [b"x"], id="a-descriptor-that-is-no-number"),
        pytest.param([-1], ["x"], id="text"),
        pytest.param([-1, -1], [b"x", None], id="nothing"),
    ],
)
def test_other_arguments_are_refused(fds: list[int], pieces: list[bytes]) -> None:
    if _sender is None:
        pytest.skip("_sender.c is not compiled here")
    with pytest.raises(TypeError):
        _sender.send_all(fds, pieces)


def test_a_kernel_that_gives_no_ring_is_told() -> None:
    """Where it is not compiled that is the reason, whatever the kernel gives."""
    code = (
        "from tests.support.confined import forbid; forbid(425)\n"
        "from srtm.gateway import sender; sender.begin(); print(sender.why_slower)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == (NOT_COMPILED if _sender is None else NO_RING)


def test_an_import_makes_no_ring_that_a_forked_process_would_share() -> None:
    code = (
        "import os, srtm.gateway.server\n"
        "found = os.scandir('/proc/self/fd')\n"
        "print(any('io_uring' in os.path.realpath(each) for each in found))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "False\n"


@pytest.mark.parametrize(
    ("found", "line"),
    [
        ({"io_uring": True, "reason": ""}, "together, by io_uring"),
        ({"io_uring": False, "reason": "why"}, "one by one: why"),
    ],
)
def test_stats_say_how_answers_are_sent(found: dict[str, object], line: str) -> None:
    assert sender_line(found) == line
