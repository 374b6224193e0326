"""The topics of one gateway: looked up or created at a publish, limited, kept over a restart."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from srtm.gateway.backlog import Bounds
from srtm.gateway.backlogs import Backlogs
from srtm.gateway.lease import Known, is_near, safe_share
from srtm.gateway.limits import Limits
from srtm.gateway.measure.admissions import AdmissionLog
from srtm.gateway.measure.meter import Meter
from srtm.gateway.measure.trace import Trace
from srtm.gateway.reactor import Reactor
from srtm.gateway.run import Run
from srtm.gateway.state import Kept, SavedState
from srtm.gateway.state_writer import StateWriter
from srtm.gateway.topic import Carrier, Follower, Topic
from srtm.host.clock import NS, monotonic_ns
from srtm.limits.contract import Contract, Limit
from srtm.nsq import commands as nsq
from srtm.nsq.names import is_ephemeral
from srtm.text.errors import SrtmError

log = logging.getLogger("srtm.gateway")

_FLEETING_SECONDS = 10
"""an ephemeral topic without messages is kept: longer than its channels take to come back"""


def _nobody() -> None:
    """No agent listens."""


class NsqdDoor(Protocol):
    """nsqd, as topics need it."""

    @property
    def is_open(self) -> bool:
        """May messages be admitted, or is nsqd away or ill?"""

    def carrier(self, topic: Topic) -> Carrier | None:
        """A connection for this topic's next batch."""


