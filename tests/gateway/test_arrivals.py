"""What the gateway tells of when messages arrived."""

import json
import zlib
from http.client import HTTPConnection
from typing import Any

import pytest

from srtm.gateway.batch import Batch, Ring
from srtm.gateway.measure.arrivals import MOST_AT_ONCE, MOST_PER_SECOND, arrivals
from srtm.gateway.run import Part, Piece, Run
from srtm.host.clock import boot_id
from srtm.limits.slots import SLOT_NS, level_of, slot_of
from srtm.nsq.checksum import checksum
from srtm.nsq.commands import message, pub
from tests.support.servers import Servers
from tests.support.v2 import V2

MS = 1_000_000
WALL = 1_790_000_000_000_000_000
"""The wall clock when the monotonic one said 0."""


def ring_of(*rows: tuple[int, int, list[Piece]]) -> Ring:
    """Batches by when they were written and answered, in ms."""
    ring = Ring()
    for written, answered, pieces in rows:
        batch = Batch(None, pieces, b"", sum(each.count for each in pieces))  # type: ignore[arg-type]
        batch.written_at, batch.answered_at = written * MS, answered * MS
        ring.append(batch)
    return ring


def run_of(*bodies: bytes, stamp: int, since: int = -1, atomic: bool = False) -> Run:
    elements = [message(body) for body in bodies]
    run = Run(b"t", [b"".join(elements)] if atomic else elements, len(bodies), atomic, None)
    run.stamp, run.since = stamp * MS, (stamp if since < 0 else since) * MS
    return run


def told(ring: Ring, since: int = 0, now: int = 10_000) -> dict[str, Any]:
    return arrivals(ring, since * MS, now * MS, WALL)


def test_arrival_token_and_checksum_of_each_message() -> None:
    single, batch = run_of(b"a", b"b", stamp=5), run_of(b"c", b"d", stamp=6, since=8, atomic=True)
    part = Part(run_of(b"e", b"f", b"g", stamp=2), 1, 3, 7 * MS, 0.5 * MS)
    found = told(ring_of((10, 12, [single, batch, part])))
    assert found["batches"] == [
        [
            WALL + 10 * MS,
            WALL + 12 * MS,
            [
                [WALL + 5 * MS, WALL + 5 * MS, 0.0, [checksum(b"a"), checksum(b"b")]],
                [WALL + 6 * MS, WALL + 8 * MS, 0.0, [checksum(b"c"), checksum(b"d")]],
                [WALL + 2 * MS, WALL + 7 * MS, 0.5 * MS, [checksum(b"f"), checksum(b"g")]],
            ],
        ]
    ]
    assert found["count"] == 6
    assert found["span"] == [WALL + 10 * MS, WALL + 12 * MS]
    assert (found["level"], found["more"], found["cursor"]) == (0, False, 12 * MS)


