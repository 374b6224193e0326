"""Publishers as groups: by correlation key, or as everyone for himself in a seeded order."""

from collections.abc import Sequence
from random import Random
from zlib import crc32

from distributor.model import Publisher


def by_key(publishers: Sequence[Publisher]) -> list[list[int]]:
    """Numbers of the publishers of each group, heaviest first, ties by id; groups in order of key,
    then those without a key, each a group of one. `publishers` are in order of id."""
    keyed: dict[str, list[int]] = {}
    alone = []
    for number, publisher in enumerate(publishers):
        if publisher.key:
            keyed.setdefault(publisher.key, []).append(number)
        else:
            alone.append([number])
    rates = [publisher.rate for publisher in publishers]
    for members in keyed.values():
        members.sort(key=rates.__getitem__, reverse=True)
    return [keyed[key] for key in sorted(keyed)] + alone


def blind(publishers: Sequence[Publisher], topic: str) -> list[list[int]]:
    """The publishers, each a group of one, in an order drawn by the topic's name: ids often run
    group by group, so to deal them in their own order would not be blind to the groups."""
    numbers = list(range(len(publishers)))
    Random(crc32(topic.encode())).shuffle(numbers)
    return [[number] for number in numbers]
