"""Which broker may hold how much of one topic's bucket, and when. Pure: time is passed in.

A sub-bucket is a lease. A broker is told its sub-bucket in the answer to its report, keeps it until
`lease_seconds` after it *sent* the last report that was answered, and falls to the sub-bucket's
floor then. The distributor counts the lease from when it *received* that report, which is later. So
it always knows the most that a broker can hold:

- every sub-bucket that it was told of since the one that it has acknowledged, whichever arrived;
- after the lease, and the topic's grace if it has one, the floor of these.

A share grows only by what is left of r and b beside the most that all others can hold; shrinking is
always possible. So with any loss, delay, order and restart, sum r_l <= r and sum b_l <= b at every
instant, if the contract stays or grows. (A contract made smaller holds from when the shrinks were
acknowledged, or their leases ended; one below the floors of brokers that are away holds from when
these are back, or forgotten.)

What the distributor knows of one broker (`Holder`), as a share comes, changes, and is lost:

    what happened             grants kept (epoch, share)     the most that it can hold
    nothing yet               (0, nothing)                   nothing
    it is told of A           (0, nothing), (7, A)           A, whether that arrived or not
    it has epoch 7            (7, A)                         A
    it is told of B           (7, A), (9, B)                 the larger of A and B, in r and in b
    its lease ends            (7, A), (9, B)                 the larger of their floors
    it reports again, has 9   (9, floor of B)                that floor, until it is told of another

A topic's messages may come in batches that are admitted whole. No b_l is below the largest batch
that is stated, nor, while its broker is in contact, below the largest that was seen, as far as b
goes round; a bigger one waits until its broker has the whole contract for a moment (`turns.py`). A
broker that has all of b may owe for a batch bigger than b: what others get begins once it has told
what it owes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import fsum, inf, nextafter, ulp

from srtm.limits.contract import MIN_RATE, Batches, Contract
from tb_adaptor.turns import NOBODY, NONE, TURN_SECONDS, Turns, Waiting


@dataclass(frozen=True, slots=True)
class Share:
    """A sub-bucket: r_l in messages/s, b_l in messages.

    least:  the burst of its floor, the largest batch that the contract states, in messages
    grace: how long a broker keeps it after its lease has ended, seconds
    """

    rate: float
    burst: float
    least: int = 1
    grace: float = 0.0

    @property
    def floor(self) -> "Share":
        """The smallest sub-bucket that admits a batch of `least`, with its part of the rate:
        (least r_l / b_l, least), but no rate that is none. What is left of the share without
        contact, as `srtm.gateway.lease.safe_share` has it. The floor of a floor is itself."""
        return self.part(self.least)

    def part(self, burst: int) -> "Share":
        """No more than `burst` of it, with its part of the rate."""
        if self.burst <= burst:
            return self
        rate = max(self.rate * burst / self.burst, min(self.rate, MIN_RATE))
        return Share(rate, float(burst), self.least)

    def kept_by(self, least: int, grace: float) -> "Share":
        """The share where at least so much of it may be kept."""
        if self == NOTHING:
            return self
        return replace(self, least=max(self.least, least), grace=max(self.grace, grace))

    def most(self, other: "Share") -> "Share":
        return Share(
            max(self.rate, other.rate),
            max(self.burst, other.burst),
            max(self.least, other.least),
            max(self.grace, other.grace),
        )


NOTHING = Share(0.0, 0.0)


@dataclass(slots=True)
class Term:
    """Until when a broker's leases go on that go on together: those of sub-buckets that rest."""

    ends_at: float = -inf


_REMEMBERED = 8
"""grants of a broker that it has not acknowledged; two or three while a split changes"""


