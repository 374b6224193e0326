"""Launches and leavers: what a controller has its executor do, on a played executor."""

import itertools
from dataclasses import dataclass, field

import pytest

from srtm.autoscaler.decision import Action, Decision, Member
from srtm.autoscaler.executors.executor import Abilities, Fleet, Wanted
from srtm.autoscaler.live.bounds import with_those_that_stay
from srtm.autoscaler.live.crew import Crew
from srtm.autoscaler.live.roster import Roster
from srtm.autoscaler.observation import ConsumerSeen, Observation, PartitionSeen

BOTH = {"a": "a", "b": "b"}


@dataclass
class Pods:
    """An executor that says what it is set to, and keeps what it was told."""

    abilities: Abilities = field(default_factory=Abilities)
    fleet: Fleet = field(default_factory=Fleet)
    told: list[Wanted] = field(default_factory=list)

    def want(self, at: float, wanted: Wanted) -> None:
        self.told.append(wanted)

    def seen(self) -> Fleet:
        return self.fleet

    def close(self) -> None:
        return None


@pytest.fixture
def pods() -> Pods:
    return Pods()


def test_who_leaves_is_ended_once_it_may_be_and_is_still_wanted_gone_until_it_is(
    pods: Pods,
) -> None:
    crew, roster = Crew(pods, 5.0), Roster(members=BOTH, leaving={"b"})
    crew.want(0.0, roster, lambda id_: False)
    crew.want(1.0, roster, lambda id_: True)
    pods.fleet = Fleet(running=frozenset("a"), leaving=frozenset("b"))
    for at in (2.0, 3.0):
        crew.look(roster)
        crew.want(at, roster, lambda id_: True)
    assert [set(each.leavers) for each in pods.told] == [set(), {"b"}, {"b"}, {"b"}]
    assert roster.leaving == {"b"}


def test_who_is_spared_works_on(pods: Pods) -> None:
    """A Deployment has ended another one."""
    crew = Crew(pods, 5.0)
    roster = Roster(members=BOTH, parts={"b": (0,)}, leaving={"a"})
    crew.want(0.0, roster, lambda id_: True)
    pods.fleet = Fleet(running=frozenset("ab"))
    crew.look(roster)
    crew.want(1.0, roster, lambda id_: True)
    assert roster.leaving == set()
    assert [set(each.leavers) for each in pods.told] == [{"a"}, set()]
    roster.follow(1.0, BOTH)
    assert set(roster.parts) == {"a", "b"}


def test_who_is_called_off_between_two_looks_is_not_taken_for_spared(pods: Pods) -> None:
    crew, roster = Crew(pods, 5.0), Roster()
    pods.fleet = Fleet(running=frozenset("x"))
    crew.call_off({"x"})
    crew.look(roster)
    crew.want(1.0, roster, lambda id_: True)
    assert pods.told[-1].leavers == {"x"}


def test_launches_that_fail_are_tried_later_each_time(pods: Pods) -> None:
    crew, roster = Crew(pods, 5.0), Roster()
    pods.fleet = Fleet(died={"x": "quota", "y": "quota"})
    crew.look(roster)
    ends = [0.0]
    for _ in range(3):
        begun = ends[-1]
        roster.launched = {"x": begun, "y": begun}
        assert crew.failed(begun, roster) == ["quota", "quota"]
        assert not roster.launched
        assert crew.backoff.told(begun) == "quota"
        ends.append(next(n / 10 for n in range(1000) if not crew.backoff.told(n / 10)))
    waits = [after - before for before, after in itertools.pairwise(ends)]
    assert 0 < waits[0] < waits[2]
    crew.backoff.fail(ends[-1], "quota")
    crew.backoff.succeed()
    assert not crew.backoff.told(ends[-1])


def test_a_launch_that_does_not_join_in_time_is_called_off_once(pods: Pods) -> None:
    crew, roster = Crew(pods, 5.0), Roster(launched={"x": 0.0}, parts={"x": (0,)})
    pods.fleet = Fleet(starting={"x": "x did not join; look at its log"})
    crew.look(roster)
    assert crew.failed(5.0, roster) == []
    assert crew.failed(5.1, roster) == ["x did not join; look at its log"]
    assert roster.parts == {}
    crew.want(5.1, roster, lambda id_: False)
    crew.look(roster)
    crew.want(5.2, roster, lambda id_: False)
    assert [(each.launches, set(each.leavers)) for each in pods.told] == [((), {"x"}), ((), set())]


def test_what_starts_for_the_controller_before_is_a_launch(pods: Pods) -> None:
    crew, roster = Crew(pods, 5.0), Roster(members={"a": "a"}, parts={"a": (0,)})
    pods.fleet = Fleet(running=frozenset("ax"), leaving=frozenset("y"))
    crew.take_over(1.0, roster)
    assert roster.launched == {"x": 1.0}
    assert roster.parts == {"a": (0,), "x": ()}
    assert crew.failed(6.1, roster) == ["x did not join in time"]
    assert roster.parts == {"a": (0,)}


def test_who_joins_takes_the_oldest_launch() -> None:
    roster = Roster(parts={"l-1": (0, 1), "l-2": (2,)}, launched={"l-1": 1.0, "l-2": 2.0})
    assert roster.follow(5.0, {"pod-x": "pod-x"}, claims=True) == []
    assert roster.parts == {"pod-x": (0, 1), "l-2": (2,)}
    assert roster.launched == {"l-2": 2.0}
    assert roster.startups == [4.0]


def test_a_statefulset_keeps_its_lowest_ordinals_whoever_was_meant() -> None:
    """The policy would keep w-2; it cannot: w-0 takes what w-2 was to have."""
    seen = Observation(
        at=0.0,
        partitions=(PartitionSeen(0, 1.0, 0.0), PartitionSeen(1, 1.0, 0.0)),
        consumers=tuple(ConsumerSeen(f"w-{n}", 10.0) for n in range(3)),
        new_mu=10.0,
    )
    wanted = Decision(Action.DOWN, (Member("w-2", (0,)), Member("w-1", (1,))))
    found = with_those_that_stay(seen, wanted, lambda ids, count: sorted(ids)[:count])
    assert found.members == (Member("w-0", (0,)), Member("w-1", (1,)))
    up = Decision(Action.UP, (*wanted.members, Member("w-0", ()), Member(None, ())))
    assert with_those_that_stay(seen, up, lambda ids, count: []) == up