class Topics:
    """Topics by name; also what each of them sees of the gateway (`Gate`)."""

    def __init__(
        self,
        reactor: Reactor,
        nsqd: NsqdDoor,
        bounds: Bounds,
        state: SavedState,
        default_limit: Limit | None,
        max_topics: int,
        backlogs: Backlogs,
        in_order: bool,
        log: AdmissionLog | None = None,
        trace: Trace | None = None,
        probe: Follower | None = None,
    ) -> None:
        """in_order: stamps tell which of two messages came first, whichever was read first"""
        self.by_name: dict[bytes, Topic] = {}
        self.dirty: list[Topic] = []
        self.backlogs = backlogs
        self.state_file = StateWriter(state, self._kept, self._pump)
        self._reactor = reactor
        self._nsqd = nsqd
        self._bounds = bounds
        self._state = state
        self._limits = Limits(default_limit)
        self._keys: Mapping[bytes, Mapping[str, str]] = {}
        self._max_topics = max_topics
        self._in_order = in_order
        self._log = log
        self._trace = trace
        self._probe = probe
        self._started_at = monotonic_ns()
        self.tell_soon: Callable[[], None] = _nobody
        """of the agent: a batch waits for a bigger share"""
        self._active: set[Topic] = set()
        self._fleeting: dict[bytes, int] = {}  # ephemeral topics: seconds without a message
        reactor.add_stage(self.decide)

    def begin(self, contracts: tuple[Contract, ...], known: list[str]) -> None:
        """Begin at start with the contracts of the options over those kept, and with nsqd's own
        topics."""
        now = monotonic_ns()
        limits = {
            n: kept.limit for n, kept in self._state.topics.items() if kept.own and kept.limit
        }
        limits.update({contract.topic: contract.limit() for contract in contracts})
        for name, limit in limits.items():
            self._limits.own[name.encode()] = limit
            self._new(name.encode()).set_limit(limit, now, self._state.first_tokens(name))
        for name in known:
            topic = self.by_name.get(name.encode())
            if topic is None:
                # It may have had its burst from the gateway before this one.
                topic = self._new(name.encode(), self._state.first_tokens(name))
            topic.known = True
        self._tell(self.by_name.values(), now)

    # --- publishing ---------------------------------------------------------------------------

    def offer(self, run: Run) -> None:
        """Take a run from any door. It is decided at the end of this wake-up."""
        topic = self.find(run.topic)
        if topic is None:
            run.refuse(
                f"{self._max_topics} topics are in use (--max-topics); "
                f"{run.topic.decode()} would be one more"
            )
        else:
            topic.offer(run)

    def give_up(self, run: Run) -> None:
        """Nobody waits for it any more."""
        topic = self.by_name.get(run.topic)
        if topic is not None:
            topic.give_up(run)

    def find(self, name: bytes) -> Topic | None:
        """A new one where it is not there; None at --max-topics."""
        topic = self.by_name.get(name)
        if topic is None and self._has_room():
            topic = self._new(name, self._state.later_tokens(name.decode()))
            self._tell((topic,), monotonic_ns())
        return topic

    def decide(self, now: int, horizon: int) -> bool:
        """The stage after reading: each topic that got something decides. True when some of it
        arrived after `horizon` and is left for the next wake-up."""
        dirty, self.dirty = self.dirty, []
        self._active.update(dirty)
        for topic in dirty:
            arrivals = topic.arrivals
            try:
                topic.decide(now, horizon if self._in_order else now)
            except Exception as error:
                self.failed(topic, error, arrivals)
        self.state_file.write_debts()
        for topic in dirty:
            self._pump(topic, now)
            if topic.arrivals:
                self.dirty.append(topic)
        return bool(self.dirty)

    def _pump(self, topic: Topic, now: int) -> None:
        try:
            topic.pump(now)
        except Exception as error:
            self.failed(topic, error)

    def failed(self, topic: Topic, error: Exception, arrivals: Sequence[Run] = ()) -> None:
        """A fault of ours in one topic: who waits for it is not left to wait, and the others go
        on. arrivals: what it was deciding about."""
        self._reactor.fault(error, f"topic {topic.name.decode()} failed and loses what waits")
        topic.lose_waiting(arrivals)

    @property
    def have_slo(self) -> bool:
        """Is there one with an SLO?"""
        return any(topic.has_slo for topic in self.by_name.values())

    def tick(self, now: int) -> bool:
        """Tick the topics that are in use, once a second; True where messages came in the last
        seconds, or a record is kept."""
        active, self._active = self._active, set()
        for topic in active:
            topic.tick(now)
            if topic.record is not None or topic.ring:
                self._active.add(topic)
        if self._fleeting:
            self._forget_fleeting(active, now)
        return bool(active)

    def _forget_fleeting(self, active: set[Topic], now: int) -> None:
        """nsqd drops an ephemeral topic with its last channel: one that nobody uses any more, and
        that has no contract of its own, is not kept and shown for ever."""
        for name, idle in list(self._fleeting.items()):
            topic = self.by_name.get(name)
            if topic is None or self._limits.is_given(name):
                del self._fleeting[name]
            elif topic in active or topic.backlog.messages or topic.in_flight:
                self._fleeting[name] = 0
            elif topic.is_full(now):
                self._fleeting[name] = idle + 1
                if idle >= _FLEETING_SECONDS:
                    del self._fleeting[name]
                    self._drop(name)

    def _new(self, name: bytes, tokens: float | None = None) -> Topic:
        """tokens: that a default limit had when the gateway started; None: all of its burst."""
        topic = self.by_name[name] = Topic(name, self, self._bounds, Meter())
        topic.log = self._log
        topic.trace = self._trace
        topic.probe = self._probe
        topic.set_keys(self._keys.get(name, {}))
        if is_ephemeral(name):
            self._fleeting[name] = 0
        limits, default = self._limits, self._limits.default
        if limits.is_shut(name):
            topic.shut(limits.refuses(name), monotonic_ns())
        elif default is not None and not limits.is_given(name):
            now = monotonic_ns()
            if tokens is not None:
                tokens = self._filled(tokens, default, now)
            topic.set_limit(default, now, tokens)
        if topic.bucket is None and tokens is not None:
            topic.debt = min(0.0, tokens)  # of a share that it had before
        return topic

    def _filled(self, tokens: float, limit: Limit, now: int) -> float:
        """What has become by now of the tokens at the start."""
        return tokens + limit.rate * (now - self._started_at) / NS

    def _set(self, topic: Topic, now: int, tokens: float | None = None) -> None:
        """Limit the topic by whoever has the last word: the Load Distributor, then its own
        contract. tokens: of a bucket that begins; None: full"""
        if self._limits.is_shut(topic.name):
            topic.shut(self._limits.refuses(topic.name), now)
        else:
            topic.set_limit(self._limits.without_share(topic.name), now, tokens)

    def _has_room(self) -> bool:
        """Is there room for one topic more? Topics that are idle and without a contract make room.
        One that owes, or whose default limit has tokens missing, does not: it would come back with
        all of them."""
        if len(self.by_name) < self._max_topics:
            return True
        now = monotonic_ns()
        idle = [
            name
            for name, topic in self.by_name.items()
            if not topic.backlog.messages and not self._limits.is_given(name) and topic.is_full(now)
        ]
        for name in idle:
            self._drop(name)
        return bool(idle)

    def _drop(self, name: bytes) -> None:
        """Forget a topic that has nothing worth keeping, here and in the state file."""
        del self.by_name[name]
        self._state.topics.pop(name.decode(), None)
        if self._log is not None:
            self._log.forget(name)

    # --- what a topic asks (Gate) -------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._nsqd.is_open

    def carrier(self, topic: Topic) -> Carrier | None:
        if is_ephemeral(topic.name):
            topic.known = False  # it goes with its last channel, and its next PUB asks lookupd
        return self._nsqd.carrier(topic)

    def call_at(self, when: int, alarm: Callable[[int], None]) -> None:
        self._reactor.call_at(when, alarm)

    def owe(self, topic: Topic, debt: float) -> None:
        self.state_file.owe(topic, debt)

    def write_debts(self) -> None:
        self.state_file.write_debts()

    def batch_waits(self, topic: Topic) -> None:
        self.tell_soon()

    # --- limits -------------------------------------------------------------------------------

    def set_limit(self, name: str, limit: Limit | None) -> None:
        """Begin, change or end a contract at run time, and keep it: `written` tells when. Raises
        SrtmError at --max-topics, and for a contract of a Load Distributor."""
        if limit is not None and limit.needs_distributor:
            raise SrtmError(f"topic {name}: {limit.needs_distributor}")
        key = name.encode()
        topic = self.by_name.get(key)
        if limit is None:
            self._limits.own.pop(key, None)
            if topic is None:
                return
        else:
            if topic is None and not self._has_room():
                raise SrtmError(f"{self._max_topics} topics are in use (--max-topics)")
            self._limits.own[key] = limit
        now, tokens = monotonic_ns(), None
        if topic is None:
            tokens = self._state.later_tokens(name)
            topic = self._new(key, tokens)  # a debt of before is the topic's own already
        if key not in self._limits.leased:
            if tokens is not None and limit is not None:
                tokens = self._filled(max(tokens, 0.0), limit, now)
            self._set(topic, now, tokens)
            self._tell((topic,), now)
        self.state_file.write_soon()
        log.info("topic %s: %s", name, limit.document() if limit else "no contract of its own")

    def is_leased(self, name: str) -> bool:
        """Does a Load Distributor give its limit?"""
        return self._limits.is_leased(name.encode())

    def kept_knowledge(self) -> Known:
        """What the state file keeps of what the distributor told."""
        return self._state.known

    def know(self, known: Known) -> bool:
        """What a Load Distributor told besides shares: topics that it names get through here by a
        share only. True when `keep` is due."""
        before, self._state.known = self._state.known, known
        now = monotonic_ns()
        if self._log is not None and before.contracts != known.contracts:
            changed = dict(before.contracts.items() ^ known.contracts.items())
            self._tell(self._there(changed), now)
        if not self._limits.know(known):
            return (before.store, before.contracts) != (known.store, known.contracts)
        limits = self._limits
        for topic in list(self.by_name.values()):
            name = topic.name
            if name not in limits.leased and (topic.is_shut or limits.is_shut(name)):
                self._set(topic, now)
                self._tell((topic,), now)
        return True

    def kept_leases(self) -> dict[str, Limit]:
        """Shares of the state file."""
        topics = self._state.topics
        return {name: kept.leased for name, kept in topics.items() if kept.leased is not None}

    def lease(self, changes: dict[str, Limit | None]) -> bool:
        """Shares of a Load Distributor: they stand over the topic's own contract until they are
        taken back (None). A bucket that begins so is empty, as the tokens of a share were another
        broker's until now; one that is there keeps its tokens and its debt.

        True when `keep` is due, before the change is acknowledged: after a crash a gateway begins
        with the safe share of what was written last. A write waits for the disk, so it is not made
        for a change that leaves the safe share as it is."""
        now = monotonic_ns()
        leased = self._limits.leased
        before = {name: safe_share(limit) for name, limit in leased.items()}
        for name, limit in changes.items():
            key = name.encode()
            topic = self.by_name.get(key)
            if limit is None:
                leased.pop(key, None)
                if topic is not None:
                    self._set(topic, now)
            else:  # --max-topics is for what clients name
                leased[key] = limit
                tokens = self._state.first_tokens(name) if topic is None else 0.0
                (topic or self._new(key)).set_limit(limit, now, tokens or 0.0, leased=True)
            log.debug("topic %s: share %s", name, limit or "taken back")
        self._tell(self._there(changes), now)
        return before.keys() != leased.keys() or not all(
            is_near(before[name], safe_share(limit)) for name, limit in leased.items()
        )

    def _there(self, names: Iterable[str]) -> list[Topic]:
        """Those of the topics named that the gateway has."""
        found = map(self.by_name.get, map(str.encode, names))
        return [topic for topic in found if topic is not None]

    def _tell(self, topics: Iterable[Topic], now: int) -> None:
        """The admission log: what their limits are from `now` on, by the buckets' own reckoning."""
        admissions = self._log
        if admissions is None:
            return
        contracts, epoch = self._state.known.contracts, self._state.known.newest
        for topic in topics:
            word = self._limits.word(topic.name, topic.limit, contracts, epoch)
            admissions.say(topic.name, word, now)

    def observe(self, names: frozenset[str]) -> None:
        """Keep the times of arrival of these topics, and of no others, until they are reported."""
        for topic in self.by_name.values():
            topic.observed.want_times(topic.name.decode() in names)

    def count_senders(self, names: frozenset[str]) -> None:
        """Count the messages of each publisher of these topics, and of no others, until they are
        reported."""
        for topic in self.by_name.values():
            topic.observed.want_senders(topic.name.decode() in names)

    def set_keys(self, keys: Mapping[bytes, Mapping[str, str]]) -> None:
        """Topic -> publisher -> key, of the topics that are fair over keys; all of them."""
        self._keys = keys
        for name, topic in self.by_name.items():
            topic.set_keys(keys.get(name, {}))

    def empty(self, name: str) -> None:
        """Throw the tokens of its bucket away."""
        topic = self.by_name.get(name.encode())
        if topic is not None and topic.bucket is not None:
            topic.bucket.empty(monotonic_ns())

    def replace(self, before: tuple[Contract, ...], after: tuple[Contract, ...]) -> None:
        """Apply what has changed in a file of contracts. Raises SrtmError."""
        old = {contract.topic: contract.limit() for contract in before}
        new = {contract.topic: contract.limit() for contract in after}
        for name in old.keys() | new.keys():
            if old.get(name) != new.get(name):
                self.set_limit(name, new.get(name))

    def _kept(self, clean: bool) -> dict[str, Kept]:
        now = monotonic_ns()
        kept = {
            name: Kept(before.limit, before.tokens, False)
            for name, before in self._state.topics.items()
            if before.tokens < 0 and name.encode() not in self.by_name
        }  # nobody has used them since
        for topic in self.by_name.values():
            own = self._limits.own.get(topic.name)
            if topic.bucket is None and own is None and not topic.debt:
                continue
            tokens = topic.debt if topic.bucket is None else topic.bucket.level(now)
            kept[topic.name.decode()] = Kept(
                own or topic.limit,
                tokens if clean else min(tokens, 0.0, -topic.most_owed),
                own is not None,
                self._limits.leased.get(topic.name),
            )
        return kept

    # --- nsqd's side --------------------------------------------------------------------------

    def follow(self, limits: nsq.Limits, bounds: Bounds, most_bytes: int) -> None:
        """nsqd was started anew with other limits. most_bytes: of all backlogs"""
        self._bounds = bounds
        self.backlogs.most = most_bytes
        for topic in list(self.by_name.values()):
            try:
                topic.follow(limits, bounds)
            except Exception as error:
                self.failed(topic, error)

    def deleted(self, name: str) -> None:
        """nsqd has dropped it through our door: its next PUB is a first one again."""
        topic = self.by_name.get(name.encode())
        if topic is not None:
            topic.known = False

    def release(self) -> None:
        """The gate is open again."""
        now = monotonic_ns()
        for topic in list(self.by_name.values()):
            topic.release(now)

    def fail_waiting(self, why: str) -> None:
        for topic in list(self.by_name.values()):
            topic.fail_waiting(why)

    def try_one(self) -> None:
        """Try the topic whose next message waits longest: only a message tells whether an ill nsqd
        can write again."""
        waiting = {
            each: run.stamp
            for each in self.by_name.values()
            if (run := each.held.first(0)) is not None and not each.is_shut and not each.is_stuck
        }
        if waiting:
            min(waiting, key=waiting.__getitem__).try_one(monotonic_ns())
