"""Links of real network namespaces: cut, one way too, silenced, slowed, led astray, and healed."""

import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import srtm.testbed as testbeds
from srtm.testbed import Unit, links, open_testbed
from srtm.testbed.network import namespaces_of
from srtm.text.address import Address
from srtm.text.errors import UnavailableError, UsageError
from tests.support.deployments import wait_for
from tests.support.netns import need_namespaces
from tests.support.testbeds import lab, quiet, short_folder

ECHO = """
import socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(1 << 16):
            self.request.sendall(data)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
with Server(("0.0.0.0", PORT), Echo) as server:
    print("serves", flush=True)
    server.serve_forever()
"""
ASK = """
import socket, sys, time
began = time.monotonic()
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 1) as link:
    link.settimeout(1)
    size, text = int(sys.argv[3]), b""
    link.sendall(b"x" * size)
    while len(text) < size:
        text += link.recv(1 << 16)
print(time.monotonic() - began)
"""
PORT = 7007


@pytest.fixture(scope="module")
def bed() -> Iterator[testbeds.Testbed]:
    """Hosts without brokers on them: h3 has an echo, and so has h2."""
    need_namespaces()
    with short_folder() as folder:
        file = lab(folder, "netns")
        text = file.read_text().replace('host = "h1"', 'host = "h2"')
        file.write_text("".join(text))
        found = open_testbed(file)
        try:
            found.make_network()
            for name in ("h2", "h3"):
                command = [sys.executable, "-c", ECHO.replace("PORT", str(PORT))]
                found.hosts[name].start(Unit("echo", command))
            wait_for(lambda: all(found.hosts[n].log("echo", 1) == "serves" for n in ("h2", "h3")))
            yield found
        finally:
            found.down(quiet, purge=True)
            for name in ("h2", "h3"):
                found.hosts[name].stop("echo", 5)
        assert not namespaces_of(found.names)


@pytest.fixture(autouse=True)
def _healed(bed: testbeds.Testbed) -> Iterator[None]:
    yield
    links.heal(bed)


def asks(bed: testbeds.Testbed, host: str, other: str, size: int = 4) -> float | None:
    """Seconds; None where no answer comes."""
    address = bed.inventory.host(other).address
    command = [sys.executable, "-c", ASK, address, str(PORT), str(size)]
    done = bed.hosts[host].run(command)
    return float(done.output) if done.code == 0 else None


def test_a_cut_parts_two_hosts_and_no_others(bed: testbeds.Testbed) -> None:
    links.cut(bed, "h1", "h2")
    links.cut(bed, "h1", "h2")  # again: it is cut already
    assert asks(bed, "h1", "h2") is None
    assert asks(bed, "h1", "h3") is not None
    assert asks(bed, "h3", "h2") is not None
    said = [links.condition(bed, name) for name in ("h1", "h2", "h3")]
    assert said == [["hears nothing of h2"], ["hears nothing of h1"], []]
    links.heal(bed, "h2")
    assert asks(bed, "h1", "h2") is not None
    assert not any(links.condition(bed, name) for name in bed.hosts)


def test_a_cut_from_all_others_and_this_machine(bed: testbeds.Testbed) -> None:
    address = bed.inventory.host("h2").address
    socket.create_connection((address, PORT), 2).close()
    links.cut(bed, "h2")
    assert links.condition(bed, "h1") == ["hears nothing of h2"]
    assert links.condition(bed, "h2") == [
        "hears nothing of h1, h3, this machine",
        "is not heard by this machine",
    ]
    assert asks(bed, "h1", "h2") is None
    with pytest.raises(OSError):
        socket.create_connection((address, PORT), 0.5)
    assert asks(bed, "h1", "h3") is not None
    links.heal(bed)
    socket.create_connection((address, PORT), 2).close()


