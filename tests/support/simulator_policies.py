"""Policies of the tests: a script, and chance."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from srtm.autoscaler.decision import Action, Decision, Member
from srtm.autoscaler.observation import Observation


@dataclass(slots=True)
class Scripted:
    """Asks `script` at each tick; None is no decision. It keeps what it saw."""

    script: Callable[[Observation], tuple[Member, ...] | None] = lambda seen: None
    name: str = "scripted"
    seen: list[Observation] = field(default_factory=list)

    def decide(self, seen: Observation) -> Decision:
        self.seen.append(seen)
        members = self.script(seen)
        if members is None:
            return Decision(Action.NONE)
        action = Action.UP if len(members) > len(seen.consumers) else Action.REASSIGN
        if len(members) < len(seen.consumers):
            action = Action.DOWN
        return Decision(action, members, notes=("a clamp",))


def anything(seed: int, stay: float = 0.8) -> Callable[[Observation], tuple[Member, ...] | None]:
    """Wild decisions: who stays, who is launched and who gets what, by chance."""
    chance = random.Random(seed)

    def decide(seen: Observation) -> tuple[Member, ...] | None:
        if chance.random() < 0.6:
            return None
        names: list[str | None] = [c.id for c in seen.consumers if chance.random() < stay]
        names += [None] * chance.choice([0, 0, 1, 2])
        names = names or [None]
        parts: list[list[int]] = [[] for _ in names]
        for partition in seen.partitions:
            chance.choice(parts).append(partition.id)
        return tuple(Member(name, tuple(mine)) for name, mine in zip(names, parts, strict=True))

    return decide
