"""Timestamp sources, one suite for all: what was sent comes whole, with a time that can be."""

import socket
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from kernel import SourceUnavailable, StampSource, choose_source
from kernel.clock_stamps import ClockStamps
from kernel.ebpf import SegmentProgram
from kernel.ebpf_stamps import EbpfStamps
from kernel.records import ACK, SYN, Record, key_of
from kernel.socket_stamps import SO_TIMESTAMPNS, SocketStamps
from kernel.stamps import READ_BYTES, Pieces, Reader
from srtm.host.clock import NS, WallClock, monotonic_ns

SLEW_NS = 5_000_000
"""How far the wall clock may be corrected while a test runs without being stepped."""

SLACK_NS = 5_000_000
"""A segment that was sent has not come yet while the softirq that takes it waits."""


def need_ebpf() -> None:
    """A skip where ebpf does not work."""
    try:
        SegmentProgram().close()
    except SourceUnavailable as error:
        pytest.skip(f"ebpf does not work here: {error}")


@dataclass
class Pair:
    """A publisher's socket and the gateway's end of it."""

    client: socket.socket
    server: socket.socket

    def arrived(self, count: int) -> None:
        """Until so many bytes can be read."""
        flags = socket.MSG_PEEK | socket.MSG_WAITALL
        assert len(self.server.recv(count, flags)) == count


@contextmanager
def connected(source: StampSource, host: str = "127.0.0.1") -> Iterator[Pair]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        source.prepare(listener)
        address = listener.getsockname()[:2]
        with closing(socket.create_connection(address, 10)) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server, _ = listener.accept()
            with closing(server):
                server.settimeout(10)
                yield Pair(client, server)


@pytest.fixture(params=["ebpf", "sockopt", "clock"])
def source(request: Any) -> Iterator[StampSource]:
    if request.param == "ebpf":
        need_ebpf()
    with closing(choose_source(WallClock(), request.param)) as found:
        yield found


@pytest.fixture
def pair(source: StampSource) -> Iterator[Pair]:
    with connected(source) as made:
        yield made


def one(pieces: Pieces) -> tuple[bytes, int]:
    """A read that must be one piece."""
    (piece,) = pieces
    return piece


# --- all of them -----------------------------------------------------------------------------


def test_the_source_is_the_one_that_was_asked_for(source: StampSource) -> None:
    kinds = {"ebpf": EbpfStamps, "sockopt": SocketStamps, "clock": ClockStamps}
    assert type(source) is kinds[source.name]
    assert source.reason == ""


def test_a_stamp_lies_between_the_sending_and_the_reading(source: StampSource, pair: Pair) -> None:
    reader = source.reader(pair.server)
    slack = 0 if source.name == "ebpf" else SLEW_NS
    for number in range(50):
        before = monotonic_ns()
        pair.client.sendall(b"%d" % number)
        pair.arrived(len(b"%d" % number))
        data, stamp = one(reader.read())
        assert data == b"%d" % number
        assert before - slack <= stamp <= monotonic_ns()
    assert (source.degraded_bytes, source.lost_records) == (0, 0)


def test_data_comes_whole_and_stamps_do_not_go_back(source: StampSource, pair: Pair) -> None:
    reader = source.reader(pair.server)
    pair.server.setblocking(False)
    pair.client.setblocking(False)
    content = bytes(i % 251 for i in range(1 << 20))
    sent, got, last = 0, b"", 0
    while len(got) < len(content):
        if sent < len(content):
            try:
                sent += pair.client.send(content[sent : sent + 100_000])
            except BlockingIOError:
                assert len(got) < sent
        try:
            pieces = reader.read()
        except BlockingIOError:
            continue
        assert 0 < sum(len(data) for data, _ in pieces) <= READ_BYTES
        for data, stamp in pieces:
            assert last <= stamp <= monotonic_ns()
            got, last = got + data, stamp
    assert got == content
    assert source.degraded_bytes == 0


def test_would_block_is_raised_as_recv_raises_it(source: StampSource, pair: Pair) -> None:
    reader = source.reader(pair.server)
    pair.server.setblocking(False)
    with pytest.raises(BlockingIOError):
        reader.read()


