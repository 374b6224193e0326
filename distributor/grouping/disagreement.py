"""Where the keys of users and the groups of a trace say different things."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MOST_NAMED = 5
"""publishers of one difference"""


@dataclass(frozen=True, slots=True)
class KeyApart:
    """A user's key whose publishers are not one group.

    group:     where most of them are; None: not two of them are in one group
    members:   how many have the key
    together:  of them in `group`
    alone:     of them in no group: they did not burst, or not with others
    elsewhere: other groups -> of them there
    named:     some of those who are not in `group`
    """

    key: str
    group: str | None
    members: int
    together: int
    alone: int
    elsewhere: Mapping[str, int]
    named: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupApart:
    """A group whose publishers have not one key.

    key:     that most of those have who have one; None: nobody has
    members: registered ones
    keyed:   of them with `key`
    others:  other keys -> of them with it
    keyless: of them without a key
    named:   some of those who have another key than `key`
    """

    group: str
    key: str | None
    members: int
    keyed: int
    others: Mapping[str, int]
    keyless: int
    named: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """keys, groups: those that are apart, the largest first. A group of publishers without any key
    contradicts nobody."""

    keys: tuple[KeyApart, ...]
    groups: tuple[GroupApart, ...]


def disagreement(
    keys: Mapping[str, str | None], groups: Mapping[str, Sequence[str]]
) -> Disagreement:
    """keys: by users, of every registered publisher; groups: name -> ids, no id in two."""
    group_of = {each: name for name, members in groups.items() for each in members if each in keys}
    by_key: dict[str, list[str]] = {}
    for publisher, key in keys.items():
        if key:
            by_key.setdefault(key, []).append(publisher)
    by_group: dict[str, list[str]] = {}
    for publisher, name in group_of.items():
        by_group.setdefault(name, []).append(publisher)
    of_keys = [_key_apart(key, members, group_of) for key, members in by_key.items()]
    of_groups = [_group_apart(name, members, keys) for name, members in by_group.items()]
    return Disagreement(
        tuple(sorted(filter(None, of_keys), key=lambda each: (-each.members, each.key))),
        tuple(sorted(filter(None, of_groups), key=lambda each: (-each.members, each.group))),
    )


def _key_apart(key: str, members: list[str], group_of: Mapping[str, str]) -> KeyApart | None:
    if len(members) < 2:
        return None  # a group of one, whatever bursts with it
    counts = Counter(group_of[each] for each in members if each in group_of)
    home, together = _most(counts)
    if together < 2:
        home, together = None, 0
    if together == len(members):
        return None
    elsewhere = {name: count for name, count in sorted(counts.items()) if name != home}
    apart = sorted(each for each in members if home is None or group_of.get(each) != home)
    return KeyApart(
        key,
        home,
        len(members),
        together,
        len(members) - sum(counts.values()),
        elsewhere,
        tuple(apart[:MOST_NAMED]),
    )


def _group_apart(
    name: str, members: list[str], keys: Mapping[str, str | None]
) -> GroupApart | None:
    counts = Counter(key for each in members if (key := keys[each]))
    if not counts:
        return None
    key, keyed = _most(counts)
    keyless = len(members) - sum(counts.values())
    others = {each: count for each, count in sorted(counts.items()) if each != key}
    if not others and not keyless:
        return None
    apart = sorted(each for each in members if keys[each] and keys[each] != key)
    named = tuple(apart[:MOST_NAMED])
    return GroupApart(name, key, len(members), keyed, others, keyless, named)


def _most(counts: Counter[str]) -> tuple[str | None, int]:
    """Ties by name."""
    return min(counts.items(), key=lambda each: (-each[1], each[0]), default=(None, 0))
