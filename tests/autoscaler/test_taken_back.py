"""Decisions after which more is late than was foretold."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import pytest

from srtm.autoscaler.decision import Action, Decision, Member
from srtm.autoscaler.observation import ConsumerSeen, ConsumerState, Observation, PartitionSeen
from srtm.autoscaler.policies.taken_back import REFUSED_SECONDS, TakenBack
from srtm.limits.slo import SLO

THREE = (("a", (0, 1)), ("b", (2, 3)), ("c", (4, 5)))
TWO = (("a", (0, 1, 4)), ("b", (2, 3, 5)))
ONE_MOVED = (("a", (0, 4)), ("b", (2, 3)), ("c", (1, 5)))
Owned = Sequence[tuple[str, tuple[int, ...]]]


@dataclass
class Wants:
    """A policy that wants the group it is told of, once asked for it."""

    name: str = "wants"
    group: Owned | None = None
    late: float | None = 10.0

    def decide(self, seen: Observation) -> Decision:
        if self.group is None:
            return Decision(Action.NONE)
        now = len(seen.consumers)
        action = Action.REASSIGN
        if len(self.group) != now:
            action = Action.UP if len(self.group) > now else Action.DOWN
        known = {c.id for c in seen.consumers}
        members = tuple(Member(name if name in known else None, ps) for name, ps in self.group)
        return Decision(action, members, late=self.late)


@dataclass
class Group:
    policy: Wants = field(default_factory=Wants)
    at: float = 0.0

    def __post_init__(self) -> None:
        self.taken = TakenBack(self.policy, SLO(0.99, 0.5))

    def see(
        self,
        owned: Owned,
        late: int = 0,
        rate: float = 100.0,
        starting: str = "",
        seconds: float = 1.0,
    ) -> Decision:
        self.at += seconds
        partitions = tuple(PartitionSeen(n, rate / 6, 0.0) for n in range(6))
        consumers = tuple(
            ConsumerSeen(
                name,
                60.0,
                ps,
                ConsumerState.STARTING if name == starting else ConsumerState.RUNNING,
            )
            for name, ps in owned
        )
        return self.taken.decide(
            Observation(self.at, partitions, consumers, 60.0, served=round(rate), late=late)
        )

    def shrink(self) -> Decision:
        """100 s in which all is well, and then two consumers in place of three."""
        for _ in range(100):
            assert self.see(THREE).action is Action.NONE
        self.policy.group = TWO
        return self.see(THREE)


def test_a_smaller_group_that_makes_much_late_is_taken_back() -> None:
    group = Group()
    assert group.shrink().action is Action.DOWN
    group.policy.group = None
    found = [group.see(TWO, late=30) for _ in range(4)]
    back = next(each for each in found if each.action is not Action.NONE)
    assert back.action is Action.UP
    assert back.members == (Member("a", (0, 1)), Member("b", (2, 3)), Member(None, (4, 5)))
    assert back.reason.startswith("taken back: ")
    assert "with 2 consumers, 10 foretold" in back.reason


@pytest.mark.parametrize(
    ("late", "rate"),
    [
        (1, 100.0),  # no more than the SLO allows
        (30, 130.0),  # the load has risen
    ],
)
def test_it_stands_where_it_was_foretold_or_load_explains_it(late: int, rate: float) -> None:
    group = Group()
    group.shrink()
    group.policy.group = None
    assert {group.see(TWO, late, rate).action for _ in range(100)} == {Action.NONE}


def test_what_was_late_before_as_well_is_not_its_doing() -> None:
    group = Group()
    for _ in range(100):
        group.see(THREE, late=20)
    group.policy.group = TWO
    group.see(THREE, late=20)
    group.policy.group = None
    assert {group.see(TWO, late=30).action for _ in range(60)} == {Action.NONE}


def test_one_as_small_is_refused_while_as_much_comes_and_longer_each_time() -> None:
    group = Group()
    group.shrink()
    refused = []
    for _ in range(2):
        group.policy.group = None
        while group.see(TWO, late=30).action is not Action.UP:
            assert group.at < 10_000
        group.see(THREE, starting="c")
        group.policy.group = TWO
        begun = group.at
        while (found := group.see(THREE, seconds=5.0)).action is Action.NONE:
            assert "made too much late at 100/s" in found.reason
        refused.append(group.at - begun)
    assert REFUSED_SECONDS - 20 < refused[0] < REFUSED_SECONDS + 20
    assert refused[1] == pytest.approx(2 * refused[0], abs=20)


def test_with_less_load_it_is_tried_again_at_once() -> None:
    group = Group()
    group.shrink()
    group.policy.group = None
    while group.see(TWO, late=30).action is not Action.UP:
        pass
    group.policy.group = TWO
    assert group.see(THREE).action is Action.NONE
    assert group.see(THREE, rate=60.0).action is Action.NONE  # one interval is chance
    found = [group.see(THREE, rate=60.0).action for _ in range(40)]
    assert Action.DOWN in found


def test_new_owners_are_taken_back_unless_somebody_is_gone() -> None:
    for there, expected in ((ONE_MOVED, Action.REASSIGN), (ONE_MOVED[:2], Action.NONE)):
        group = Group()
        for _ in range(100):
            group.see(THREE)
        group.policy.group = ONE_MOVED
        assert group.see(THREE).action is Action.REASSIGN
        group.policy.group = None
        found = [group.see(there, late=30).action for _ in range(5)]
        assert expected in found
        assert set(found) <= {expected, Action.NONE}


def test_what_was_never_carried_out_is_not_judged() -> None:
    """An executor that only tells others how many are wanted may be overruled."""
    group = Group()
    group.shrink()
    group.policy.group = None
    found = [group.see(THREE, late=30).action for _ in range(200)]
    assert set(found) == {Action.NONE}


def test_a_policy_that_wants_more_than_before_gets_it() -> None:
    group = Group()
    group.shrink()
    group.policy.group = (*THREE[:2], ("c", (4,)), ("d", (5,)))
    for _ in range(5):
        found = group.see(TWO, late=30)
        assert len(found.members) == 4


def test_new_owners_that_failed_are_refused_for_a_while() -> None:
    group = Group()
    for _ in range(100):
        group.see(THREE)
    group.policy.group = ONE_MOVED
    assert group.see(THREE).action is Action.REASSIGN
    while group.see(ONE_MOVED, late=30).members != tuple(Member(*each) for each in THREE):
        assert group.at < 1000
    begun = group.at
    while group.see(THREE, seconds=5.0).action is Action.NONE:
        pass
    assert group.at - begun > REFUSED_SECONDS - 20


def test_the_rate_of_one_interval_is_chance() -> None:
    """50/s with the scatter of Poisson's: it is taken back all the same."""
    noise = Random(1)
    group = Group()
    for _ in range(100):
        group.see(THREE, rate=noise.gauss(50, 7))
    group.policy.group = TWO
    group.see(THREE)
    group.policy.group = None
    found = [group.see(TWO, late=10, rate=noise.gauss(50, 7)).action for _ in range(60)]
    assert Action.UP in found


def test_more_consumers_are_never_taken_back() -> None:
    group = Group()
    group.policy.group = THREE
    assert group.see(TWO).action is Action.UP
    group.policy.group = None
    assert {group.see(THREE, late=90).action for _ in range(60)} == {Action.NONE}


def test_nothing_is_taken_back_while_the_group_changes_or_when_the_clock_went_back() -> None:
    group = Group()
    group.shrink()
    group.policy.group = None
    assert group.see(TWO, late=90, starting="b").action is Action.NONE
    group.at -= 1000
    assert {group.see(TWO, late=90).action for _ in range(30)} == {Action.NONE}
