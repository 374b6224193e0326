"""Groups whose size a policy sets and whose partitions Kafka assigns, seeing no load.

Kafka's consumers use the RangeAssignor by default up to 2.8 (CLOSER runs 2.7), which is eager; from
3.0 on they have it beside the CooperativeStickyAssignor (ICCBDC and Li-Ku run that as "incremental
cooperative"). So: range for an eager hand-over, sticky for the others, which move less.
"""

from collections.abc import Iterable, Sequence

from srtm.autoscaler.decision import Decision, Handover, Member
from srtm.autoscaler.observation import Observation
from srtm.autoscaler.packing import assign_range, assign_sticky
from srtm.autoscaler.policies.group import consumers, nothing, resized, wanted


def scale_to(
    seen: Observation, count: int, handover: Handover, reason: str, notes: Iterable[str] = ()
) -> Decision:
    """`count` consumers, at least 1, and what Kafka then assigns to them."""
    return wanted(seen, _assigned(seen, resized(seen, count), handover), reason, notes)


def adopt_orphans(
    seen: Observation, handover: Handover, reason: str, notes: Iterable[str] = ()
) -> Decision:
    """The policy scales nothing: NONE, unless Kafka itself would rebalance, as it does when a
    consumer died or a partition is new. Consumers beyond the partitions leave then."""
    orphans = seen.orphans
    if not orphans:
        return nothing(reason, notes)
    if not seen.consumers:
        return nothing(f"{reason}; no consumer is there to take {len(orphans)} partitions", notes)
    count = min(len(seen.consumers), len(seen.partitions))
    said = f"partitions {orphans} have no owner: Kafka assigns them among {consumers(count)}"
    return scale_to(seen, count, handover, f"{said} ({reason})", notes)


def _assigned(
    seen: Observation, who: Sequence[str | None], handover: Handover
) -> tuple[Member, ...]:
    # Assignors go by name. One that is yet to be launched gets a name that sorts last.
    names = [name or f"\uffff{number:06d}" for number, name in enumerate(who)]
    ids = [partition.id for partition in seen.partitions]
    if handover is Handover.EAGER:
        assignment = assign_range(ids, names)
    else:
        assignment = assign_sticky(ids, names, {c.id: c.partitions for c in seen.consumers})
    pairs = zip(names, who, strict=True)
    return tuple(Member(consumer, assignment[name]) for name, consumer in pairs)
