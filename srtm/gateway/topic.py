"""One topic in one gateway: its bucket, messages waiting for tokens, and those on the way to nsqd.

A *run* is what one read of one publisher brought for this topic (run.py). At the end of each
wake-up the topic decides about the runs that came: those whose tokens are there are ready, the
others are held until an alarm rings for the first of them. Which of them is first, `arrival_order`
or `fair_order` tells. What is ready goes to nsqd as one MPUB; meanwhile the next one gathers: quick
when little comes, big when much does. nsqd's answer settles the runs, message by message.

    offer --> arrivals --> ready --> in flight --> settled    nsqd has stored it
                 |           ^           +-------> refused    nsqd answered with an error
                 |           | tokens    +-------> lost       nsqd went without an answer
                 +-------> held -----------------> refused    over the limit, or after max-wait

Wherever it is, a run becomes *void* once nobody waits for it any more (`give_up`): what nsqd has
not been sent is dropped then, and takes no token.

There is one bucket for a topic whatever the door, and messages of one publisher leave in order of
arrival.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from math import inf
from operator import attrgetter
from typing import Protocol

from srtm.gateway import refusals
from srtm.gateway.arrival_order import ArrivalOrder
from srtm.gateway.backlog import Backlog, Bounds
from srtm.gateway.backlogs import Backlogs
from srtm.gateway.batch import Batch, Ring, gather, messages_of
from srtm.gateway.fair_order import FairOrder
from srtm.gateway.measure.admissions import AdmissionLog
from srtm.gateway.measure.meter import Meter
from srtm.gateway.measure.observed import Observed
from srtm.gateway.measure.record import Record
from srtm.gateway.measure.trace import Trace
from srtm.gateway.run import Part, Piece, Run
from srtm.limits.bucket import NEVER, TokenBucket
from srtm.limits.contract import Fair, Limit, Mode
from srtm.nsq.commands import Limits, first_refused
from srtm.nsq.errors import ProtocolError
from srtm.traces.chunk import CLOSED, REJECTED

MAX_IN_FLIGHT = 2
"""MPUBs of one topic at nsqd: one is stored while the next is read. More makes smaller batches."""
_QUANTUM_NS = 100_000
"""While several wait, tokens are handed out no more often than this: at 50,000 msg/s one wake-up
then serves five messages, and nobody is later by more than a tenth of the tightest usual SLO."""

_by_stamp = attrgetter("stamp")


class Carrier(Protocol):
    """A connection to nsqd."""

    def publish(self, batch: Batch) -> None: ...


class Follower(Protocol):
    """Who measures the latency of batches (see `srtm.gateway.measure.probe`)."""

    def follow(self, topic: "Topic", batch: Batch, carrier: Carrier) -> None:
        """`batch` has just gone by `carrier`."""


class Gate(Protocol):
    """What a topic asks of the gateway around it."""

    dirty: "list[Topic]"
    """Topics that got something in this wake-up, messages or tokens."""
    backlogs: Backlogs

    @property
    def is_open(self) -> bool:
        """May messages be admitted, or is nsqd away or ill?"""

    def carrier(self, topic: "Topic") -> Carrier | None:
        """A connection to nsqd for this topic's next batch; None: it will be pumped later."""

    def call_at(self, when: int, alarm: Callable[[int], None]) -> None: ...

    def owe(self, topic: "Topic", debt: float) -> None:
        """A batch bigger than the bucket leaves this debt, in tokens; a crash may not forget it."""

    def write_debts(self) -> None:
        """Begin to: `awaits_disk` tells which batches wait for it."""

    def batch_waits(self, topic: "Topic") -> None:
        """A batch that is bigger than the share is now the first to wait: the Load Distributor is
        to hear of it soon."""


