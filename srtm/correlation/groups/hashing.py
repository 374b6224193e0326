"""Hashes of time bins (one-permutation MinHash, one hash for each arrival and grid), and pairs of
those that share a bucket: a time bin, or a band of an LSH."""

import numpy as np
from numpy.typing import NDArray

from srtm.correlation.groups.instants import Integers, heads

_Words = NDArray[np.uint64]

_VALUE_BITS = 24
_EMPTY = (1 << _VALUE_BITS) - 1
_TRIES = 64
GRIDS = 2
LARGEST = 300
"""Members of a bucket of which all pairs are taken: 45,000."""
NEIGHBOURS = 16
"""In a bucket larger than LARGEST each member is paired with so many of those that follow it in the
order of ids: a group that is so large stays in one piece by them, and no bucket costs the square of
its members."""


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
    least = heads(place)
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


def bucket_pairs(bucket: Integers, member: Integers) -> tuple[Integers, Integers]:
    """Positions (left, right) in the arrays, each pair of a bucket once, with member[left] <
    member[right]. bucket, member: sorted by bucket, then member, without repeats."""
    if bucket.size < 2:
        empty = np.empty(0, np.int64)
        return empty, empty
    begins = np.flatnonzero(heads(bucket))
    sizes = np.diff(np.append(begins, bucket.size))
    end = np.repeat(begins + sizes, sizes)
    position = np.arange(bucket.size)
    following = end - position - 1
    reach = np.where(np.repeat(sizes, sizes) > LARGEST, NEIGHBOURS, following)
    count = np.minimum(following, reach)
    left = np.repeat(position, count)
    offset = np.arange(left.size) - np.repeat(np.cumsum(count) - count, count)
    return left, left + 1 + offset