def test_a_read_that_comes_short_left_nothing(source: StampSource, pair: Pair) -> None:
    reader = source.reader(pair.server)
    pair.client.sendall(b"x" * 100)
    pair.arrived(100)
    assert one(reader.read())[0] == b"x" * 100
    assert not reader.more


def test_a_full_read_says_that_there_may_be_more(source: StampSource, pair: Pair) -> None:
    reader = source.reader(pair.server)
    pair.client.sendall(b"x" * (READ_BYTES + 7))
    pair.arrived(READ_BYTES + 7)
    got = 0
    while got < READ_BYTES:
        got += sum(len(data) for data, _ in reader.read())
    assert reader.more == (got == READ_BYTES)
    while got < READ_BYTES + 7:
        got += sum(len(data) for data, _ in reader.read())
    assert not reader.more


def test_the_end_of_the_stream_is_no_piece(source: StampSource, pair: Pair) -> None:
    reader = source.reader(pair.server)
    pair.client.sendall(b"last")
    pair.client.shutdown(socket.SHUT_WR)
    assert one(reader.read())[0] == b"last"
    for _ in range(2):
        assert reader.read() == []


def test_a_reset_is_raised_as_recv_raises_it(source: StampSource, pair: Pair) -> None:
    reader = source.reader(pair.server)
    pair.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    pair.client.close()
    with pytest.raises(ConnectionResetError):
        reader.read()


def test_a_connection_reset_before_its_reader_is_made_is_no_fault(
    source: StampSource, pair: Pair
) -> None:
    pair.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    pair.client.close()
    with pytest.raises(ConnectionResetError):
        source.reader(pair.server).read()


def test_a_closed_reader_and_a_tick_without_traffic_are_no_fault(
    source: StampSource, pair: Pair
) -> None:
    reader = source.reader(pair.server)
    reader.close()
    source.tick()


# --- ebpf, on real segments ------------------------------------------------------------------


@pytest.fixture
def ebpf() -> Iterator[StampSource]:
    need_ebpf()
    with closing(choose_source(WallClock(), "ebpf")) as found:
        yield found


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_each_segment_of_one_read_has_its_own_time(ebpf: StampSource, host: str) -> None:
    with connected(ebpf, host) as pair:
        reader = ebpf.reader(pair.server)
        bounds = []
        for number in range(20):
            before = monotonic_ns()
            pair.client.sendall(b"%02d" % number)
            bounds.append((before, monotonic_ns()))
        pair.arrived(40)
        pieces = reader.read()
        assert b"".join(data for data, _ in pieces) == b"".join(b"%02d" % n for n in range(20))
        assert len(pieces) == 20
        for (_, stamp), (before, after) in zip(pieces, bounds, strict=True):
            assert before <= stamp <= after + SLACK_NS
        assert ebpf.degraded_bytes == 0


def test_what_came_before_the_accept_has_its_time_too(ebpf: StampSource) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ebpf.prepare(listener)
        with closing(socket.create_connection(listener.getsockname(), 10)) as client:
            before = monotonic_ns()
            client.sendall(b"early")
            after = monotonic_ns()
            server, _ = listener.accept()
            with closing(server):
                server.settimeout(10)
                data, stamp = one(ebpf.reader(server).read())
    assert data == b"early"
    assert before <= stamp <= after + SLACK_NS
    assert ebpf.degraded_bytes == 0


def test_a_connection_older_than_the_program_gets_the_sockets_stamp(ebpf: StampSource) -> None:
    older = SocketStamps(WallClock())
    with connected(older) as pair:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            ebpf.prepare(listener)
        reader = ebpf.reader(pair.server)
        before = monotonic_ns()
        pair.client.sendall(b"message")
        pair.arrived(7)
        after = monotonic_ns()
        data, stamp = one(reader.read())
    assert data == b"message"
    assert before - SLEW_NS <= stamp <= after + SLEW_NS
    assert ebpf.degraded_bytes == 7


@pytest.mark.parametrize("step_ns", [-3600 * NS, 3600 * NS], ids=["back", "forward"])
def test_a_step_of_the_wall_clock_moves_no_stamp(step_ns: int) -> None:
    need_ebpf()
    wall = WallClock()
    wall.offset_ns += step_ns  # as if it had been stepped since it was read
    with closing(choose_source(wall, "ebpf")) as source, connected(source) as pair:
        reader = source.reader(pair.server)
        before = monotonic_ns()
        pair.client.sendall(b"x")
        after = monotonic_ns()
        pair.arrived(1)
        assert before <= one(reader.read())[1] <= after + SLACK_NS


