"""The client's end of a connection, fed by hand at any cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.nsq.commands import MAGIC_V2, NOP, CommandReader, Identify, Limits
from srtm.nsq.connection import Connection, Refused
from srtm.nsq.frames import (
    ERROR,
    HEARTBEAT_FRAME,
    MESSAGE,
    OK_FRAME,
    RESPONSE,
    Frame,
    FrameError,
    build_frame,
)

IDENTITY = {"client_id": "one", "feature_negotiation": True}
TOLD = {"max_rdy_count": 2500, "auth_required": False}
ANSWER = build_frame(RESPONSE, json.dumps(TOLD).encode())
FRAMES = st.lists(
    st.builds(
        Frame,
        st.sampled_from([RESPONSE, ERROR, MESSAGE]),
        st.one_of(st.binary(max_size=40), st.just(b"_heartbeat_")),
    ),
    max_size=20,
)


def begun(max_frame_bytes: int = 1 << 20) -> tuple[Connection, bytearray]:
    sent = bytearray()
    return Connection(sent.extend, IDENTITY, max_frame_bytes), sent


def test_it_begins_with_identify() -> None:
    v2, sent = begun()
    assert sent.startswith(MAGIC_V2)
    (command,) = CommandReader(Limits()).feed(bytes(sent))
    assert isinstance(command, Identify)
    assert json.loads(command.body) == IDENTITY
    assert not v2.identified


@given(FRAMES, st.data())
def test_frames_come_whole_at_any_cut(frames: list[Frame], data: st.DataObject) -> None:
    stream = ANSWER + b"".join(build_frame(each.kind, each.data) for each in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    v2, sent = begun()
    sent.clear()
    found: list[Frame] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += v2.receive(stream[start:end])
    beats = [each for each in frames if each == (RESPONSE, b"_heartbeat_")]
    assert found == [each for each in frames if each not in beats]
    assert sent == NOP * len(beats), "each heartbeat is answered"
    assert v2.identified
    assert v2.told == TOLD
    assert v2.buffered == 0


def test_an_answer_without_features_is_enough() -> None:
    v2, _ = begun()
    assert v2.receive(OK_FRAME) == []
    assert v2.identified
    assert v2.told == {}


@pytest.mark.parametrize(
    "frame",
    [
        *(build_frame(RESPONSE, said) for said in (b"[1]", b"{", b"[" * 100_000, b'"x"', b"")),
        build_frame(MESSAGE, b"{}"),
    ],
)
def test_an_answer_that_is_not_nsqds_ends_it(frame: bytes) -> None:
    v2, _ = begun()
    with pytest.raises(FrameError):
        v2.receive(frame)
    assert not v2.identified


def test_a_heartbeat_before_the_answer_is_no_answer() -> None:
    v2, sent = begun()
    sent.clear()
    assert v2.receive(HEARTBEAT_FRAME * 2) == []
    assert not v2.identified
    assert sent == NOP * 2
    assert v2.receive(HEARTBEAT_FRAME + ANSWER + OK_FRAME) == [Frame(RESPONSE, b"OK")]
    assert v2.identified


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (build_frame(ERROR, b"E_BAD_BODY IDENTIFY failed"), "E_BAD_BODY IDENTIFY failed"),
        (build_frame(ERROR, b"E" * 5000), "E" * 300),
        (build_frame(ERROR, b"E_BAD\n two  lines"), "^E_BAD two lines$"),
        (build_frame(RESPONSE, b'{"auth_required": true}'), "AUTH"),
    ],
)
def test_a_refusal_is_told(answer: bytes, why: str) -> None:
    v2, _ = begun()
    with pytest.raises(Refused, match=why):
        v2.receive(answer)
    assert not v2.identified


def test_a_frame_that_is_too_long_is_no_nsqd() -> None:
    v2, _ = begun(100)
    with pytest.raises(FrameError):
        v2.receive(build_frame(RESPONSE, b"x" * 200)[:20])


def test_raw_bytes_have_the_heartbeats_in_them() -> None:
    v2, sent = begun()
    sent.clear()
    message = build_frame(MESSAGE, b"m" * 30)
    raw, ends = v2.receive_raw(ANSWER + HEARTBEAT_FRAME + message)
    assert raw == HEARTBEAT_FRAME + message
    assert ends == [len(HEARTBEAT_FRAME), len(raw)]
    assert not sent
