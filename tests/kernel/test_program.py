"""The program of segments.bpf.c in this kernel: packets in and records out, then real traffic."""

import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kernel.ebpf import SegmentProgram
from kernel.records import FIN, RST, SYN, Record, key_of
from srtm.host.clock import monotonic_ns
from tests.support.bpf import (
    LINK_DETACH,
    LINK_FD_BY_ID,
    PEER_PORT,
    PORT,
    PROG_FD_BY_ID,
    bpf,
    exists,
    id_of,
    ip4,
    ip6,
    loaded,
    run,
    tcp,
)
from tests.support.servers import STARTED, wait_for

ROOT = Path(__file__).parents[2]
SMALL = 4096
"""A ring of one page has room for 63 records: the last slot is never filled."""

KEY4 = key_of(("10.0.0.1", PEER_PORT), ("10.0.0.2", PORT))
KEY6 = key_of(("fd00::1", PEER_PORT), ("fd00::2", PORT))
PUSH, ACK = 0x18, 0x10


@pytest.fixture(scope="module")
def program() -> Iterator[SegmentProgram]:
    with loaded(SMALL) as attached:
        attached.add_port(PORT)
        yield attached


# --- packets in, records out -----------------------------------------------------------------

HOP = (0, b"\x00" + bytes(6))
LONG_HOP = (0, b"\x01" + bytes(14))
OPTIONS = (60, b"\x00" + bytes(6))
ROUTING = (43, b"\x02" + bytes(22))
WHOLE = (44, b"\x07" + bytes(6))  # a fragment header on a whole packet; its 7 is reserved

RECORDED = [
    pytest.param(ip4(tcp(b"hello")), KEY4, 5, PUSH, id="ipv4"),
    pytest.param(ip4(tcp(b"hello"), options=bytes(8)), KEY4, 5, PUSH, id="ipv4-with-options"),
    pytest.param(ip4(tcp(b"hello"), options=bytes(40)), KEY4, 5, PUSH, id="ipv4-longest-options"),
    pytest.param(ip4(tcp(b"hello", options=bytes(12))), KEY4, 5, PUSH, id="tcp-options"),
    pytest.param(ip4(tcp(b"hello", options=bytes(40))), KEY4, 5, PUSH, id="tcp-longest-options"),
    pytest.param(ip4(tcp(b"hello", ACK)), KEY4, 5, ACK, id="data-on-an-ack"),
    pytest.param(ip4(tcp(b"")[:13] + b"\x02" + tcp(b"")[14:]), KEY4, 0, SYN, id="syn"),
    pytest.param(ip4(tcp(b"early", SYN)), KEY4, 5, SYN, id="data-on-a-syn"),
    pytest.param(ip4(tcp(b"", FIN | ACK)), KEY4, 0, FIN | ACK, id="fin"),
    pytest.param(ip4(tcp(b"bye", FIN | ACK)), KEY4, 3, FIN | ACK, id="data-on-a-fin"),
    pytest.param(ip4(tcp(b"", RST)), KEY4, 0, RST, id="rst"),
    pytest.param(ip4(tcp(b"hello")) + bytes(9), KEY4, 5, PUSH, id="padding-is-not-payload"),
    pytest.param(ip4(tcp(b"", FIN)) + bytes(6), KEY4, 0, FIN, id="padding-behind-a-fin"),
    pytest.param(ip4(tcp(b"x" * 1400), total=0), KEY4, 1400, PUSH, id="ipv4-aggregate-over-64k"),
    pytest.param(ip4(tcp(b"hello"), fragment=0x4000), KEY4, 5, PUSH, id="dont-fragment"),
    pytest.param(ip6(tcp(b"hello")), KEY6, 5, PUSH, id="ipv6"),
    pytest.param(ip6(tcp(b"hello")) + bytes(9), KEY6, 5, PUSH, id="ipv6-padding"),
    pytest.param(ip6(tcp(b"x" * 1400), payload=0), KEY6, 1400, PUSH, id="ipv6-aggregate-over-64k"),
    pytest.param(ip6(tcp(b"hello"), HOP), KEY6, 5, PUSH, id="hop-by-hop"),
    pytest.param(ip6(tcp(b"hello"), LONG_HOP), KEY6, 5, PUSH, id="long-hop-by-hop"),
    pytest.param(ip6(tcp(b"hello"), ROUTING), KEY6, 5, PUSH, id="routing"),
    pytest.param(ip6(tcp(b"hello"), OPTIONS), KEY6, 5, PUSH, id="destination-options"),
    pytest.param(ip6(tcp(b"hello"), WHOLE), KEY6, 5, PUSH, id="fragment-header-on-a-whole-packet"),
    pytest.param(
        ip6(tcp(b"hello"), HOP, OPTIONS, ROUTING, WHOLE, OPTIONS), KEY6, 5, PUSH, id="all-of-them"
    ),
    pytest.param(ip6(tcp(b"hello"), HOP, *[OPTIONS] * 7), KEY6, 5, PUSH, id="eight-extensions"),
]

