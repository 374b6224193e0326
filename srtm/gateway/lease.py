"""The shares that this gateway holds from the Load Distributor, and until when. No I/O, no clock.

A sub-bucket is a lease. It counts from when the answered report was *sent*, which is before the
distributor answered it, so that the gateway's lease ends before the distributor gives the share to
somebody else. After that the gateway keeps the safe share: one message of burst, with its part of
the rate. The distributor leaves that to it. A topic with a lease grace keeps its whole share for so
long first, which the distributor leaves to it too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from srtm.host.clock import NS
from srtm.limits.contract import MAX_GRACE_SECONDS, MIN_RATE, Batches, Contract, Limit
from srtm.text.errors import UsageError

_MAX_LEASE_SECONDS = 86_400.0
"""A broker that is away for longer keeps nothing: a slip of who wrote the answer."""

REPORT_SECONDS = 1.0
_SOONEST_SECONDS = 0.05


class Unplaced(StrEnum):
    """What becomes of a topic that has a contract, and no share here."""

    REJECT = "reject"
    FLOOR = "floor"  # held; the distributor sees that messages come, and makes room
    PASS = "pass"


Keys = tuple[str, dict[str, str]]
"""A version, and publisher -> key."""
Changes = dict[str, Limit | None]
"""Limits by topic; None: the distributor names the topic no more."""


def safe_share(limit: Limit) -> Limit:
    """The smallest sub-bucket that admits a message, or the topic's largest batch n, with its part
    of the rate: (n r_l / b_l, n), but no rate that is none. The safe share of a safe share is
    itself."""
    least = limit.least_burst
    rate = max(limit.rate * least / limit.burst, min(limit.rate, MIN_RATE))
    return limit.model_copy(update={"rate": rate, "burst": float(least)})


def is_near(one: Limit, other: Limit) -> bool:
    """Are the two limits the same, but for the roundings of shares that have the same r_l / b_l?"""
    same_rules = one.model_copy(update={"rate": other.rate}) == other
    return same_rules and abs(one.rate - other.rate) <= 1e-9 * other.rate


@dataclass(frozen=True, slots=True)
class Desired:
    """The whole state that a gateway is to have: an answer to a report.

    observed: topics whose arrivals are to be reported
    counted: topics whose publishers' messages are to be reported
    emptied: epoch by topic; a larger one than before empties its bucket
    report_seconds: until the next report is wanted
    entries: each topic's part of the answer, as it came
    store, newest, proof: whose epochs these are, and the largest of them, to be shown again
    contracts: each topic's whole (r, b)
    unplaced: what becomes of topics in `names` without a share
    names: of all topics that have a contract; None: those known before stay
    suspended: topics whose whole contract another broker has for a moment: messages wait
    keys: topic -> version, and publisher -> key, of topics that are fair over keys; those that it
          does not name are as before
    """

    epoch: int
    lease_seconds: float
    limits: Mapping[str, Limit]
    observed: frozenset[str] = frozenset()
    emptied: Mapping[str, int] = field(default_factory=dict)
    report_seconds: float = REPORT_SECONDS
    entries: Mapping[str, Any] = field(default_factory=dict)
    store: str = ""
    newest: int = 0
    proof: str = ""
    contracts: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    unplaced: Unplaced = Unplaced.PASS
    names_version: str = ""
    names: frozenset[str] | None = None
    counted: frozenset[str] = frozenset()
    suspended: frozenset[str] = frozenset()
    keys: Mapping[str, Keys] = field(default_factory=dict)

    def keys_after(self, known: Mapping[str, Keys]) -> dict[str, Keys]:
        """All that are known now: those of a topic that needs none any more are forgotten."""
        all_ = {**known, **self.keys}
        return {
            name: all_[name]
            for name, limit in self.limits.items()
            if limit.needs_keys and name in all_
        }


def read_desired(document: Any, before: Desired | None = None) -> Desired:
    """Raises UsageError for an answer of another shape: nothing of it is applied. What is as
    `before` is not checked again: with a thousand topics that takes 20 ms, once a second. Where
    nothing has changed, the answer has no topics: they are those of `before`."""
    try:
        epoch, lease_seconds = document["epoch"], document["lease_seconds"]
        if type(epoch) is not int or not 0 < float(lease_seconds) <= _MAX_LEASE_SECONDS:
            raise ValueError("no epoch or no lease")
        report_seconds = float(document.get("report_seconds", REPORT_SECONDS))
        limits: dict[str, Limit] = {}
        entries: dict[str, Any] = {}
        told = document["topics"]
        if told is None:
            if before is None or before.epoch != epoch:
                raise ValueError("it has not those topics")
            told, limits = (), dict(before.limits)
            entries = dict(before.entries)
        for entry in told:
            name = str(entry["topic"])
            entries[name] = entry
            if before is not None and before.entries.get(name) == entry:
                limits[name] = before.limits[name]
                continue
            values = {key: entry.get(key) for key in _FIELDS}
            given = {key: value for key, value in values.items() if value is not None}
            if entry.get("topic_burst"):
                given["contract_burst"] = entry["topic_burst"]
            limits[name] = Contract.read(given, f"topic {name}").limit()
        observed = frozenset(name for name, each in entries.items() if each.get("arrivals"))
        counted = frozenset(name for name, each in entries.items() if each.get("publishers"))
        emptied = {n: int(each["emptied"]) for n, each in entries.items() if each.get("emptied")}
        contracts = {
            n: (float(each["topic_rate"]), float(each["topic_burst"]))
            for n, each in entries.items()
            if each.get("topic_rate") and each.get("topic_burst")
        }
        names = document.get("names")
        suspended = frozenset(map(str, document.get("suspended", ())))
        store, proof = str(document.get("store", "")), str(document.get("proof", ""))
        newest = max(epoch, int(document.get("newest", 0)))
        unplaced = Unplaced(document.get("unplaced", Unplaced.PASS))
        keys = {
            str(each["topic"]): (
                str(each["version"]),
                {str(p): str(k) for p, k in each["publishers"]},
            )
            for each in document.get("keys", ())
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UsageError(f"the answer is not a desired state: {document!r:.200}") from None
    return Desired(
        epoch,
        float(lease_seconds),
        limits,
        observed,
        emptied,
        min(max(report_seconds, _SOONEST_SECONDS), REPORT_SECONDS),
        entries,
        store,
        newest,
        proof,
        contracts,
        unplaced,
        str(document.get("names_version", "")),
        None if names is None else frozenset(map(str, names)),
        counted,
        suspended,
        keys,
    )


_RULES = ("mode", "max_wait", "slo", "batch", "batches", "fair", "lease_grace")
_FIELDS = ("topic", "rate", "burst", *_RULES)


@dataclass(frozen=True, slots=True)
class Known:
    """What a gateway knows of its distributor's store, and keeps over a restart.

    store, newest, proof: whose epochs it was shown, and the largest
    contracts: topic -> whole (r, b)
    names, names_version, unplaced: topics that have a contract, and what becomes of them without
                          a share
    suspended: topics whose whole contract another broker has
    """

    store: str = ""
    newest: int = 0
    proof: str = ""
    contracts: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    names_version: str = ""
    unplaced: Unplaced = Unplaced.PASS
    suspended: frozenset[str] = frozenset()

    def after(self, desired: Desired) -> "Known":
        """What is known with what an answer tells."""
        told = desired.names is not None
        return Known(
            desired.store,
            desired.newest,
            desired.proof,
            desired.contracts,
            self.names if desired.names is None else desired.names,
            desired.names_version if told else self.names_version,
            desired.unplaced,
            desired.suspended,
        )


@dataclass(slots=True)
class Lease:
    """The newest desired state, what of it is applied, and until when. Times are nanoseconds.

    epoch:   of the newest state; 0 before the first
    ends_at: of the lease; None before the first
    ended:   it has ended, and the safe shares hold, but for
    kept:    topics whose lease grace goes on
    known:   what its answers told besides
    """

    epoch: int = 0
    ends_at: int | None = None
    ended: bool = False
    kept: frozenset[str] = frozenset()
    applied: dict[str, Limit] = field(default_factory=dict)
    known: Known = field(default_factory=Known)
    lease_seconds: float = 0.0

    def begin(self, kept: Mapping[str, Limit], known: Known | None = None) -> Changes:
        """Begin after a restart: shares of a lease that nobody knows the end of count as ended."""
        self.ended = bool(kept)
        self.known = known or Known()
        return self._apply({name: safe_share(limit) for name, limit in kept.items()})

    def held(self) -> list[dict[str, Any]]:
        """What it holds, as it is told to a distributor that may know less."""
        found = []
        for name, limit in self.applied.items():
            whole = self.known.contracts.get(name, (limit.rate, limit.burst))
            rules = limit.document()
            found.append(
                {
                    "topic": name,
                    "rate": limit.rate,
                    "burst": limit.burst,
                    "topic_rate": whole[0],
                    "topic_burst": whole[1],
                    "mode": rules["mode"],
                    "max_wait": rules.get("max-wait"),
                    "slo": rules.get("slo"),
                    "batch": limit.batch,
                    "batches": rules.get("batches", Batches.WHOLE),
                    "fair": rules.get("fair"),
                    "lease_grace": limit.lease_grace,
                }
            )
        return found

    def revoke(self) -> None:
        """Another gateway has this one's shares: the lease ends at once."""
        if self.ends_at is not None:
            self.ends_at = -int(MAX_GRACE_SECONDS * NS)

    def answered(self, desired: Desired, asked_at: int) -> Changes | None:
        """The answer to a report sent at `asked_at`: what is to be changed. None: it is older than
        what is known, and neither applied nor a renewal."""
        if desired.epoch < self.epoch:
            return None
        self.epoch = desired.epoch
        self.known = self.known.after(desired)
        self.lease_seconds = desired.lease_seconds
        ends_at = asked_at + int(desired.lease_seconds * NS)
        self.ends_at = ends_at if self.ends_at is None else max(self.ends_at, ends_at)
        self.ended, self.kept = False, frozenset()
        return self._apply(desired.limits)

    def expire(self, now: int) -> Changes:
        """What is to be changed because the lease, and graces of topics, have ended by `now`;
        nothing before that."""
        if self.is_over or self.ends_at is None or now < self.ends_at:
            return {}
        self.ended = True
        ended = now - self.ends_at
        self.kept = frozenset(
            name for name, limit in self.applied.items() if ended < (limit.lease_grace or 0) * NS
        )
        return self._apply(
            {
                name: limit if name in self.kept else safe_share(limit)
                for name, limit in self.applied.items()
            }
        )

    @property
    def next_end_at(self) -> int | None:
        """When the lease, or the next grace of a topic, ends; None where nothing is left to end."""
        if self.ends_at is None or self.is_over:
            return None
        graces = (self.applied[name].lease_grace or 0.0 for name in self.kept)
        return self.ends_at + (int(min(graces) * NS) if self.ended else 0)

    def kept_seconds(self, now: int) -> dict[str, float]:
        """Topic -> seconds for which its lease grace keeps its share; of `kept`, in order of
        name."""
        graces = ((name, self.applied[name].lease_grace or 0.0) for name in sorted(self.kept))
        ended = (now - (self.ends_at or 0)) / NS
        return {name: max(0.0, grace - ended) for name, grace in graces}

    @property
    def is_over(self) -> bool:
        """Has it ended, and the grace of each topic too?"""
        return self.ended and not self.kept

    def _apply(self, limits: Mapping[str, Limit]) -> Changes:
        applied = self.applied
        changes: Changes = {
            name: limit
            for name, limit in limits.items()
            if applied.get(name) is not limit and applied.get(name) != limit
        }
        changes.update(dict.fromkeys(self.applied.keys() - limits.keys()))
        self.applied = dict(limits)
        return changes