@dataclass(frozen=True, slots=True)
class Holder:
    """One broker's part of one topic.

    granted: (epoch, share): the one that it acknowledged last, and those that it was told of since
    ends_at: of its lease, seconds; no broker holds more than a floor after it and the share's
        grace. Infinite where the share is not of one broker, but all that may be held by brokers
        that nobody knows
    had_all: (epoch, b): it may have all of a b that has grown since, and owe for a batch bigger
        than that. So it counts as if it had all of b until it acknowledges a later epoch
    within: the lease goes on with this, until it is told of something else
    """

    granted: tuple[tuple[int, Share], ...] = ((0, NOTHING),)
    ends_at: float = -inf
    had_all: tuple[int, float] = (-1, 0.0)
    within: Term | None = None

    @property
    def lease_ends_at(self) -> float:
        return self.ends_at if self.within is None else max(self.ends_at, self.within.ends_at)

    @property
    def last(self) -> Share:
        """What it was told last."""
        return self.granted[-1][1]

    def sure(self, now: float) -> Share:
        """What it can be told again without harm: what it was told last, or the floor of that. It
        may hold more that it was told before; others may have that since, and a restart of the
        distributor forgets which."""
        return self._kept(self.last, now)

    def _kept(self, share: Share, now: float) -> Share:
        """What the broker keeps of a share that it was told: all of it, or its floor."""
        return share if now < self.lease_ends_at + share.grace else share.floor

    @property
    def acknowledged(self) -> Share:
        """What it had when it reported last; NOTHING before the first share."""
        return self.granted[0][1]

    @property
    def settled(self) -> bool:
        """Does it have what it was told last?"""
        return len(self.granted) == 1

    def most(self, now: float) -> Share:
        """The most that it can hold at `now`, each of r and b for itself."""
        shares = [self._kept(share, now) for _, share in self.granted]
        found = shares[0]
        for share in shares[1:]:
            found = found.most(share)
        epoch, burst = self.had_all
        if self.granted[0][0] <= epoch and now < self.lease_ends_at + found.grace:
            return replace(found, burst=max(found.burst, burst))
        return found

    def is_there(self, now: float) -> bool:
        """Is it in contact, so that it does as it is told?"""
        return now < self.lease_ends_at < inf

    def heard(self, now: float, applied_epoch: int) -> "Holder":
        """The holder after a report that it has what it was told with `applied_epoch`, or with the
        newest epoch before. A smaller one than it reported before changes nothing."""
        granted = self.granted
        if now >= self.lease_ends_at:
            # What it does not keep is at a floor: it gets that back by a new grant only.
            granted = tuple((epoch, self._kept(share, now)) for epoch, share in granted)
        first = 0
        for number, (epoch, _) in enumerate(granted):
            if epoch <= applied_epoch:
                first = number
        return replace(self, granted=granted[first:])

    def told(self, epoch: int, share: Share, lease_ends_at: float) -> "Holder":
        """The holder once it is told of `share`. epoch: that of the share before only where that is
        the same."""
        granted = self.granted
        if epoch > granted[-1][0]:
            granted = (*granted, (epoch, share))
        if len(granted) > _REMEMBERED:
            # It acknowledges nothing: two of its grants become one that covers both.
            (_, one), (first, other) = granted[2], granted[1]
            granted = (granted[0], (first, one.most(other)), *granted[3:])
        ends_at = max(self.lease_ends_at, lease_ends_at)
        return replace(self, granted=granted, ends_at=ends_at, within=None)

    def besides(self, other: "Holder | None") -> "Holder":
        """The holder where it may still hold what `other` knows of: that was granted to it under
        the same name before, and nothing tells that it was acknowledged since."""
        if other is None:
            return self
        (epoch, share), *later = self.granted
        for _, each in other.granted:
            share = share.most(each)
        ends_at = max(self.lease_ends_at, other.lease_ends_at)
        had_all = max(self.had_all, other.had_all)
        return Holder(((epoch, share), *later), ends_at, had_all)

    def grown(self, before: float, burst: float) -> "Holder":
        """b was `before`, and is `burst` now."""
        has_all = any(before <= share.burst < burst for _, share in self.granted)
        if not has_all or self.lease_ends_at == inf:
            return self
        return replace(self, had_all=(self.granted[-1][0], burst))