def test_one_way_the_other_way_passes(bed: testbeds.Testbed) -> None:
    """UDP needs no answer: what arrives was let through."""
    links.cut(bed, "h1", "h2", one_way=True)
    assert not links.condition(bed, "h1")
    assert links.condition(bed, "h2") == ["hears nothing of h1"]
    listen = (
        "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('0.0.0.0', 7008))\n"
        "print('listens', flush=True)\n"
        "while True: print(s.recv(99).decode(), flush=True)"
    )
    send = (
        "import socket, sys\n"
        "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', (sys.argv[1], 7008))"
    )
    for name in ("h1", "h2"):
        bed.hosts[name].start(Unit("udp", [sys.executable, "-c", listen]))
    try:
        wait_for(lambda: all(bed.hosts[n].log("udp", 1) == "listens" for n in ("h1", "h2")))
        for name, other in (("h1", "h2"), ("h2", "h1")):
            address = bed.inventory.host(other).address
            assert bed.hosts[name].run([sys.executable, "-c", send, address]).code == 0
        wait_for(lambda: bed.hosts["h1"].log("udp", 1) == "x")
        assert bed.hosts["h2"].log("udp", 1) == "listens"
    finally:
        for name in ("h1", "h2"):
            bed.hosts[name].stop("udp", 5)


def test_silenced_connections_are_half_open_and_new_ones_work(bed: testbeds.Testbed) -> None:
    address = bed.inventory.host("h2").address
    with socket.create_connection((address, PORT), 2) as link:
        link.settimeout(0.5)
        link.sendall(b"one")
        assert link.recv(9) == b"one"
        count = links.silence(bed, "h2")
        assert count >= 1
        assert links.condition(bed, "h2") == [f"half-open: {count}"]
        link.sendall(b"two")
        with pytest.raises(TimeoutError):
            link.recv(9)
    assert asks(bed, "h1", "h2") is not None


def test_a_delay_is_either_way_and_ends_with_heal(bed: testbeds.Testbed) -> None:
    delay_seconds = 0.03
    how = links.slow(bed, "h2", delay_seconds=delay_seconds)
    assert how in ("netem", "relay")
    assert links.condition(bed, "h2") == ["is delayed"]
    took = asks(bed, "h1", "h2", 200_000)  # longer than a segment, with its checksums
    assert took is not None
    assert took >= 4 * delay_seconds  # two ways for the handshake, two for the answer
    assert asks(bed, "h1", "h3") is not None
    links.heal(bed, "h2")
    assert asks(bed, "h1", "h2") is not None
    assert bed.hosts["h2"].status("delay") is None


def test_little_bandwidth(bed: testbeds.Testbed) -> None:
    links.slow(bed, "h2", "1mbit")
    assert links.condition(bed, "h2") == ["is limited"]
    began = time.monotonic()
    assert asks(bed, "h1", "h2", 200_000) is not None
    assert time.monotonic() - began >= (200_000 - (64 << 10)) * 8 / 1e6  # less a full bucket


def test_a_bandwidth_that_is_none_is_a_clear_line(bed: testbeds.Testbed) -> None:
    with pytest.raises(UsageError, match="bandwidth '10mb': write 10mbit"):
        links.slow(bed, "h2", "10mb")


def test_led_astray(bed: testbeds.Testbed) -> None:
    nowhere = Address(bed.inventory.host("h2").address, PORT + 5)
    links.lead_astray(bed, "h1", nowhere, Address(bed.inventory.host("h3").address, PORT))
    command = [sys.executable, "-c", ASK, nowhere.host, str(nowhere.port), "4"]
    assert bed.hosts["h1"].run(command).code == 0
    assert links.condition(bed, "h1") == ["is led astray"]
    links.straight(bed, "h1")
    assert not links.condition(bed, "h1")
    links.straight(bed, "h1")
    assert bed.hosts["h1"].run(command).code != 0


def test_a_host_that_is_not_there(bed: testbeds.Testbed, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no host h9; known: h1, h2, h3"):
        links.cut(bed, "h9")
    with pytest.raises(UsageError, match="cannot be cut off from itself"):
        links.cut(bed, "h1", "h1")
    with pytest.raises(UnavailableError, match="is not up: srtm testbed up"):
        links.cut(open_testbed(lab(tmp_path, "netns")), "h1")
    with pytest.raises(UsageError, match="kind = 'local' cannot be cut"):
        links.cut(open_testbed(lab(tmp_path, "local")), "h1")
