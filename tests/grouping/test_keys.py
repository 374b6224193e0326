"""Keys of users and inferred groups as one: whoever gave a key keeps it."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributor.grouping.keys import Use, merged

IDS = [f"p{n}" for n in range(9)]
USER_KEYS = ["roof", "hall", "~g1", "~~", "~"]
keys_given = st.dictionaries(st.sampled_from(IDS), st.none() | st.sampled_from(["", *USER_KEYS]))
uses: st.SearchStrategy[Use] = st.sampled_from(["user", "inferred", "both"])


@st.composite
def groupings(draw: st.DrawFn) -> dict[str, list[str]]:
    """Of ids that are registered and others, none in two groups."""
    ids = draw(st.permutations([*IDS, "gone", "stranger"]))
    cuts = sorted(draw(st.lists(st.integers(0, len(ids)), max_size=4)))
    parts = [ids[a:b] for a, b in zip([0, *cuts], [*cuts, len(ids)], strict=True)]
    return {f"g{n}": list(part) for n, part in enumerate(parts[:-1]) if len(part) > 1}


def partition(keys: Mapping[str, str | None]) -> set[frozenset[str]]:
    by: dict[str, set[str]] = {}
    for each, key in keys.items():
        if key:
            by.setdefault(key, set()).add(each)
    return {frozenset(each) for each in by.values()}


@given(keys_given, groupings(), uses)
def test_everybody_registered_has_one_answer(
    keys: dict[str, str | None], groups: dict[str, list[str]], use: Use
) -> None:
    assert merged(keys, groups, use).keys() == keys.keys()


@given(keys_given, groupings())
def test_a_key_that_a_user_gave_stays(
    keys: dict[str, str | None], groups: dict[str, list[str]]
) -> None:
    found = merged(keys, groups, "both")
    assert {each: found[each] for each in keys if keys[each]} == {
        each: key for each, key in keys.items() if key
    }


@given(keys_given, groupings())
def test_without_groups_keys_alone_count_and_the_reverse(
    keys: dict[str, str | None], groups: dict[str, list[str]]
) -> None:
    assert merged(keys, {}, "both") == merged(keys, groups, "user")
    none: dict[str, str | None] = dict.fromkeys(keys)
    assert merged(none, groups, "both") == merged(keys, groups, "inferred")
    assert partition(merged(keys, groups, "inferred")) == {
        frozenset(there) for each in groups.values() if (there := set(each) & keys.keys())
    }


@given(keys_given, groupings())
def test_nobody_is_put_together_who_shares_neither_key_nor_group(
    keys: dict[str, str | None], groups: dict[str, list[str]]
) -> None:
    group_of = {each: name for name, members in groups.items() for each in members}
    for together in partition(merged(keys, groups, "both")):
        users = {keys[each] for each in together if keys[each]}
        keyless = [each for each in together if not keys[each]]
        assert len(users) <= 1
        for name in {group_of[each] for each in keyless}:
            there = [each for each in groups[name] if each in keys]
            if users:  # they joined those who are most of their group
                joined = [each for each in there if keys[each] in users]
                assert 2 * len(joined) > len(there)
        if not users:
            assert len({group_of[each] for each in keyless}) == 1


@given(keys_given, groupings(), uses, st.randoms(use_true_random=False))
def test_the_order_of_publishers_and_groups_does_not_matter(
    keys: dict[str, str | None], groups: dict[str, list[str]], use: Use, random: object
) -> None:
    def shuffled(values: Sequence[object]) -> list[object]:
        out = list(values)
        random.shuffle(out)  # type: ignore[attr-defined]
        return out

    others = {name: shuffled(groups[name]) for name in shuffled(list(groups))}  # type: ignore[index, call-overload]
    again = {each: keys[each] for each in shuffled(list(keys))}  # type: ignore[index, call-overload]
    assert merged(again, others, use) == merged(keys, groups, use)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        pytest.param({"a": "roof", "b": "roof", "c": None}, "roof", id="joins-most-of-its-group"),
        pytest.param({"a": "roof", "b": None, "c": None}, "~g", id="one-member-takes-nobody-along"),
        pytest.param({"a": "roof", "b": "hall", "c": None}, "~g", id="users-keep-them-apart"),
        pytest.param({"c": None}, "~g", id="others-are-gone"),
        pytest.param({"a": "~x", "b": None, "c": None}, "~~g", id="a-key-that-looks-like-ours"),
    ],
)
def test_who_has_no_key(keys: dict[str, str | None], expected: str) -> None:
    assert merged(keys, {"g": ["a", "b", "c"]}, "both")["c"] == expected
