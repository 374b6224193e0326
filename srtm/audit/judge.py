"""The logs of a topic's brokers, merged and judged. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from srtm.audit.blocks import Rule, Word
from srtm.audit.clocks import Clocks, clocks_of
from srtm.audit.contracts import (
    Change,
    Source,
    Span,
    by_broker,
    contracts_of,
    is_limited,
    limits_of,
    spans_of,
)
from srtm.audit.session import Session
from srtm.limits.excess import Ints, Worst, worst_interval

_ROUNDING = 1e-6
"""messages: of sums of floats, and what a bucket's own rounding hides"""
_ROUNDED_NS = 3.0
"""A bucket time is a whole number of nanoseconds: so long a time's tokens may be early."""


@dataclass(frozen=True)
class Gap:
    """What is not in a log, or may not be.

    kind:     dropped (the disk fell behind), cut (the gateway was killed), open (it was killed or
              still runs), damaged (bytes that cannot be read), rotated (older files made room),
              missing (a file is not there)
    messages: that are missing; None: not known
    at_most:  that its bucket could have let through meanwhile; None: not known
    """

    broker: str
    kind: str
    since: int | None
    until: int | None
    messages: int | None = None
    at_most: float | None = None


@dataclass(frozen=True)
class Share:
    """One broker's part. excess: over its own share, in messages, 0 where there is none; batch:
    messages of the largest batch that was bigger than its bucket; 0: none was."""

    broker: str
    messages: int
    processes: int
    excess: float
    batch: int


@dataclass(frozen=True)
class Audit:
    """Times are wall-clock nanoseconds.

    worst:     the interval that is fullest over its contract; None without judged messages
    spans:     the contracts that held
    unjudged:  messages while nobody said a contract
    each:      a batch is bounded by its broker's share, not by the contract (batches = "each")
    clock_error_ns: by how much times of two brokers may be wrong to each other
    """

    topic: str
    shares: list[Share]
    spans: list[Span]
    worst: Worst | None
    unjudged: int
    each: bool
    gaps: list[Gap]
    clock_error_ns: int
    clock_stepped_ns: int
    since: int
    until: int

    @property
    def messages(self) -> int:
        return sum(share.messages for share in self.shares)

    @property
    def batch(self) -> int:
        """Messages of the largest batch that was bigger than its broker's bucket; 0: none was."""
        return max(share.batch for share in self.shares)

    @property
    def rounding(self) -> float:
        """Messages that the excess may be wrong by, whatever the clocks."""
        return _ROUNDING + self._rate * _ROUNDED_NS / 1e9 * len(self.shares)

    @property
    def excess(self) -> float:
        """Over max(b, largest batch) + r*t in the worst interval, or over what `each` allows; 0
        where there is none but rounding."""
        found = self.worst.excess if self.worst else 0.0
        return found if found > self.rounding else 0.0

    @property
    def clock_messages(self) -> float:
        """By how many messages the clocks' error may hide or feign an excess."""
        return self._rate * self.clock_error_ns / 1e9

    @property
    def is_exceeded(self) -> bool:
        """Surely, whatever the clocks."""
        return self.excess > self.clock_messages + self.rounding

    @property
    def is_complete(self) -> bool:
        """May no message be missing? A log that is open is whole up to its last beat."""
        return all(gap.kind in ("open", "rotated") for gap in self.gaps)

    @property
    def _rate(self) -> float:
        return max(span.rate for span in self.spans)


def judge(
    topic: str,
    found: Sequence[Session],
    given: tuple[float, float] | None = None,
    stated_error_ns: int | None = None,
    each: bool = False,
) -> Audit:
    """given: (r, b) in place of what the logs say; each: the topic's batches are bounded by each
    broker's share. `found` is what `read_sessions` gives.

    The contract lets max(b, n) + r*t through over all brokers, n being the largest batch. Where
    each broker bounds its own, that is the sum of max(b_l, n_l) + r*t.
    """
    sessions = [each for each in found if each.beats]
    clocks = clocks_of(sessions, stated_error_ns)
    changes = _changes(sessions, clocks)
    words = by_broker(changes)
    since = min(_wall(clocks, each, each.began) for each in sessions)
    spans = spans_of(changes)
    if given is not None:
        spans = [Span(since, Source.GIVEN, *given)]
    streams, shares, over = [], list[Share](), 0.0
    for broker, own in _of_brokers(sessions):
        streams.append(_merged([_stream(session, clocks) for session in own]))
        share, own_over = _share(broker, len(own), streams[-1], words.get(broker, ()))
        shares.append(share)
        over += own_over
    batch = max(share.batch for share in shares)
    at_once = [span.burst + over if each else max(span.burst, batch) for span in spans]
    worst, unjudged = _worst(*_merged(streams), spans, at_once)
    gaps = [gap for _, own in _of_brokers(found) for gap in _gaps(own, clocks, batch)]
    return Audit(
        topic,
        shares,
        spans,
        worst,
        unjudged,
        each,
        gaps,
        clocks.error_ns,
        clocks.stepped_ns,
        since,
        max(_wall(clocks, each, each.until) for each in sessions),
    )


def _of_brokers(sessions: Sequence[Session]) -> list[tuple[str, list[Session]]]:
    """Each broker's, in order of their names."""
    names = sorted({each.broker for each in sessions})
    return [(name, [each for each in sessions if each.broker == name]) for name in names]


def _wall(clocks: Clocks, session: Session, at: int) -> int:
    return at + clocks.offsets[session.boot]


