"""The agent: it reports arrivals to the Load Distributor, and applies the shares in the answers.

One small request a second, in the gateway's own loop. Each answer is the whole desired state, so no
answer depends on another having come. While the distributor is away the gateway goes on with what
it has, until the lease of that ends (see `Lease`). Messages never wait for the agent.

For the topics that it names the distributor's word stands over --topic, --default-limit and the
admin socket: theirs is a whole contract, its is this broker's share of one, and the sum over
brokers holds only if each keeps to its share. A topic that it names no more has its own again.
"""

import asyncio
import json
import logging
import random
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass
from heapq import nlargest
from math import inf
from operator import itemgetter
from typing import Any
from urllib.parse import quote

from srtm.gateway.lease import Changes, Desired, Keys, Lease, read_desired
from srtm.gateway.measure.counts import NOTHING, Counts, comparable, counts_of
from srtm.gateway.measure.waits import MOST_COUNTED, Waits, added, waits_of
from srtm.gateway.topic import Topic
from srtm.gateway.topics import Topics
from srtm.host.backoff import backoff_seconds
from srtm.host.clock import NS, boottime_ns, monotonic_ns
from srtm.http.client import Answer, Endpoint, Refusal, call
from srtm.http.exchange import MOST_QUESTION_BYTES, REPORTS_PROTOCOL, Exchange
from srtm.limits.contract import Limit
from srtm.text.errors import SrtmError, UnavailableError, UsageError
from srtm.text.words import counted

log = logging.getLogger("srtm.gateway")

_SOON_SECONDS = 0.05
"""Seconds until the next report after a change: others may grow only once it is acknowledged."""
_TIMEOUT_SECONDS = 2.0
MAX_BACKOFF_SECONDS = 3.0
_WHOLE_SECONDS = 60.0
"""from one answer with all topics to the next: in between, those that it has are not told again"""
_NO_EXCHANGE_NS = 60 * NS
"""until a distributor, or a proxy before it, that takes single reports alone is asked again"""
_LEASE_CHECK_SECONDS = 1.0
"""Seconds from one look at the lease to the next, at most: an alarm is set for its end, but a
suspended machine's alarms are late."""
_TOPICS_PER_TURN = 100
"""About a millisecond; messages have their turn between."""
_MOST_SENDERS = 100
"""publishers of a topic in one report"""


@dataclass(frozen=True, slots=True)
class Identity:
    """This broker, as it registers: where clients reach it, and messages/s that it holds within
    its SLO (0: not measured yet). instance: of its state file, the same after a restart."""

    name: str
    tcp_address: str
    http_address: str
    capacity: int
    instance: str = ""

    def document(self) -> dict[str, object]:
        return asdict(self) | {"capacity": self.capacity or None}


