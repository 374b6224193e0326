"""Stream offset -> segment -> time, against a model of a TCP stream that remembers every byte."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.segments import UNKNOWN, Stream
from kernel.streams import MAX_WAITING, ROOM, WAITING_ROOM, Streams

SEQUENCES = 1 << 32
KEY, OTHER = b"k" * 36, b"o" * 36
FIN, SYN, RST, ACK, URG = 1, 2, 4, 16, 32


def stream(isn: int = 1000, room: int = 1000) -> Stream:
    return Stream(isn, room)


def add(to: Stream, offset: int, length: int, time_ns: int) -> None:
    to.add((time_ns, (to.isn + 1 + offset) % SEQUENCES, length, KEY, ACK))


def stamps(of: Stream, count: int) -> list[int]:
    """The stamp of each of the next bytes; what was cut is checked to be what was given."""
    data = bytes(number % 251 for number in range(count))
    pieces = of.cut(data)
    assert b"".join(piece for piece, _ in pieces) == data
    assert all(piece for piece, _ in pieces)
    return [stamp for piece, stamp in pieces for _ in piece]


# --- one stream, by hand ---------------------------------------------------------------------


@dataclass
class Case:
    """segments: (offset, length, time) in order of arrival; expected: (bytes, stamp) in order."""

    segments: list[tuple[int, int, int]]
    expected: list[tuple[int, int]]
    known: int


CASES = {
    "one-segment": Case([(0, 5, 10)], [(5, 10)], 5),
    "several-messages-in-one-segment-are-one-piece": Case([(0, 300, 10)], [(300, 10)], 300),
    "each-segment-has-its-own-time": Case([(0, 5, 10), (5, 3, 20)], [(5, 10), (3, 20)], 8),
    "a-read-ends-inside-a-segment": Case([(0, 5, 10), (5, 9, 20)], [(5, 10), (4, 20)], 14),
    "segments-of-one-instant-are-one-piece": Case([(0, 5, 10), (5, 3, 10)], [(8, 10)], 8),
    "a-retransmit-says-nothing-new": Case([(0, 5, 10), (0, 5, 90)], [(5, 10)], 5),
    "a-retransmit-that-goes-on-counts-for-its-new-bytes": Case(
        [(0, 5, 10), (2, 6, 90)], [(5, 10), (3, 90)], 8
    ),
    "who-overtakes-arrives-when-the-gap-is-filled": Case([(4, 4, 10), (0, 4, 30)], [(8, 30)], 8),
    "three-in-reverse-order": Case([(8, 4, 10), (4, 4, 20), (0, 4, 30)], [(12, 30)], 12),
    "a-filled-gap-lets-later-ones-keep-their-time": Case(
        [(4, 4, 10), (0, 4, 30), (8, 2, 40)], [(8, 30), (2, 40)], 10
    ),
    "a-lost-record-at-the-start": Case([(5, 3, 20)], [(5, UNKNOWN), (3, 20)], 0),
    "a-lost-record-in-the-middle": Case(
        [(0, 5, 10), (8, 4, 30)], [(5, 10), (3, UNKNOWN), (4, 30)], 5
    ),
    "a-lost-record-at-the-end": Case([(0, 5, 10)], [(5, 10), (4, UNKNOWN)], 5),
    "no-record-at-all": Case([], [(7, UNKNOWN)], 0),
    "overlaps-beyond-a-gap-keep-the-first-time": Case(
        [(4, 2, 10), (8, 2, 11), (3, 9, 20)],
        [(3, UNKNOWN), (1, 20), (8, 20)],
        0,
    ),
    "two-holes-between-three-early-ones": Case(
        [(4, 2, 10), (8, 2, 20), (12, 2, 30), (2, 14, 40)],
        [(2, UNKNOWN), (14, 40)],
        0,
    ),
    "a-gap-is-filled-by-one-that-covers-what-overtook-it": Case(
        [(4, 2, 10), (0, 9, 30)], [(9, 30)], 9
    ),
    "the-longer-of-two-beyond-a-gap-came-first": Case(
        [(4, 8, 10), (4, 2, 20)], [(4, UNKNOWN), (8, 10)], 0
    ),
    "the-longer-of-two-beyond-a-gap-came-last": Case(
        [(4, 2, 10), (4, 8, 20)], [(4, UNKNOWN), (2, 10), (6, 20)], 0
    ),
    "a-segment-without-payload": Case([(0, 0, 5), (0, 3, 10)], [(3, 10)], 3),
    "a-segment-further-ahead-than-any-window": Case(
        [((1 << 30) + 1, 5, 5), (0, 3, 10)], [(3, 10)], 3
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("isn", [1000, SEQUENCES - 6], ids=["plain", "wraps-inside"])
def test_bytes_have_the_time_of_their_segment(case: Case, isn: int) -> None:
    found = stream(isn)
    for segment in case.segments:
        add(found, *segment)
    assert found.known == case.known
    expected = [stamp for count, stamp in case.expected for _ in range(count)]
    assert stamps(found, len(expected)) == expected


def test_bytes_are_cut_only_where_the_time_changes() -> None:
    found = stream()
    for number in range(4):
        add(found, number * 10, 10, 5 if number < 2 else 6)
    assert found.cut(bytes(40)) == [(bytes(20), 5), (bytes(20), 6)]


def test_a_lost_record_is_forgotten_behind_the_read() -> None:
    found = stream()
    add(found, 0, 5, 10)
    assert stamps(found, 9) == [10] * 5 + [UNKNOWN] * 4
    add(found, 5, 4, 11)  # it comes late, and its bytes are gone
    assert found.known == 0
    add(found, 9, 2, 12)
    assert stamps(found, 2) == [12, 12]


def test_sequence_numbers_go_round_under_a_long_stream() -> None:
    found, data = stream(SEQUENCES - 1), bytes(1 << 20)
    for number in range((1 << 12) + 3):
        add(found, number << 20, 1 << 20, number + 1)
        assert found.cut(data) == [(data, number + 1)]
    assert found.known == 0


def test_what_comes_past_the_bound_is_unknown_and_only_that() -> None:
    found = stream(room=3)
    for number in range(5):
        add(found, number, 1, 10 + number)
    assert found.known == 3
    assert stamps(found, 5) == [10, 11, 12, UNKNOWN, UNKNOWN]
    add(found, 5, 1, 20)
    assert stamps(found, 1) == [20]


def test_segments_beyond_a_gap_count_for_the_bound_too() -> None:
    found = stream(room=3)
    for number in range(5):
        add(found, 10 + 2 * number, 1, 10 + number)
    add(found, 0, 10, 50)  # there is no room for it either
    assert found.known == 0
    expected = [UNKNOWN] * 10 + [10, UNKNOWN, 11, UNKNOWN, 12, UNKNOWN]
    assert stamps(found, 16) == expected


def test_a_segment_of_no_window_and_a_retransmit_beyond_a_gap_take_no_room() -> None:
    found = stream(room=2)
    add(found, (1 << 30) + 1, 5, 5)
    for _ in range(5):
        add(found, 3, 2, 10)
    add(found, 0, 3, 20)
    assert stamps(found, 5) == [20] * 5


# --- one stream, against the model -----------------------------------------------------------

LENGTH = 60


@dataclass
class Model:
    """What a receiver knows: every byte's first time on record, and what can be read."""

    position: int
    arrived: list[bool]
    recorded: list[int]
    newest: int = 0

    @property
    def readable(self) -> int:
        end = self.position
        while end < LENGTH and self.arrived[end]:
            end += 1
        return end - self.position

    @property
    def known(self) -> int:
        end = self.position
        while end < LENGTH and self.recorded[end] != UNKNOWN:
            end += 1
        return end - self.position

    def segment(self, start: int, stop: int, time_ns: int, lost: bool) -> None:
        for at in range(start, stop):
            self.arrived[at] = True
            if not lost and self.recorded[at] == UNKNOWN:
                self.recorded[at] = time_ns

    def read(self, count: int) -> list[int]:
        found = []
        for at in range(self.position, self.position + count):
            stamp = self.recorded[at]
            if stamp != UNKNOWN:
                stamp = self.newest = max(self.newest, stamp)
            found.append(stamp)
        self.position += count
        return found


