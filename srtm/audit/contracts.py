"""Which contract held when, from what the brokers' logs say. Pure.

Where a Load Distributor told the whole contract, that counts. A changed one reaches the brokers one
after the other, and one that still has a share of the old one may use it: meanwhile the larger r
and the larger b are allowed, not their sum. A broker whose lease ended has the safe share, which is
a part of either; it has no say unless its word is the newest. Without a distributor each gateway
has a limit of its own, and their sum is the contract: `srtm up` splits it evenly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from srtm.audit.blocks import Rule, Word
from srtm.limits.excess import Contracts, Ints

_TOLD = (Rule.SHARE, Rule.FLOOR, Rule.SHUT)
_NEAR = 1e-6
"""part of a share's rate: shares are rounded"""


class Source(StrEnum):
    """Who said what the contract is."""

    DISTRIBUTOR = "distributor"
    GATEWAYS = "gateways"  # the sum of their own limits
    GIVEN = "given"
    NOBODY = "nobody"


@dataclass(frozen=True)
class Change:
    """`word` None: the process of this broker has ended, or its log has."""

    at: int
    broker: str
    word: Word | None


@dataclass(frozen=True)
class Span:
    """A contract from a time on; `rate` and `burst` are 0 where nobody said one."""

    since: int
    source: Source
    rate: float = 0.0
    burst: float = 0.0


@dataclass
class _Said:
    """What brokers say at one instant."""

    live: dict[str, Word] = field(default_factory=dict)
    own: dict[str, Word] = field(default_factory=dict)
    newest: Word | None = None

    def take(self, change: Change) -> None:
        word = change.word
        if word is None:
            self.live.pop(change.broker, None)
            return
        before = self.live.get(change.broker)
        self.live[change.broker] = word
        if word.rule is Rule.OWN:
            self.own[change.broker] = word  # it holds over a restart
        else:
            self.own.pop(change.broker, None)
        if word.whole_rate and (self.newest is None or word.epoch >= self.newest.epoch):
            self.newest = word
        is_told = any(each.rule in _TOLD for each in self.live.values())
        if before and before.rule in _TOLD and not is_told:
            self.newest = None  # the last one that went by it has dropped it

    def span(self, at: int) -> Span:
        if self.newest is not None:
            words = [self.newest]
            words += [each for each in self.live.values() if each.whole_rate and not _is_safe(each)]
            return Span(
                at,
                Source.DISTRIBUTOR,
                max(each.whole_rate for each in words),
                max(each.whole_burst for each in words),
            )
        if self.own:
            own = self.own.values()
            return Span(
                at, Source.GATEWAYS, sum(each.rate for each in own), sum(each.burst for each in own)
            )
        return Span(at, Source.NOBODY)


def spans_of(changes: Sequence[Change]) -> list[Span]:
    """The spans of the contract in order of time; at least one. Of changes at one instant the last
    counts."""
    said = _Said()
    spans: list[Span] = []
    for change in sorted(changes, key=lambda each: each.at):
        said.take(change)
        span = said.span(change.at)
        if spans and spans[-1].since == change.at:
            spans.pop()
        if not spans or replace(spans[-1], since=span.since) != span:
            spans.append(span)
    return spans or [Span(0, Source.NOBODY)]


def limits_of(words: Sequence[tuple[int, Word]]) -> Contracts | None:
    """One broker's own bucket over time; None where it never had one. Without a limit it has the
    limit of before: what passes then is judged by the contract, not by a bucket."""
    limited = [(at, word) for at, word in words if word.burst > 0]
    if not limited:
        return None
    return contracts_of([Span(at, Source.GIVEN, word.rate, word.burst) for at, word in limited])


def is_limited(words: Sequence[tuple[int, Word]], times: Ints) -> NDArray[np.bool_]:
    """Had the broker a limit at each of these times?"""
    since = np.array([at for at, _ in words], dtype=np.int64)
    limited = np.array([word.burst > 0 for _, word in words])
    place = np.searchsorted(since, times, side="right") - 1
    return np.asarray((place >= 0) & limited[place])


def contracts_of(spans: Sequence[Span], at_once: Sequence[float] | None = None) -> Contracts:
    """at_once: messages that may go at one instant, by span; b by default"""
    return Contracts(
        np.array([span.since for span in spans], dtype=np.int64),
        np.array([span.rate for span in spans]),
        np.array([span.burst for span in spans] if at_once is None else at_once, dtype=np.float64),
    )


def _is_safe(word: Word) -> bool:
    """A floor with no more than its part of the rate."""
    part = word.burst * word.whole_rate / max(word.whole_burst, 1.0)
    return word.rule is Rule.FLOOR and word.rate <= part * (1 + _NEAR)


def by_broker(changes: Sequence[Change]) -> Mapping[str, list[tuple[int, Word]]]:
    """The limits of each broker, in order of time."""
    found: dict[str, list[tuple[int, Word]]] = {}
    for change in sorted(changes, key=lambda each: each.at):
        if change.word is not None:
            found.setdefault(change.broker, []).append((change.at, change.word))
    return found
