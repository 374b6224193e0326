"""Why a concentrating policy decided as it did, in sentences for people."""

from collections.abc import Sequence
from math import fsum

from distributor.model import Placement, Publisher
from distributor.placement.assign import NANO, Assigned
from distributor.placement.candidates import Candidates
from distributor.placement.request import Request
from srtm.text.words import counted, number, rate, some

_WORTH_SAYING = 1e-3
"""messages/s; less is rounding"""


def reasons(
    asked: Request,
    found: Candidates,
    assigned: Assigned,
    groups: Sequence[Sequence[int]],
    left: Sequence[Publisher],
    placement: Placement,
    by_total_load: bool,
) -> list[str]:
    """groups: as they were spread; left: those who could not be placed."""
    said = [_concentration(asked, found, assigned)]
    if assigned.used:
        said += _quotas(asked, found, assigned, by_total_load)
        said += _selection(groups, assigned)
        said += _gap(asked, placement)
    if left:
        said += _missing(asked, found, left)
    return said


def _concentration(asked: Request, found: Candidates, assigned: Assigned) -> str:
    unassigned = asked.unassigned
    offered = rate(fsum([publisher.rate for publisher in unassigned]))
    who = f"{counted(len(unassigned), 'publisher')} with {offered}"
    new = assigned.used - len(found.opened)
    if asked.placed:
        return (
            f"next iteration: {who} to place on the topic's {counted(len(found.opened), 'broker')} "
            f"not marked full and on the fewest new ones, {new}; nobody already placed moves"
        )
    return (
        f"concentration: {who}, over {counted(assigned.used, 'broker')} of {len(asked.brokers)}: "
        "as few as have the room, those with the biggest residual capacity"
    )


def _quotas(
    asked: Request, found: Candidates, assigned: Assigned, by_total_load: bool
) -> list[str]:
    if by_total_load:
        return ["equal total load: what other topics have on these brokers counts"]
    total = sum(assigned.quotas)
    rooms = found.rooms[: assigned.used]
    quotas = assigned.quotas[: assigned.used]
    said = [f"max-min: quotas by water-filling, {_range(quotas)}"]
    fair = total / assigned.used
    over = total - sum(min(room, fair) for room in rooms)
    if not asked.placed and over > _WORTH_SAYING * NANO:
        said.append(
            f"the one pass min(rcap, rate/k) of SRTM section 4.2 would leave {rate(over / NANO)} "
            "without a quota; water-filling gives it to the brokers with room"
        )
    return said


def _range(quotas: Sequence[int]) -> str:
    low, high = min(quotas) / NANO, max(quotas) / NANO
    if number(low) == number(high):
        return f"{rate(low)} each"
    return f"{number(low)} to {rate(high)}"


def _selection(groups: Sequence[Sequence[int]], assigned: Assigned) -> list[str]:
    if assigned.packed:
        return [
            "the publishers fit only when packed by size: correlation groups and quotas were given "
            "up"
        ]
    sizes = [len(group) for group in groups if len(group) > 1]
    if not sizes or assigned.used < 2:
        return []
    said = [
        f"correlation: {counted(len(sizes), 'group')} of 2 to {max(sizes)} publishers spread over "
        "the brokers by size x share, each within one publisher"
    ]
    if assigned.uneven:
        said.append(
            f"the brokers are nearly full: {counted(assigned.uneven, 'publisher')} found room only "
            "out of proportion, so that some groups are further off"
        )
    return said


def _gap(asked: Request, placement: Placement) -> list[str]:
    """What whole publishers of unequal rates may have cost."""
    rates = {publisher.rate for publisher in asked.publishers}
    if len(rates) == 1:
        return []
    return [
        f"unequal rates: {counted(len(placement.brokers), 'broker')}, and no fewer than "
        f"{placement.brokers_at_least} could do; the smallest share is {rate(placement.minimum)}, "
        f"and no more than {number(placement.minimum_at_most)} is possible"
    ]


def _missing(asked: Request, found: Candidates, left: Sequence[Publisher]) -> list[str]:
    """Out of brokers: how much of what."""
    said = []
    rooms = found.rooms
    heaviest = max(rooms, default=0) / NANO
    too_big = [publisher for publisher in left if publisher.rate > heaviest * (1 + 1e-9)]
    if too_big and found.usable:
        biggest = max(too_big, key=lambda publisher: publisher.rate)
        said.append(
            f"no broker has room for {some([each.id for each in too_big])}: {biggest.id} sends "
            f"{rate(biggest.rate)} and the most room is {number(heaviest)}; send less through one "
            "publisher or add a bigger broker"
        )
    if len(found.new) > found.allowed:
        said.append(
            f"the contract's b = {number(asked.contract.burst)} allows {asked.most_brokers} "
            f"brokers (b_l >= {asked.contract.least_burst} at each), "
            f"{len(found.new) - found.allowed} more have room: raise b"
        )
    missing = fsum([publisher.rate for publisher in left])
    remedy = f"add brokers with room for {rate(missing)}"
    unmeasured = sorted(each.name for each in asked.brokers if not each.capacity)
    if unmeasured:
        first = f"srtm broker capacity {unmeasured[0]}"
        remedy = (
            f"not measured yet: {some(unmeasured)}; {first} --slo "
            f"{asked.contract.slo or '0.99@5ms'} --set does it, {first} N sets a figure"
        )
    said.append(
        f"out of brokers: {counted(len(left), 'publisher')} with {rate(missing)} "
        f"{'has' if len(left) == 1 else 'have'} none; {counted(len(found.usable), 'broker')} had "
        f"room for {rate(sum(rooms) / NANO)}; {remedy}"
    )
    return said