SEGMENT = st.tuples(
    st.integers(0, LENGTH - 1),
    st.integers(0, 20),
    st.integers(0, 3),  # time since the one before
    st.integers(0, 4).map(lambda chance: chance == 0),  # its record is lost
)
STEP = SEGMENT | st.integers(1, LENGTH)  # or read so many bytes, as far as they are there
ISN = st.integers(0, SEQUENCES - 1) | st.integers(SEQUENCES - LENGTH, SEQUENCES - 1)


@given(ISN, st.lists(STEP, max_size=60))
def test_any_segments_lost_records_and_reads_agree_with_the_model(
    isn: int, steps: list[tuple[int, int, int, bool] | int]
) -> None:
    """Any offset and length: so overlaps, retransmits, reorder and gaps, in any mixture."""
    found = stream(isn)
    model = Model(0, [False] * LENGTH, [UNKNOWN] * LENGTH)
    now, last = 1, 0
    for step in steps:
        if isinstance(step, int):
            count = min(step, model.readable)
            got = stamps(found, count) if count else []
            assert got == model.read(count)
            known = [stamp for stamp in got if stamp != UNKNOWN]
            assert sorted(known) == known, "never back"
            assert not known or last <= known[0]
            last = known[-1] if known else last
        else:
            start, length, later, lost = step
            stop = min(start + length, LENGTH)
            now += later
            model.segment(start, stop, now, lost)
            if not lost:
                add(found, start, stop - start, now)
        assert found.known == model.known


