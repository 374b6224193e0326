"""What a nsqlookupd may answer: none of it stops a route."""

import json
import selectors
import socket
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from srtm.bridge.hosts import _answers
from srtm.bridge.lookup import nsqds_of, topics_of
from srtm.bridge.wire import Broken, Wire
from srtm.nsq.frames import RESPONSE
from srtm.text.errors import UnavailableError


class Lookupd(ThreadingHTTPServer):
    """answer: the body of every answer."""

    answer = b""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Lookupd

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.answer)))
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def lookupd() -> Iterator[Lookupd]:
    with Lookupd(("127.0.0.1", 0), Handler) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


def producer(host: object, port: object) -> dict[str, object]:
    return {"broadcast_address": host, "tcp_port": port, "http_port": 0}


def test_only_addresses_are_taken(lookupd: Lookupd) -> None:
    bad = [("", 4150), ("http://a", 1), ("a", 0), ("a", 70_000), ("a" * 5000, 1), ("b", -1)]
    bad += [("a", "x"), ("a", 1e999)]
    producers = [producer(*each) for each in [*bad, ("10.0.0.1", 4150), ("::1", "4151")]]
    lookupd.answer = json.dumps({"producers": producers}).encode()
    assert nsqds_of(lookupd.address, "t") == {"10.0.0.1:4150", "[::1]:4151"}


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"topics": 7}',
        b'{"topics": [7]}',
        b'{"topics": ["\\ud800"]}',
        b'{"producers": 7}',
        b'{"producers": [7]}',
        b'{"producers": [{"broadcast_address": 7, "tcp_port": 1, "http_port": 1}]}',
    ],
)
def test_nonsense_is_told_in_one_line(lookupd: Lookupd, answer: bytes) -> None:
    lookupd.answer = answer
    for ask in (lambda: nsqds_of(lookupd.address, "t"), lambda: topics_of(lookupd.address)):
        with pytest.raises(UnavailableError) as caught:
            ask()
        assert "\n" not in str(caught.value)


def test_only_what_nsq_takes_and_users_named_are_topics(lookupd: Lookupd) -> None:
    names = ["a.b", "x#ephemeral", "", "a b", "a" * 65, "*"]
    names += ["srtm_probe#ephemeral", "srtm-disk-trial"]  # of gateways themselves
    lookupd.answer = json.dumps({"topics": names}).encode()
    assert topics_of(lookupd.address) == {"a.b", "x#ephemeral"}


@pytest.mark.parametrize("address", ["a:0", "", "x", "a" * 300 + ":1", "a\0b:1", "..:1"])
def test_an_address_that_is_none_is_a_broken_connection(address: str) -> None:
    with selectors.DefaultSelector() as selector, pytest.raises(Broken):
        Wire(selector, address, {}, 0.0)


def test_an_answer_to_identify_that_is_nested_without_an_end_ends_it() -> None:
    data = b"[" * 200_000
    with (
        selectors.DefaultSelector() as selector,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        wire = Wire(selector, f"127.0.0.1:{server.getsockname()[1]}", {}, 0.0)
        nsqd, _ = server.accept()
        sender = threading.Thread(
            target=nsqd.sendall, args=(struct.pack(">ii", len(data) + 4, RESPONSE) + data,)
        )
        sender.start()

        def follow() -> None:
            while not wire.ready:
                for _, events in selector.select(5):
                    if events & selectors.EVENT_WRITE:
                        wire.flush()
                    if events & selectors.EVENT_READ:
                        wire.read(_answers)

        with pytest.raises(Broken, match="not nsqd's"):
            follow()
        sender.join()
        wire.close()
        nsqd.close()
