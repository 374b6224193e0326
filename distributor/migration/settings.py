"""The figures of migration, each with its reason. Seconds, and messages/s."""

WINDOW_SECONDS = 10.0
"""A broker is in trouble only when it was so in both halves of such a window; that of the TB
Adaptor. A shift of some seconds ends by itself, and a move costs a cold start."""
SILENT_SECONDS = 2.5
"""A broker that reported longer ago says nothing of now."""
MEASURED_SECONDS = 5.0
"""that publishers are counted for before one is moved: 1 message/s is known to 45 % then, 100/s
to 5 %"""
HEADROOM = 0.9
"""of what a broker holds: nobody is moved to one that would have more then, and what leaves a
broker in trouble brings it there. So its traffic has to grow by a ninth before it is in trouble
again."""
LATE_CAPACITY = 0.9
"""A broker that is late with what its capacity allows is taken to hold this part of what it has
now. With HEADROOM a fifth of its messages leave; what is too much then shows in the next window."""
CHANGED = 0.05
"""of a broker's capacity: when other placements have changed its declared rates by so much, what
was measured before is of no use"""

COOL_DOWN_SECONDS = 300.0
"""between two moves of one publisher"""
RECOVERED_SECONDS = 300.0
"""after a broker's trouble before anybody is moved to it"""
RETURN_SECONDS = 1800.0
"""without trouble, before a publisher goes back to a broker that it left"""
MOST_MOVES = 20
"""at once, over all topics; a publisher that moves stands still for a few ms"""
MOVE_EVERY_SECONDS = 30.0
"""in which another one is allowed: 120 an hour, so that a mistake stays small until it is seen"""
MOST_SHARE = 0.2
"""of a topic's publishers in one change, but one at least: whoever has to move more is better
placed anew, by `srtm placement apply`"""

TESTS = 100
"""How many times more strictly the watch tests than a round of a fitting, as it never ends: a
broker at half of the allowed late share is taken for a violated one in 1 of 4,000 tests."""
MOST_SLOTS = 90
"""reports that one test of lateness goes back"""
MOST_NODES = 20_000
"""steps of the search for fewer moves than the heaviest first take: 10 to 20 ms"""
MAX_TOLD = 100
"""publishers of one topic in a report, the heaviest: who sends less moves too little to matter"""