def test_two_sources_of_one_host_see_their_own_connections(ebpf: StampSource) -> None:
    with closing(choose_source(WallClock(), "ebpf")) as other:
        for first, second in ((ebpf, other), (other, ebpf)):
            with connected(first) as pair, connected(second) as beside:
                readers = first.reader(pair.server), second.reader(beside.server)
                pair.client.sendall(b"one")
                beside.client.sendall(b"two")
                pair.arrived(3)
                beside.arrived(3)
                assert [one(reader.read())[0] for reader in readers] == [b"one", b"two"]
        assert (ebpf.degraded_bytes, other.degraded_bytes) == (0, 0)


# --- ebpf, records made up -------------------------------------------------------------------

ISN = 0xFFFFFFF0  # it wraps after 15 bytes


@dataclass
class Recorded:
    """The program's place: what `drain` gives, one list for each call, and then no more."""

    drains: list[list[Record]] = field(default_factory=list)
    lost: int = 0
    ports: list[int] = field(default_factory=list)
    closed: bool = False

    def add_port(self, port: int) -> None:
        self.ports.append(port)

    def drain(self) -> list[Record]:
        return self.drains.pop(0) if self.drains else []

    def close(self) -> None:
        self.closed = True


@dataclass
class Bench:
    """A connection whose records the test writes. Times are nanoseconds after `origin`."""

    pair: Pair
    program: Recorded
    source: EbpfStamps
    reader: Reader
    key: bytes
    origin: int

    def segment(self, offset: int, length: int, after_ns: int) -> Record:
        seq = (ISN + 1 + offset) % (1 << 32)
        return self.origin + after_ns, seq, length, self.key, ACK

    def read(self, drains: list[list[Record]], sent: bytes) -> list[tuple[bytes, int]]:
        """Send, read once; stamps as nanoseconds after `origin`."""
        self.program.drains = drains
        self.pair.client.sendall(sent)
        self.pair.arrived(len(sent))
        return [(data, stamp - self.origin) for data, stamp in self.reader.read()]


@contextmanager
def bench(wall: WallClock, stamped: bool = True) -> Iterator[Bench]:
    program = Recorded()
    source = EbpfStamps(program, wall)
    with connected(SocketStamps(wall) if stamped else ClockStamps()) as pair:
        key = key_of(pair.server.getpeername(), pair.server.getsockname())
        origin = monotonic_ns() - NS
        program.drains = [[(origin - 1, ISN, 0, key, SYN)]]
        yield Bench(pair, program, source, source.reader(pair.server), key, origin)


@pytest.fixture
def made() -> Iterator[Bench]:
    with bench(WallClock()) as found:
        yield found


def test_the_port_is_told_and_the_program_closed() -> None:
    program = Recorded()
    source = EbpfStamps(program, WallClock())
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        source.prepare(listener)
        assert program.ports == [listener.getsockname()[1]]
        assert listener.getsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS) == 1
    source.close()
    assert program.closed


def test_a_segments_time_is_taken_as_it_is(made: Bench) -> None:
    assert made.read([[made.segment(0, 5, 100)]], b"hello") == [(b"hello", 100)]
    assert made.source.degraded_bytes == 0


def test_one_drain_serves_what_is_known_without_another(made: Bench) -> None:
    drains = [[made.segment(0, 2, 100), made.segment(2, 2, 200)], [made.segment(4, 2, 300)]]
    assert made.read(drains, b"ab") == [(b"ab", 100)]
    assert made.read(made.program.drains, b"cd") == [(b"cd", 200)]
    assert len(made.program.drains) == 1, "nothing was unknown, so nothing was asked"


def test_a_segment_that_comes_after_the_drain_is_asked_for(made: Bench) -> None:
    drains = [[made.segment(0, 2, 100)], [made.segment(2, 4, 200)]]
    first = made.read(drains, b"abcdef")
    assert first == [(b"ab", 100), (b"c", 200)]
    assert made.reader.more
    assert one(made.reader.read()) == (b"def", made.origin + 200)
    assert made.source.degraded_bytes == 0


