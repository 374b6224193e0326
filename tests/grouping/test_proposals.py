"""What becomes of proposals: which groups count, and which never do by themselves."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from distributor.grouping.proposals import (
    MAX_MEMBERS,
    Floor,
    Group,
    Kept,
    Older,
    Proposal,
    accepted,
    asked,
    forgotten,
    proposed,
    rejected,
    short_of,
)

NOW = 1_700_000_000.0
LAST = int(NOW * 1e9)
SURE: dict[str, Any] = {"lift": 50.0, "q": 1e-9, "coincidences": 40, "share": 0.6}


def group(name: str, *publishers: str, **figures: float) -> Group:
    return Group(name=name, publishers=list(publishers), **(SURE | figures))


def proposal(*groups: Group, last: int = LAST) -> Proposal:
    return Proposal(first=0, last=last, publishers=10, groups=list(groups))


WEAK = group("weak", "c", "d", coincidences=5)
GOOD = group("good", "a", "b")
AUTO = asked(Kept(), Floor(mode="auto"), NOW)


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        pytest.param({}, "", id="enough"),
        pytest.param({"lift": 2.5}, "lift 2.5 is below 3", id="lift"),
        pytest.param({"share": 0.1}, "share 0.1 is below 0.3", id="share"),
        pytest.param({"coincidences": 19}, "coincidences 19 are below 20", id="coincidences"),
        pytest.param({"q": 0.01}, "q 0.01 is above 0.001", id="q"),
        pytest.param({"lift": 0, "q": 1}, "lift 0 is below 3, q 1 is above 0.001", id="several"),
    ],
)
def test_the_floor_of_the_evidence(figures: dict[str, float], said: str) -> None:
    assert short_of(Floor(), group("g", "a", "b", **figures)) == said


figures = st.fixed_dictionaries(
    {
        "lift": st.floats(0, 1e6),
        "q": st.floats(0, 1),
        "coincidences": st.integers(0, 100),
        "share": st.floats(0, 1),
    }
)


@given(figures, figures)
def test_more_evidence_is_never_short_where_less_was_enough(
    floor: dict[str, Any], less: dict[str, Any]
) -> None:
    limits = Floor(mode="auto", **floor)
    if not short_of(limits, group("g", "a", "b", **less)):
        more = less | {"lift": less["lift"] + 1, "q": less["q"] / 2, "share": 1.0}
        assert not short_of(limits, group("g", "a", "b", **more))


# --- by hand ----------------------------------------------------------------------------------


def test_nothing_counts_before_somebody_accepts_it() -> None:
    kept = proposed(Kept(), proposal(GOOD, WEAK), NOW)
    assert (kept.number, kept.accepted) == (1, None)
    kept = accepted(kept, 1, NOW + 5)
    assert kept.newest is None
    assert kept.accepted == proposal(GOOD, WEAK)
    assert (kept.accepted_number, kept.accepted_at) == (1, NOW + 5)
    assert forgotten(kept).accepted is None


def test_one_that_was_not_looked_at_is_not_accepted() -> None:
    kept = proposed(Kept(), proposal(GOOD), NOW)
    kept = proposed(kept, proposal(WEAK, last=LAST + 1), NOW)
    for change in (lambda: accepted(kept, 1, NOW), lambda: rejected(kept, 1)):
        with pytest.raises(Older, match="proposal 1 is not the newest one any more, that is 2"):
            change()


def test_what_was_rejected_leaves_what_was_accepted() -> None:
    kept = accepted(proposed(Kept(), proposal(GOOD), NOW), None, NOW)
    kept = rejected(proposed(kept, proposal(WEAK, last=LAST + 1), NOW), 2)
    assert kept.accepted == proposal(GOOD)
    for change in (lambda: accepted(kept, None, NOW), lambda: rejected(kept, None)):
        with pytest.raises(Older, match="nothing is proposed"):
            change()


@pytest.mark.parametrize("taken", [False, True])
def test_the_same_again_is_no_new_proposal(taken: bool) -> None:
    kept = proposed(Kept(), proposal(GOOD), NOW)
    if taken:
        kept = accepted(kept, None, NOW)
    assert proposed(kept, proposal(GOOD), NOW + 9) is kept


def test_an_older_one_is_refused() -> None:
    kept = accepted(proposed(Kept(), proposal(GOOD), NOW), None, NOW)
    with pytest.raises(Older, match="later arrivals"):
        proposed(kept, proposal(WEAK, last=LAST - 1), NOW)


def test_one_from_the_future_is_refused_or_nothing_would_come_after_it() -> None:
    with pytest.raises(ValueError, match="a clock is wrong"):
        proposed(Kept(), proposal(GOOD, last=LAST + 2 * 86_400 * 10**9), NOW)


# --- by itself --------------------------------------------------------------------------------


def test_auto_accepts_what_reaches_the_floor_and_leaves_the_rest_proposed() -> None:
    kept = proposed(AUTO, proposal(GOOD, WEAK), NOW)
    assert kept.accepted == proposal(GOOD)
    assert kept.newest == proposal(GOOD, WEAK)
    assert proposed(kept, proposal(GOOD, WEAK), NOW + 9) is kept
    assert accepted(kept, 1, NOW).accepted == proposal(GOOD, WEAK)


@pytest.mark.parametrize("groups", [(), (WEAK,)])
def test_a_quiet_day_takes_away_nothing(groups: tuple[Group, ...]) -> None:
    kept = proposed(AUTO, proposal(GOOD), NOW)
    kept = proposed(kept, proposal(*groups, last=LAST + 1), NOW)
    assert kept.accepted == proposal(GOOD)


def test_auto_judges_what_is_proposed_already() -> None:
    kept = asked(proposed(Kept(), proposal(GOOD), NOW), Floor(mode="auto"), NOW)
    assert (kept.newest, kept.accepted) == (None, proposal(GOOD))


@given(st.lists(figures, max_size=5), figures)
def test_by_itself_nothing_below_the_floor_ever_counts(
    groups: list[dict[str, Any]], floor: dict[str, Any]
) -> None:
    limits = Floor(mode="auto", **floor)
    kept = asked(Kept(), limits, NOW)
    for at, its in enumerate(groups):
        kept = proposed(kept, proposal(group("g", "a", "b", **its), last=LAST + at), NOW)
        for each in kept.accepted.groups if kept.accepted else ():
            assert not short_of(limits, each)


# --- what is no proposal ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "said"),
    [
        pytest.param({"groups": [GOOD, group("other", "b", "c")]}, "'b' is in good", id="in-two"),
        pytest.param({"groups": [group("g", "a", "a")]}, "'a' is in g and in g", id="twice"),
        pytest.param({"groups": [GOOD, group("good", "c", "d")]}, "called good", id="names"),
        pytest.param({"first": LAST + 1}, "later than its last", id="backwards"),
        pytest.param({"last": -1}, "greater than or equal to 0", id="before-1970"),
        pytest.param({"more": 1}, "Extra inputs", id="unknown-field"),
        pytest.param(
            {
                "groups": [
                    group(f"g{n}", *(f"{n}-{m}" for m in range(MAX_MEMBERS // 2 + 1)))
                    for n in range(2)
                ]
            },
            "100,000 at most",
            id="too-many",
        ),
    ],
)
def test_a_bad_proposal_is_refused(values: dict[str, Any], said: str) -> None:
    good = {"first": 0, "last": LAST, "publishers": 10, "groups": [GOOD]}
    with pytest.raises(ValidationError, match=said):
        Proposal(**(good | values))


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"lift": float("nan")}, id="nan-lift"),
        pytest.param({"lift": float("inf")}, id="endless-lift"),
        pytest.param({"q": float("nan")}, id="nan-q"),
        pytest.param({"q": -0.1}, id="negative-q"),
        pytest.param({"share": 1.1}, id="more-than-all"),
        pytest.param({"coincidences": -1}, id="negative-count"),
        pytest.param({"coincidences": 2**70}, id="huge-count"),
        pytest.param({"publishers": ["a"]}, id="alone"),
        pytest.param({"publishers": ["a", "b\n"]}, id="control-character"),
        pytest.param({"publishers": ["a", ""]}, id="nameless"),
        pytest.param({"publishers": ["a", "x" * 257]}, id="endless-id"),
        pytest.param({"name": "g\x1b[2J"}, id="name"),
        pytest.param({"name": ""}, id="no-name"),
    ],
)
def test_a_bad_group_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Group(**({"name": "g", "publishers": ["a", "b"]} | SURE | values))


def test_what_is_kept_is_read_back() -> None:
    kept = proposed(accepted(proposed(AUTO, proposal(WEAK), NOW), 1, NOW), proposal(GOOD), NOW)
    assert Kept.model_validate_json(kept.model_dump_json()) == kept