@dataclass(slots=True)
class TopicLeases:
    """The brokers of one topic: what each is to have, and what each may hold.

    total:   the contract (r, b), with the largest batch that it states, at most all of b
    targets: broker -> share of the placement in force; their sum is at most `total`
    holders: broker -> what it may hold; a former broker stays here until it holds nothing
    claims:  brokers without a share to which messages come all the same
    seen:    the largest batch that was too big for a share, since this distributor leads
    is_each: a batch is bounded by its broker's share alone, and may owe there
    turns:   who has the whole contract while a batch is bigger than a share can be
    heard:   brokers that have told what they owe since this distributor leads
    """

    total: Share = NOTHING
    targets: Mapping[str, Share] = field(default_factory=dict)
    holders: dict[str, Holder] = field(default_factory=dict)
    claims: set[str] = field(default_factory=set)
    seen: int = 1
    is_each: bool = False
    turns: Turns = field(default_factory=Turns)
    heard: set[str] = field(default_factory=set)

    def agree(self, contract: Contract) -> None:
        """The contract as it is from now on."""
        before, burst = self.total.burst, contract.burst
        self.total = Share(contract.rate, burst, contract.least_burst, contract.lease_grace or 0.0)
        self.seen = 1
        self.is_each = contract.batches is Batches.EACH
        having = [
            name
            for name, holder in self.holders.items()
            if any(share != NOTHING for _, share in holder.granted)
        ]
        if not before:  # read from a store, which does not say what b was as a share was given
            before = 1.0 if len(having) == 1 else inf
        for name in having:
            self.holders[name] = self.holders[name].grown(before, burst)

    def may_keep(self, contract: Contract) -> None:
        """Brokers may have been told of their shares by this contract, which was not known here:
        without contact they keep its largest batch, and for its lease grace all of it."""
        least, grace = contract.least_burst, contract.lease_grace or 0.0
        for name, holder in self.holders.items():
            granted = tuple((epoch, share.kept_by(least, grace)) for epoch, share in holder.granted)
            self.holders[name] = replace(holder, granted=granted)

    @property
    def is_calm(self) -> bool:
        """Does nobody outside the placement hold anything, or claim it, and does no batch wait for
        the whole contract?"""
        turns = self.turns
        return (
            not self.claims
            and turns.broker is None
            and not (turns.waiting or turns.before or turns.unpaid)
            and self.holders.keys() <= self.targets.keys()
        )

    @property
    def least(self) -> int:
        """The least b_l in contact, in messages: the largest batch that is stated, or that came as
        far as b goes round."""
        brokers = len(self.targets) + len(self.outsiders())
        return max(self.total.least, min(self.seen, int(self.total.burst / max(1, brokers))))

    def report(self, broker: str, waiting: Waiting, now: float) -> None:
        """What waits there, and what it owes, by its report."""
        self.heard.add(broker)
        if self.is_each:
            waiting = Waiting(0, waiting.messages)
        if self.turns.broker is None and 0 < self._usual(broker, now) < waiting.batch:
            self.seen = max(self.seen, min(waiting.batch, int(self.total.burst)))
        self.turns.report(broker, waiting)

    def pass_turn(self, broker: str, now: float) -> None:
        """Whose turn it is from now on. `broker` is in contact: it has just reported."""
        turns = self.turns
        turns.forget_others(self.holders, self.total.burst)
        if not (turns.waiting or turns.before or turns.unpaid) and turns.broker is None:
            return
        most = [(each.is_there(now), each.most(now)) for each in self.holders.values()]
        away = fsum(share.rate for is_there, share in most if not is_there)
        if turns.broker == NOBODY:
            if all(share == NOTHING for is_there, share in most if is_there):
                turns.begin(now)
        elif turns.broker in self.holders:
            needed = min(turns.waiting.get(turns.broker, NONE).batch, self.total.burst)
            if self.holders[turns.broker].acknowledged.burst >= max(1.0, needed):
                turns.begin(now)
        longest = TURN_SECONDS + 2 * self.total.burst / self.total.rate if self.total.rate else 0.0
        turns.decide(
            is_there=lambda name: name == broker or self.holders[name].is_there(now),
            needs=lambda name, batch: batch > self._usual(name, now),
            can=lambda name, batch: self._goes(name, batch, now),
            longest=longest,
            rate=max(0.0, self.total.rate - away),
            now=now,
        )

    def _usual(self, broker: str, now: float) -> float:
        """b_l without a turn, in messages."""
        if broker in self.targets:
            return self._regular(broker, now).burst
        return self.least if broker in self.claims else 0

    def _goes(self, broker: str, batch: int, now: float) -> bool:
        """Has b room for that batch, beside what those hold who are out of contact? One bigger
        than b owes, so nobody of these may owe already. (One that is in contact pays first.)"""
        others = {name: holder for name, holder in self.holders.items() if name != broker}
        gone = [name for name, each in others.items() if not each.is_there(now)]
        away = fsum(others[name].most(now).burst for name in gone)
        if batch <= self.total.burst:
            return away + batch <= self.total.burst
        known = self.heard >= (self.targets.keys() | others.keys()) - {broker}
        owes = any(self.turns.waiting.get(name, NONE).debt for name in gone)
        return known and not away and not owes and not self.turns.before

    def outsiders(self) -> list[str]:
        """Brokers that are to have nothing, and may hold something or claim a floor."""
        return [name for name in self.holders.keys() | self.claims if name not in self.targets]

    def place(self, targets: Mapping[str, Share]) -> None:
        """Another placement. Whoever is left by its publishers claims a floor before all others."""
        formers = self.targets.keys() - targets.keys()
        self.targets = targets
        self.claims = (self.claims | formers) - targets.keys()
        if not self.fits(len(targets), len(self.claims)):
            self.claims = set(formers)

    def claim(self, broker: str) -> None:
        """Messages come to a broker without a share of the placement: it is to have a floor, where
        b has room for one more whole message."""
        self.claims.discard(broker)
        if broker not in self.targets and self.fits(len(self.targets), len(self.claims) + 1):
            self.claims.add(broker)

    def left_to(self, broker: str, now: float) -> Share:
        """The floor of one that is to have nothing: of what it holds, or of the whole contract."""
        holder, least = self.holders.get(broker, Holder()), self.least
        own = holder.most(now)
        if broker in self.claims and (own == NOTHING or holder.is_there(now)):
            return own.part(least) if own.burst >= least else self.total.part(least)
        return own if holder.lease_ends_at == inf else own.floor

    def target(self, broker: str, now: float) -> Share:
        """What `broker` is to have: the whole contract or nothing while somebody has a turn. One
        that is to pay only has not all of b, so that no batch leaves it another debt."""
        if self.turns.broker is None:
            return self._regular(broker, now)
        if broker != self.turns.broker or self.total == NOTHING:
            return NOTHING
        whole = replace(self.total, grace=0.0)  # for a moment, and all others have nothing
        burst = self.total.burst
        return replace(whole, burst=max(1.0, _less(burst))) if self.turns.is_up else whole

    def _regular(self, broker: str, now: float) -> Share:
        """Its share of the placement, with no less b than the largest batch, while others still
        hold or claim floors less its part of these."""
        wanted, least = self.targets.get(broker, NOTHING), self.least
        if wanted == NOTHING:
            return wanted
        floors = [self.left_to(name, now) for name in self.outsiders()]
        is_small = any(share.burst < least for share in self.targets.values())
        if not is_small and not any(floor.burst for floor in floors):
            return replace(wanted, least=self.total.least, grace=self.total.grace)
        rates = fsum(share.rate for share in self.targets.values())
        bursts = fsum(share.burst for share in self.targets.values())
        # b beyond the least of each
        spare = fsum(max(0.0, share.burst - least) for share in self.targets.values())
        rate_left = min(rates, self.total.rate - fsum(each.rate for each in floors))
        burst_left = min(bursts, self.total.burst - fsum(each.burst for each in floors))
        left = max(0.0, burst_left - least * len(self.targets))
        over = max(0.0, wanted.burst - least) * left / spare if spare > 0 else 0.0
        return Share(
            max(MIN_RATE, _less(wanted.rate * max(0.0, rate_left) / rates)),
            max(float(least), _less(least + over)),
            self.total.least,
            self.total.grace,
        )

    def share(self, broker: str, now: float, keep_floor: bool) -> Share:
        """What `broker` may be told now: its target, as far as the others leave room; never less
        than what it was told of it. NOTHING where there is no room for a floor yet, and while
        another broker has its turn.

        keep_floor: messages still come to a broker that is to have nothing, so it has a floor
        """
        own = self.holders.get(broker, Holder()).sure(now)
        others = [holder.most(now) for name, holder in self.holders.items() if name != broker]
        if self.turns.broker not in (None, broker):
            return NOTHING
        if broker not in self.targets and self.turns.broker is None:
            if not keep_floor or self.total == NOTHING:
                return NOTHING
            if own != NOTHING and own.burst >= self.least:
                return own.part(self.least)
            wider = self._floor(broker, now, others)
            return own if wider == NOTHING else wider
        target = self.target(broker, now)
        rate = _room(self.total.rate, target.rate, [each.rate for each in others])
        burst = _room(self.total.burst, target.burst, [each.burst for each in others])
        found = Share(
            max(rate, min(own.rate, target.rate)),
            max(burst, min(own.burst, target.burst)),
            target.least,
            target.grace,
        )
        if found.burst < 1 or found.rate < MIN_RATE:
            return NOTHING
        least = target.floor
        if own == NOTHING and (found.rate < least.rate * 0.5 or found.burst < least.burst):
            return NOTHING  # a start with next to no rate or burst would only hold messages
        return found

    def _floor(self, broker: str, now: float, others: list[Share]) -> Share:
        """The floor of a broker that claims one, once the others have made room; NOTHING before."""
        wanted = self.left_to(broker, now)
        rate = _room(self.total.rate, wanted.rate, [each.rate for each in others])
        burst = _room(self.total.burst, wanted.burst, [each.burst for each in others])
        enough = burst >= wanted.burst and rate >= max(MIN_RATE, wanted.rate * 0.5)
        return Share(rate, wanted.burst, wanted.least) if enough else NOTHING

    def fits(self, brokers: int, outsiders: int) -> bool:
        """Is there a whole message of b, or a whole batch, for each?"""
        return (brokers + outsiders) * self.total.least <= self.total.burst


def _room(total: float, wanted: float, others: list[float]) -> float:
    """`wanted`, or what the others leave of `total`; 0 where they leave nothing. The sum is never
    more than `total`, not by the last binary place: fsum gives the sign of a sum exactly."""
    if fsum([*others, wanted, -total]) <= 0:
        return wanted
    left = total - fsum(others) - ulp(total)
    return left if left > 0 and fsum([*others, left, -total]) <= 0 else 0.0


def _less(value: float) -> float:
    """Two roundings less, so that the parts of a sum never exceed it."""
    return nextafter(nextafter(value, 0.0), 0.0) if value else value