LOST = {
    "the-first-of-three": ([(2, 2, 200), (4, 2, 300)], [(b"ab", 200), (b"cd", 200), (b"ef", 300)]),
    "the-one-between": ([(0, 2, 100), (4, 2, 300)], [(b"ab", 100), (b"cd", 300), (b"ef", 300)]),
}


@pytest.mark.parametrize(("known", "expected"), LOST.values(), ids=LOST.keys())
def test_a_lost_segment_came_no_later_than_the_one_behind_it(
    made: Bench, known: list[tuple[int, int, int]], expected: list[tuple[bytes, int]]
) -> None:
    assert made.read([[made.segment(*each) for each in known]], b"abcdef") == expected
    assert made.source.degraded_bytes == 2


def test_a_lost_segment_at_the_end_has_the_sockets_stamp() -> None:
    wall = WallClock()
    wall.offset_ns += NS // 2  # so that it differs from the time of the read
    with bench(wall) as made:
        before = monotonic_ns()
        (first, last) = made.read([[made.segment(0, 2, 100)]], b"abcdef")
        after = monotonic_ns()
        assert first == (b"ab", 100)
        assert last[0] == b"cdef"
        assert before - SLEW_NS <= last[1] + made.origin + NS // 2 <= after + SLEW_NS
        assert made.source.degraded_bytes == 4


def test_without_any_record_the_socket_stamps(made: Bench) -> None:
    before = monotonic_ns()
    made.pair.client.sendall(b"abc")
    made.pair.arrived(3)
    after = monotonic_ns()
    data, stamp = one(made.reader.read())
    assert data == b"abc"
    assert before - SLEW_NS <= stamp <= after + SLEW_NS
    assert made.source.degraded_bytes == 3


def test_without_the_sockets_stamp_the_clock_does() -> None:
    with bench(WallClock(), stamped=False) as made:
        made.pair.client.sendall(b"abc")
        made.pair.arrived(3)
        before = monotonic_ns()
        data, stamp = one(made.reader.read())
        assert data == b"abc"
        assert before <= stamp <= monotonic_ns()
        assert made.source.degraded_bytes == 3


def test_a_lost_byte_with_nothing_behind_it_has_the_time_of_the_read(made: Bench) -> None:
    made.pair.server.setblocking(False)
    made.program.drains = [[made.segment(0, 2, 100)]]
    made.pair.client.sendall(b"abc")
    before = monotonic_ns()
    first, last = made.reader.read()
    assert first == (b"ab", made.origin + 100)
    assert last[0] == b"c"
    assert before <= last[1] <= monotonic_ns()
    assert not made.reader.more
    assert made.source.degraded_bytes == 1


def test_no_stamp_is_earlier_than_a_degraded_one_before_it(made: Bench) -> None:
    (lost,) = made.read([], b"ab")
    (known,) = made.read([[made.segment(2, 2, 200)]], b"cd")
    assert known == (b"cd", lost[1])
    (later,) = made.read([[made.segment(4, 2, 2 * NS)]], b"ef")
    assert later == (b"ef", 2 * NS)
    assert made.source.degraded_bytes == 2


def test_a_closed_connections_records_are_not_kept(made: Bench) -> None:
    made.reader.close()
    made.program.drains = [[made.segment(0, 2, 100)]]
    made.source.tick()
    made.pair.client.sendall(b"ab")
    made.pair.arrived(2)
    one(made.reader.read())
    assert made.source.degraded_bytes == 2


def test_a_tick_takes_the_records_of_a_connection_that_is_not_read(made: Bench) -> None:
    made.program.drains = [[made.segment(0, 2, 100)]]
    made.source.tick()
    assert made.read([], b"ab") == [(b"ab", 100)]


def test_lost_records_are_counted_by_the_program(made: Bench) -> None:
    made.program.lost = 12
    assert made.source.lost_records == 12


# --- sockopt, the kernel's time made up ------------------------------------------------------


class Answers(socket.socket):
    """A socket whose recvmsg says what the test wants."""

    answer: tuple[bytes, list[Any], int, None]

    def recvmsg(self, *_: int) -> Any:  # type: ignore[override]
        return self.answer


def stamps_of(wall: WallClock, *ancillaries: list[Any]) -> list[int]:
    """Of one connection's reads."""
    with Answers() as connection:
        reader = SocketStamps(wall).reader(connection)
        found = []
        for ancillary in ancillaries:
            connection.answer = (b"x", ancillary, 0, None)
            found.append(one(reader.read())[1])
        return found


