"""A service that is at one of several addresses: who leads, and who stands by for it."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from srtm.http.client import Endpoint, Refusal, lines, request
from srtm.http.service import ClientFiles, service_at
from srtm.text.address import free_addresses
from srtm.text.errors import UnavailableError, UsageError


class Server:
    """Answers with `status`, or not at all where that is 0, and counts what it is asked. One of 503
    stands by for another. page: what it answers with instead, as another program"""

    def __init__(self, status: int, page: bytes = b"") -> None:
        self.status = status
        self.stands_by = status == 503
        self.page = page
        self.asked = 0
        self.over = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.do_GET()

            def do_GET(self) -> None:
                server.asked += 1
                if not server.status:
                    server.over.wait(10)
                    return
                self.send_response(server.status)
                self.end_headers()
                leading = b"false" if server.stands_by else b"true"
                ours = b'{"by": "%d", "leading": %b, "error": ""}\n' % (server.status, leading)
                self.wfile.write(server.page or ours)

            def log_message(self, *_: object) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.http.server_port}"


@contextmanager
def servers(*statuses: int) -> Iterator[list[Server]]:
    found = [Server(each) for each in statuses]
    threads = [threading.Thread(target=each.http.serve_forever) for each in found]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        for each in found:
            each.over.set()
            each.http.shutdown()
            each.http.server_close()
        for thread in threads:
            thread.join()


def at(*addresses: str) -> Endpoint:
    return service_at(",".join(addresses), ClientFiles(), "token-file")


def post(service: Endpoint, seconds: float = 5.0) -> int:
    return request(service, "POST", "/x", document={}, timeout_seconds=seconds).status


def test_who_is_away_or_stands_by_is_passed_over_and_asked_no_more() -> None:
    (away,) = map(str, free_addresses(1))
    with servers(503, 200) as (standby, leader):
        service = at(away, standby.address, leader.address)
        assert [post(service) for _ in range(3)] == [200] * 3
    assert (standby.asked, leader.asked) == (1, 3)


def test_what_is_refused_is_asked_of_nobody_else() -> None:
    with servers(409, 200) as (leader, other):
        assert post(at(leader.address, other.address)) == 409
    assert other.asked == 0


def test_who_took_the_request_and_said_nothing_is_asked_last_by_the_next_call() -> None:
    """It may have carried it out, so nobody else is to."""
    with servers(0, 200) as (frozen, other):
        service = at(frozen.address, other.address)
        with pytest.raises(UnavailableError, match="did not answer within"):
            post(service, 0.2)
        assert other.asked == 0
        assert post(service) == 200
    assert (frozen.asked, other.asked) == (1, 1)


def test_what_may_be_repeated_is_asked_of_the_next_one_at_once() -> None:
    with servers(0, 200) as (frozen, other):
        service = at(frozen.address, other.address)
        assert request(service, "GET", "/x", timeout_seconds=0.2).status == 200
    assert (frozen.asked, other.asked) == (1, 1)


def test_a_leader_that_has_no_room_is_not_passed_over() -> None:
    with servers(503, 200) as (full, other):
        full.stands_by = False
        assert [post(at(full.address, other.address)) for _ in range(2)] == [503] * 2
    assert other.asked == 0


def test_where_nobody_serves_each_is_asked_once() -> None:
    with servers(503, 503) as standing_by:
        service = at(*(each.address for each in standing_by))
        assert post(service) == 503
        assert [each.asked for each in standing_by] == [1, 1]
    with pytest.raises(UnavailableError, match="nothing listens there"):
        post(at(*map(str, free_addresses(2))))


def test_a_stream_is_begun_at_the_next_one() -> None:
    async def first(service: Endpoint) -> object:
        async with aclosing(lines(service, "/x", b"{}", 5)) as stream:
            return await anext(stream)

    with servers(503, 200) as (standby, leader):
        service = at(standby.address, leader.address)
        with pytest.raises(Refusal):
            asyncio.run(first(service))
        assert asyncio.run(first(service)) == {"by": "200", "leading": True, "error": ""}


_PAGE = b"<html>Welcome</html>"
_OF_NSQD = b'{"message": "NOT_FOUND"}'


@pytest.mark.parametrize(
    ("status", "page"), [(200, _PAGE), (404, _PAGE), (405, _PAGE), (404, _OF_NSQD)]
)
def test_another_program_is_passed_over(status: int, page: bytes) -> None:
    with servers(status, 200) as (foreign, leader):
        foreign.page = page
        service = at(foreign.address, leader.address)
        assert [post(service) for _ in range(2)] == [200, 200]
        assert (foreign.asked, leader.asked) == (1, 2)


def test_what_a_failing_proxy_was_asked_for_may_have_been_done() -> None:
    with servers(502, 200) as (proxy, other):
        proxy.page = _PAGE
        assert post(at(proxy.address, other.address)) == 502
        assert other.asked == 0
        service = at(proxy.address, other.address)
        assert request(service, "GET", "/x").status == 200


def test_a_stream_is_not_refused_by_another_program() -> None:
    async def first(service: Endpoint) -> object:
        async with aclosing(lines(service, "/x", b"{}", 5)) as stream:
            return await anext(stream)

    with servers(404, 200) as (foreign, leader):
        foreign.page = _OF_NSQD
        service = at(foreign.address, leader.address)
        with pytest.raises(UnavailableError, match="is it another program") as caught:
            asyncio.run(first(service))
        assert not isinstance(caught.value, Refusal)
        assert asyncio.run(first(service)) == {"by": "200", "leading": True, "error": ""}
    with servers(404) as (alone,):
        alone.page = _OF_NSQD
        with pytest.raises(Refusal):
            asyncio.run(first(at(alone.address)))


@pytest.mark.parametrize(
    ("addresses", "said"),
    [
        ("127.0.0.1:1,127.0.0.1:1", "names 127.0.0.1:1 twice"),
        ("127.0.0.1:1,", "is not an address"),
        (",".join(f"h:{n}" for n in range(1, 10)), "9 addresses of one service: 8 at most"),
    ],
)
def test_a_list_that_is_none_is_refused(addresses: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        at(*addresses.split(","))


def test_a_token_goes_in_clear_text_to_none_of_them(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a" * 32)
    file.chmod(0o600)
    with pytest.raises(UsageError, match=r"would go to 10\.0\.0\.1:1 in clear text"):
        service_at("127.0.0.1:1,10.0.0.1:1", ClientFiles(str(file)), "--token-file")
