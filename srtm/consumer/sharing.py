"""Who gets which partition when members subscribe: by the plan, and by load where it says nothing.
Pure."""

from collections.abc import Collection, Mapping, Sequence

from srtm.consumer.wire import PartitionPlan


def shared(
    partitions: Collection[int], members: Sequence[str], plan: PartitionPlan | None, away: bool
) -> dict[str, tuple[int, ...]]:
    """member -> partitions; each of `partitions` once where there is a member.

    plan: None where none was ever made; away: nobody leads now, so nobody will mend the plan
    """
    found: dict[str, list[int]] = {name: [] for name in members}
    if not found:
        return {}
    wanted = {p: name for name, part in (plan.parts if plan else {}).items() for p in part}
    loads = dict(plan.loads) if plan else {}
    usual = sum(loads.values()) / len(loads) if loads else 1.0
    left = []
    for partition in sorted(partitions):
        owner = wanted.get(partition)
        if owner in found:
            found[owner].append(partition)
        else:
            left.append(partition)
    # Who is not in the plan is about to leave, or will be in the next one.
    planned = [name for name in found if plan and name in plan.parts]
    takers = sorted(planned if planned and not away else found)
    _spread(found, takers, left, {p: loads.get(p, usual) for p in partitions})
    return {name: tuple(sorted(part)) for name, part in found.items()}


def _spread(
    found: dict[str, list[int]],
    takers: Sequence[str],
    left: Sequence[int],
    loads: Mapping[int, float],
) -> None:
    """Give each partition of `left` to the one of `takers` that has least, the heaviest first."""
    has = {name: sum(loads[p] for p in found[name]) for name in takers}
    for partition in sorted(left, key=lambda p: (-loads[p], p)):
        least = min(takers, key=lambda name: (has[name], len(found[name]), name))
        found[least].append(partition)
        has[least] += loads[partition]
