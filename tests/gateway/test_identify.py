"""IDENTIFY: read as Go reads it, checked and answered as nsqd does; beside it nsqd itself."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.nsq.errors import ProtocolError
from srtm.nsq.identify import Identity, Server, answer, parse_identity, replay
from tests.support.servers import Servers
from tests.support.v2 import V2

SERVER = Server()  # nsqd's defaults
NOT_JSON = "E_BAD_BODY IDENTIFY failed to decode JSON body"


def invalid(what: str) -> str:
    return f"E_BAD_BODY IDENTIFY {what} is invalid"


# the body | what it says, or the error
BODIES: list[Any] = [
    pytest.param(b"{}", {}, id="nothing-asked"),
    pytest.param(b"null", {}, id="null-is-an-empty-object"),
    pytest.param(b' \t\r\n{ "client_id" : "c" } ', {"client_id": "c"}, id="white-space"),
    pytest.param(b'{"CLIENT_ID":"c","Sample_Rate":5}', {"client_id": "c", "sample_rate": 5},
                 id="keys-in-any-case"),
    pytest.param(b'{"client_id":null,"sample_rate":null,"snappy":null}', {}, id="null-is-left-out"),
    pytest.param(b'{"client_id":"a","client_id":"b"}', {"client_id": "b"},
                 id="the-last-one-counts"),
    pytest.param(b'{"nobody":[1,{"knows":1e400}],"me":-0.5}', {}, id="unknown-keys"),
    pytest.param('{"client_id":"ä\\u00e4\\ud83d\\ude00"}'.encode(), {"client_id": "ää😀"},
                 id="text-of-any-language"),
    pytest.param(b'{"client_id":"a\xffb"}', {"client_id": "a\ufffdb"},
                 id="bytes-that-are-no-UTF-8"),
    pytest.param(b'{"client_id":"\\ud800","hostname":"\\udc00\\ud83d\\ude00","user_agent":"a\\ud83d"}',
                 {"client_id": "\ufffd", "hostname": "\ufffd😀", "user_agent": "a\ufffd"},
                 id="halves-of-a-character"),
    pytest.param(b'{"client_id":"\xe2\x82","hostname":"\xed\xa0\x80"}',
                 {"client_id": "\ufffd\ufffd", "hostname": "\ufffd\ufffd\ufffd"},
                 id="each-byte-that-is-no-UTF-8-counts"),
    pytest.param(b'{"client_id":5}', NOT_JSON, id="a-number-for-a-text"),
    pytest.param(b'{"client_id":true}', NOT_JSON, id="true-for-a-text"),
    pytest.param(b'{"client_id":["c"]}', NOT_JSON, id="a-list-for-a-text"),
    pytest.param(b'{"sample_rate":"5"}', NOT_JSON, id="a-text-for-a-number"),
    pytest.param(b'{"sample_rate":true}', NOT_JSON, id="true-for-a-number"),
    pytest.param(b'{"sample_rate":5.0}', NOT_JSON, id="a-fraction-for-a-number"),
    pytest.param(b'{"sample_rate":1e1}', NOT_JSON, id="an-exponent-for-a-number"),
    pytest.param(b'{"sample_rate":-0}', {}, id="minus-zero"),
    pytest.param(b'{"sample_rate":2147483648}', NOT_JSON, id="more-than-an-int32"),
    pytest.param(b'{"deflate_level":9223372036854775808}', NOT_JSON, id="more-than-an-int64"),
    pytest.param(b'{"deflate_level":-9223372036854775809}', NOT_JSON, id="less-than-an-int64"),
    pytest.param(b'{"msg_timeout":' + b"9" * 200 + b"}", NOT_JSON, id="200-digits"),
    pytest.param(b'{"msg_timeout":' + b"9" * 5000 + b"}", NOT_JSON, id="5000-digits"),
    pytest.param(b'{"snappy":1}', NOT_JSON, id="1-for-true"),
    pytest.param(b'{"snappy":"true"}', NOT_JSON, id="a-text-for-true"),
    pytest.param(b'{"feature_negotiation":{}}', NOT_JSON, id="an-object-for-true"),
    pytest.param(b"[]", NOT_JSON, id="a-list"),
    pytest.param(b"5", NOT_JSON, id="a-number"),
    pytest.param(b'"{}"', NOT_JSON, id="a-text"),
    pytest.param(b"true", NOT_JSON, id="true"),
    pytest.param(b"", NOT_JSON, id="no-bytes"),
    pytest.param(b"{", NOT_JSON, id="cut-short"),
    pytest.param(b"{}x", NOT_JSON, id="more-behind"),
    pytest.param(b"{}{}", NOT_JSON, id="two"),
    pytest.param(b"{'client_id':'c'}", NOT_JSON, id="single-quotes"),
    pytest.param(b'{"client_id":"c",}', NOT_JSON, id="a-comma-too-many"),
    pytest.param(b'{"x":NaN}', NOT_JSON, id="NaN-is-no-JSON"),
    pytest.param(b'{"x":-Infinity}', NOT_JSON, id="infinity-is-no-JSON"),
    pytest.param(b'{"client_id":"a\nb"}', NOT_JSON, id="a-bare-newline-in-a-text"),
    pytest.param(b'\xef\xbb\xbf{}', NOT_JSON, id="a-byte-order-mark"),
    pytest.param('{"client_id":"c"}'.encode("utf-16"), NOT_JSON, id="UTF-16"),
    pytest.param(b"[" * 100_000, NOT_JSON, id="100,000-brackets"),
    # The limits: default, none, lowest and highest, and one past each.
    pytest.param(b'{"heartbeat_interval":0}', {}, id="heartbeat-default"),
    pytest.param(b'{"heartbeat_interval":-1}', {"heartbeat_interval": -1}, id="heartbeat-none"),
    pytest.param(b'{"heartbeat_interval":1000}', {"heartbeat_interval": 1000}, id="heartbeat-1s"),
    pytest.param(b'{"heartbeat_interval":60000}', {"heartbeat_interval": 60000},
                 id="heartbeat-60s"),
    pytest.param(b'{"heartbeat_interval":999}', invalid("heartbeat interval (999)"),
                 id="heartbeat-too-short"),
    pytest.param(b'{"heartbeat_interval":60001}', invalid("heartbeat interval (60001)"),
                 id="heartbeat-too-long"),
    pytest.param(b'{"heartbeat_interval":-2}', invalid("heartbeat interval (-2)"),
                 id="heartbeat-negative"),
    pytest.param(b'{"output_buffer_timeout":-1}', {"output_buffer_timeout": -1},
                 id="never-flushed"),
    pytest.param(b'{"output_buffer_timeout":25}', {"output_buffer_timeout": 25},
                 id="flushed-at-25"),
    pytest.param(b'{"output_buffer_timeout":24}', invalid("output buffer timeout (24)"),
                 id="flushed-too-soon"),
    pytest.param(b'{"output_buffer_timeout":30001}', invalid("output buffer timeout (30001)"),
                 id="flushed-too-late"),
    pytest.param(b'{"output_buffer_size":-1}', {"output_buffer_size": -1}, id="no-buffer"),
    pytest.param(b'{"output_buffer_size":64}', {"output_buffer_size": 64}, id="smallest-buffer"),
    pytest.param(b'{"output_buffer_size":65536}', {"output_buffer_size": 65536},
                 id="biggest-buffer"),
    pytest.param(b'{"output_buffer_size":63}', invalid("output buffer size (63)"),
                 id="buffer-too-small"),
    pytest.param(b'{"output_buffer_size":65537}', invalid("output buffer size (65537)"),
                 id="buffer-too-big"),
    pytest.param(b'{"sample_rate":99}', {"sample_rate": 99}, id="samples-99"),
    pytest.param(b'{"sample_rate":100}', invalid("sample rate (100)"), id="samples-100"),
    pytest.param(b'{"sample_rate":-1}', invalid("sample rate (-1)"), id="samples-negative"),
    pytest.param(b'{"msg_timeout":1000}', {"msg_timeout": 1000}, id="timeout-1s"),
    pytest.param(b'{"msg_timeout":900000}', {"msg_timeout": 900000}, id="timeout-15m"),
    pytest.param(b'{"msg_timeout":999}', invalid("msg timeout (999)"), id="timeout-too-short"),
    pytest.param(b'{"msg_timeout":900001}', invalid("msg timeout (900001)"), id="timeout-too-long"),
    pytest.param(b'{"msg_timeout":-1}', invalid("msg timeout (-1)"), id="timeout-none"),
    pytest.param(b'{"heartbeat_interval":1,"output_buffer_size":1,"sample_rate":-1}',
                 invalid("heartbeat interval (1)"), id="the-first-fault-in-nsqds-order"),
    # Without negotiation no feature counts.
    pytest.param(b'{"tls_v1":true}', {"tls_v1": True}, id="TLS-that-is-not-negotiated"),
    pytest.param(b'{"tls_v1":true,"feature_negotiation":false,"snappy":true,"deflate":true}',
                 {"tls_v1": True, "snappy": True, "deflate": True},
                 id="features-that-are-not-negotiated"),
    pytest.param(b'{"tls_v1":"yes"}', NOT_JSON, id="a-text-for-TLS"),
    pytest.param(b'{"output_buffer_size":1,"output_buffer_timeout":1}',
                 invalid("output buffer timeout (1)"), id="timeout-before-size"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), BODIES)
def test_each_body_is_read_as_go_reads_it(body: bytes, expected: dict[str, Any] | str) -> None:
    if isinstance(expected, str):
        with pytest.raises(ProtocolError) as raised:
            parse_identity(body, SERVER)
        assert str(raised.value) == expected
    else:
        assert parse_identity(body, SERVER) == Identity(**expected)


@pytest.mark.parametrize(("body", "expected"), [row for row in BODIES if row.values[0]])
def test_nsqd_judges_each_body_alike(
    shared: Servers, body: bytes, expected: dict[str, Any] | str
) -> None:
    with V2(_nsqd(shared)) as client:
        client.send(b"IDENTIFY\n" + len(body).to_bytes(4, "big") + body)
        reply = client.reply()
        assert reply is not None
        assert reply.decode() == (expected if isinstance(expected, str) else "OK")


def test_tls_is_refused_rather_than_left_out() -> None:
    with pytest.raises(ProtocolError) as raised:
        parse_identity(b'{"tls_v1":true,"feature_negotiation":true}', SERVER)
    assert raised.value.code == "E_IDENTIFY_FAILED"
    assert raised.value.fatal
    assert parse_identity(b'{"tls_v1":false}', SERVER) == Identity()


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        assert isinstance(parse_identity(body, SERVER), Identity)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.sampled_from([-2, -1, 0, 1, 25, 64, 99, 100, 1000, 30_000]),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=1),
)


@given(st.dictionaries(st.sampled_from(sorted(Identity.__dataclass_fields__)), VALUES))
def test_what_is_taken_can_be_answered_and_replayed(document: dict[str, Any]) -> None:
    try:
        identity = parse_identity(json.dumps(document).encode(), SERVER)
    except ProtocolError:
        return
    for name, value in document.items():
        kind = type(getattr(identity, name))
        assert value is None or type(value) is kind, "Go would not have taken it"
    assert answer(identity, SERVER)
    replayed = parse_identity(json.dumps(replay(identity, "1.2.3.4:5")).encode(), SERVER)
    for name in ("heartbeat_interval", "output_buffer_size", "sample_rate", "msg_timeout"):
        assert getattr(replayed, name) == getattr(identity, name)
    assert replayed.feature_negotiation
    assert (replayed.snappy, replayed.deflate, replayed.tls_v1) == (False, False, False)


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param({}, id="defaults"),
        pytest.param({"heartbeat_interval": -1, "sample_rate": 7}, id="sampled"),
        pytest.param({"output_buffer_size": -1}, id="no-buffer"),
        pytest.param({"output_buffer_size": -1, "output_buffer_timeout": 500}, id="no-buffer-but"),
        pytest.param({"output_buffer_size": 64, "output_buffer_timeout": -1}, id="never-flushed"),
        pytest.param({"output_buffer_size": 1024, "output_buffer_timeout": 25}, id="own-buffer"),
        pytest.param({"msg_timeout": 1000}, id="own-timeout"),
        pytest.param({"deflate_level": 3}, id="a-level-without-deflate"),
    ],
)
def test_the_answer_is_nsqds_own(shared: Servers, asked: dict[str, Any]) -> None:
    body = json.dumps({**asked, "feature_negotiation": True}).encode()
    ours = json.loads(answer(parse_identity(body, SERVER), SERVER))
    with V2(_nsqd(shared)) as client:
        theirs = client.identify(**json.loads(body))
    assert ours == theirs
    assert list(ours) == list(theirs), "in the same order"


def test_without_feature_negotiation_the_answer_is_ok() -> None:
    assert answer(Identity(sample_rate=5), SERVER) == b"OK"


def test_compression_is_declined() -> None:
    body = b'{"feature_negotiation":true,"deflate":true,"deflate_level":3,"snappy":true}'
    told = json.loads(answer(parse_identity(body, SERVER), SERVER))
    assert (told["deflate"], told["snappy"], told["tls_v1"]) == (False, False, False)


@pytest.mark.parametrize(
    ("interval", "milliseconds"),
    [
        pytest.param(0, 30_000, id="nsqds-default"),
        pytest.param(-1, 0, id="none"),
        pytest.param(5_000, 5_000, id="own"),
    ],
)
def test_heartbeats_are_as_negotiated(interval: int, milliseconds: int) -> None:
    assert Identity(heartbeat_interval=interval).heartbeat_ms(SERVER) == milliseconds


def test_a_second_identify_keeps_what_it_does_not_name() -> None:
    first = parse_identity(
        b'{"client_id":"a","heartbeat_interval":5000,"msg_timeout":2000,"sample_rate":9}', SERVER
    )
    second = parse_identity(b'{"client_id":"b","msg_timeout":3000}', SERVER, first)
    assert second == Identity(client_id="b", heartbeat_interval=5000, msg_timeout=3000)


def test_the_replay_shows_the_address_of_who_named_nothing() -> None:
    assert replay(Identity(), "1.2.3.4:5")["client_id"] == "1.2.3.4:5"
    named = replay(Identity(client_id="c", hostname="h"), "1.2.3.4:5")
    assert (named["client_id"], named["hostname"]) == ("c", "h")


_ADDRESSES: dict[int, str] = {}


def _nsqd(shared: Servers) -> str:
    """One nsqd for this file."""
    if id(shared) not in _ADDRESSES:
        _ADDRESSES[id(shared)] = shared.nsqd().tcp
    return _ADDRESSES[id(shared)]
