"""Which publishers leave a broker in trouble, and for where: pure, time passed in."""

from distributor.migration.decision import decide
from distributor.migration.memory import Memory
from distributor.migration.pulse import Pulse
from distributor.migration.selection import Candidate, fewest
from distributor.migration.values import (
    Cause,
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
    "Cause",
    "Decision",
    "Memory",
    "Move",
    "Pulse",
    "Sender",
    "Source",
    "Target",
    "TopicSeen",
    "Trouble",
    "decide",
    "fewest",
]
