"""Where keys of users and groups of a trace differ, both ways."""

from hypothesis import given

from distributor.grouping.disagreement import disagreement
from tests.grouping.test_keys import groupings, keys_given

KEYS = {
    "r1": "roof", "r2": "roof", "r3": "roof", "r4": "roof", "h1": "hall", "h2": "hall", "x": None,
    "only": "one",
}  # fmt: skip


def test_both_ways_with_names() -> None:
    found = disagreement(KEYS, {"g1": ["r1", "r2", "h1", "x", "gone"], "g2": ["r3", "only"]})
    roof, hall = found.keys
    assert (roof.key, roof.group, roof.members, roof.together) == ("roof", "g1", 4, 2)
    assert (roof.elsewhere, roof.alone, roof.named) == ({"g2": 1}, 1, ("r3", "r4"))
    assert (hall.key, hall.group, hall.together) == ("hall", None, 0)
    assert (hall.elsewhere, hall.alone, hall.named) == ({"g1": 1}, 1, ("h1", "h2"))
    first, second = found.groups
    assert (first.group, first.key, first.members, first.keyed) == ("g1", "roof", 4, 2)
    assert (first.others, first.keyless, first.named) == ({"hall": 1}, 1, ("h1",))
    assert (second.group, second.key, second.others) == ("g2", "one", {"roof": 1})


def test_they_agree() -> None:
    keys = {"a": "k", "b": "k", "c": None, "d": None, "e": "alone"}
    found = disagreement(keys, {"g1": ["a", "b"], "g2": ["c", "d"]})
    assert (found.keys, found.groups) == ((), ())


@given(keys_given, groupings())
def test_everybody_is_counted(keys: dict[str, str | None], groups: dict[str, list[str]]) -> None:
    found = disagreement(keys, groups)
    for key in found.keys:
        assert key.together + key.alone + sum(key.elsewhere.values()) == key.members
        assert key.members == sum(each == key.key for each in keys.values())
        assert key.alone or key.elsewhere
    for group in found.groups:
        assert group.keyed + group.keyless + sum(group.others.values()) == group.members
        assert group.members == sum(each in keys for each in groups[group.group])


@given(keys_given, groupings())
def test_a_key_that_is_a_group_is_in_no_list(
    keys: dict[str, str | None], groups: dict[str, list[str]]
) -> None:
    by_key: dict[str, set[str]] = {}
    for publisher, key in keys.items():
        if key:
            by_key.setdefault(key, set()).add(publisher)
    there = [{each for each in members if each in keys} for members in groups.values()]
    found = disagreement(keys, groups)
    apart = {each.key for each in found.keys}
    for key, members in by_key.items():
        if members in there:
            assert key not in apart
        elif len(members) > 1 and not any(members <= each for each in there):
            assert key in apart
