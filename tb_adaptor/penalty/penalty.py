"""The DRL penalty of one topic, from what its brokers report. Pure: time is passed in.

Each gateway tells how long its messages waited for tokens, which is exact, and when they came, by
its own clock and the millisecond. The union of these arrivals runs through one bucket that has the
whole contract, a little behind now: once all brokers have told what came until then. Messages of a
broker get tokens in order of arrival, so its waits are compared with those of the same messages.

**Error.** A report is under way for no longer than its whole exchange takes, and the gateway tells
with the next one how long that was: so each bounds the offset of the two clocks (`HostClock`). What
is left open of it, and of the millisecond, is by how much an arrival may be moved: e. The k-th
message to come to a bucket with unit messages leaves at the latest of its own arrival and of
t_j + (k - j + 1 - b) / r for all j up to k, t_j being the j-th arrival in order; if each arrival is
moved by at most e, so is each t_j, that maximum and the k-th message's leaving. Its wait, the
difference of leaving and arrival, changes by at most 2 e, and with all ranks the mean and each
percentile do. With batches of up to n messages each one leaves within (n - 1) / r of when it would
alone, so that much is added.

**Not known** rather than wrong: whatever is not told, told twice, lost or refused begins it anew.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from srtm.limits.bins import Bins, bins_of
from srtm.limits.queueing import Floats
from tb_adaptor.penalty.broker_level import NO_FLOATS, Reading
from tb_adaptor.penalty.compared import Compared, Rolling, Sum
from tb_adaptor.penalty.host import Head, Host
from tb_adaptor.penalty.host_clock import SLOT_SECONDS, HostClock
from tb_adaptor.penalty.stranded import Levels, Stranded
from tb_adaptor.penalty.unsplit import Unsplit
from tb_adaptor.share import Part

Bools = NDArray[np.bool_]
NO_BOOLS: Bools = np.empty(0, dtype=np.bool_)

WINDOW_SECONDS = 60.0
_READ_LATE_SECONDS = 0.05
"""A message's stamp may be so much older than the report before it; more shows as error."""
_OLDEST_SECONDS = 5.0
"""before a report's own time, of an arrival that it tells: more is nonsense"""
_SILENT_SECONDS = 5.0
_STALLED_SECONDS = 15.0
"""without a step of the bucket, as a broker tells nothing"""
_STEP_SECONDS = 0.5
"""at least, from one look at what all have told to the next: of twenty brokers one tells more every
50 ms"""
_MOST_POINTS = 50_000
"""of a pass: more messages are followed in groups, and a second takes milliseconds"""
_MOST_BEHIND = 500_000
"""messages or groups that have come and have no token yet"""


@dataclass(frozen=True, slots=True)
class Waits:
    """bins: messages that got their tokens, by wait; seconds: the sum of their waits; held: those
    that have none now, None: not counted; tokens: in the bucket now, below 0: a debt; None:
    not told"""

    bins: Bins
    seconds: float
    held: int | None
    tokens: float | None = None


@dataclass(frozen=True)
class Heard:
    """One report of one broker. Times are seconds.

    at:         when it came, by the distributor's clock
    clock:      when it was made, by the gateway's, a whole millisecond
    number:     reports of this gateway that were answered before
    seconds:    that it is of
    round_trip: seconds that the exchange before this one took
    times, counts: arrivals by the gateway's clock, whole milliseconds, shape (n,); batches: whether
                the messages of each wait together, (n,)
    waits:      None in the first report of arrivals
    part:       the share that the broker had
    """

    at: float
    clock: float
    number: int
    seconds: float
    round_trip: float
    times: Floats
    counts: Floats
    batches: Bools
    waits: Waits | None
    part: Part


@dataclass(frozen=True, slots=True)
class _Given:
    """Tokens that a report tells of."""

    at: float
    messages: int
    waits: Waits
    error: float


@dataclass(slots=True)
class _Broker:
    """Most have nothing on their way, and a deque is half a kilobyte.

    era:     of its host, whose reports it follows
    last:     the last report that told of the topic
    done:     the number of its host's last report that is taken in
    clock:    its host's
    begun:    all arrivals since then are known
    covered:  all arrivals until then are known; None: it has not begun
    coming:   arrivals that are ahead of the bucket: times, counts, batches
    unsplit:  waits in one bucket of messages that have no token yet as far as is told: waits,
              messages; NaN where it is not known
    given:    tokens whose messages have not been through the bucket
    there:    messages without a token, by what was told
    """

    era: int | None = None
    last: Heard | None = None
    done: int = -1
    clock: HostClock = field(default_factory=HostClock)
    begun: float = inf
    covered: float | None = None
    coming: list[tuple[Floats, Floats, Bools]] = field(default_factory=list)
    unsplit: list[tuple[Floats, Floats]] = field(default_factory=list)
    given: list[_Given] = field(default_factory=list)
    there: int = 0


