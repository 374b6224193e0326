"""Correlation groups that were inferred from a trace, beside the keys that users give. Pure."""

from distributor.grouping.disagreement import Disagreement, GroupApart, KeyApart, disagreement
from distributor.grouping.keys import Use, merged
from distributor.grouping.proposals import (
    MOST_AHEAD_SECONDS,
    Floor,
    Group,
    Kept,
    Member,
    Older,
    Proposal,
    accepted,
    asked,
    forgotten,
    proposed,
    rejected,
    short_of,
)

__all__ = [
    "MOST_AHEAD_SECONDS",
    "Disagreement",
    "Floor",
    "Group",
    "GroupApart",
    "Kept",
    "KeyApart",
    "Member",
    "Older",
    "Proposal",
    "Use",
    "accepted",
    "asked",
    "disagreement",
    "forgotten",
    "merged",
    "proposed",
    "rejected",
    "short_of",
]