class Agent:
    """See the module. `run` goes on until it is cancelled."""

    def __init__(self, endpoint: Endpoint, broker: Identity, topics: Topics) -> None:
        self.endpoint = endpoint
        self.broker = broker
        self.contact_at: int | None = None  # the last answered report
        self.failures = 0  # in a row
        self.lease = Lease()
        self._topics = topics
        self._path = f"/v1/brokers/{quote(broker.name, safe='')}"
        self._registered = False
        self._counted: dict[bytes, Counts] = {}  # by the last answered report
        self._counted_at = boottime_ns()
        self._waited: dict[bytes, Waits] = {}  # likewise, of topics whose arrivals are wanted
        self._idle: dict[bytes, Limit | None] = {}  # likewise, topics that were idle, and by which
        self._answered = 0  # reports
        self._round_trip = 0.0  # seconds, of the last of them
        self._whole_at = -inf  # seconds since boot, of the last answer with all topics
        self._exchanged: Exchange | None = None  # where reports go
        self._no_exchange_until = 0  # monotonic ns
        self._alarm: asyncio.TimerHandle | None = None
        self._said = ""
        self._taken = ""  # by whom its name is
        self._desired: Desired | None = None  # the last answer
        self._keys: dict[str, Keys] = {}  # of topics that are fair over keys
        self._process = secrets.token_hex(8)
        self._batch_waits = asyncio.Event()
        topics.tell_soon = self._batch_waits.set
        topics.know(topics.kept_knowledge())
        topics.lease(self.lease.begin(topics.kept_leases(), topics.kept_knowledge()))

    # --- what others see of it ----------------------------------------------------------------

    @property
    def contact_age_seconds(self) -> float | None:
        """Seconds since the last answered report; None before the first."""
        return None if self.contact_at is None else (boottime_ns() - self.contact_at) / NS

    @property
    def lease_left_seconds(self) -> float:
        """0 once it has ended, and before the first."""
        if self.lease.ends_at is None:
            return 0.0
        return max(0, self.lease.ends_at - boottime_ns()) / NS

    def document(self) -> dict[str, Any]:
        """What /stats shows of the agent: durations in seconds."""
        return {
            "address": self.endpoint.address,
            "broker": self.broker.name,
            "contact": not self.failures and self.contact_at is not None,
            "contact_age_seconds": self.contact_age_seconds,
            "epoch": self.lease.epoch,
            "lease_left_seconds": self.lease_left_seconds,
            "safe_share": self.lease.ended,
            "kept_shares": self.lease.kept_seconds(boottime_ns()),
            "topics": len(self.lease.applied),
            "error": self._said if self.failures else "",
        }

    # --- life ---------------------------------------------------------------------------------

    async def first_contact(self) -> None:
        """Contact the distributor before the doors open, so that no topic is without its limit
        after a restart. The wait is short, and the gateway starts without an answer too. Raises
        UnavailableError where another gateway has this one's name."""
        await self._exchange()
        self._leave_to_another()

    def _leave_to_another(self) -> None:
        """One that never was this broker knows no limits. Raises UnavailableError."""
        if self._taken and self.contact_at is None:
            raise UnavailableError(f"--broker-name: {self._taken}")

    async def run(self) -> None:
        """Raises UnavailableError where another gateway has this one's name."""
        while True:
            self._leave_to_another()
            epoch = self.lease.epoch
            if await self._exchange():
                changed = self.lease.epoch != epoch
                assert self._desired is not None
                await self._pause(_SOON_SECONDS if changed else self._desired.report_seconds)
            else:
                await asyncio.sleep(self._pause_seconds())

    async def _pause(self, seconds: float) -> None:
        """Shorter where a batch begins to wait for a bigger share."""
        await asyncio.sleep(min(seconds, _SOON_SECONDS))
        if seconds > _SOON_SECONDS:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._batch_waits.wait(), seconds - _SOON_SECONDS)
        self._batch_waits.clear()

    def _pause_seconds(self) -> float:
        """Seconds to pause after a failure. Several attempts fit into a lease, however short that
        is."""
        most = MAX_BACKOFF_SECONDS
        if self._desired is not None:
            most = min(most, self._desired.lease_seconds / 4)
        return backoff_seconds(self.failures - 1, random.random(), most)

    def close(self) -> None:
        self._hang_up()
        self._cancel_alarm()

    def _cancel_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    async def _exchange(self) -> bool:
        """One report and its answer; False when there was none that can be used."""
        try:
            if not self._registered:
                await self._register()
            if not await self._report():  # another distributor leads, and has to be told first
                await self._register()
                if not await self._report():
                    raise UnavailableError(f"{self.endpoint.address} does not register this broker")
        except SrtmError as error:
            self.failures += 1
            self._say(str(error))
            return False
        if self.failures or not self._said:
            log.info("distributor at %s: in contact", self.endpoint.address)
        self.failures = 0
        self._said = "in contact"
        return True

    def _say(self, what: str) -> None:
        """Log each new failure once, not once a second."""
        if what != self._said:
            if self._taken and self.contact_at is None:
                return  # it ends, and says why
            held = "safe shares" if self.lease.ended else "its last shares"
            if self.lease.kept:
                held += f" and {counted(len(self.lease.kept), 'share')} kept by a lease grace"
            log.warning("distributor: %s; going on without it, with %s", what, held)
            self._said = what

    # --- the exchange -------------------------------------------------------------------------

    async def _register(self) -> None:
        """Register with all that is known here: a distributor that lost its store learns it
        again."""
        lease, known = self.lease, self.lease.known
        document = self.broker.document() | {
            "process": self._process,
            "store": known.store,
            "applied_epoch": lease.epoch,
            "newest": max(known.newest, lease.epoch),
            "proof": known.proof,
            "lease_seconds": lease.lease_seconds,
            "held": lease.held(),
            "names": sorted(known.names),
        }
        body = json.dumps(document).encode()
        answer = await call(self.endpoint, "POST", "/v1/brokers", body, _TIMEOUT_SECONDS)
        self._taken = answer.error if answer.status == 409 else ""
        if self._taken:
            lease.revoke()
            self._watch_lease()
        self._check(answer, "does not register this broker")
        self._registered = True

    async def _report(self) -> bool:
        """False where this gateway has to register first."""
        asked_at = boottime_ns()
        counts = {}
        waited: dict[bytes, Waits] = {}
        idle = dict[bytes, Limit | None]()
        entries, clock = [], monotonic_ns() // 1_000_000
        is_whole = not self._has_topics(asked_at / NS)
        if is_whole:  # what either side may have forgotten is told again
            self._idle = {}
        for number, topic in enumerate(list(self._topics.by_name.values()), 1):
            if self._is_news(topic):
                count = counts[topic.name] = counts_of(topic)
                waits = None
                if topic.observed.times is not None:
                    waits = waited[topic.name] = waits_of(topic)
                entry = self._entry(topic, count, (asked_at - self._counted_at) / NS, waits)
                limit = self.lease.applied.get(topic.name.decode())
                if _is_idle(entry, limit):
                    idle[topic.name] = limit
                    if self._idle.get(topic.name) == limit:
                        continue
                is_told = any(value for key, value in entry.items() if key != "topic")
                if is_told or self._is_shared(topic):
                    entries.append(entry)
            if number % _TOPICS_PER_TURN == 0:
                await asyncio.sleep(0)
        seconds = (asked_at - self._counted_at) / NS
        self._idle = {}  # until it is answered
        body = await _encode(self._head(seconds, is_whole, clock), entries)
        answer = await self._told(body)
        if answer.status == 404:
            self._registered = False  # it is new, or has forgotten
            return False
        round_trip = (boottime_ns() - asked_at) / NS
        self._check(answer, "takes no report")
        self._take(answer, asked_at)
        await self._topics.state_file.written()  # the next report acknowledges it
        self.contact_at = boottime_ns()
        if is_whole:
            self._whole_at = asked_at / NS
        there = self._topics.by_name
        self._counted = {n: each for n, each in (self._counted | counts).items() if n in there}
        self._counted_at, self._waited, self._idle = asked_at, waited, idle
        self._answered += 1
        self._round_trip = round_trip
        return True

    async def _told(self, body: bytes) -> Answer:
        """What is answered to a report: on a connection that is kept for reports, but for long ones
        and a distributor that knows of no such connection. Raises UnavailableError."""
        if len(body) <= MOST_QUESTION_BYTES and monotonic_ns() >= self._no_exchange_until:
            if self._exchanged is not None and self._exchanged.is_over:
                self._hang_up()
            try:
                if self._exchanged is None:
                    self._exchanged = await Exchange.open(
                        self.endpoint, f"{self._path}/reports", REPORTS_PROTOCOL, _TIMEOUT_SECONDS
                    )
                answer = await self._exchanged.ask(body, _TIMEOUT_SECONDS)
                if answer.stands_by:
                    self._hang_up(turns=True)
                return answer
            except Refusal as refused:
                if refused.answer.stands_by:
                    return refused.answer
                self._no_exchange_until = monotonic_ns() + _NO_EXCHANGE_NS
            except UnavailableError:
                self._hang_up(turns=True)
                raise
        return await call(self.endpoint, "POST", f"{self._path}/report", body, _TIMEOUT_SECONDS)

    def _hang_up(self, turns: bool = False) -> None:
        """turns: the next one to be asked is another, where there is one"""
        if self._exchanged is not None:
            self._exchanged.close()
            if turns:
                self.endpoint.turn(self._exchanged.at)
            self._exchanged = None

    def _has_topics(self, now: float) -> bool:
        """Has it all topics of the epoch that it shows, and were they told of late?"""
        known = self._desired
        is_known = known is not None and known.epoch == self.lease.epoch
        return is_known and now < self._whole_at + _WHOLE_SECONDS

    def _head(self, seconds: float, is_whole: bool, clock: int) -> dict[str, Any]:
        """The head of a report: what is applied, by whom, and how long the counts are of. clock:
        monotonic milliseconds"""
        return {
            "whole": is_whole,
            "applied_epoch": self.lease.epoch,
            "store": self.lease.known.store,
            "names_version": self.lease.known.names_version,
            "process": self._process,
            "keys": {name: version for name, (version, _) in self._keys.items()},
            "answered": self._answered,
            "round_trip": self._round_trip,
            "seconds": seconds,
            "clock": clock,
        }

    def _take(self, answer: Answer, asked_at: int) -> None:
        """Apply the desired state. Raises UnavailableError for none, or an older one."""
        try:
            desired = read_desired(answer.document, self._desired)
        except UsageError as error:
            raise self._unusable(f": {error}") from None
        changes = self.lease.answered(desired, asked_at)
        if changes is None:
            raise UnavailableError(
                f"{self.endpoint.address} answers with epoch {desired.epoch}, older than the known "
                f"{self.lease.epoch}: the answer and its lease are ignored"
            )
        before = self._desired
        self._desired = desired
        due = self._topics.know(self.lease.known)
        self._apply(changes, due)
        if before is None or before.observed != desired.observed:
            self._topics.observe(desired.observed)
        if before is None or before.counted != desired.counted:
            self._topics.count_senders(desired.counted)
        for name, epoch in desired.emptied.items():
            if before is None or before.emptied.get(name, 0) < epoch:
                self._topics.empty(name)
        keys = desired.keys_after(self._keys)
        if keys != self._keys:
            self._keys = keys
            self._topics.set_keys({name.encode(): each for name, (_, each) in keys.items()})
        self._watch_lease()

    def _check(self, answer: Answer, what: str) -> None:
        if answer.status not in (200, 201):
            raise self._unusable(f" {what}: {answer.error}")

    def _unusable(self, said: str) -> UnavailableError:
        """An answer with which nothing can be done: another address is asked next. said: of it"""
        at = self.endpoint.now()
        self.endpoint.turn(at)
        return UnavailableError(f"{at.address}{said}")

    # --- the lease ----------------------------------------------------------------------------

    def _apply(self, changes: Changes, due: bool = False) -> None:
        """due: the state file is to be written for another reason"""
        if (bool(changes) and self._topics.lease(changes)) or due:
            self._topics.state_file.write_soon()
        if changes:
            changed = counted(len(changes), "changed share")
            log.info("distributor: epoch %d: %s", self.lease.epoch, changed)

    def _watch_lease(self) -> None:
        """Fall to the safe shares when the lease ends, whatever else the loop waits for."""
        self._cancel_alarm()
        changes = self.lease.expire(boottime_ns())
        if changes:
            log.warning(
                "distributor: the lease has ended; topics with safe shares: %d", len(changes)
            )
        self._apply(changes)
        next_end_at = self.lease.next_end_at
        if next_end_at is not None:
            seconds = max(0.0, (next_end_at - boottime_ns()) / NS)
            seconds = min(seconds, _LEASE_CHECK_SECONDS)
            self._alarm = asyncio.get_running_loop().call_later(seconds, self._watch_lease)

    # --- the report ---------------------------------------------------------------------------

    def _is_news(self, topic: Topic) -> bool:
        """Does the distributor name it, or has it got something new?"""
        known = self._counted.get(topic.name, NOTHING)
        return (
            topic.backlog.messages > 0
            or topic.debt < 0
            or topic.meter.offered != known.offered
            or topic.meter.admitted != known.admitted
            or topic.name.decode() in self.lease.applied
        )

    def _is_shared(self, topic: Topic) -> bool:
        """Have others a share of it too? Then it counts that nothing came, and when."""
        name = topic.name.decode()
        limit = self.lease.applied.get(name)
        whole = self.lease.known.contracts.get(name)
        return limit is not None and (limit.rate, limit.burst) != whole

    def _entry(
        self, topic: Topic, count: Counts, seconds: float, waits: Waits | None = None
    ) -> dict[str, Any]:
        """Rates in messages/s since the last answered report; served and late are messages of the
        same time, backlog messages of now. waits: where its arrivals are wanted"""
        known = comparable(self._counted.get(topic.name, NOTHING), count)
        entry: dict[str, Any] = {
            "topic": topic.name.decode(),
            "offered": (count.offered - known.offered) / seconds,
            "admitted": (count.admitted - known.admitted) / seconds,
            "backlog": topic.backlog.messages,
            "waiting": topic.waiting if len(topic.held) < MOST_COUNTED else topic.backlog.messages,
            "served": count.served - known.served,
            "near": count.near - known.near,
            "late": count.late - known.late,
            "late_at_broker": count.late_at_broker - known.late_at_broker,
        }
        entry |= _batches(topic)
        if waits is not None:
            now = monotonic_ns() // 1_000_000
            before = self._waited.get(topic.name)
            entry |= _arrivals(topic, now) | {"waits": added(before, waits, topic, now)}
        if topic.observed.senders:
            entry["publishers"] = _senders(topic)
        return entry