def test_what_was_told_is_not_told_again() -> None:
    ring = ring_of(*((n, n + 1, [run_of(b"%d" % n, stamp=n)]) for n in range(10)))
    first = told(ring)
    assert len(first["batches"]) == 10
    assert told(ring, first["cursor"] // MS)["batches"] == []
    assert len(told(ring, 5)["batches"]) == 5


def test_deferred_messages_and_those_of_gone_clients_are_left_out() -> None:
    deferred, gone = run_of(b"a", stamp=1), run_of(b"b", stamp=1)
    deferred.defer_ms = 10
    gone.messages = []
    [[_, _, pieces]] = told(ring_of((2, 3, [deferred, gone])))["batches"]
    assert pieces == []


def test_of_many_messages_those_of_some_slots_are_told_and_all_of_them() -> None:
    ring = ring_of(
        *((n, n, [run_of(*[b"%d" % n] * 40, stamp=n)]) for n in range(1000))  # 40,000 a second
    )
    found = told(ring, now=1000)
    level = found["level"]
    assert level > 0
    slots = {slot_of(written) for written, _, _ in found["batches"]}
    assert all(level_of(slot) >= level for slot in slots)
    per_slot = SLOT_NS // MS
    for slot in sorted(slots)[1:-1]:
        assert sum(slot_of(each[0]) == slot for each in found["batches"]) == per_slot
    messages = sum(len(sums) for *_, pieces in found["batches"] for *_, sums in pieces)
    assert messages < 3 * MOST_PER_SECOND


def test_a_long_answer_goes_on_with_the_next_question() -> None:
    """A batch that nsqd took seconds over lies in slots of all levels."""
    ring = ring_of(*((n, n + 5000, [run_of(*[b"x"] * 90, stamp=n)]) for n in range(20)))
    counts, since = [], 0
    while True:
        found = told(ring, since, now=6000)
        counts.append(len(found["batches"]))
        since = found["cursor"] // MS
        if not found["more"]:
            break
    assert sum(counts) == 20
    assert max(counts) == -(-MOST_AT_ONCE // 92)


def test_a_full_ring_is_told_a_part_at_a_time() -> None:
    ring = ring_of(*((n, n, [run_of(b"%d" % n, stamp=n)]) for n in range(9_000)))
    since, count, answers = 0, 0, 0
    while True:
        found = told(ring, since, now=9_000)
        count += found["count"]
        answers += 1
        assert len(found["batches"]) <= MOST_AT_ONCE
        since = found["cursor"] // MS
        if not found["more"]:
            break
    assert count == 8_999  # the first was answered at 0, which is not after it
    assert answers > 4


def test_of_many_messages_of_one_batch_no_checksum_is_told() -> None:
    [[_, _, [piece]]] = told(ring_of((2, 3, [run_of(*[b"x"] * 150, stamp=1, atomic=True)])))[
        "batches"
    ]
    assert piece == [WALL + 1 * MS, WALL + 1 * MS, 0.0, []]


def test_a_cursor_of_another_process_is_begun_anew() -> None:
    ring = ring_of((2, 3, [run_of(b"x", stamp=1)]))
    assert len(told(ring, since=99_999)["batches"]) == 1


@pytest.mark.parametrize("size", [0, 1, 256, 257, 1 << 20])
def test_a_checksum_looks_at_length_and_first_bytes(size: int) -> None:
    body = b"x" * size
    assert checksum(body) == zlib.crc32(body[:256], size)
    assert checksum(body + b"y") != checksum(body)


def ask(address: str, query: str) -> tuple[int, Any]:
    connection = HTTPConnection(address, timeout=10)
    connection.request("GET", f"/arrivals?{query}")
    response = connection.getresponse()
    body = json.loads(response.read())
    connection.close()
    return response.status, body


def test_the_door_tells_them(servers: Servers) -> None:
    gateway = servers.gateway("--topic", "t,rate=1000,burst=100,slo=0.99@50ms")
    with V2(gateway.tcp) as client:
        client.identify()
        for number in range(3):
            client.send(pub(b"t", b"%d" % number))
            assert client.reply() == b"OK"
    status, found = ask(gateway.http, "topic=t&channel=c")
    assert status == 200
    assert found["boot_id"] == boot_id()
    sums = [
        each for *_, pieces in found["batches"] for *_, checksums in pieces for each in checksums
    ]
    assert sorted(sums) == sorted(checksum(b"%d" % number) for number in range(3))
    for written, answered, pieces in found["batches"]:
        assert written <= answered <= found["wall_ns"]
        assert all(arrival <= token <= written for arrival, token, *_ in pieces)
    status, later = ask(gateway.http, f"topic=t&channel=c&since={found['cursor']}")
    assert (status, later["batches"]) == (200, [])


@pytest.mark.parametrize(
    ("query", "status", "word"),
    [
        pytest.param("topic=t&channel=c&since=-1", 400, "INVALID_ARG_SINCE", id="cursor"),
        pytest.param("topic=t&channel=c&since=" + "9" * 40, 400, "INVALID_ARG_SINCE", id="long"),
        pytest.param("topic=t", 400, "MISSING_ARG_CHANNEL", id="no-channel"),
        pytest.param("topic=u&channel=c", 404, "TOPIC_NOT_FOUND", id="no-topic"),
        pytest.param("topic=plain&channel=c", 409, "NO_SLO", id="no-slo"),
    ],
)
def test_what_is_wrong_is_said(shared: Servers, query: str, status: int, word: str) -> None:
    gateway = shared.gateway(
        "--topic", "t,rate=9,burst=9,slo=0.99@50ms", "--topic", "plain,rate=9,burst=9"
    )
    found, body = ask(gateway.http, query)
    assert found == status
    assert body["message"].startswith(word)