IGNORED = [
    pytest.param(ip4(tcp(b"", ACK)), id="pure-ack"),
    pytest.param(ip6(tcp(b"", ACK), HOP), id="pure-ack-behind-an-extension"),
    pytest.param(ip4(tcp(b"", ACK)) + bytes(6), id="pure-ack-padded"),
    pytest.param(ip4(tcp(b"hello"), protocol=17), id="udp"),
    pytest.param(ip6(tcp(b"hello"), protocol=17), id="udp-over-ipv6"),
    pytest.param(ip4(tcp(b"hello", target=PORT + 1)), id="other-port"),
    pytest.param(ip4(tcp(b"hello", target=PORT + 8)), id="port-of-the-next-byte"),
    pytest.param(ip4(tcp(b"hello", source=PORT, target=PEER_PORT)), id="from-the-port-not-to-it"),
    pytest.param(ip4(tcp(b"hello"), fragment=0x2000), id="first-fragment"),
    pytest.param(ip4(tcp(b"hello"), fragment=0x0003), id="later-fragment"),
    pytest.param(ip6(tcp(b"hello"), (44, b"\x00\x00\x01" + bytes(4))), id="ipv6-first-fragment"),
    pytest.param(ip6(tcp(b"hello"), (44, b"\x00\x01\x08" + bytes(4))), id="ipv6-later-fragment"),
    pytest.param(ip6(tcp(b"hello"), *[OPTIONS] * 9), id="nine-extensions"),
    pytest.param(ip6(tcp(b"hello"), (51, bytes(23))), id="authentication-header"),
    pytest.param(ip4(tcp(b"hello"))[:20], id="nothing-behind-the-ipv4-header"),
    pytest.param(ip4(tcp(b"hello"))[:39], id="truncated-tcp"),
    pytest.param(ip6(tcp(b"hello"))[:40], id="nothing-behind-the-ipv6-header"),
    pytest.param(ip6(tcp(b"hello"), HOP)[:43], id="truncated-extension"),
    pytest.param(ip6(tcp(b"hello"), LONG_HOP)[:58], id="truncated-behind-the-extension"),
    pytest.param(ip4(tcp(b"hello"))[:44], id="shorter-than-it-says"),
    pytest.param(ip4(tcp(b"hello", FIN), total=39), id="total-length-inside-the-tcp-header"),
    pytest.param(ip4(tcp(b"hello", SYN, words=4)), id="tcp-header-too-short"),
    pytest.param(ip4(tcp(b"hello", SYN, words=15)), id="tcp-header-longer-than-the-packet"),
]


def records(program: SegmentProgram, packet: bytes) -> list[Record]:
    program.drain()
    verdict, _ = run(program.program_fd, packet)
    assert verdict == 1, "every packet passes"
    return program.drain()


@pytest.mark.parametrize(("packet", "key", "length", "flags"), RECORDED)
def test_recorded(
    program: SegmentProgram, packet: bytes, key: bytes, length: int, flags: int
) -> None:
    before = monotonic_ns()
    [record] = records(program, packet)
    assert record[1:] == (7, length, key, flags)
    assert before <= record[0] <= monotonic_ns()


@pytest.mark.parametrize("packet", IGNORED)
def test_passed_without_a_record(program: SegmentProgram, packet: bytes) -> None:
    assert records(program, packet) == []


