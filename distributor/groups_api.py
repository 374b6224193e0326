"""The API's bodies about groups: who bursts together by a trace, and what of it counts."""

from typing import Literal

from pydantic import Field

from distributor.api_fields import Answer, Asked
from distributor.grouping.proposals import Floor

Decision = Literal["accept", "reject", "forget"]


class DecisionAsked(Asked):
    decision: Decision = Field(
        description="accept: the proposed groups count from the next placement on; reject: the "
        "proposal is dropped; forget: no group counts any more"
    )
    number: int | None = Field(
        None,
        ge=0,
        description="number of the proposal that was looked at: with it, a newer one is refused",
    )


class GroupShown(Answer):
    name: str
    publishers: list[str]
    registered: int = Field(description="publishers of the group that the topic has now")
    lift: float
    q: float
    coincidences: int
    share: float
    short: str = Field(description="why it is below the floor of `auto`; empty: it is not")


class ProposalShown(Answer):
    number: int
    at: float = Field(description="when it came, or was accepted: seconds since 1970")
    first: int = Field(description="arrival of the trace, ns since 1970")
    last: int = Field(description="arrival of the trace, ns since 1970")
    publishers: int = Field(description="publishers that the trace has of the topic")
    groups: list[GroupShown]
    gone: int = Field(description="publishers in groups that the topic does not have now")


class KeyApartShown(Answer):
    """A user's key whose publishers are not one group."""

    key: str
    group: str | None = Field(description="the group that most of the key's publishers are in")
    members: int
    together: int = Field(description="publishers of the key that are in `group`")
    alone: int = Field(description="publishers of the key that are in no group")
    elsewhere: dict[str, int] = Field(description="other groups -> publishers of the key there")
    named: list[str] = Field(description="some of those who are not in `group`")


class GroupApartShown(Answer):
    """A group whose publishers have not one key."""

    group: str
    key: str | None = Field(description="the key that most of the group's publishers have")
    members: int
    keyed: int = Field(description="publishers of the group that have `key`")
    others: dict[str, int] = Field(description="other keys -> publishers of the group with it")
    keyless: int
    named: list[str] = Field(description="some of those who have another key")


class DisagreementShown(Answer):
    """Keys win; this is where they and the groups say different things."""

    keys: list[KeyApartShown] = Field(description="the largest first")
    groups: list[GroupApartShown] = Field(description="the largest first")
    more: int = Field(description="keys and groups that are left out of both lists")


class GroupsShown(Answer):
    topic: str
    floor: Floor
    proposed: ProposalShown | None = Field(description="waits for a decision")
    accepted: ProposalShown | None = Field(description="the proposal whose groups count")
    disagreement: DisagreementShown = Field(
        description="where keys and groups differ, by the proposal or else by what is accepted"
    )


class GroupsTaken(Answer):
    topic: str
    number: int = Field(description="number of the newest proposal")
    proposed: int = Field(description="groups that wait for a decision")
    accepted: int = Field(description="groups that count")
    publishers: int = Field(description="registered ones in groups that count")
