"""What nsqd sends, at any cut."""

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.nsq.frames import (
    ERROR,
    HEARTBEAT_FRAME,
    MESSAGE,
    OK_FRAME,
    RESPONSE,
    Frame,
    FrameError,
    FrameReader,
    Message,
    build_frame,
    parse_message,
)

FRAMES = st.lists(
    st.builds(Frame, st.sampled_from([RESPONSE, ERROR, MESSAGE]), st.binary(max_size=60)),
    max_size=8,
)
CUTS = st.lists(st.integers(0, 1 << 16), max_size=8)


def built(frames: list[Frame]) -> bytes:
    return b"".join(build_frame(frame.kind, frame.data) for frame in frames)


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[a:b] for a, b in pairwise(edges)]


@pytest.mark.parametrize(
    ("frame", "wire"),
    [
        pytest.param(OK_FRAME, b"\0\0\0\x06\0\0\0\0OK", id="OK"),
        pytest.param(HEARTBEAT_FRAME, b"\0\0\0\x0f\0\0\0\0_heartbeat_", id="heartbeat"),
        pytest.param(build_frame(ERROR, b"E_X"), b"\0\0\0\x07\0\0\0\x01E_X", id="error"),
        pytest.param(build_frame(MESSAGE, b""), b"\0\0\0\x04\0\0\0\x02", id="no-data"),
    ],
)
def test_frames_as_they_stand_on_the_wire(frame: bytes, wire: bytes) -> None:
    assert frame == wire


@given(FRAMES, CUTS)
def test_any_cut_gives_the_same_frames(frames: list[Frame], places: list[int]) -> None:
    stream = built(frames)
    assert FrameReader(64).feed(stream) == frames
    for parts in (cut(stream, places), [stream[i : i + 1] for i in range(len(stream))]):
        reader = FrameReader(64)
        assert [frame for part in parts for frame in reader.feed(part)] == frames
        assert reader.buffered == 0


@given(FRAMES, CUTS)
def test_raw_reading_passes_every_byte_once(frames: list[Frame], places: list[int]) -> None:
    stream, reader = built(frames), FrameReader(64)
    passed, fed = b"", 0
    for part in cut(stream, places):
        raw, ends = reader.feed_raw(part)
        assert (ends[-1] if ends else 0) == len(raw)
        for start, end in pairwise([0, *ends]):
            assert end - start == 4 + int.from_bytes(raw[start : start + 4], "big")
        passed += raw
        fed += len(part)
        assert stream.startswith(passed)
        assert reader.buffered == fed - len(passed)
    assert passed == stream


@given(FRAMES, CUTS)
def test_no_more_than_one_frame_is_held(frames: list[Frame], places: list[int]) -> None:
    reader = FrameReader(64)
    for part in cut(built(frames), places):
        reader.feed_raw(part)
        assert reader.buffered < 4 + 64


def test_a_frame_of_the_largest_size_is_taken_and_no_larger() -> None:
    assert FrameReader(64).feed(build_frame(RESPONSE, b"x" * 60)) == [(RESPONSE, b"x" * 60)]
    with pytest.raises(FrameError, match="size 65"):
        FrameReader(64).feed(build_frame(RESPONSE, b"x" * 61))


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(struct.pack(">iI", 3, 0), id="too-small-for-a-type"),
        pytest.param(struct.pack(">iI", 0, 0), id="empty"),
        pytest.param(struct.pack(">iI", -1, 0), id="negative"),
        pytest.param(struct.pack(">iI", 65, 0), id="too-big"),
        pytest.param(struct.pack(">iI", (1 << 31) - 1, 0), id="2-GiB"),
        pytest.param(struct.pack(">iI", 4, 3), id="a-type-that-is-none"),
        pytest.param(struct.pack(">iI", 4, 0xFFFFFFFF), id="the-last-type"),
        pytest.param(b"HTTP/1.1 400 Bad Request", id="an-HTTP-server"),
    ],
)
def test_what_cannot_come_from_nsqd_is_an_error(header: bytes) -> None:
    for stream in (header, OK_FRAME + header):
        reader = FrameReader(64)
        with pytest.raises(FrameError):
            reader.feed(stream)
        reader = FrameReader(64)
        whole = len(stream) - len(header) + 8  # with the last byte of its header it is known
        for i in range(whole - 1):
            reader.feed(stream[i : i + 1])
        with pytest.raises(FrameError):
            reader.feed(stream[whole - 1 : whole])


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_any_bytes_give_frames_or_a_frame_error(parts: list[bytes]) -> None:
    reader = FrameReader(64)
    try:
        frames = [frame for part in parts for frame in reader.feed(part)]
    except FrameError:
        return
    assert b"".join(parts).startswith(built(frames))
    assert reader.buffered == len(b"".join(parts)) - len(built(frames))


MESSAGES = st.builds(
    Message,
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, (1 << 16) - 1),
    st.binary(min_size=16, max_size=16),
    st.binary(max_size=30),
)


@given(MESSAGES)
def test_a_message_is_read_from_its_bytes(message: Message) -> None:
    header = struct.pack(">qH16s", message.timestamp_ns, message.attempts, message.id)
    assert parse_message(header + message.body) == message


def test_a_delivery_as_nsqd_writes_it() -> None:
    data = bytes.fromhex("17979cfe362a0000 0001") + b"0d1e2f3a4b5c6d7e" + b"body"
    assert parse_message(data) == (1_700_000_000_000_000_000, 1, b"0d1e2f3a4b5c6d7e", b"body")


@pytest.mark.parametrize("length", [0, 1, 25])
def test_a_message_shorter_than_its_header_is_an_error(length: int) -> None:
    with pytest.raises(FrameError, match=f"of {length} bytes"):
        parse_message(b"x" * length)