@pytest.mark.parametrize("seq", [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_the_sequence_number_is_in_host_order(program: SegmentProgram, seq: int) -> None:
    assert records(program, ip4(tcp(b"x", seq=seq)))[0][1] == seq


@pytest.mark.parametrize("port", [1, 7, 8, 255, 256, 32768, 65535])
def test_every_port_can_be_watched_alone(port: int) -> None:
    with loaded(SMALL) as program:
        program.add_port(port)
        near = [port + step for step in (-256, -8, -1, 0, 1, 8, 256) if 0 <= port + step < 65536]
        seen = [p for p in near if records(program, ip4(tcp(b"x", target=p)))]
        assert seen == [port]


@pytest.mark.parametrize("port", [-1, 0, 65536])
def test_what_is_no_port_is_refused(program: SegmentProgram, port: int) -> None:
    with pytest.raises(ValueError, match="not a TCP port"):
        program.add_port(port)


@pytest.mark.parametrize("ring_bytes", [0, 2048, 12288, 65535])
def test_a_ring_is_a_power_of_two(ring_bytes: int) -> None:
    with pytest.raises(ValueError, match="ring_bytes"):
        SegmentProgram(ring_bytes)


# --- the ring full ---------------------------------------------------------------------------


def test_what_finds_no_room_is_counted_and_nothing_else_is_touched() -> None:
    with loaded(SMALL) as program:
        program.add_port(PORT)
        for turn in range(5):  # 63 slots of 64: each turn begins elsewhere in the ring
            for seq in range(100):
                run(program.program_fd, ip4(tcp(b"x", seq=seq)))
            assert [record[1] for record in program.drain()] == list(range(63))
            assert program.lost == 37 * (turn + 1)
            assert program.drain() == []


def test_every_record_is_read_once_wherever_the_ring_wraps() -> None:
    with loaded(SMALL) as program:
        program.add_port(PORT)
        sent = 0
        for count in (1, 30, 2, 63, 62, 5, 61, 64 - 1):
            for _ in range(count):
                run(program.program_fd, ip4(tcp(b"x", seq=sent)))
                sent += 1
            assert [record[1] for record in program.drain()] == list(range(sent - count, sent))
        assert program.lost == 0


# --- real traffic ----------------------------------------------------------------------------


@contextmanager
def connection(
    program: SegmentProgram, host: str = "127.0.0.1", listen: str = ""
) -> Iterator[tuple[socket.socket, socket.socket, bytes]]:
    """A publisher's socket, the accepted one and its key, on a port that the program watches."""
    family = socket.AF_INET6 if ":" in (listen or host) else socket.AF_INET
    with socket.create_server(
        (listen or host, 0), family=family, dualstack_ipv6=bool(listen)
    ) as at:
        program.add_port(at.getsockname()[1])
        with closing(socket.create_connection((host, at.getsockname()[1]), 10)) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            accepted, _ = at.accept()
            with closing(accepted):
                accepted.settimeout(10)
                yield client, accepted, key_of(accepted.getpeername(), accepted.getsockname())


def of(key: bytes, found: list[Record]) -> list[Record]:
    return [record for record in found if record[3] == key]


HOSTS = [
    pytest.param("127.0.0.1", "", id="ipv4"),
    pytest.param("::1", "", id="ipv6"),
    pytest.param("127.0.0.1", "::", id="ipv4-on-an-ipv6-socket"),
]


@pytest.mark.parametrize(("host", "listen"), HOSTS)
def test_every_segment_is_recorded(host: str, listen: str) -> None:
    with loaded() as program, connection(program, host, listen) as (client, accepted, key):
        [(opened, start, length, _, flags)] = of(key, program.drain())
        assert (length, flags & SYN) == (0, SYN)
        sent = recorded = received = 0
        last = opened
        for size in (1, 100, 5000, 2, 1000):
            before = monotonic_ns()
            client.sendall(bytes(size))
            sent += size
            while received < sent:
                received += len(accepted.recv(10_000))
                for at, seq, length, _, _ in of(key, program.drain()):
                    assert seq == (start + 1 + recorded) % (1 << 32)
                    assert max(before, last) <= at <= monotonic_ns()
                    recorded, last = recorded + length, at
                assert recorded >= received, "a record is there before its bytes"
        assert recorded == sent
        client.shutdown(socket.SHUT_WR)
        assert accepted.recv(1) == b""
        [(_, seq, length, _, flags)] = of(key, program.drain())
        assert (seq, length, flags & FIN) == ((start + 1 + sent) % (1 << 32), 0, FIN)
        assert program.lost == 0


def test_a_reset_is_recorded() -> None:
    with loaded() as program, connection(program) as (client, accepted, key):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
        with pytest.raises(ConnectionResetError):
            accepted.recv(1)
        assert of(key, program.drain())[-1][4] & RST


def test_data_on_the_ack_that_ends_the_handshake_is_recorded() -> None:
    """The client holds that ACK back (it does not answer at once), so that it carries the data."""
    with loaded() as program, socket.create_server(("127.0.0.1", 0)) as listener:
        program.add_port(listener.getsockname()[1])
        with socket.socket() as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            client.connect(listener.getsockname())
            client.sendall(b"first")
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.recv(10) == b"first"
                key = key_of(accepted.getpeername(), accepted.getsockname())
                syn, first = of(key, program.drain())
                assert (syn[4] & SYN, first[1] - syn[1], first[2]) == (SYN, 1, 5)


def test_what_was_sent_while_nobody_reads_has_its_own_times() -> None:
    with loaded() as program, connection(program) as (client, accepted, key):
        spans = []
        for count in range(1, 6):
            before = monotonic_ns()
            client.sendall(b"x" * 100)
            accepted.recv(100 * count, socket.MSG_PEEK | socket.MSG_WAITALL)  # it is there, unread
            spans.append((before, monotonic_ns()))
        assert len(accepted.recv(10_000)) == 500
        found = [record for record in of(key, program.drain()) if record[2]]
        assert len(found) == 5
        for (before, after), (at, *_) in zip(spans, found, strict=True):
            assert before <= at <= after


def test_two_programs_at_once_see_their_own_ports() -> None:
    with loaded() as one, loaded() as two:
        with connection(one) as (client, accepted, key):
            client.sendall(b"to one")
            accepted.recv(10)
            assert [record[2] for record in of(key, one.drain())] == [0, 6]
            assert two.drain() == []
        with connection(two) as (client, accepted, key):
            one.add_port(accepted.getsockname()[1])
            client.sendall(b"to both")
            accepted.recv(10)
            assert [record[2] for record in of(key, two.drain())] == [0, 7]
            assert [record[2] for record in of(key, one.drain())] == [7]


def test_another_network_namespace_is_not_taken_for_ours() -> None:
    """Loopback addresses and ports are the same in each of them."""
    with loaded() as program:
        if not program.own_namespace_only:
            pytest.skip("this kernel (before 6.16) cannot tell network namespaces apart")
        program.add_port(PORT)
        code = f"""
import socket, subprocess
from tests.support.confined import NEWNET, unshare
unshare(NEWNET)
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
with socket.create_server(("127.0.0.1", {PORT})) as at:
    client = socket.create_connection(at.getsockname(), 10)
    client.sendall(b"there")
    print(at.accept()[0].recv(10))
"""
        assert child(code) == "b'there'\n"
        assert program.drain() == []


def child(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- nothing stays behind --------------------------------------------------------------------


def gone(command: int, number: int) -> None:
    """The kernel frees after a grace period of its own."""
    wait_for(lambda: not exists(command, number), f"{number} is still there")


def test_close_detaches_and_may_be_called_again() -> None:
    with loaded() as program:
        numbers = id_of(program.program_fd), id_of(program.link_fd)
        assert exists(PROG_FD_BY_ID, numbers[0])
        assert exists(LINK_FD_BY_ID, numbers[1])
        program.close()
        program.close()
        gone(LINK_FD_BY_ID, numbers[1])
        gone(PROG_FD_BY_ID, numbers[0])


def test_a_link_detached_from_outside_stops_the_records_and_nothing_else() -> None:
    with loaded() as program, connection(program) as (client, accepted, _):
        bpf(LINK_DETACH, struct.pack("I", program.link_fd))
        program.drain()
        client.sendall(b"unseen")
        assert accepted.recv(10) == b"unseen"
        assert program.drain() == []


def test_a_closed_program_says_so() -> None:
    with loaded() as program:
        program.close()
        uses: list[Any] = [program.drain, lambda: program.lost, lambda: program.add_port(1)]
        for use in uses:
            with pytest.raises(ValueError, match="released"):
                use()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_process_leaves_nothing_attached(number: signal.Signals) -> None:
    with loaded():
        pass
    code = """
import signal
from kernel.ebpf import SegmentProgram
from tests.support.bpf import id_of
program = SegmentProgram()
program.add_port(4150)
print(id_of(program.program_fd), id_of(program.link_fd), flush=True)
signal.pause()
"""
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE)
    STARTED.append(process)
    assert process.stdout is not None
    with process.stdout as output:
        program_id, link_id = (int(word) for word in output.readline().split())
        assert exists(PROG_FD_BY_ID, program_id)
        assert exists(LINK_FD_BY_ID, link_id)
        os.kill(process.pid, number)
        process.wait(10)
    gone(LINK_FD_BY_ID, link_id)
    gone(PROG_FD_BY_ID, program_id)
