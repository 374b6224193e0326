"""`send_all(fds, pieces)`: many small sends in one call, by _sender.c where that is compiled.

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

why_slower = ""
"""Why answers are sent one by one; empty where io_uring sends those of a wake-up together."""

try:
    from srtm.gateway import _sender
except ImportError:
    send_all = send_each
    why_slower = NOT_COMPILED
else:
    send_all = _sender.send_all
    if not _sender.use_ring(True):
        why_slower = NO_RING