@given(ISN, st.permutations(range(8)), st.lists(st.integers(1, 9), min_size=8, max_size=8))
def test_without_loss_a_byte_arrives_with_the_last_of_those_up_to_it(
    isn: int, order: list[int], lengths: list[int]
) -> None:
    found = stream(isn)
    starts = [sum(lengths[:number]) for number in range(8)]
    times = {number: 10 + at for at, number in enumerate(order)}
    for number in order:
        add(found, starts[number], lengths[number], times[number])
    expected = [
        max(times[before] for before in range(number + 1))
        for number in range(8)
        for _ in range(lengths[number])
    ]
    assert stamps(found, sum(lengths)) == expected


# --- many streams ----------------------------------------------------------------------------


def syn(isn: int, key: bytes = KEY, length: int = 0, flags: int = SYN) -> tuple:  # type: ignore[type-arg]
    return 5, isn, length, key, flags


def data(seq: int, length: int, time_ns: int, key: bytes = KEY, flags: int = ACK) -> tuple:  # type: ignore[type-arg]
    return time_ns, seq % SEQUENCES, length, key, flags


def claim(streams: Streams) -> Stream:
    """The stream of KEY, whose connection is accepted now."""
    found = streams.claim(KEY)
    assert found is not None
    return found


def claimed(*records: tuple) -> tuple[Streams, Stream]:  # type: ignore[type-arg]
    """Streams that got these records, and the one of KEY."""
    streams = Streams()
    streams.feed(records)
    return streams, claim(streams)


EARLY = {
    "data-before-the-accept": ([syn(7), data(8, 4, 10)], [10] * 4),
    "data-on-the-handshakes-last-ack": ([syn(7), data(8, 4, 10), data(12, 1, 11)], [10] * 4 + [11]),
    "data-on-the-syn": ([syn(7, length=3), data(11, 2, 12)], [5, 5, 5, 12, 12]),
    "the-same-syn-again": ([syn(7), data(8, 4, 10), syn(7)], [10] * 4),
    "the-isn-is-the-last-number": ([syn(SEQUENCES - 1), data(0, 2, 10)], [10, 10]),
    "data-with-the-fin": ([syn(7), data(8, 2, 10, flags=ACK | FIN)], [10, 10]),
    "a-fin-before-the-accept": ([syn(7), data(8, 2, 10), data(10, 0, 11, flags=FIN)], [10, 10]),
    "a-reset-before-the-accept": (
        [syn(7), data(8, 2, 10), data(10, 0, 11, flags=RST), data(10, 2, 12)],
        [10, 10, UNKNOWN, UNKNOWN],
    ),
    "a-reset-with-a-reason-in-it": ([syn(7), data(8, 5, 9, flags=RST)], [UNKNOWN] * 5),
    "two-connections-before-the-accept": (
        [syn(7), data(8, 2, 10), syn(900), data(901, 2, 12)],
        [UNKNOWN, UNKNOWN],
    ),
    "two-connections-the-first-reset": (
        [syn(7), data(8, 2, 10), data(10, 0, 11, flags=RST), syn(900), data(901, 2, 12)],
        [UNKNOWN, UNKNOWN],
    ),
    "urgent-data": (
        [syn(7), data(8, 2, 10), data(10, 2, 11, flags=ACK | URG), data(12, 2, 12)],
        [10, 10] + [UNKNOWN] * 4,
    ),
    "urgent-data-before-a-gap-is-filled": (
        [syn(7), data(12, 2, 10), data(10, 2, 11, flags=ACK | URG), data(8, 2, 12)],
        [UNKNOWN] * 6,
    ),
    "another-connection": ([syn(7), data(8, 2, 10), data(10, 2, 11, key=OTHER)], [10, 10]),
}


