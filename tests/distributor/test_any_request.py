"""Whatever a request says, the answer is one line, and the log has no trace of a fault."""

import contextlib
import json
import math
import random
import socket
import struct
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distributor.http.routes import PREFIX, ROUTES, WATCH
from tests.support.cases import cases
from tests.support.distributors import DistributorProcess, distributors_in
from tests.support.servers import http

WATCH_PATH = PREFIX + WATCH


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DistributorProcess]:
    with distributors_in(tmp_path_factory.mktemp("any")) as start:
        found = start()
        found.wait_leading()
        found.broker("b1")
        found.topic()
        found.publishers(3)
        yield found
        said = found.process.text()
        assert "Traceback" not in said
        assert "ERROR" not in said
        assert said.count("\n") < 20


names = (
    st.sampled_from([b"t", b"b1", b"p0", b"b2", b"", b"\xed\xa0\x80", b"\xff", b"a\nb", b"\0"])
    | st.binary(max_size=8)
    | st.text(max_size=8).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
templates = st.sampled_from(
    [PREFIX + route.path for route in ROUTES] + [WATCH_PATH, "/metrics", "/v1/health", "/{x}"]
)


@st.composite
def targets(draw: st.DrawFn) -> str:
    """A path of the API with any names in it, and any query."""
    parts = draw(templates).split("/")
    path = "/".join(
        quote_from_bytes(draw(names), safe="") if each.startswith("{") else each for each in parts
    )
    query = quote_from_bytes(draw(st.binary(max_size=8)), safe="=&")
    return f"{path}?{draw(st.sampled_from(['', 'id=', 'id']))}{query}"


figures = st.sampled_from([0, 1, -1, 1e308, 1e-308, 2**53, 2**70, 1.5]) | st.floats(allow_nan=True)
leaves = st.none() | st.booleans() | figures | st.text(max_size=6) | st.sampled_from(["t", "1s"])
fields = st.sampled_from(
    [
        *sorted({name for route in ROUTES if route.body for name in route.body.model_fields}),
        *("topic", "id", "key", "offered", "served", "late", "arrivals", "ids", "x"),
    ]
)
documents = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(fields, inner, max_size=5),
    max_leaves=12,
)
bodies = st.none() | st.binary(max_size=40) | documents.map(lambda each: json.dumps(each).encode())


def ask(running: DistributorProcess, method: str, target: str, body: bytes | None) -> Any:
    """The refusal, or None where it is none."""
    connection = HTTPConnection(running.address, timeout=20)
    with contextlib.closing(connection):
        connection.request(method, target, body)
        response = connection.getresponse()
        if response.status == 200:
            return None  # it may be a watch, which has no end
        content = response.read()
    assert 400 <= response.status < 500, (response.status, content)
    return json.loads(content) if method != "HEAD" else None


def check(refusal: Any) -> None:
    assert list(refusal) == ["error"]
    assert "\n" not in refusal["error"]
    assert 0 < len(refusal["error"]) < 600
    assert "fault of the distributor" not in refusal["error"]


@settings(max_examples=cases(500), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS", "BREW"]),
    target=targets(),
    body=bodies,
)
def test_any_request_is_answered_or_refused_in_one_line(
    running: DistributorProcess, method: str, target: str, body: bytes | None
) -> None:
    refusal = ask(running, method, target, body)
    if refusal is not None:
        check(refusal)


routes_with_bodies = st.sampled_from([route for route in ROUTES if route.body is not None])


@settings(max_examples=cases(500), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), route=routes_with_bodies)
def test_any_body_is_answered_or_refused_in_one_line(
    running: DistributorProcess, data: st.DataObject, route: Any
) -> None:
    """Its fields are those that the request knows; the figures in them are any."""
    target = PREFIX + route.path.format(name="b1", topic="t", id="p0")
    known = dict.fromkeys(route.body.model_fields, documents | leaves | figures)
    body = data.draw(st.fixed_dictionaries({}, optional=known))
    refusal = ask(running, route.method, target, json.dumps(body).encode())
    if refusal is not None:
        check(refusal)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST", "HEAD"])
@pytest.mark.parametrize("name", ["%ed%a0%80", "%ff", "%c3%28", "%00", "%0a"])
def test_a_name_that_is_none(running: DistributorProcess, method: str, name: str) -> None:
    body = b'{"rate": 1.0, "burst": 1.0}' if method == "PUT" else None
    refusal = ask(running, method, f"/v1/topics/{name}", body)
    if method == "PUT" and name in ("%ed%a0%80", "%ff", "%c3%28"):
        assert "is no UTF-8" in refusal["error"]


