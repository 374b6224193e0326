"""Slots of nsqd's clock, so that programs which cannot speak of every message sample the same ones.
Pure.

Each slot has a level by a hash of its number: level l or more has one slot in 2**l, in no order
that falls in with anybody's period. Who samples at level l takes every message that nsqd received
in those slots; of two programs, the one with the higher level decides what both have.
"""

import math

SLOT_NS = 20_000_000
HIGHEST_LEVEL = 20
"""one slot in a million: 5.8 hours"""
_64_BITS = (1 << 64) - 1


def slot_of(wall_ns: int) -> int:
    return wall_ns // SLOT_NS


def level_of(slot: int) -> int:
    """From 0 to HIGHEST_LEVEL."""
    # SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). A single multiplication is not enough: slots
    # 351 apart would all miss level 4.
    mixed = slot * 0x9E3779B97F4A7C15 & _64_BITS
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _64_BITS
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _64_BITS
    mixed = (mixed ^ mixed >> 31) & ((1 << HIGHEST_LEVEL) - 1)
    return HIGHEST_LEVEL if not mixed else (mixed & -mixed).bit_length() - 1


def level_for(messages: float, most: float) -> int:
    """The least level at which about `most` of so many messages are left."""
    if messages <= most:
        return 0
    return min(HIGHEST_LEVEL, math.ceil(math.log2(messages / most)))
