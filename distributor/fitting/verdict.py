"""What a broker's samples say of its share: held, violated, or not sure yet."""

from dataclasses import dataclass
from enum import StrEnum

from distributor.fitting.late_share import Side, leaning, side
from distributor.fitting.samples import Slots, share
from distributor.fitting.settings import PAPER_SECONDS
from srtm.limits.slo import NEAR
from srtm.text.words import counted

LONGEST_SECONDS = 90.0
"""The longest that a sequential test lasts, after the warm-up; what is still unsure is then judged
by the side it leans to. At 1,667 messages/s and a variance over mean of 70, 60 s err in 8 % at 1.5
times the allowed share, 90 s in under 5 %."""


class Answer(StrEnum):
    HOLDS = "holds"
    VIOLATED = "violated"
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True)
class Verdict:
    """late, messages: counts that it rests on. near: is the SLO's percentile between NEAR of the
    target and the target? (asked of those that hold)"""

    answer: Answer
    late: float
    messages: float
    near: bool
    reason: str

    @property
    def late_share(self) -> float:
        return self.late / self.messages if self.messages else 0.0


def _verdict(answer: Answer, found: Slots, allowed: float, how: str) -> Verdict:
    late, messages = float(found.late.sum()), float(found.messages.sum())
    near = answer is Answer.HOLDS and found.near_share >= allowed
    text = (
        f"{late:,.0f} of {counted(round(messages), 'message')} late, {found.late_share:.2%} "
        f"(allowed {allowed:.2%}): {answer}, {how}"
    )
    return Verdict(answer, late, messages, near, text)


def by_round(found: Slots, allowed: float, over: bool) -> Verdict:
    """The paper's: when the round is over, by the percentile itself. p99 <= target just when the
    share of messages slower than the target is at most 1 %."""
    if not over:
        return _verdict(Answer.UNSURE, found, allowed, "the round is not over")
    holds = float(found.messages.sum()) > 0 and found.late_share <= allowed
    answer = Answer.HOLDS if holds else Answer.VIOLATED
    how = f"after a round of {PAPER_SECONDS:g} s"
    if holds and found.near_share >= allowed:
        how += f", within {1 - NEAR:.0%} under the target"
    return _verdict(answer, found, allowed, how)


def by_test(
    early: Slots,
    warm: Slots,
    favourable: Slots | None,
    allowed: float,
    together: float,
    tests: int,
    over: bool,
) -> Verdict:
    """The verdict by a sequential test: as soon as it is sure, or when the longest time is over.

    early:      from when everybody has moved; only what is late beside the bucket counts
    warm:       from when the buckets have forgotten the split of before
    favourable: that may show that the broker holds; None while too short
    together:   messages that arrive there at one instant
    tests:      brokers that are judged in this round
    over:       the longest time is over
    """
    if side(early.messages, early.late_at_broker, allowed, together, tests) is Side.ABOVE:
        alone = share(early.late_at_broker, early.messages)
        how = f"sure, {alone:.2%} without their token wait"
        return _verdict(Answer.VIOLATED, early, allowed, how)
    if side(warm.messages, warm.late, allowed, together, tests) is Side.ABOVE:
        return _verdict(Answer.VIOLATED, warm, allowed, "sure")
    if favourable is not None and (
        side(favourable.messages, favourable.late, allowed, together) is Side.BELOW
    ):
        return _verdict(Answer.HOLDS, favourable, allowed, "sure")
    if not over:
        return _verdict(Answer.UNSURE, warm, allowed, "not sure yet")
    if not warm.messages.sum():
        return _verdict(Answer.VIOLATED, warm, allowed, "nothing was measured")
    leans = leaning(warm.messages, warm.late, allowed)
    answer = Answer.VIOLATED if leans > 0 else Answer.HOLDS
    return _verdict(answer, warm, allowed, f"not sure after {LONGEST_SECONDS:g} s, so it leans")
