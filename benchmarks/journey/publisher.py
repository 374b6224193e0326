"""A publisher that sends each message at its time, whatever is answered meanwhile."""

import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from srtm.nsq.commands import MAGIC_V2, identify, pub
from srtm.text.address import Address

_OK_BYTES = 10


def publish(tcp: str, topics: Sequence[str], times: Iterable[float]) -> int:
    """times: seconds from the start, ascending; at each, one message goes to every topic. A body is
    the time at which it was written, in nanoseconds since 1970. Returns how many each topic got,
    when as many bytes have been answered as the OKs take; there are no heartbeats to add to them.
    No thread reads: it would take its turns from the one that writes."""
    names = [topic.encode() for topic in topics]
    sent = answered = 0
    with socket.create_connection(Address.parse(tcp)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(MAGIC_V2 + identify(b'{"heartbeat_interval": -1}'))
        began = time.monotonic()
        for at in times:
            left = began + at - time.monotonic()
            if left > 0:
                with suppress(BlockingIOError):
                    answered += len(connection.recv(65536, socket.MSG_DONTWAIT))
                time.sleep(max(0.0, began + at - time.monotonic()))
            body = b"%d" % time.time_ns()
            connection.sendall(b"".join(pub(name, body) for name in names))
            sent += 1
        connection.settimeout(60)
        while answered < (1 + sent * len(names)) * _OK_BYTES:
            data = connection.recv(65536)
            if not data:
                break
            answered += len(data)
    return sent
