"""Which publishers leave a broker in trouble, and for where: pure, time passed in."""

from distributor.migration.decision import relieve
from distributor.migration.memory import Memory
from distributor.migration.pulse import Pulse, Slot
from distributor.migration.selection import Candidate, fewest
from distributor.migration.shares import shares_after
from distributor.migration.values import (
    Decision,
    Move,
    Sender,
    Source,
    Target,
    TopicSeen,
    Trouble,
)

__all__ = [
    "Candidate",
    "Decision",
    "Memory",
    "Move",
    "Pulse",
    "Sender",
    "Slot",
    "Source",
    "Target",
    "TopicSeen",
    "Trouble",
    "fewest",
    "relieve",
    "shares_after",
]
