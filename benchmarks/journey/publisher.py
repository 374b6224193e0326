"""A publisher that sends each message at its time, whatever is answered meanwhile."""

import socket
import time
from collections.abc import Sequence
from contextlib import suppress

from srtm.nsq.commands import MAGIC_V2, pub
from srtm.text.address import Address

_OK_BYTES = 10


def publish(tcp: str, topic: str, times: Sequence[float]) -> None:
    """times: seconds from the start, ascending. A body is the time at which it was written, in
    nanoseconds since 1970. Returns when as many bytes have been answered as the OKs take, which
    heartbeats may add to. No thread reads: it would take its turns from the one that writes."""
    name, answered = topic.encode(), 0
    with socket.create_connection(Address.parse(tcp)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(MAGIC_V2)
        began = time.monotonic()
        for at in times:
            left = began + at - time.monotonic()
            if left > 0:
                with suppress(BlockingIOError):
                    answered += len(connection.recv(65536, socket.MSG_DONTWAIT))
                time.sleep(max(0.0, began + at - time.monotonic()))
            connection.sendall(pub(name, b"%d" % time.time_ns()))
        connection.settimeout(60)
        while answered < len(times) * _OK_BYTES:
            data = connection.recv(65536)
            if not data:
                return
            answered += len(data)
