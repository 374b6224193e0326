"""The reader of the ring, on memory that a test writes as the kernel would."""

import platform
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.errors import SourceUnavailable
from kernel.records import RECORD
from kernel.ring import SLOT, MappedRing, Ring, _ready

BUSY, DISCARDED = 1 << 31, 1 << 30
SLOTS = 8
SIZE = SLOTS * SLOT.size


class Kernel:
    """The producer's side: reserve a slot, then commit or discard it."""

    def __init__(self, position: int = 0) -> None:
        self.consumer = bytearray(struct.pack("Q", position))
        self.producer = bytearray(struct.pack("Q", position))
        self.data = bytearray(2 * SIZE)
        self.ring = Ring(
            memoryview(self.consumer), memoryview(self.producer), memoryview(self.data)
        )

    @property
    def consumed(self) -> int:
        return int(struct.unpack("Q", self.consumer)[0])

    @property
    def produced(self) -> int:
        return int(struct.unpack("Q", self.producer)[0])

    def reserve(self) -> int | None:
        """The slot's position, or None when the ring is full: one byte always stays free."""
        at = self.produced
        if at + SLOT.size - self.consumed > SIZE - 1:
            return None
        self._write(at, RECORD.size | BUSY)
        struct.pack_into("Q", self.producer, 0, at + SLOT.size)
        return at

    def commit(self, at: int, number: int) -> None:
        self._write(at, RECORD.size, RECORD.pack(number, number, 1, bytes(36), 16))

    def discard(self, at: int) -> None:
        self._write(at, RECORD.size | DISCARDED, bytes(RECORD.size))

    def _write(self, at: int, header: int, record: bytes = b"") -> None:
        for copy in (0, SIZE):  # the same memory, mapped twice
            start = at % SIZE + copy
            self.data[start : start + 8] = struct.pack("II", header, 0)
            self.data[start + 8 : start + 8 + len(record)] = record

    def drained(self) -> list[int]:
        return [record[0] for record in self.ring.drain()]


def filled(*states: str, position: int = 0) -> Kernel:
    """A ring whose slots 0, 1, ... are `written`, `busy` or `discarded`."""
    kernel = Kernel(position)
    for number, state in enumerate(states):
        at = kernel.reserve()
        assert at is not None
        if state == "written":
            kernel.commit(at, number)
        elif state == "discarded":
            kernel.discard(at)
    return kernel


@pytest.mark.parametrize(
    ("states", "drained", "slots"),
    [
        pytest.param([], [], 0, id="nothing"),
        pytest.param(["written"], [0], 1, id="one"),
        pytest.param(["written"] * 7, [*range(7)], 7, id="full"),
        pytest.param(["busy"], [], 0, id="one-that-is-being-filled"),
        pytest.param(["written", "busy", "written"], [0], 1, id="stops-at-the-busy-one"),
        pytest.param(["discarded"], [], 1, id="one-discarded"),
        pytest.param(["discarded", "written"], [1], 2, id="discarded-is-skipped"),
        pytest.param(["written", "discarded", "written"], [0, 2], 3, id="discarded-between"),
        pytest.param(["discarded", "busy", "written"], [], 1, id="discarded-then-busy"),
    ],
)
@pytest.mark.parametrize("start", [0, 5, 7, 1 << 40], ids=lambda start: f"from-slot-{start}")
def test_drain(states: list[str], drained: list[int], slots: int, start: int) -> None:
    kernel = filled(*states, position=start * SLOT.size)
    assert kernel.drained() == drained
    assert kernel.consumed == (start + slots) * SLOT.size


def test_what_was_busy_comes_with_the_next_drain() -> None:
    kernel = filled("written", "busy", "written")
    assert kernel.drained() == [0]
    kernel.commit(SLOT.size, 1)
    assert kernel.drained() == [1, 2]
    assert kernel.drained() == []


class FilledMeanwhile(list[int]):
    """Headers of which the second is busy for the first looks."""

    looks = 0

    def __getitem__(self, number: Any) -> Any:
        self.looks += number == 1
        return super().__getitem__(number) | (BUSY if number == 1 and self.looks < 50 else 0)


def test_a_busy_slot_is_looked_at_again() -> None:
    headers: Any = FilledMeanwhile([RECORD.size, RECORD.size, RECORD.size | DISCARDED])
    assert _ready(headers) == [True, True, False]


def test_a_record_has_the_fields_of_the_layout() -> None:
    kernel = Kernel()
    at = kernel.reserve()
    assert at is not None
    kernel._write(at, RECORD.size, RECORD.pack(1 << 63, 1 << 31, 1460, bytes(range(36)), 0x18))
    assert kernel.ring.drain() == [(1 << 63, 1 << 31, 1460, bytes(range(36)), 0x18)]
    assert SLOT.size == 8 + RECORD.size == 64


@given(
    position=st.integers(0, 3 * SLOTS),
    steps=st.lists(st.sampled_from(["reserve", "commit", "discard", "drain"]), max_size=80),
    data=st.data(),
)
def test_each_committed_record_comes_once_and_in_order(
    position: int, steps: list[str], data: st.DataObject
) -> None:
    kernel = Kernel(position * SLOT.size)
    slots: list[str] = []  # of each reserved slot: busy, written, discarded
    first = expected = 0
    for step in steps:
        busy = [number for number, state in enumerate(slots) if state == "busy"]
        if step == "reserve":
            if kernel.reserve() is not None:
                slots.append("busy")
            else:
                assert len(slots) - first == SLOTS - 1
        elif step == "drain":
            while expected < len(slots) and slots[expected] != "busy":
                expected += 1
            written = [n for n in range(first, expected) if slots[n] == "written"]
            assert kernel.drained() == written
            first = expected
            assert kernel.consumed == (position + first) * SLOT.size
        elif busy:
            number = data.draw(st.sampled_from(busy))
            at = (position + number) * SLOT.size
            if step == "commit":
                kernel.commit(at, number)
                slots[number] = "written"
            else:
                kernel.discard(at)
                slots[number] = "discarded"


def test_a_machine_of_another_memory_order_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(SourceUnavailable, match=r"x86-64.*aarch64"):
        MappedRing(-1, 4096)
