"""The log of admissions, as the loop sees it: lists that a topic appends to.

A few times a second what they hold is encoded and handed to a thread (`LogFiles`) that writes it,
so the disk is never waited for. What a kill -9 takes is what came since: at most FLUSH_NS, and
what the thread had not written. Where the thread falls behind, messages are dropped and counted,
here and in the log.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Protocol

from srtm.audit import blocks
from srtm.audit.blocks import Beat, Word
from srtm.gateway.measure.cadence import Cadence

FLUSH_NS = 50_000_000
"""The time between two hand-overs. Each costs about 100 us with the thread's part: 0.2 % of a
core."""
_BEAT_NS = 1_000_000_000
"""While nothing comes."""
_WORDS_AT_ONCE = 200
"""of what a new file tells again: less than a millisecond"""
_MOST_SAID = 10_000
"""Changes of limits that wait for the disk."""


class Files(Protocol):
    """Who writes. See `LogFiles`."""

    def put(self, chunk: bytes, in_new_file: bool) -> bool:
        """False where it takes no more."""

    @property
    def is_due(self) -> bool:
        """Is the file full?"""


class AdmissionLog:
    """Times are monotonic nanoseconds."""

    def __init__(self, files: Files, call_at: Callable[[int, Callable[[int], None]], None]) -> None:
        self.dropped = 0
        # Columns of instants; `_topics` has each topic with where its row of them begins.
        self._firsts: list[int] = []
        self._counts: list[int] = []
        self._topics: list[tuple[bytes, int]] = []
        self._topic: bytes | None = None  # the last of them
        self._ramps: list[tuple[bytes, int, float, int]] = []
        self._files = files
        self._words: dict[bytes, Word] = {}
        self._said: list[tuple[bytes, int, Word]] = []
        self._untold: list[bytes] = []  # by the file in hand
        self._numbers: dict[bytes, int] = {}  # in the file in hand
        self._offset_ns = self._error_ns = 0
        self._cadence = Cadence(FLUSH_NS, call_at, self.flush)
        self._beat_at = 0
        self._missing = 0  # messages that are dropped and not told yet
        self._missing_since = 0

    # --- what it is told ------------------------------------------------------------------------

    def admit(self, topic: bytes, when: int, count: int) -> None:
        """Messages that got their tokens together, in bucket time; without a bucket the time when
        they were let through."""
        if topic is not self._topic:
            self._topics.append((topic, len(self._firsts)))
            self._topic = topic
        self._firsts.append(when)
        self._counts.append(count)

    def admit_ramp(self, topic: bytes, first: int, step_ns: float, count: int) -> None:
        """Messages that got theirs one after the other, `step_ns` apart."""
        self._ramps.append((topic, first, step_ns, count))

    def say(self, topic: bytes, word: Word, now: int) -> None:
        """A topic's limit from now on, if it is another one."""
        if self._words.get(topic) != word:
            self._words[topic] = word
            self._said.append((topic, now, word))

    def forget(self, topic: bytes) -> None:
        """The gateway does."""
        self._words.pop(topic, None)

    def clock(self, offset_ns: int, error_ns: int) -> None:
        """Wall clock minus monotonic, and the wall clock's own error."""
        self._offset_ns, self._error_ns = offset_ns, error_ns

    # --- writing --------------------------------------------------------------------------------

    def stage(self, now: int, horizon: int) -> bool:
        """Ask for a hand-over where there is something, after each wake-up of the gateway."""
        if self._firsts or self._ramps or self._said:
            self._cadence.wish(now)
        return False

    def tick(self, now: int) -> None:
        """Called once a second, so that a quiet log tells that it is whole."""
        if now - self._beat_at >= _BEAT_NS or self._firsts or self._ramps or self._said:
            self.flush(now)

    def flush(self, now: int, is_end: bool = False) -> None:
        """Hand over all that there is."""
        firsts, self._firsts = self._firsts, []
        counts, self._counts = self._counts, []
        topics, self._topics = self._topics, []
        ramps, self._ramps = self._ramps, []
        self._topic = None
        said, self._said = self._said, []
        self._cadence.at = now
        is_new = self._files.is_due
        if is_new:
            self._numbers = {}
            self._untold = list(self._words)
        chunk: list[bytes] = []
        if self._missing:
            chunk.append(blocks.dropped(self._missing_since, now, self._missing))
        for topic, at, word in said:
            chunk.append(blocks.word(self._number(topic), at, topic, word))
        for _ in range(min(len(self._untold), _WORDS_AT_ONCE)):
            topic = self._untold.pop()
            if topic not in self._numbers:
                self._introduce(topic, now, chunk)
        if firsts or ramps:
            for topic in {*[row[0] for row in topics], *[ramp[0] for ramp in ramps]}:
                if topic not in self._numbers:
                    self._introduce(topic, now, chunk)
            chunk.append(self._admissions(topics, firsts, counts, ramps))
        beat = Beat(now, self._offset_ns, self._error_ns, self.dropped)
        chunk.append(blocks.beat(beat))
        if is_end:
            chunk.append(blocks.end())
        if self._files.put(b"".join(chunk), is_new):
            self._missing = 0
            self._missing_since = self._beat_at = now
            return
        lost = sum(counts) + sum(ramp[3] for ramp in ramps)
        self.dropped += lost
        self._missing += lost
        self._said = said[-_MOST_SAID:]
        self._numbers = {}  # nor were topics introduced
        self._untold = list(self._words)

    def _admissions(
        self,
        topics: list[tuple[bytes, int]],
        firsts: list[int],
        counts: list[int],
        ramps: list[tuple[bytes, int, float, int]],
    ) -> bytes:
        numbers = self._numbers
        of_each: list[int] = []
        edges = pairwise([*[begin for _, begin in topics], len(firsts)])
        for (topic, _), (begin, stop) in zip(topics, edges, strict=True):
            of_each += [numbers[topic]] * (stop - begin)
        return blocks.admissions(
            of_each,
            firsts,
            counts,
            [(numbers[topic], first, step, count) for topic, first, step, count in ramps],
        )

    def _introduce(self, topic: bytes, now: int, chunk: list[bytes]) -> None:
        """Introduce the topic to the file in hand, with the limit that it has."""
        said = self._words.get(topic) or Word(blocks.Rule.NONE)
        chunk.append(blocks.word(self._number(topic), now, topic, said))

    def _number(self, topic: bytes) -> int:
        return self._numbers.setdefault(topic, len(self._numbers))