def timespec(wall_ns: int) -> list[Any]:
    return [(socket.SOL_SOCKET, SO_TIMESTAMPNS, struct.pack("@ll", *divmod(wall_ns, NS)))]


def test_the_kernels_time_is_converted_to_the_nanosecond() -> None:
    wall = WallClock()
    at = monotonic_ns() - 3_000_000_007
    assert stamps_of(wall, timespec(at + wall.offset_ns)) == [at]


def test_a_time_in_the_future_is_taken_as_now() -> None:
    """The wall clock was set forward, and the offset not read again yet."""
    wall = WallClock()
    before = monotonic_ns()
    (stamp,) = stamps_of(wall, timespec(before + wall.offset_ns + 3600 * NS))
    assert before <= stamp <= monotonic_ns()


def test_a_read_without_a_stamp_is_stamped_now() -> None:
    before = monotonic_ns()
    (stamp,) = stamps_of(WallClock(), [])
    assert before <= stamp <= monotonic_ns()


def test_a_wall_clock_set_back_sorts_no_publishers_messages_anew() -> None:
    wall = WallClock()
    at = monotonic_ns() - NS
    stamps = stamps_of(
        wall, timespec(at + wall.offset_ns), timespec(at + wall.offset_ns - 3600 * NS)
    )
    assert stamps == [at, at]


def test_accepted_connections_inherit_the_option() -> None:
    source = SocketStamps(WallClock())
    with connected(source) as pair:
        assert pair.server.getsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS) == 1
        pair.client.sendall(b"early")
        assert len(pair.server.recvmsg(100, 100)[1]) == 1


# --- the choice ------------------------------------------------------------------------------


def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> SegmentProgram:
        raise SourceUnavailable("CAP_BPF is missing")

    monkeypatch.setattr("kernel.sources.SegmentProgram", refuse)


def no_option(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: SocketStamps, listener: socket.socket) -> None:
        raise OSError(92, "Protocol not available")

    monkeypatch.setattr("kernel.sources.SocketStamps.prepare", refuse)


def test_auto_takes_the_best_that_works_and_says_why_it_is_no_better(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused(monkeypatch)
    source = choose_source(WallClock())
    assert (source.name, source.reason) == ("sockopt", "ebpf: CAP_BPF is missing")


def test_auto_ends_with_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    refused(monkeypatch)
    no_option(monkeypatch)
    source = choose_source(WallClock())
    assert source.name == "clock"
    assert source.reason.startswith("ebpf: CAP_BPF is missing; sockopt: no SO_TIMESTAMPNS")


def test_auto_is_ebpf_where_that_works() -> None:
    need_ebpf()
    with closing(choose_source(WallClock())) as source:
        assert (source.name, source.reason) == ("ebpf", "")


FORCED = {
    "ebpf": (refused, "--timestamps ebpf: CAP_BPF is missing"),
    "sockopt": (
        no_option,
        "--timestamps sockopt: no SO_TIMESTAMPNS: Protocol not available; use clock",
    ),
}


@pytest.mark.parametrize("asked", FORCED)
def test_a_source_that_was_asked_for_and_does_not_work_is_one_line(
    monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    breaks, line = FORCED[asked]
    breaks(monkeypatch)
    with pytest.raises(SourceUnavailable) as caught:
        choose_source(WallClock(), asked)
    assert str(caught.value) == line
    assert caught.value.exit_code == 3


def test_the_offset_is_that_of_the_wall_clock() -> None:
    wall = WallClock()
    assert not wall.refresh()
    assert wall.steps == 0
    assert wall.monotonic_of(wall.offset_ns + 5) == 5


@pytest.mark.parametrize("step_ns", [-3600 * NS, -10_000_000, 10_000_000, 3600 * NS])
def test_a_step_of_the_wall_clock_is_noticed_once(step_ns: int) -> None:
    wall = WallClock()
    right = wall.offset_ns
    wall.offset_ns = right - step_ns  # as it was read before the step
    assert wall.refresh()
    assert wall.steps == 1
    assert abs(wall.offset_ns - right) < SLEW_NS
    assert not wall.refresh()
    assert wall.steps == 1
