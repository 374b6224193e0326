"""`send_all(fds, pieces)`: many small sends in one call, by _sender.c if it is compiled.

Piece i goes to the non-blocking stream socket fds[i]; an empty piece goes nowhere, and its
descriptor may be closed. Returns (i, bytes taken) for each piece that was not taken whole, and
(i, -errno) where the send failed, -EAGAIN when the socket is full. Raises TypeError for anything
but two lists of one length.
"""

import os


def send_each(fds: list[int], pieces: list[bytes]) -> list[tuple[int, int]]:
    """`send_all` in Python: a system call for each piece."""
    shorts: list[tuple[int, int]] = []
    for index, (fd, piece) in enumerate(zip(fds, pieces, strict=True)):
        if piece:
            try:
                sent = os.write(fd, piece)
            except OSError as error:
                sent = -(error.errno or 0)
            if sent != len(piece):
                shorts.append((index, sent))
    return shorts


NOT_COMPILED = "_sender.c is not compiled (no C compiler at set-up)"
NO_RING = "the kernel gives no io_uring (before 5.18, or a container's seccomp refuses it)"

why_slower = NOT_COMPILED
"""Why answers are sent one by one; empty where io_uring sends those of a wake-up together."""

try:
    from srtm.gateway import _sender
except ImportError:
    send_all = send_each
else:
    send_all = _sender.send_all


def begin() -> None:
    """Give this process its ring. An import does not: two processes that were forked from one with
    a ring would share it, and each would take the other's completions for its own."""
    global why_slower
    if send_all is not send_each:
        why_slower = "" if _sender.use_ring(True) else NO_RING
