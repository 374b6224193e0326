"""Hashes of time bins: one-permutation MinHash, one hash for each arrival and grid."""

import numpy as np
from numpy.typing import NDArray

from srtm.correlation.groups.instants import Integers

_Words = NDArray[np.uint64]

_VALUE_BITS = 24
_EMPTY = (1 << _VALUE_BITS) - 1
_TRIES = 64
GRIDS = 2


def mix(words: Integers | _Words) -> _Words:
    """SplitMix64's last step (Steele, Lea, Flood 2014): all bits depend on all."""
    with np.errstate(over="ignore"):
        word = words.astype(np.uint64)
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return word ^ (word >> np.uint64(31))


def bins(times: Integers, unit: Integers, width_us: Integers) -> Integers:
    """A key for each arrival and grid, 2 x n. The grids are half a bin apart, so that two arrivals
    that are less than half a bin apart share a key in one of them, wherever they fall."""
    first = times // width_us
    second = (times + width_us // 2) // width_us
    seed = mix(unit)
    return np.stack([mix(seed ^ mix(2 * first)), mix(seed ^ mix(2 * second + 1))]).view(np.int64)


def signatures(keys: Integers, owner: Integers, owners: int, values: int) -> Integers:
    """MinHash of the set of keys of each owner 0..owners-1, owners x values; -1: it has no key.

    One permutation (Li, Owen, Zhang 2012): a key falls into one of `values` slots by its hash, each
    slot keeps its least. An empty slot takes another's, the same for all owners (Shrivastava 2017).
    """
    word = mix(keys)
    slot = (word % np.uint64(values)).astype(np.int64)
    value = (word >> np.uint64(64 - _VALUE_BITS)).astype(np.int64)
    packed = np.sort(((owner * values + slot) << _VALUE_BITS) | value)
    place = packed >> _VALUE_BITS
    least = np.ones(place.size, dtype=bool)
    least[1:] = np.diff(place) != 0
    found = np.full(owners * values, -1, dtype=np.int64)
    found[place[least]] = packed[least] & _EMPTY
    table = found.reshape(owners, values)
    filled = table.copy()
    row, column = np.nonzero(table < 0)
    for attempt in range(1, _TRIES):
        if not row.size:
            break
        other = (mix(column * _TRIES + attempt) % np.uint64(values)).astype(np.int64)
        taken = table[row, other]
        there = taken >= 0
        filled[row[there], column[there]] = taken[there]
        row, column = row[~there], column[~there]
    return filled


def bands(signature: Integers, unit: Integers, values: int) -> Integers:
    """A key of each band of `values` neighbouring slots, owners x bands; 0: a slot is empty."""
    owners, slots = signature.shape
    count = slots // values
    key = np.broadcast_to(
        mix(unit)[:, None] ^ mix(np.arange(1, count + 1))[None, :], (owners, count)
    ).copy()
    whole = np.ones((owners, count), dtype=bool)
    for at in range(values):
        part = signature[:, at : count * values : values]
        key = mix(key ^ mix(part + 1))
        whole &= part >= 0
    return np.where(whole, np.maximum(key, np.uint64(1)), np.uint64(0)).view(np.int64)