class Penalty:
    """brokers: all that may let messages of the topic through"""

    def __init__(
        self,
        topic: str,
        contract: Part,
        brokers: Iterable[str],
        now: float,
        hosts: Mapping[str, Host],
    ) -> None:
        """hosts: of the brokers, told of each report before this is"""
        self.contract = contract
        self.brokers = frozenset(brokers)
        self._topic = topic
        self._hosts = hosts
        self.restart(now, "")

    def restart(self, now: float, why: str) -> None:
        """What is known until now is worth nothing. why: a part of a sentence"""
        self._why = why
        self._moved_at = now
        self._covered = -inf  # by all brokers, when it was advanced last
        self._looked_at = -inf  # at what they have told
        self._of = {name: _Broker() for name in self.brokers}
        self._bucket: Unsplit | None = None
        self._starts_at = -inf
        self._rolling = Rolling(WINDOW_SECONDS)
        self._levels = Levels(self.brokers, self.contract.burst, WINDOW_SECONDS)

    # --- what is told -------------------------------------------------------------------------

    def receive(self, name: str, heard: Heard) -> None:
        """A report of the broker tells of the topic."""
        self._follow(name)
        broker = self._of[name]
        broker.last = heard
        is_stalled = heard.at > self._moved_at + _STALLED_SECONDS
        if is_stalled or (broker.covered or -inf) >= self._covered + _STEP_SECONDS:
            self.catch_up(heard.at, _STEP_SECONDS)

    def catch_up(self, now: float, least_seconds: float = 0.0) -> None:
        """Take in what the hosts have told, whether the topic was named or not. least_seconds: of
        all brokers' telling, or it waits for more"""
        if now < self._looked_at + least_seconds / 2:
            return  # most reports end here, whatever the others have told
        self._looked_at = now
        of = self._of
        for name in self.brokers:
            if name in self._hosts:
                self._follow(name)
            if self._of is not of:
                return
        covered = min(-inf if each.covered is None else each.covered for each in of.values())
        is_stalled = now > self._moved_at + _STALLED_SECONDS
        if is_stalled or (covered > -inf and covered >= self._covered + least_seconds):
            self._covered = covered
            self._levels.advance(now)
            self._advance(now)

    def _follow(self, name: str) -> None:
        """Take in what the broker's host told until its last report but one: the next one says how
        long the exchange of a report took."""
        host, broker = self._hosts[name], self._of[name]
        if broker.era != host.era:
            if broker.era is not None and host.last is not None:
                self.restart(host.last.at, host.why.format(name))
                broker = self._of[name]
            broker.era, broker.clock = host.era, host.clock
            return
        known, last = host.known, broker.last
        if known is None:
            return
        if last is not None and broker.done < last.number <= known.number:
            broker.done = last.number
            self._take_in(name, broker, last)
        if self._of[name] is broker and broker.done < known.number:
            self._stay_idle(name, broker, host, known)

    def _take_in(self, name: str, broker: _Broker, last: Heard) -> None:
        """A report that told of the topic."""
        if last.waits is None:
            if broker.covered is not None:
                self.restart(last.at, f"broker {name} tells no waits")
        elif last.waits.held is None:
            self.restart(last.at, f"more messages wait at broker {name} than it counts")
        elif last.times.size and last.times.min() < last.clock - last.seconds - _OLDEST_SECONDS:
            self.restart(last.at, f"broker {name} tells of messages that came long ago")
        elif broker.covered is None:
            self._begin(broker, last, last.waits.held)
            self._level(name, broker, last, last.waits)
        else:
            self._keep(name, broker, last, last.waits)

    def _stay_idle(self, name: str, broker: _Broker, host: Host, known: Head) -> None:
        """Reports that did not name the topic: nothing came, and its bucket was full."""
        part = host.idle.get(self._topic)
        if part is None or broker.there:
            if broker.covered is not None:
                self.restart(known.at, f"broker {name} does not tell its arrivals")
            return
        stood, broker.done = host.late <= broker.done, known.number
        broker.covered = known.clock + host.clock.offset
        broker.begun = min(broker.begun, broker.covered)
        at, error = broker.covered + SLOT_SECONDS / 2, host.clock.error(known.seconds)
        reading = Reading(at, part.burst, part, NO_FLOATS, NO_FLOATS, 1.0, error, stood)
        self._levels.add(name, reading)

    def _begin(self, broker: _Broker, last: Heard, held: int) -> None:
        """What came before its report counts only as far as it still waits."""
        broker.begun = broker.covered = last.clock + broker.clock.offset
        broker.there = held
        if held:
            broker.unsplit.append((np.array([np.nan]), np.array([float(held)])))

    def _keep(self, name: str, broker: _Broker, last: Heard, waits: Waits) -> None:
        offset, given = broker.clock.offset, sum(waits.bins.values())
        broker.covered = last.clock + offset
        times = last.times
        if times.size:
            times = times + offset + SLOT_SECONDS / 2
            broker.coming.append((times, last.counts, last.batches))
        broker.there += int(last.counts.sum() if times.size else 0) - given
        if given:
            broker.given.append(_Given(last.at, given, waits, broker.clock.error(last.seconds)))
        if broker.there != waits.held:
            self.restart(last.at, f"not all messages of broker {name} were told, or got a token")
            return
        self._level(name, broker, last, waits, times)

    def _level(
        self,
        name: str,
        broker: _Broker,
        last: Heard,
        waits: Waits,
        times: Floats | None = None,
    ) -> None:
        """times: of its arrivals, None: the level before is not known"""
        if waits.tokens is None or waits.held is None:
            self._levels.forget()
            return
        at = last.clock + broker.clock.offset + SLOT_SECONDS / 2
        level, error = waits.tokens - waits.held, broker.clock.error(last.seconds)
        counts = last.counts
        if times is None:
            times = counts = NO_FLOATS
        largest = float(last.counts[last.batches].max(initial=1.0)) if counts.size else 1.0
        self._levels.add(name, Reading(at, level, last.part, times, counts, largest, error))

    # --- the bucket ---------------------------------------------------------------------------

    def _advance(self, now: float) -> None:
        """Through the bucket with all that came until all brokers have told."""
        covered = [each.covered for each in self._of.values()]
        known = [each for each in covered if each is not None]
        if len(known) == len(covered):
            until = min(known) - _READ_LATE_SECONDS
            if self._bucket is None and self._starts_at == -inf:
                self._starts_at = max(each.begun for each in self._of.values())
            if self._bucket is None and until >= self._starts_at:
                self._start()
            if self._bucket is not None and until > self._bucket.at:
                self._rolling.add(now, Sum(inexact=self._pass(until)))
                self._moved_at = now
        if now > self._moved_at + _STALLED_SECONDS:
            # What the others tell meanwhile cannot be kept for ever.
            silent = min(self._of, key=lambda name: self._of[name].covered or -inf)
            self.restart(now, f"broker {silent} does not report its arrivals")
        elif self._bucket is not None:
            for each in self._of.values():
                self._compare(each)

    def _start(self) -> None:
        """The least that the bucket can have held: nothing, less all that came until now and
        may wait."""
        level = 0.0
        for broker in self._of.values():
            times, counts, batches = _joined(broker.coming)
            before = times <= self._starts_at
            level -= sum(float(each.sum()) for _, each in broker.unsplit)
            level -= float(counts[before].sum())
            if before.any():
                broker.unsplit.append((np.full(int(before.sum()), np.nan), counts[before]))
            broker.coming = [(times[~before], counts[~before], batches[~before])]
        self._bucket = Unsplit(self.contract, self._starts_at, level)

    def _pass(self, until: float) -> float:
        """Pass all that came until then through the bucket. Returned is by how many seconds its
        waits may be wrong besides what clocks do."""
        bucket = self._bucket
        assert bucket is not None
        if not any(each.coming for each in self._of.values()):
            bucket.take(NO_FLOATS, NO_FLOATS, until)
            return 0.0
        brokers, parts = list(self._of.values()), []
        for broker in brokers:
            times, counts, batches = _joined(broker.coming)
            due = times <= until
            parts.append((times[due], counts[due], batches[due]))
            broker.coming = [] if due.all() else [(times[~due], counts[~due], batches[~due])]
        whose = np.repeat(np.arange(len(brokers)), [part[0].size for part in parts])
        times, counts, batches = _joined(parts)
        # What was read late came behind those that have been through the bucket.
        late = max(0.0, bucket.at - float(times.min(initial=bucket.at)))
        times = np.maximum(times, bucket.at)
        group = max(1, ceil(float(counts[~batches].sum()) / _MOST_POINTS))
        points = np.where(batches, 1, np.ceil(counts / group)).astype(np.int64)
        size = counts[batches].max(initial=1.0)
        weights = np.repeat(np.where(batches, counts, group), points).astype(np.float64)
        ends = np.cumsum(points) - 1
        weights[ends] = counts - np.where(batches, 0, (points - 1) * group)
        times, whose = np.repeat(times, points), np.repeat(whose, points)
        order = np.argsort(times, kind="stable")
        waits = np.empty(times.size)
        waits[order] = bucket.take(times[order], weights[order], until)
        for place, broker in enumerate(brokers):
            its = whose == place
            if its.any():
                in_order = np.argsort(times[its], kind="stable")
                broker.unsplit.append((waits[its][in_order], weights[its][in_order]))
        return 2 * late + (max(float(size), group) - 1) / self.contract.rate

    # --- the same messages --------------------------------------------------------------------

    def _compare(self, broker: _Broker) -> None:
        while broker.given:
            given = broker.given[0]
            if sum(float(each.sum()) for _, each in broker.unsplit) < given.messages:
                break
            broker.given.pop(0)
            waits, messages = _first(broker.unsplit, given.messages)
            if np.isnan(waits).any():
                continue  # from before the bucket was known
            self._rolling.add(
                given.at,
                Sum(
                    given.messages,
                    given.waits.seconds,
                    float(np.dot(waits, messages)),
                    given.waits.bins,
                    bins_of(waits * 1e9, messages.astype(np.int64)),
                    2 * given.error,
                ),
            )
        if sum(each.size for each, _ in broker.unsplit) > _MOST_BEHIND:
            self.restart(self._moved_at, "too many messages wait to be followed")

    # --- what is shown ------------------------------------------------------------------------

    @property
    def has_pending(self) -> bool:
        """Has a broker told of messages that others have not told as far as?"""
        return any(each.coming or each.given for each in self._of.values())

    def stranded(self, now: float) -> Stranded | None:
        """Known without the penalty too: where more than r comes, and before one bucket would be
        full."""
        return self._levels.shown(now)

    def shown(self, now: float) -> Compared | str:
        """Figures, or why there are none."""
        if now > self._moved_at + _SILENT_SECONDS:
            silent = sorted(
                name
                for name, each in self._of.items()
                if self._heard_at(name, each) < now - _SILENT_SECONDS
            )
            if silent:
                return f"broker {silent[0]} does not report its arrivals"
        again = f" (it began anew: {self._why})" if self._why else ""
        if self._bucket is None:
            return f"not all brokers have told their arrivals yet{again}"
        if not self._bucket.is_known:
            return (
                "what one bucket would have held at first is not known until it would be full; "
                f"more came than r since{again}"
            )
        found = self._rolling.compared(now)
        return found or f"no messages came since it began{again}"

    def _heard_at(self, name: str, broker: _Broker) -> float:
        """When it told something of the topic last."""
        host = self._hosts.get(name)
        if host is not None and host.last is not None and self._topic in host.idle:
            return host.last.at
        return -inf if broker.last is None else broker.last.at


