"""From what is seen to items and bins, and from a packing or a count back to a group."""

import math
from collections.abc import Callable, Iterable, Sequence

from srtm.autoscaler.decision import Action, Decision, Member
from srtm.autoscaler.observation import ConsumerState, Observation, PartitionSeen
from srtm.autoscaler.packing import Bin, Bins, Item, Packing


def items_of(
    seen: Observation, lag: Callable[[PartitionSeen], float] = lambda partition: partition.lag
) -> list[Item]:
    """The partitions as items; `lag` says how many events of each count."""
    return [Item(p.id, p.rate, lag(p), seen.owners.get(p.id)) for p in seen.partitions]


def bin_of(consumer: str | None, mu: float, fill: float, w_sla: float = math.inf) -> Bin:
    """Room for mu * fill events/s and mu * fill * w_sla events of lag."""
    return Bin(consumer, mu * fill, mu * fill * w_sla)


def bins_of(seen: Observation, fill: float, w_sla: float = math.inf) -> Bins:
    """The consumers as bins, each with its own mu."""
    existing = tuple(bin_of(c.id, c.mu, fill, w_sla) for c in seen.consumers)
    return Bins(bin_of(None, seen.new_mu, fill, w_sla), existing)


def members_of(packing: Packing) -> tuple[Member, ...]:
    return tuple(Member(filled.bin.consumer, filled.items) for filled in packing.filled)


def resized(seen: Observation, count: int) -> list[str | None]:
    """Who is in a group of `count`: consumers in their order, those that run before those that
    still start (a Deployment, too, ends first what is not ready yet), then new ones."""
    running = sorted(seen.consumers, key=lambda c: c.state is not ConsumerState.RUNNING)
    kept: list[str | None] = [consumer.id for consumer in running[:count]]
    return kept + [None] * (count - len(kept))


def capped(seen: Observation, count: int, of: str) -> tuple[int, tuple[str, ...]]:
    """`count` within 1 and the number of partitions, beyond which consumers would idle; `of` is
    named in the note where it was more."""
    most = len(seen.partitions)
    if count > most:
        return most, (
            f"{of} asks for more consumers than there are partitions: {most}, one for each; add "
            "partitions",
        )
    return max(1, count), ()


def nothing(reason: str, notes: Iterable[str] = ()) -> Decision:
    return Decision(Action.NONE, reason=reason, notes=tuple(notes))


def wanted(
    seen: Observation, members: Sequence[Member], reason: str, notes: Iterable[str] = ()
) -> Decision:
    """The group of `members`: UP, DOWN or REASSIGN by their number. NONE where it is the group
    that is there: a rebalance that changes nothing would only stop it."""
    now = {(c.id, tuple(sorted(c.partitions))) for c in seen.consumers}
    if now == {(m.consumer, tuple(sorted(m.partitions))) for m in members}:
        return nothing(f"{reason}: the group that is there already", notes)
    action = Action.REASSIGN
    if len(members) != len(seen.consumers):
        action = Action.UP if len(members) > len(seen.consumers) else Action.DOWN
    return Decision(action, tuple(members), reason, tuple(notes))


def consumers(count: int) -> str:
    """`count` in words, for reasons."""
    return f"{count} consumer{'' if count == 1 else 's'}"
