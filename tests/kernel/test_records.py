"""The key of a connection, from the addresses that sockets give."""

import re
import socket
from pathlib import Path

import pytest

from kernel.records import RECORD, key_of

V4 = bytes(10) + b"\xff\xff"
LOOPBACK6 = bytes(15) + b"\x01"
SOURCE = (Path(__file__).parents[2] / "kernel" / "segments.bpf.c").read_text()


@pytest.mark.parametrize(
    ("peer", "local", "key"),
    [
        pytest.param(
            ("10.0.0.1", 256),
            ("127.0.0.1", 4150),
            V4 + b"\x0a\0\0\x01" + V4 + b"\x7f\0\0\x01" + b"\x01\x00" + b"\x10\x36",
            id="ipv4",
        ),
        pytest.param(
            ("::1", 1, 0, 0), ("::1", 2, 0, 0), LOOPBACK6 * 2 + b"\0\x01\0\x02", id="ipv6"
        ),
        pytest.param(
            ("::ffff:10.0.0.1", 256, 0, 0),
            ("::ffff:127.0.0.1", 4150, 0, 0),
            V4 + b"\x0a\0\0\x01" + V4 + b"\x7f\0\0\x01" + b"\x01\x00" + b"\x10\x36",
            id="ipv4-on-an-ipv6-socket-is-the-same",
        ),
        pytest.param(
            ("::1%eth0", 1, 7, 3), ("::1", 2, 0, 3), LOOPBACK6 * 2 + b"\0\x01\0\x02", id="scope"
        ),
    ],
)
def test_key(peer: tuple[object, ...], local: tuple[object, ...], key: bytes) -> None:
    assert key_of(peer, local) == key
    assert len(key) == 36


@pytest.mark.parametrize(
    "address",
    ["", "/run/nsqd.sock", (), ("10.0.0.1",), ("10.0.0.1", -1), ("::1", 65536), (b"::1", 1)],
    ids=repr,
)
def test_what_has_no_port_has_no_key(address: object) -> None:
    for ends in ((address, ("::1", 1)), (("::1", 1), address)):
        with pytest.raises(ValueError, match="address of a TCP socket"):
            key_of(*ends)


@pytest.mark.parametrize("host", ["localhost", "10.0.0", "::g", ""])
def test_a_name_is_not_looked_up(host: str) -> None:
    with pytest.raises(ValueError, match="numeric"):
        key_of((host, 1), ("::1", 1))


def test_a_unix_socket_has_no_key() -> None:
    one, two = socket.socketpair()
    with one, two, pytest.raises(ValueError, match="TCP"):
        key_of(one.getpeername(), one.getsockname())


def test_the_layout_is_that_of_the_program() -> None:
    found = re.search(r"struct record \{(.*?)\};", SOURCE, re.S)
    assert found is not None
    names = re.findall(r"(\w+)(?:\[\d+\])?[,;]", re.sub(r"//.*", "", found[1]))
    assert names == [
        *("time_ns", "seq", "length", "peer", "local", "peer_port", "local_port", "flags", "zero")
    ]
    assert RECORD.size == 8 + 4 + 4 + 16 + 16 + 2 + 2 + 1 + 3
