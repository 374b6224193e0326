"""When an HTTP connection has kept the gateway waiting for too long."""

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from srtm.gateway.http.connections import Connection, Stream, _keeps_waiting
from srtm.host.clock import NS

MIB = 1 << 20
HEAD, BODY, SERVED = "head", "body", ""


@pytest.mark.parametrize(
    ("looks", "late"),
    [
        # (second, what is awaited, bytes of a head, of a body, unsent, sent)
        pytest.param([(0, HEAD, 0, 0, 0, 0), (99, HEAD, 0, 0, 0, 0)], False, id="idle"),
        pytest.param([(0, HEAD, 1, 0, 0, 0), (11, HEAD, 9, 0, 0, 0)], True, id="dribbling-head"),
        pytest.param([(0, HEAD, 1, 0, 0, 0), (9, HEAD, 9, 0, 0, 0)], False, id="head-in-time"),
        pytest.param([(0, HEAD, 0, 0, 0, 0), (11, HEAD, 1, 0, 0, 0)], False, id="after-idling"),
        pytest.param([(0, BODY, 0, 1, 0, 0), (11, BODY, 0, 99, 0, 0)], True, id="dribbling-body"),
        pytest.param([(0, BODY, 0, 0, 0, 0), (11, BODY, 0, 0, 0, 0)], True, id="no-body"),
        pytest.param([(0, BODY, 0, 1, 0, 0), (9, BODY, 0, MIB, 0, 0), (18, BODY, 0, MIB, 0, 0)],
                     False, id="a-mib-at-a-time"),
        pytest.param([(0, SERVED, 0, 0, 0, 0), (99, SERVED, 0, 0, 0, 0)], False, id="held"),
        pytest.param([(0, SERVED, 5, 0, 0, 0), (99, SERVED, 5, 0, 0, 0)], False,
                     id="held-and-the-next-one-behind-it"),
        pytest.param([(0, SERVED, 0, 0, 9, 0), (11, SERVED, 0, 0, 9, 0)], True, id="unread-answer"),
        pytest.param([(0, SERVED, 0, 0, 9, 0), (9, SERVED, 0, 0, 8, 1), (18, SERVED, 0, 0, 8, 1)],
                     False, id="slowly-read-answer"),
    ],
)  # fmt: skip
def test_lateness(looks: list[tuple[int, str, int, int, int, int]], late: bool) -> None:
    stream: Any = SimpleNamespace(writing=lambda: bool(stream._write_buffer), _read_buffer=b"")
    connection = Connection(stream)
    found = False
    for second, awaits, head, body, unsent, sent in looks:
        connection.awaits = awaits
        connection.body_bytes = body
        stream._read_buffer_size = head
        stream._write_buffer = bytes(unsent)
        stream._total_write_done_index = sent
        found = connection.is_late(second * NS, 10 * NS)
    assert found is late


def test_a_connection_that_was_closed_and_is_not_forgotten_can_make_room() -> None:
    async def both() -> tuple[bool, bool]:
        ours, theirs = socket.socketpair()
        with theirs:
            stream = Stream(ours)
            before = _keeps_waiting(stream)
            stream.close()
            return before, _keeps_waiting(stream)

    assert asyncio.run(both()) == (True, True)
