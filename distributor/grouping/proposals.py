"""What is proposed for a topic, what of it counts, and what becomes of it when more comes."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

MAX_GROUPS = 10_000
MAX_MEMBERS = 100_000
"""of all groups of a topic"""
MOST_AHEAD_SECONDS = 86_400.0
"""An arrival later than that from now has a wrong time: all that comes after would be older."""
_COUNT = 2**53

Mode = Literal["propose", "auto"]
Member = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,64}$")]
Instant = Annotated[int, Field(ge=0, le=2**62)]
"""ns since 1970"""


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Group(_Value):
    """Publishers that burst together, and how sure that is."""

    name: Name
    publishers: list[Member] = Field(min_length=2, max_length=MAX_MEMBERS)
    lift: float = Field(ge=0, description="coincidences over those expected by chance")
    q: float = Field(
        ge=0, le=1, description="false discovery rate at which its weakest pair is still found"
    )
    coincidences: int = Field(ge=0, le=_COUNT, description="instants in common, of its median pair")
    share: float = Field(
        ge=0,
        le=1,
        description="part of a member's instants that coincide beyond chance, median pair",
    )


class Proposal(_Value):
    """The groups of one trace."""

    first: Instant = Field(description="arrival of the trace, ns since 1970")
    last: Instant = Field(description="arrival of the trace, ns since 1970")
    publishers: int = Field(
        ge=0, le=_COUNT, description="publishers that the trace has of the topic"
    )
    groups: list[Group] = Field(max_length=MAX_GROUPS, fail_fast=True)

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        if self.first > self.last:
            raise ValueError("its first arrival is later than its last")
        seen: dict[str, str] = {}
        names = set()
        for group in self.groups:
            if group.name in names:
                raise ValueError(f"two groups are called {group.name}")
            names.add(group.name)
            for publisher in group.publishers:
                if publisher in seen:
                    raise ValueError(
                        f"publisher {publisher!r} is in {seen[publisher]} and in {group.name}; "
                        "each may stand once"
                    )
                seen[publisher] = group.name
        if len(seen) > MAX_MEMBERS:
            raise ValueError(f"{len(seen):,} publishers in groups, {MAX_MEMBERS:,} at most")
        return self

    @property
    def members(self) -> dict[str, Sequence[str]]:
        return {each.name: each.publishers for each in self.groups}

    @property
    def size(self) -> int:
        return sum(len(each.publishers) for each in self.groups)


class Floor(_Value):
    """What a group has to reach to be accepted without anybody's word."""

    mode: Mode = Field("propose", description="auto: groups above the floor count at once")
    lift: float = Field(3.0, ge=0)
    q: float = Field(0.001, ge=0, le=1)
    coincidences: int = Field(20, ge=0, le=_COUNT)
    share: float = Field(0.3, ge=0, le=1)


class Kept(_Value):
    """What is kept of the groups of one topic. Times are seconds since 1970.

    number:   of the newest proposal, 0: none came yet; at: when it came
    newest:   the proposal; None once it is rejected or all of it counts
    last:     arrival of the newest that ever came, ns since 1970
    accepted: whose groups count; accepted_number: of which proposal; accepted_at: when
    """

    floor: Floor = Floor.model_validate({})
    number: int = 0
    at: float = 0.0
    newest: Proposal | None = None
    last: int = 0
    accepted: Proposal | None = None
    accepted_number: int = 0
    accepted_at: float = 0.0

    @property
    def size(self) -> int:
        """Publishers in groups that have to be kept."""
        return sum(each.size for each in (self.newest, self.accepted) if each is not None)


class Older(ValueError):
    """The proposal is out of date: there is something newer, or nothing is proposed."""


def short_of(floor: Floor, group: Group) -> str:
    """Why a group's evidence does not suffice; empty: it does."""
    said = []
    for name, least in (("lift", floor.lift), ("share", floor.share)):
        value = getattr(group, name)
        if value < least:
            said.append(f"{name} {value:.3g} is below {least:g}")
    if group.coincidences < floor.coincidences:
        said.append(f"coincidences {group.coincidences:,} are below {floor.coincidences:,}")
    if group.q > floor.q:
        said.append(f"q {group.q:.1g} is above {floor.q:g}")
    return ", ".join(said)


def proposed(kept: Kept, proposal: Proposal, now: float) -> Kept:
    """A proposal comes. now: seconds since 1970. The same again changes nothing. Raises Older for
    one whose last arrival is older than that of one before, ValueError for one from the future."""
    if proposal.last > (now + MOST_AHEAD_SECONDS) * 1e9:
        raise ValueError("its last arrival is more than a day from now: a clock is wrong")
    if proposal.last < kept.last:
        raise Older("a proposal with later arrivals has come before")
    if proposal.last == kept.last and proposal in (kept.newest, kept.accepted):
        return kept
    changes = {"number": kept.number + 1, "at": now, "newest": proposal, "last": proposal.last}
    came = kept.model_copy(update=changes)
    return _by_itself(came, now)


def asked(kept: Kept, floor: Floor, now: float) -> Kept:
    """Another floor; with `auto`, what is proposed is judged by it at once."""
    return _by_itself(kept.model_copy(update={"floor": floor}), now)


def accepted(kept: Kept, number: int | None, now: float) -> Kept:
    """Accept all groups of the newest proposal: they count from now on. number: the proposal that
    was looked at. Raises Older where the newest is another one, or none is there."""
    return _counts(kept, _looked_at(kept, number), None, now)


def rejected(kept: Kept, number: int | None) -> Kept:
    """The newest proposal is dropped; what was accepted before counts on. Raises Older."""
    _looked_at(kept, number)
    return kept.model_copy(update={"newest": None})


def forgotten(kept: Kept) -> Kept:
    """No inferred group counts any more."""
    return kept.model_copy(update={"accepted": None, "accepted_number": 0, "accepted_at": 0.0})


def _looked_at(kept: Kept, number: int | None) -> Proposal:
    """The newest proposal, if it is the one that was looked at. Raises Older."""
    if kept.newest is None:
        raise Older("nothing is proposed")
    if number not in (None, kept.number):
        raise Older(f"proposal {number} is not the newest one any more, that is {kept.number}")
    return kept.newest


def _by_itself(kept: Kept, now: float) -> Kept:
    """Where groups count by themselves, those of the newest proposal that suffice count from now
    on. A proposal none of whose groups suffices changes nothing of what counts."""
    newest = kept.newest
    if newest is None or kept.floor.mode != "auto":
        return kept
    enough = [each for each in newest.groups if not short_of(kept.floor, each)]
    if not enough:
        return kept
    some = newest.model_copy(update={"groups": enough})
    return _counts(kept, some, newest if len(enough) < len(newest.groups) else None, now)


def _counts(kept: Kept, proposal: Proposal, left: Proposal | None, now: float) -> Kept:
    return kept.model_copy(
        update={
            "newest": left,
            "accepted": proposal,
            "accepted_number": kept.number,
            "accepted_at": now,
        }
    )