def test_an_id_that_is_no_text_is_not_watched(running: DistributorProcess) -> None:
    ask(running, "PUT", "/v1/topics/t", b'{"rate": 1.0, "burst": 1.0}')
    refusal = ask(running, "GET", "/v1/topics/t/watch?id=%ed%a0%80", None)
    assert "id: b'\\xed\\xa0\\x80' is no UTF-8" in refusal["error"]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        pytest.param({"served": 1, "late": 1e9}, "late is 1e+09 of 1", id="more-late-than-served"),
        pytest.param({"served": 1, "near": 2}, "near is 2 of 1 that were", id="more-near"),
        pytest.param({"served": 1e308, "late": 1e308}, "topics.0.served", id="very-many"),
        pytest.param({"offered": 1e308}, "topics.0.offered", id="a-rate-that-is-none"),
        pytest.param({"admitted": 2e9}, "topics.0.admitted", id="more-than-any-contract"),
        pytest.param({"backlog": 1e308}, "topics.0.backlog", id="a-backlog-that-is-none"),
        pytest.param({"arrivals": [[1e308, 1]]}, "topics.0.arrivals.0.0", id="from-the-big-bang"),
        pytest.param({"arrivals": [[0, 1e308]]}, "topics.0.arrivals.0.1", id="all-at-once"),
        pytest.param({"arrivals": [[0, 1]] * 5_001}, "topics.0.arrivals", id="of-six-seconds"),
        pytest.param({"arrivals": [[-1, 1]]}, "topics.0.arrivals.0.0", id="from-the-future"),
        pytest.param({"arrivals": [[0, -1]]}, "topics.0.arrivals.0.1", id="less-than-nothing-came"),
        pytest.param({"offered": -1.0}, "topics.0.offered", id="a-negative-rate"),
        pytest.param({"offered": math.nan}, "topics.0.offered", id="a-rate-that-is-no-number"),
        pytest.param({"waiting": math.inf}, "topics.0.waiting", id="all-wait-for-ever"),
        pytest.param(
            {"waits": {"clock": 0, "seconds": math.nan, "bins": []}},
            "waits.seconds",
            id="nan-waits",
        ),
        pytest.param(
            {"waits": {"clock": 0, "seconds": 1, "bins": [[2**31, 1]]}},
            "bins.0.0",
            id="no-such-bin",
        ),
        pytest.param(
            {"waits": {"clock": 0, "seconds": 1, "bins": [[0, -1]]}}, "bins.0.1", id="negative-bin"
        ),
        pytest.param(
            {"waits": {"clock": 0, "seconds": 1, "bins": [[0, 1]] * 2_001}}, "bins", id="many-bins"
        ),
    ],
)
def test_a_report_that_cannot_be_true_is_refused(
    running: DistributorProcess, entry: dict[str, Any], said: str
) -> None:
    body = {"applied_epoch": 0, "topics": [{"topic": "t", **entry}]}
    status, refused = running.call("POST", "/brokers/b1/report", body)
    assert status == 400
    assert said in refused["error"]


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        pytest.param(b"Content-Length: " + b"9" * 5_000, b"HTTP/1.1 413", id="a-huge-length"),
        pytest.param(b"Content-Length: -1", b"HTTP/1.1 400", id="a-negative-length"),
        pytest.param(b"Transfer-Encoding: gzip", b"HTTP/1.1 400", id="an-unknown-encoding"),
        pytest.param(b"Host: z", b"HTTP/1.1 400", id="two-hosts"),
        pytest.param(b"X: " + b"x" * 9_000, b"", id="a-head-that-is-too-long"),
    ],
)  # fmt: skip
def test_a_head_that_is_none(running: DistributorProcess, sent: bytes, answer: bytes) -> None:
    host, _, port = running.address.partition(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(b"POST /v1/brokers HTTP/1.1\r\nHost: x\r\n" + sent + b"\r\n\r\n")
        found = b""
        with contextlib.suppress(ConnectionError):
            found = connection.recv(12)
    assert found == answer


def test_whoever_leaves_early_leaves_no_trace(running: DistributorProcess) -> None:
    """Requests that are cut anywhere, by a close or a reset; the log is looked at in the end."""
    host, _, port = running.address.partition(":")
    dice = random.Random(1)
    reset = struct.pack("ii", 1, 0)
    for _ in range(1_000):
        path = dice.choice(["brokers", "topics/t/watch", "brokers/b1/report", "health", "none"])
        body = dice.choice([b"", b"{}", b'{"ids": ["p"]}', b'{"applied_epoch": 0}', b"x" * 70_000])
        head = f"{dice.choice(['GET', 'POST', 'DELETE'])} /v1/{path}?id=p HTTP/1.1\r\nHost: x\r\n"
        if dice.random() < 0.3:
            sent = head.encode() + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(body) + body
        else:
            sent = head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body
        with socket.create_connection((host, int(port)), 10) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(sent[: dice.randrange(len(sent) + 1)])
            if dice.random() < 0.5:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
    assert http(running.address, "/v1/health")[0] == 200