class Topic:
    """See the module. All times are monotonic nanoseconds."""

    def __init__(self, name: bytes, gate: Gate, bounds: Bounds, meter: Meter) -> None:
        self.name = name
        self.limit: Limit | None = None
        self.is_shut = False
        self.bucket: TokenBucket | None = None
        self.meter = meter
        self.deferred_until = 0  # until then a delivery may be a DPUB's and needs no match
        self.known = False  # nsqd has it: its PUB cannot wait for nsqlookupd any more
        self.arrivals: list[Run] = []
        self.held = ArrivalOrder()
        self.ready: deque[Piece] = deque()
        self.in_flight = 0
        self.carrier: Carrier | None = None
        self.record: Record | None = None
        self.log: AdmissionLog | None = None
        self.trace: Trace | None = None
        self.probe: Follower | None = None
        self.backlog = Backlog(bounds, gate.backlogs, gate.call_at)
        self.observed = Observed()
        self.ring = Ring()
        self._gate = gate
        self._max_body_size = bounds.max_body_size
        self._fair: Fair | None = None
        self._keys: Mapping[str, str] = {}
        self._given_up = False  # void runs stand among those that wait
        self._alarm_at = NEVER
        self._is_due = False  # tokens have come for who waits
        self._refuses = False
        self.debt = 0.0  # in tokens, of a share that was taken back; not above 0
        self.most_owed = 0.0  # a crash costs this many tokens
        self.awaits_disk = False  # `most_owed` is not written yet, and nothing goes to nsqd
        self.refused_batch = 0  # the largest batch refused as over the share since it was read
        self._is_leased = False  # its limit is a share of a Load Distributor, which may grow
        self._told_of: Run | None = None
        self._max_wait_ns = NEVER
        self.slo_target_ns = NEVER

    # --- contract -----------------------------------------------------------------------------

    def set_limit(
        self, limit: Limit | None, now: int, tokens: float | None = None, leased: bool = False
    ) -> None:
        """Begin, change or end a contract. A new bucket starts with `tokens` (None: full); a
        changed one keeps its tokens and its debt. leased: by a Load Distributor"""
        self.is_shut = False
        self._is_leased = leased
        self.limit = limit
        self._max_wait_ns = NEVER
        slo = None if limit is None else limit.slo
        self.slo_target_ns = NEVER if slo is None else int(slo.target_seconds * 1e9)
        self._order(None if limit is None else limit.fair)
        if limit is None:
            self.bucket = None
            self.release(now)
            return
        if limit.max_wait is not None:
            self._max_wait_ns = int(limit.max_wait * 1e9)
        if self.bucket is None:
            first = limit.burst if tokens is None else tokens
            self.bucket = TokenBucket(
                limit.rate, limit.burst, now, min(first, limit.burst) + self.debt, limit.is_whole
            )
            self.debt = 0.0
        else:
            self.bucket.rescale(limit.rate, limit.burst, now, limit.is_whole)
        self.release(now)

    def shut(self, refuse: bool, now: int) -> None:
        """The topic has a contract, and no share of it here: messages wait for one, or are refused.
        Tokens go back with the share, a debt stays."""
        if self.bucket is not None:
            self.debt = min(0.0, self.bucket.level(now))
        self.limit = self.bucket = None
        self.slo_target_ns = self._max_wait_ns = NEVER
        self.is_shut, self._refuses, self._is_leased = True, refuse, True
        self.release(now)

    def set_keys(self, keys: Mapping[str, str]) -> None:
        """Publisher -> its key; where the contract is fair over keys, they wait as one."""
        if keys != self._keys:
            self._keys = keys
            if self._fair is Fair.KEY:
                self._fair = None
                self._order(Fair.KEY)
                self._ring_soon()

    def _order(self, fair: Fair | None) -> None:
        """Who is next of those that wait: the oldest message of all, or each publisher in turn."""
        if fair is self._fair:
            return
        self._fair = fair
        waiting = [run for run in self.held.take_all() if not run.void]
        if fair is None:
            self.held = ArrivalOrder()
        else:
            self.held = FairOrder(self._keys if fair is Fair.KEY else {})
        self.held.extend(sorted(waiting, key=_by_stamp))

    # --- nsqd's limits ------------------------------------------------------------------------

    def follow(self, limits: Limits, bounds: Bounds) -> None:
        """nsqd was started anew with other limits, and nothing is at it. What it would refuse now
        is refused here, before it is joined with others."""
        self._max_body_size = bounds.max_body_size
        self.backlog.follow(bounds)
        waiting = [*self.arrivals, *self.held, *(piece.run for piece in self.ready)]
        for run in dict.fromkeys(waiting):
            found = None if run.void else first_refused(run, limits)
            if found is None:
                continue
            first, error = found
            if run.refused is None:
                self._cut(run, first, error)
            else:  # the rest of it was refused before, and is owed that error
                run.owner.lose(run)
                self.give_up(run)

    def _cut(self, run: Run, first: int, error: ProtocolError) -> None:
        """Its messages from `first` on are refused; those before go on, if they are not stored."""
        stored = run.count - run.left
        if first <= stored:
            if run.without_token:
                self._end(run, REJECTED)
            self.ready = deque(piece for piece in self.ready if piece.run is not run)
            run.messages = []
            run.void = self._given_up = True
            self._fail(run, run.left, error)
            self.held.left(run)
            return
        waits = run.without_token
        tail = self._split(run, first)
        if waits:
            self._end(tail, REJECTED)
        if run in self.arrivals:
            self.meter.offered += tail.count
        self.ready = deque(
            piece for piece in self.ready if piece.run is not run or piece.cut(first)
        )
        run.admitted = min(run.admitted, first)
        if run.admitted == first and waits:
            self.held.remove(run)
            if self.trace is not None:
                self.trace.admitted(self.name, run, run.since - run.stamp)
        self._fail(run, tail.count, error)

    def _split(self, run: Run, first: int) -> Run:
        """Its messages from `first` on, which are done with before the others."""
        tail = Run(run.topic, run.messages[first:], run.count - first, False, None)
        tail.owner, tail.stamp = run.owner, run.stamp
        self.backlog.shrink(tail.count, tail.size)
        run.messages = run.messages[:first]
        run.count = first
        run.size -= tail.size
        return tail

    @property
    def has_slo(self) -> bool:
        return self.slo_target_ns < NEVER

    def is_full(self, now: int) -> bool:
        """Would it begin anew with no more tokens than it has?"""
        return self.debt == 0 and (
            self.bucket is None or self.bucket.level(now) >= self.bucket.burst
        )

    @property
    def throttled(self) -> bool:
        return len(self.held) > 0

    @property
    def waiting(self) -> int:
        """Messages without a token yet."""
        return sum(run.count - run.admitted for run in self.held if not run.void)

    def waiting_by_publisher(self) -> dict[str, int]:
        """Messages without a token yet, of each publisher that has some."""
        found: dict[str, int] = {}
        for run in self.held:
            if not run.void:
                name = run.owner.publisher
                found[name] = found.get(name, 0) + run.count - run.admitted
        return found

    @property
    def waiting_batch(self) -> int:
        """Messages of the batch that waits first; 0: it is a single message, or nothing waits."""
        run = self.held.first(0)
        return run.count if run is not None and run.atomic else 0

    @property
    def is_stuck(self) -> bool:
        """Does a batch wait first that cannot go by the share as it is?"""
        bucket, count = self.bucket, self.waiting_batch
        return count > 0 and (bucket is None or not bucket.fits(count))

    # --- in -----------------------------------------------------------------------------------

    def offer(self, run: Run) -> None:
        """Take a run; it is decided at the end of this wake-up."""
        if not self.arrivals and not self._is_due:
            self._gate.dirty.append(self)
        self.arrivals.append(run)
        self.backlog.add(run)

    def decide(self, now: int, horizon: int) -> None:
        """Let what had arrived by `horizon` meet the bucket, and who waits get tokens. It goes to
        nsqd by `pump`, when all topics have decided: what stands behind a refusal of another topic
        does not."""
        arrivals = self._arrived(horizon)
        is_due, self._is_due = self._is_due, False
        if not arrivals and not is_due:
            return
        offered = self._note(arrivals)
        if self.is_shut or not self._gate.is_open:
            self.held.extend(arrivals)
        elif self.bucket is None:
            self._pass(arrivals, offered, now)
        else:
            self._admit_or_hold(arrivals, self.bucket)
        if self.throttled:
            # Later tokens may be those of who has come since, and is not known yet.
            self._release(now if self._fair is None else horizon)

    def _arrived(self, horizon: int) -> list[Run]:
        """The arrivals that are decided now, in order of stamp. Everything that had arrived by
        `horizon` has been read; what came later waits for the next wake-up, or it would take the
        tokens of messages that came before it and are still unread. So it is without a contract
        too: a client's read is decided at once."""
        arrivals, self.arrivals = self.arrivals, []
        if self._given_up:
            self.meter.offered += sum(run.count for run in arrivals if run.void)
            arrivals = [run for run in arrivals if not run.void]
        if len(arrivals) > 1:
            arrivals.sort(key=_by_stamp)
        if arrivals and arrivals[-1].stamp > horizon:
            first = bisect_right(arrivals, horizon, key=_by_stamp)
            self.arrivals = arrivals[first:]
            del arrivals[first:]
        return arrivals

    def _note(self, arrivals: list[Run]) -> int:
        """Count the messages that arrive, and keep of them what somebody asks for."""
        offered = 0
        for run in arrivals:
            offered += run.count
        self.meter.offered += offered
        if self.record is not None:
            self.record.arrivals += [(run.stamp, run.count) for run in arrivals]
        if self.observed.times is not None:
            self.observed.keep_times(arrivals)
        if self.observed.senders is not None:
            self.observed.count_senders(arrivals)
        return offered

    def _pass(self, arrivals: list[Run], count: int, now: int) -> None:
        """No contract: all go, which are `count` messages."""
        for run in arrivals:
            run.since = run.stamp
        self.ready.extend(arrivals)
        if self.log is not None:
            self.log.admit(self.name, now, count)
        if self.trace is not None:
            self.trace.passed(self.name, arrivals)

    def _admit_or_hold(self, arrivals: list[Run], bucket: TokenBucket) -> None:
        """Each run goes as a whole where all of its tokens are there, or else waits."""
        ready, token_wait = self.ready, self.meter.token_wait
        take, burst, waits = bucket.take, bucket.burst, self.throttled
        told = self.record is not None or self.log is not None or self.trace is not None
        at_once = 0
        for run in arrivals:
            count, stamp = run.count, run.stamp
            usual = count <= burst and not waits
            when = take(count, stamp) if usual else self._tokens_at(run, bucket)
            if when is None:
                self.held.add(run)
                if not waits and not run.atomic:
                    self._admit_available(run, bucket)
                waits = True
                continue
            run.admitted = count
            run.since = when
            ready.append(run)
            if when == stamp:
                at_once += count
            else:
                token_wait.add(when - stamp, count)
            if told:
                self._tell_admitted(run, count, when, 0.0)
        token_wait.add_zeros(at_once)

    def _tokens_at(self, run: Run, bucket: TokenBucket) -> int | None:
        """The bucket time at which a new run gets all of its tokens; None: it has to wait."""
        count, stamp = run.count, run.stamp
        oldest = self.held.oldest()
        if oldest is not None:
            # Read late, and older than who waits: tokens that overflowed since are its own.
            late = stamp < bucket.at and stamp < oldest.stamp
            return stamp if late and bucket.insert(count, stamp) else None
        if count > bucket.burst and not run.atomic:
            return None  # single messages, more than it holds: no batch that may run a debt
        return self._take(bucket, count, stamp)

    def _take(self, bucket: TokenBucket, count: int, stamp: int) -> int | None:
        """Take the tokens of one message, or of one batch, which may leave a debt."""
        when = bucket.take(count, stamp)
        if when is not None and count > bucket.burst:
            self._gate.owe(self, count - bucket.burst)
        return when

    def _admit_available(self, run: Run, bucket: TokenBucket) -> None:
        """The first messages of a run whose tokens are there, though not for all of it."""
        count = min(run.count, bucket.available(run.stamp))
        if count:
            when = bucket.take(count, run.stamp)
            if when is not None:
                self._admit(run, count, when, 0.0)

    def _admit(self, run: Run, count: int, first: int, step_ns: float) -> None:
        """The next `count` messages of a run that waits have their tokens."""
        start = run.admitted
        run.admitted = start + count
        run.since = first + int(step_ns * (count - 1))
        self.ready.append(Part(run, start, start + count, first, step_ns))
        if step_ns:
            self.meter.token_wait.add_ramp(first - run.stamp, step_ns, count)
        else:
            self.meter.token_wait.add(first - run.stamp, count)
        self._tell_admitted(run, count, first, step_ns)

    def _tell_admitted(self, run: Run, count: int, first: int, step_ns: float) -> None:
        """Tell all who keep a record that `count` more messages of a run have their tokens."""
        if self.record is not None:
            self.record.admissions.append((first, step_ns, count))
        if self.log is not None:
            if step_ns:
                self.log.admit_ramp(self.name, first, step_ns, count)
            else:
                self.log.admit(self.name, first, count)
        if self.trace is not None and run.admitted == run.count:
            self.trace.admitted(self.name, run, run.since - run.stamp)

    def _admit_all(self, now: int) -> None:
        """No bucket: nobody waits for tokens."""
        ready, log = self.ready, self.log
        for run in self.held.take_all():
            if run.void:
                continue
            ready.append(Part(run, run.admitted, run.count, now, 0.0))
            if log is not None:
                log.admit(self.name, now, run.count - run.admitted)
            run.admitted = run.count
            run.since = now
            if self.trace is not None:
                self.trace.admitted(self.name, run, now - run.stamp)

    def _end(self, run: Run, outcome: int) -> None:
        """Trace that a run has ended: those of its messages that have no token get none."""
        if self.trace is not None:
            self.trace.ended(self.name, run, outcome)

    # --- tokens come --------------------------------------------------------------------------

    def release(self, now: int) -> None:
        """Let who waits go as tokens come; set the alarm for the next one."""
        self._release(now)
        self._gate.write_debts()
        self.pump(now)

    def _release(self, now: int) -> None:
        if self.is_shut:
            if self._refuses:
                self._refuse_all()
        elif self.bucket is not None:
            self._serve(self.bucket, now)
        elif self._gate.is_open:
            self._admit_all(now)
        self._tell_of_batch()

    def _serve(self, bucket: TokenBucket, now: int) -> None:
        """Whose turn it is gets the tokens that are there; then the next one. When the next one's
        are not there yet, whoever must not wait longer is refused."""
        held, is_open = self.held, self._gate.is_open
        next_at = when = NEVER
        run = held.first(bucket.at)
        while run is not None:
            if is_open and self._admit_next(run, bucket, now):
                held.advance(run, bucket.at)
                run = held.first(bucket.at)
                continue
            if is_open:
                when = max(bucket.ready_at(run.count if run.atomic else 1), bucket.at)
            oldest = held.oldest()
            assert oldest is not None
            if oldest.stamp + self._max_wait_ns <= now:
                run = oldest
            elif not is_open or not self._is_refused(when):
                next_at = min(when, oldest.stamp + self._max_wait_ns)
                break
            held.remove(run)
            self._refuse(run, bucket, when - now if is_open else None)
            run = held.first(bucket.at)
        if len(held) > 1:
            next_at = max(next_at, now + _QUANTUM_NS)
        if next_at < self._alarm_at:
            self._alarm_at = next_at
            self._gate.call_at(next_at, self._alarm)

    def _admit_next(self, run: Run, bucket: TokenBucket, now: int) -> bool:
        """Does the run whose turn it is get tokens by now? All of a batch, or some messages."""
        if run.atomic:
            ready_at = bucket.ready_at(run.count)
            at = max(ready_at, run.stamp)
            if ready_at > now or self._take(bucket, run.count, at) is None:
                return False
            self._admit(run, run.count, at, 0.0)
            return True
        most = self.held.in_a_row(run)
        taken, when, step_ns = bucket.take_waiting(most, run.stamp, now)
        if taken:
            self._admit(run, taken, when, step_ns)
        return taken > 0

    def _is_refused(self, when: int) -> bool:
        """Must the run whose turn it is be refused now? when: its next token comes"""
        if self.limit is not None and self.limit.mode is Mode.REJECT:
            return True
        return when == NEVER and not self._is_leased  # no share of it will ever grow

    def _tell_of_batch(self) -> None:
        """Tell the gateway, once, of each batch that waits for a bigger share."""
        head = self.held.first(0)
        if head is self._told_of:
            return
        self._told_of = None
        if self._is_leased and self.is_stuck:
            self._told_of = head
            self._gate.batch_waits(self)

    def _ring_soon(self) -> None:
        """Another one is next, who may need fewer tokens."""
        self._alarm_at = 0
        self._gate.call_at(0, self._alarm)

    def _alarm(self, now: int) -> None:
        """Who waits is served at the end of this wake-up, when all that came before has been read.
        In order of arrival they would wait behind; in turn they may be next."""
        if self._alarm_at > now:
            return  # set when the next token was later; another one is under way
        self._alarm_at = NEVER
        if self.throttled and not self._is_due:
            if not self.arrivals:
                self._gate.dirty.append(self)
            self._is_due = True

    def _refuse(self, run: Run, bucket: TokenBucket, retry_ns: int | None) -> None:
        """`retry_ns` is None where nobody knows: nsqd is away."""
        limit = self.limit
        assert limit is not None
        if retry_ns is None:
            self._reject(run, f"nsqd is away for max-wait ({limit.max_wait}s)")
        elif run.atomic and not bucket.fits(run.count):
            self.refused_batch = max(self.refused_batch, run.count)
            self._reject(run, refusals.over_share(self.name, limit, run.count), inf)
        else:
            seconds = max(retry_ns, 0) / 1e9
            self._reject(run, refusals.over_limit(self.name, limit, seconds), seconds)

    def _refuse_all(self) -> None:
        for run in self.held.take_all():
            if not run.void:  # nor has become so, as its owner was refused another one
                self._reject(run, refusals.placed_elsewhere(self.name), inf)

    def _reject(self, run: Run, sentence: str, retry_seconds: float | None = None) -> None:
        """Reject a run: those of its messages that have no token are not stored; the others go
        on."""
        self._end(run, REJECTED)
        count = run.count - run.admitted
        if run.admitted:
            self._split(run, run.admitted)
        self._fail(run, count, ProtocolError(run.failure_code, sentence), retry_seconds)

    def _fail(
        self, run: Run, count: int, error: ProtocolError, retry_seconds: float | None = None
    ) -> None:
        """`count` messages of `run` are not stored; its owner is told after those before."""
        self.meter.rejected += count
        is_over = run.done(count)
        first = run.refused is None
        if first:
            run.refused = error
        if first or is_over:
            run.owner.refuse(run, retry_seconds)
        if is_over:
            self.forget(run)

    def fail_waiting(self, sentence: str) -> None:
        """nsqd has been away for too long: what has not been sent was not stored; say so."""
        ready, self.ready = self.ready, deque()
        held = self.held.take_all()
        for piece in ready:
            run = piece.run
            if run.void:
                self.dropped(piece)
            else:
                self._fail(run, piece.count, ProtocolError(run.failure_code, sentence))
        for run in held:
            if not run.void:
                self._reject(run, sentence)

    def lose_waiting(self, arrivals: Iterable[Run] = ()) -> None:
        """Lose all that waits, after a fault: nobody knows how far it came, so nothing is answered.
        arrivals: runs that may stand in none of the queues."""
        held = self.held.take_all()
        ready, self.ready = self.ready, deque()
        for piece in ready:
            if piece.run.void:
                self.dropped(piece)
            else:
                self.meter.unknown += piece.count
        runs = [*arrivals, *held, *(piece.run for piece in ready)]
        for run in runs:
            if run.size and not run.void:
                self.meter.unknown += run.without_token
                self._end(run, CLOSED)
                self.forget(run)
                run.owner.lose(run)
                run.void = True

    def try_one(self, now: int) -> None:
        """The first that waits goes to nsqd whatever the gate says."""
        run = self.held.first(0)
        assert run is not None
        count = run.count if run.atomic else 1
        when = now if self.bucket is None else self._take(self.bucket, count, now)
        if when is not None:
            self._admit(run, count, when, 0.0)
            self.held.advance(run, now)
            self._gate.write_debts()
            self.pump(now)

    # --- out ----------------------------------------------------------------------------------

    def pump(self, now: int) -> None:
        """Send what is ready, as far as connections and MAX_IN_FLIGHT allow."""
        if self.awaits_disk:
            return
        while self.ready and self.in_flight < MAX_IN_FLIGHT:
            if not self.known and self.in_flight:
                return
            carrier = self.carrier if self.in_flight else self._gate.carrier(self)
            if carrier is None:
                return
            batch = gather(self, self.ready, self._max_body_size - 4)
            if batch is None:
                return
            self.carrier = carrier
            self.in_flight += 1
            batch.written_at = now
            carrier.publish(batch)
            if self.probe is not None and self.has_slo:
                self.probe.follow(self, batch, carrier)
            self._count_gateway_time(batch.pieces, now)

    def _count_gateway_time(self, pieces: list[Piece], now: int) -> None:
        """The time from each message's token until `now`."""
        gateway_time = self.meter.gateway_time
        together = [piece for piece in pieces if not piece.step_ns]
        gateway_time.add_many(
            [now - piece.since for piece in together], [piece.count for piece in together]
        )
        if len(together) < len(pieces):
            for piece in pieces:
                if piece.step_ns:
                    gateway_time.add_ramp(now - piece.since, -piece.step_ns, piece.count)

    # --- answers ------------------------------------------------------------------------------

    def acknowledged(self, batch: Batch, now: int) -> None:
        """nsqd stored the batch."""
        self.known = True
        self.in_flight -= 1
        self.meter.admitted += batch.count
        batch.answered_at = now
        for piece in batch.pieces:
            run, count = piece.run, piece.count
            if run.void:
                self.forget(run)
                continue
            is_over = run.done(count)
            run.owner.settle(run, count)
            if is_over:
                self.forget(run)
        batch.payload = b""
        if self.has_slo:
            self.ring.append(batch)
        if self.ready:
            self.pump(now)

    def failed(self, batch: Batch, error: ProtocolError) -> None:
        """nsqd answered with an error; a prefix of an MPUB may be stored, so all are told."""
        self.in_flight -= 1
        for run, count in messages_of(batch.pieces):
            self.meter.failed += count
            if not run.void:
                self.give_up(run)
                run.refuse(error.sentence or str(error))  # answers come in order: it is the first

    def lost(self, batch: Batch) -> None:
        """nsqd went away without an answer: nobody may be told anything."""
        self.in_flight -= 1
        for run, count in messages_of(batch.pieces):
            self.meter.unknown += count
            if not run.void:
                run.owner.lose(run)
                self.give_up(run)

    def not_run(self, batch: Batch) -> None:
        """nsqd ended the connection before it came to this batch: it is sent again, first."""
        self.in_flight -= 1
        self.ready.extendleft(reversed(batch.pieces))

    def forget(self, run: Run) -> None:
        """The run holds memory no more (once only, however it ended)."""
        self.backlog.remove(run)

    def give_up(self, run: Run) -> None:
        """Nobody waits for it any more: its client has gone, or was refused what it sent before.
        What nsqd has not been sent was not stored and never is, whoever sends it again. It makes
        room at once, and takes no token from those who still wait."""
        if run.void:
            return
        if run.size:
            self.meter.abandoned += run.without_token
            self._end(run, CLOSED)
            self.forget(run)
        run.messages = []
        was_next = self.held.first(0) is run
        run.void = True
        self._given_up = True
        self.held.left(run)
        if was_next:
            self._ring_soon()

    def dropped(self, piece: Piece) -> None:
        """Count a piece that is dropped: it had its tokens when its run was given up."""
        self.meter.abandoned += piece.count
        self.forget(piece.run)

    def tick(self, now: int) -> None:
        """Called once a second, while messages come or a record is kept, and until the last batches
        are forgotten."""
        self.meter.fold(now)
        self.ring.prune(now)
        if self._given_up and not self.arrivals:
            self._given_up = False
            self.held.drop_void()
        if self.record is not None and not self.record.tick():
            self.record = None
