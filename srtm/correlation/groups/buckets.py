"""Pairs of those that share a bucket: a time bin, or a band of an LSH."""

import numpy as np

from srtm.correlation.groups.instants import Integers

LARGEST = 300
"""Members of a bucket of which all pairs are taken: 45,000."""
NEIGHBOURS = 16
"""In a bucket larger than LARGEST each member is paired with so many of those that follow it in the
order of ids: a group that is so large stays in one piece by them, and no bucket costs the square of
its members."""


def bucket_pairs(bucket: Integers, member: Integers) -> tuple[Integers, Integers]:
    """Positions (left, right) in the arrays, each pair of a bucket once, with member[left] <
    member[right]. bucket, member: sorted by bucket, then member, without repeats."""
    if bucket.size < 2:
        empty = np.empty(0, np.int64)
        return empty, empty
    begins = np.flatnonzero(np.append(True, np.diff(bucket) != 0))
    sizes = np.diff(np.append(begins, bucket.size))
    end = np.repeat(begins + sizes, sizes)
    position = np.arange(bucket.size)
    following = end - position - 1
    reach = np.where(np.repeat(sizes, sizes) > LARGEST, NEIGHBOURS, following)
    count = np.minimum(following, reach)
    left = np.repeat(position, count)
    offset = np.arange(left.size) - np.repeat(np.cumsum(count) - count, count)
    return left, left + 1 + offset