def _changes(sessions: Sequence[Session], clocks: Clocks) -> list[Change]:
    changes = []
    for session in sessions:
        changes += [
            Change(_wall(clocks, session, at), session.broker, word) for at, word in session.words
        ]
        changes.append(Change(_wall(clocks, session, session.until), session.broker, None))
    return changes


# --- streams ------------------------------------------------------------------------------------


def _stream(session: Session, clocks: Clocks) -> tuple[Ints, Ints]:
    """Its messages in wall-clock time: times and counts, not sorted. Ramps become single ones."""
    times: list[Ints] = []
    counts: list[Ints] = []
    offset = clocks.offsets[session.boot]
    for block in session.admissions:
        at_once = block.steps == 0
        times.append(block.firsts[at_once] + offset)
        counts.append(block.counts[at_once])
        many = block.counts[~at_once]
        within = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
        later = np.floor(within * np.repeat(block.steps[~at_once], many)).astype(np.int64)
        times.append(np.repeat(block.firsts[~at_once], many) + later + offset)
        counts.append(np.ones(within.size, dtype=np.int64))
    if not times:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    return np.concatenate(times), np.concatenate(counts)


def _merged(streams: Sequence[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    times = np.concatenate([each for each, _ in streams])
    counts = np.concatenate([each for _, each in streams])
    order = np.argsort(times, kind="stable")
    return times[order], counts[order]


def _share(
    broker: str, processes: int, stream: tuple[Ints, Ints], words: Sequence[tuple[int, Word]]
) -> tuple[Share, float]:
    """The share of one broker, and by how many messages a batch was bigger than its bucket, at
    most."""
    times, counts = stream
    limits = limits_of(words)
    total = int(counts.sum())
    if limits is None or not total:
        return Share(broker, total, processes, 0.0, 0), 0.0
    worst = worst_interval(times, counts, limits)
    assert worst is not None
    # What passes while there is no limit is no batch: it is not admitted together.
    over = np.where(is_limited(words, times), counts - limits.least_burst_at(times), 0.0)
    batch = int(counts[over > 0].max(initial=0))
    most = max(0.0, float(over.max()))
    return Share(broker, total, processes, max(0.0, worst.excess), batch), most


def _worst(
    times: Ints, counts: Ints, spans: Sequence[Span], at_once: Sequence[float]
) -> tuple[Worst | None, int]:
    """The worst interval of those in which a contract is known; messages outside of them. at_once:
    messages that may go at one instant, by span"""
    worst: Worst | None = None
    judged = 0
    for run in _known(spans):
        first, last = run
        begins = spans[first].since if first else None
        ends = spans[last].since if last < len(spans) else None
        start = 0 if begins is None else int(np.searchsorted(times, begins, side="left"))
        stop = times.size if ends is None else int(np.searchsorted(times, ends, side="right"))
        part = slice(start, stop)
        contracts = contracts_of(spans[first:last], at_once[first:last])
        found = worst_interval(times[part], counts[part], contracts)
        judged += int(counts[part].sum())
        if found is not None and (worst is None or found.excess > worst.excess):
            worst = found
    return worst, max(0, int(counts.sum()) - judged)


def _known(spans: Sequence[Span]) -> list[tuple[int, int]]:
    """Runs [first, last) of spans with a contract."""
    is_known = [0, *(int(span.source is not Source.NOBODY) for span in spans), 0]
    edges = [place for place, (one, other) in enumerate(pairwise(is_known)) if one != other]
    return list(zip(edges[::2], edges[1::2], strict=True))


# --- gaps ---------------------------------------------------------------------------------------


def _gaps(own: Sequence[Session], clocks: Clocks, batch: int) -> list[Gap]:
    """The gaps in what one broker logged; batch: messages of the topic's largest batch that was
    bigger than a bucket"""
    broker = own[0].broker
    gaps: list[Gap] = []
    numbers = sorted(number for each in own for number in each.files)
    if numbers[0] > 1:
        gaps.append(Gap(broker, "rotated", None, _began(clocks, own[0])))
    if len(numbers) <= numbers[-1] - numbers[0]:
        gaps.append(Gap(broker, "missing", None, None))
    for session, following in zip(own, [*own[1:], None], strict=True):
        for begins, ends, messages in session.dropped if session.beats else ():
            gap = _wall(clocks, session, begins), _wall(clocks, session, ends)
            gaps.append(Gap(broker, "dropped", *gap, messages))
        for damage in session.damages:
            is_last = damage.file == max(session.files)
            if session.beats and not (is_last and not session.ended):  # else it was cut there
                gaps.append(Gap(broker, "damaged", _wall(clocks, session, damage.since), None))
        if session.ended:
            continue
        since = _wall(clocks, session, session.until) if session.beats else None
        if following is None:
            gaps.append(Gap(broker, "open", since, None))
        else:
            until = _began(clocks, following)
            most = _at_most(session, since, until, batch)
            gaps.append(Gap(broker, "cut", since, until, None, most))
    return gaps


def _began(clocks: Clocks, session: Session) -> int | None:
    return _wall(clocks, session, session.began) if session.beats else None


def _at_most(session: Session, since: int | None, until: int | None, batch: int) -> float | None:
    """The most messages that the session's bucket could have let through from `since` to `until`:
    one that has all of b lets a batch bigger than that go too."""
    if since is None or until is None or not session.words:
        return None
    word = session.words[-1][1]
    if word.rule is Rule.SHUT:
        return 0.0
    if word.rule is Rule.NONE:
        return None
    has_all = word.rule is Rule.OWN or word.burst >= word.whole_burst
    at_once = max(word.burst, batch) if has_all else word.burst
    return at_once + word.rate * max(0, until - since) / 1e9
