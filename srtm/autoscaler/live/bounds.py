"""Fits a policy's decision to the bounds of the group. Pure.

A policy's answer is checked before it is carried out: every partition once, nobody who is not
there, between `least` and `most` consumers. What nobody has and no policy looks after is adopted.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from srtm.autoscaler.decision import Action, Decision, Member, Policy
from srtm.autoscaler.observation import Observation


class Unsound(ValueError):
    """A decision that cannot be carried out."""


def bounded(seen: Observation, decision: Decision, least: int, most: int) -> Decision:
    """`decision`, or what is nearest to it within the bounds. Raises Unsound."""
    members = list(decision.members)
    if decision.action is Action.NONE or not members:
        members = [Member(each.id, each.partitions) for each in seen.consumers]
    else:
        _check(seen, members)
    notes, count = list(decision.notes), len(members)
    if count > most == len(seen.consumers) and not (seen.orphans and most):
        # It would only take partitions round: the policy does not know of the bound.
        note = f"it wants {count} consumers, and {most} is the most that there may be now"
        return replace(decision, action=Action.NONE, members=(), notes=(*notes, note))
    if count > most:
        members = _fewer(seen, members, most)
        notes.append(f"{most} consumers is the most that there may be now")
    elif count < least:
        members = _with_those_there(seen, members, least)
        notes.append(f"{least} consumers is the least that there may be")
    if decision.action is Action.NONE and len(members) == count:
        return decision
    before = len(seen.consumers)
    action = Action.REASSIGN
    if len(members) != before:
        action = Action.UP if len(members) > before else Action.DOWN
    return replace(decision, action=action, members=tuple(members), notes=tuple(notes))


def possible(seen: Observation, decision: Decision, least: int, most: int) -> Decision:
    """`decision` as a controller with these bounds would take it; one that is unsound is none."""
    try:
        return bounded(seen, decision, *limits(seen, least, most, can_launch=True))
    except Unsound as error:
        return Decision(Action.NONE, reason=str(error), notes=decision.notes)


class Within:
    """A policy of which a controller with these bounds carries out what is possible."""

    def __init__(self, policy: Policy, least: int, most: int) -> None:
        self.name = policy.name
        self._policy, self._least, self._most = policy, least, most

    def decide(self, seen: Observation) -> Decision:
        return possible(seen, self._policy.decide(seen), self._least, self._most)


def adopted(seen: Observation, reason: str) -> Decision:
    """Partitions that nobody has, each to the consumer with the least rate."""
    members = [Member(each.id, each.partitions) for each in seen.consumers]
    orphans = seen.orphans
    if not members or not orphans:
        return Decision(Action.NONE, reason="nobody is there to take partitions")
    return Decision(Action.REASSIGN, tuple(_shared(seen, members, orphans)), reason)


def limits(seen: Observation, least: int, most: int, can_launch: bool) -> tuple[int, int]:
    """The least and the most consumers that there may be: no more than partitions, unless `least`
    is more. While launches fail, what is there is the most that there can be."""
    most = max(least, min(most, max(len(seen.partitions), least)))
    if can_launch:
        return least, most
    there = len(seen.consumers)
    return min(least, there), min(most, there)


def is_there_already(seen: Observation, decision: Decision) -> bool:
    now = {(each.id, frozenset(each.partitions)) for each in seen.consumers}
    return now == {(each.consumer, frozenset(each.partitions)) for each in decision.members}


def with_those_that_stay(
    seen: Observation, decision: Decision, staying: Callable[[Sequence[str], int], list[str]]
) -> Decision:
    """Where an executor has no choice of whom it ends, who stays takes the place of who was to.
    staying: (consumers, how many) -> those of them that stay"""
    if decision.action is not Action.DOWN:
        return decision
    named = [each.consumer for each in decision.members if each.consumer is not None]
    leavers = [each.id for each in seen.consumers if each.id not in named]
    kept = staying([*named, *leavers], len(named))
    spared = iter([each for each in kept if each not in named])
    members = tuple(
        replace(each, consumer=next(spared))
        if each.consumer is not None and each.consumer not in kept
        else each
        for each in decision.members
    )
    return replace(decision, members=members)


def _check(seen: Observation, members: Sequence[Member]) -> None:
    known = {each.id for each in seen.consumers}
    named = [each.consumer for each in members if each.consumer is not None]
    odd = [name for name in named if name not in known or named.count(name) > 1]
    if odd:
        raise Unsound(f"the policy names consumer {odd[0]}, who is not there, or twice")
    assigned = sorted(p for each in members for p in each.partitions)
    there = sorted(p.id for p in seen.partitions)
    if assigned != there:
        raise Unsound(f"the policy assigns partitions {assigned}; the topic has {there}")


def _fewer(seen: Observation, members: list[Member], most: int) -> list[Member]:
    """Who has least rate goes, those that are not there yet before the others."""
    rates = {p.id: p.rate for p in seen.partitions}

    def worth(member: Member) -> tuple[bool, float]:
        return member.consumer is not None, sum(rates.get(p, 0.0) for p in member.partitions)

    ranked = sorted(members, key=worth, reverse=True)
    kept = [each for each in members if each in ranked[:most]][:most]
    left = [p for each in members if each not in kept for p in each.partitions]
    return _shared(seen, kept, left)


def _with_those_there(seen: Observation, members: list[Member], least: int) -> list[Member]:
    named = {each.consumer for each in members}
    idle = [Member(each.id, ()) for each in seen.consumers if each.id not in named]
    more = [*members, *idle[: least - len(members)]]
    return more + [Member(None, ())] * (least - len(more))


def _shared(seen: Observation, members: Sequence[Member], left: Sequence[int]) -> list[Member]:
    rates = {p.id: p.rate for p in seen.partitions}
    parts = [list(each.partitions) for each in members]
    loads = [sum(rates.get(p, 0.0) for p in part) for part in parts]
    for partition in sorted(left, key=lambda p: -rates.get(p, 0.0)):
        least = min(range(len(parts)), key=lambda n: (loads[n], len(parts[n])))
        parts[least].append(partition)
        loads[least] += rates.get(partition, 0.0)
    return [Member(each.consumer, tuple(part)) for each, part in zip(members, parts, strict=True)]