def _is_idle(entry: dict[str, Any], limit: Limit | None) -> bool:
    """Does it tell that nothing came or waited, and that the bucket is full? limit: the share. Who
    shares the topic is told so once."""
    waits = entry.get("waits")
    if waits is None or limit is None or waits["tokens"] < limit.burst:
        return False
    told = any(value for key, value in entry.items() if key not in ("topic", "waits"))
    return not told and not waits["bins"] and waits["held"] == 0


def _batches(topic: Topic) -> dict[str, Any]:
    """The batch that waits first or was refused, and what batches have left to be paid off."""
    refused, topic.refused_batch = topic.refused_batch, 0
    level = topic.debt if topic.bucket is None else topic.bucket.level(monotonic_ns())
    found = {"batch": max(topic.waiting_batch, refused), "debt": max(0.0, -level)}
    return {name: value for name, value in found.items() if value}


def _arrivals(topic: Topic, now: int) -> dict[str, Any]:
    """(milliseconds before `now`, messages) since the last report, answered or not: they tell how
    arrivals cluster. Waits are counted from the last answered one, so what is lost shows."""
    observed = topic.observed
    times, observed.times = observed.times or {}, {}
    batches, observed.batches = observed.batches, []
    return {
        "arrivals": [(max(now - at, 0), count) for at, count in sorted(times.items())],
        "batches": [(max(now - at, 0), count) for at, count in batches],
    }


def _senders(topic: Topic) -> list[tuple[str, int]]:
    """(publisher, messages) since the last report, answered or not, of those that sent most."""
    senders, topic.observed.senders = topic.observed.senders or {}, {}
    return nlargest(_MOST_SENDERS, senders.items(), key=itemgetter(1))


async def _encode(head: dict[str, Any], entries: list[dict[str, Any]]) -> bytes:
    """The report's body; messages have their turn between the topics."""
    parts = []
    for start in range(0, len(entries), _TOPICS_PER_TURN):
        parts.append(json.dumps(entries[start : start + _TOPICS_PER_TURN])[1:-1])
        await asyncio.sleep(0)
    return f'{json.dumps(head)[:-1]}, "topics": [{", ".join(parts)}]}}'.encode()