def _joined(
    parts: Iterable[tuple[Floats, Floats, Bools]],
) -> tuple[Floats, Floats, Bools]:
    """Column by column."""
    columns = list(zip(*parts, strict=True))
    if not columns:
        return NO_FLOATS, NO_FLOATS, NO_BOOLS
    times, counts, batches = (np.concatenate(each) for each in columns)
    return times, counts, batches


def _first(queue: list[tuple[Floats, Floats]], messages: int) -> tuple[Floats, Floats]:
    """Take so many messages from the front: waits, messages of each; both of shape (n,)."""
    taken: list[tuple[Floats, Floats]] = []
    left = float(messages)
    while left > 0:
        waits, counts = queue.pop(0)
        through = np.cumsum(counts)
        if through[-1] <= left:
            taken.append((waits, counts))
            left -= float(through[-1])
            continue
        whole = int(np.searchsorted(through, left, side="right"))
        rest = left - (float(through[whole - 1]) if whole else 0.0)
        part, remaining = counts[: whole + 1].copy(), counts[whole:].copy()
        part[whole], remaining[0] = rest, remaining[0] - rest
        queue.insert(0, (waits[whole:], remaining))
        size = whole + 1 if rest > 0 else whole
        taken.append((waits[:size], part[:size]))
        left = 0.0
    return np.concatenate([each for each, _ in taken]), np.concatenate([each for _, each in taken])