@pytest.mark.parametrize(("records", "expected"), EARLY.values(), ids=EARLY.keys())
def test_what_came_before_the_accept_is_kept(
    records: list[tuple],  # type: ignore[type-arg]
    expected: list[int],
) -> None:
    _, found = claimed(*records)
    assert stamps(found, len(expected)) == expected


def test_a_connection_older_than_the_program_has_no_stream() -> None:
    streams = Streams()
    streams.feed([data(8, 4, 10), data(12, 0, 11, flags=FIN | ACK)])
    assert streams.claim(KEY) is None
    assert len(streams) == 0


def test_a_stream_is_claimed_once() -> None:
    streams = Streams()
    streams.feed([syn(7)])
    assert streams.claim(KEY) is not None
    assert streams.claim(KEY) is None


def test_an_accepted_connection_goes_on_after_the_claim() -> None:
    streams, found = claimed(syn(7), data(8, 2, 10))
    streams.feed([data(10, 2, 12), data(12, 0, 13, flags=RST)])
    assert stamps(found, 4) == [10, 10, 12, 12]


@pytest.mark.parametrize(
    "breaks",
    [
        pytest.param([data(10, 0, 11, flags=RST), syn(900)], id="two-before-the-accept"),
        pytest.param([data(10, 2, 11, flags=ACK | URG)], id="urgent-data"),
    ],
)
def test_a_stream_that_is_not_trusted_stays_so_after_the_claim(
    breaks: list[tuple],  # type: ignore[type-arg]
) -> None:
    streams, found = claimed(syn(7), *breaks)
    streams.feed([data(found.isn + 1, 5, 20)])
    assert found.known == 0


def test_urgent_data_ends_an_accepted_streams_knowledge() -> None:
    streams, found = claimed(syn(7), data(8, 2, 10))
    streams.feed([data(10, 2, 11, flags=ACK | URG), data(12, 2, 12)])
    assert stamps(found, 6) == [10, 10] + [UNKNOWN] * 4


def test_a_closed_connection_is_forgotten() -> None:
    streams, found = claimed(syn(7))
    streams.forget(KEY, found)
    assert len(streams) == 0
    streams.feed([data(8, 2, 10)])
    assert len(streams) == 0


def test_a_new_connection_on_the_same_addresses_starts_anew() -> None:
    streams, old = claimed(syn(7), data(8, 2, 10))
    streams.feed([syn(5000), data(5001, 2, 20)])
    new = claim(streams)
    assert stamps(old, 3) == [10, 10, UNKNOWN]
    streams.forget(KEY, old)  # it is closed after the new one has come
    streams.feed([data(5003, 1, 21)])
    assert stamps(new, 3) == [20, 20, 21]


def test_the_same_syn_again_after_the_claim_changes_nothing() -> None:
    streams, found = claimed(syn(7), data(8, 2, 10))
    streams.feed([syn(7), data(10, 2, 11)])
    assert stamps(found, 4) == [10, 10, 11, 11]
    assert streams.claim(KEY) is None


def test_a_flood_of_syns_is_bounded_and_the_oldest_go() -> None:
    streams = Streams()
    keys = [b"%036d" % number for number in range(3 * MAX_WAITING)]
    streams.feed(syn(7, key=key) for key in keys)
    assert len(streams) == MAX_WAITING
    assert streams.claim(keys[-MAX_WAITING - 1]) is None
    assert streams.claim(keys[-MAX_WAITING]) is not None


def test_a_flood_of_syns_pushes_no_accepted_connection_out() -> None:
    streams, found = claimed(syn(7))
    streams.feed(syn(7, key=b"%036d" % number) for number in range(2 * MAX_WAITING))
    streams.feed([data(8, 2, 10)])
    assert stamps(found, 2) == [10, 10]


@pytest.mark.parametrize(
    ("room", "claim_first"),
    [
        pytest.param(WAITING_ROOM, False, id="not-accepted-yet"),
        pytest.param(ROOM, True, id="accepted"),
    ],
)
def test_what_one_connection_keeps_is_bounded(room: int, claim_first: bool) -> None:
    streams = Streams()
    streams.feed([syn(7)])
    found = claim(streams) if claim_first else None
    streams.feed(data(8 + number, 1, 10 + number) for number in range(room + 5))
    assert (found or claim(streams)).known == room
