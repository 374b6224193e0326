"""Groups that were inferred from traces: proposed, accepted, shown."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice

from distributor.api import PlacementAsked
from distributor.control.service import Distributor
from distributor.control.state import RegisteredTopic
from distributor.errors import Conflict
from distributor.grouping.disagreement import Disagreement, disagreement
from distributor.grouping.keys import merged
from distributor.grouping.proposals import (
    Floor,
    Kept,
    Older,
    Proposal,
    accepted,
    asked,
    forgotten,
    proposed,
    rejected,
    short_of,
)
from distributor.groups_api import (
    DecisionAsked,
    DisagreementShown,
    GroupApartShown,
    GroupShown,
    GroupsShown,
    GroupsTaken,
    KeyApartShown,
    ProposalShown,
)
from distributor.store.statements import put_grouping
from srtm.text.errors import UsageError
from srtm.text.words import counted

log = logging.getLogger("srtm.distributor")

MOST_MEMBERS = 1_000_000
"""of all groups of all topics: 200 MB"""
_MOST_SHOWN = 100
"""keys and groups that are apart, of each"""
_MOST_OTHERS = 20


async def propose(service: Distributor, name: str, proposal: Proposal) -> GroupsTaken:
    """Raises NotFound, UsageError, Conflict for one that is older than what came, StoreError."""
    async with service.changing:
        topic = service.topic(name)
        others = sum(
            each.grouping.size for other, each in service.state.topics.items() if other != name
        )
        found = _changed(name, lambda: proposed(topic.grouping, proposal, service.wall()))
        if found.size + others > MOST_MEMBERS:
            raise Conflict(
                f"topic {name}: groups of all topics hold {others:,} publishers, and one "
                f"distributor keeps {MOST_MEMBERS:,}; reject or forget some, or propose fewer"
            )
        await _keep(service, name, topic, found)
        return _taken(name, topic)


async def decide(service: Distributor, name: str, decision: DecisionAsked) -> GroupsTaken:
    """Raises NotFound, Conflict where another proposal is the newest by now, StoreError."""

    def after(kept: Kept) -> Kept:
        if decision.decision == "accept":
            return accepted(kept, decision.number, service.wall())
        if decision.decision == "reject":
            return rejected(kept, decision.number)
        return forgotten(kept)

    async with service.changing:
        topic = service.topic(name)
        await _keep(service, name, topic, _changed(name, lambda: after(topic.grouping)))
        return _taken(name, topic)


async def put_floor(service: Distributor, name: str, floor: Floor) -> GroupsTaken:
    """Raises NotFound, StoreError."""
    async with service.changing:
        topic = service.topic(name)
        await _keep(service, name, topic, asked(topic.grouping, floor, service.wall()))
        return _taken(name, topic)


def groups_for(
    name: str, topic: RegisteredTopic, asked: PlacementAsked
) -> tuple[dict[str, str | None], list[str]]:
    """The keys that a placement goes by, and what to say of them. Raises Conflict where groups are
    asked for and none was accepted."""
    kept, use = topic.grouping, asked.groups or "both"
    chosen, number, word = kept.accepted, kept.accepted_number, "accepted"
    if asked.groups in ("inferred", "both"):
        if asked.dry_run and kept.newest:
            chosen, number, word = kept.newest, kept.number, "not accepted yet"
        if chosen is None:
            remedy = (
                f"srtm placement groups {name} accept, and ask again"
                if kept.newest
                else "srtm correlate propose brings some"
            )
            raise Conflict(f"topic {name}: no inferred groups are accepted: {remedy}")
    if chosen is None or use == "user":
        return topic.keys_of("user"), []
    if chosen is kept.accepted:
        keys = topic.keys_of(use)
    else:
        keys = merged(topic.user_keys, chosen.members, use)
    by_group = sum(1 for each in keys if keys[each] and not topic.publishers[each][0])
    if use == "inferred":
        by_group = sum(1 for key in keys.values() if key)
    said = (
        f"groups: {counted(by_group, 'publisher')} in inferred groups (proposal {number}, {word})"
    )
    if use == "both":
        said += "; keys of users come first"
    return keys, [said]


async def show(service: Distributor, name: str) -> GroupsShown:
    """Raises NotFound."""
    async with service.changing:  # its publishers stand still meanwhile
        topic = service.topic(name)
        return await asyncio.to_thread(_shown, name, topic)


def _changed(name: str, change: Callable[[], Kept]) -> Kept:
    try:
        return change()
    except Older as error:
        raise Conflict(
            f"topic {name}: {error}; srtm placement groups {name} shows what there is"
        ) from None
    except ValueError as error:
        raise UsageError(f"topic {name}: {error}") from None


async def _keep(service: Distributor, name: str, topic: RegisteredTopic, kept: Kept) -> None:
    """Keep the topic's groups: on disk, then in memory."""
    if kept == topic.grouping:
        return
    document = await asyncio.to_thread(kept.model_dump_json)
    await service.commit([put_grouping(name, document)])
    topic.group_by(kept)


def _taken(name: str, topic: RegisteredTopic) -> GroupsTaken:
    kept = topic.grouping
    newest, counts = kept.newest, kept.accepted
    return GroupsTaken(
        topic=name,
        number=kept.number,
        proposed=len(newest.groups) if newest else 0,
        accepted=len(counts.groups) if counts else 0,
        publishers=sum(
            each in topic.publishers
            for group in (counts.groups if counts else ())
            for each in group.publishers
        ),
    )


def _shown(name: str, topic: RegisteredTopic) -> GroupsShown:
    kept = topic.grouping
    looked_at = kept.newest or kept.accepted
    apart = disagreement(topic.user_keys, looked_at.members if looked_at else {})
    return GroupsShown(
        topic=name,
        floor=kept.floor,
        proposed=_proposal(topic, kept.newest, kept.number, kept.at),
        accepted=_proposal(topic, kept.accepted, kept.accepted_number, kept.accepted_at),
        disagreement=_apart(apart),
    )


def _proposal(
    topic: RegisteredTopic, its: Proposal | None, number: int, at: float
) -> ProposalShown | None:
    if its is None:
        return None
    groups = [
        GroupShown(
            **each.model_dump(),
            registered=sum(publisher in topic.publishers for publisher in each.publishers),
            short=short_of(topic.grouping.floor, each),
        )
        for each in its.groups
    ]
    return ProposalShown(
        number=number,
        at=at,
        first=its.first,
        last=its.last,
        publishers=its.publishers,
        groups=groups,
        gone=its.size - sum(each.registered for each in groups),
    )


def _apart(found: Disagreement) -> DisagreementShown:
    keys, groups = found.keys[:_MOST_SHOWN], found.groups[:_MOST_SHOWN]
    return DisagreementShown(
        keys=[
            KeyApartShown.model_validate(
                replace(each, elsewhere=_first(each.elsewhere)), from_attributes=True
            )
            for each in keys
        ],
        groups=[
            GroupApartShown.model_validate(
                replace(each, others=_first(each.others)), from_attributes=True
            )
            for each in groups
        ],
        more=len(found.keys) + len(found.groups) - len(keys) - len(groups),
    )


def _first(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(islice(counts.items(), _MOST_OTHERS))
