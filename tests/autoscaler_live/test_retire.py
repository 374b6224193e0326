"""A Kafka group on an executor that ends consumers itself: who leaves, who takes which launch."""

from dataclasses import dataclass, field
from typing import Any

from srtm.autoscaler.decision import Action, Decision, Member
from srtm.autoscaler.live.bounds import with_those_that_stay
from srtm.autoscaler.live.retire import Retire
from srtm.autoscaler.live.roster import Roster
from srtm.autoscaler.observation import ConsumerSeen, Observation, PartitionSeen
from srtm.consumer.wire import Report


def report(name: str, *partitions: int) -> Report:
    return Report(name=name, beat=1, launch=name, holds=dict.fromkeys(partitions, 1))


@dataclass
class Pods:
    ended: list[str] = field(default_factory=list)
    still: set[str] = field(default_factory=set)

    def end(self, at: float, ids: list[str]) -> None:
        self.ended += ids
        self.still |= set(ids)

    def leaving(self) -> tuple[str, ...]:
        return tuple(self.still)


def test_who_leaves_is_ended_once_it_has_given_everything_up() -> None:
    pods: Any = Pods()
    retire, roster = Retire(pods), Roster()
    roster.members, roster.leaving = {"w-0": "w-0", "w-1": "w-1"}, {"w-1"}
    live = {"w-0": report("w-0", 0), "w-1": report("w-1", 1)}
    retire.step(0.0, roster, live, assigns=True)
    assert pods.ended == []
    live["w-1"] = report("w-1")
    for _ in range(3):
        retire.step(1.0, roster, live, assigns=True)
    assert pods.ended == ["w-1"]
    assert roster.leaving == {"w-1"}


def test_where_the_broker_assigns_it_is_ended_at_once() -> None:
    pods: Any = Pods()
    roster = Roster(members={"a": "a"}, leaving={"a"})
    Retire(pods).step(0.0, roster, {"a": report("a", 0)}, assigns=False)
    assert pods.ended == ["a"]


def test_who_is_spared_works_on() -> None:
    """A Deployment has ended another one."""
    pods: Any = Pods()
    retire, live = Retire(pods), {"a": report("a"), "b": report("b", 0)}
    roster = Roster(members={"a": "a", "b": "b"}, parts={"b": (0,)}, leaving={"a"})
    retire.step(0.0, roster, live, assigns=True)
    pods.still.clear()
    retire.step(1.0, roster, live, assigns=True)
    assert roster.leaving == set()
    assert roster.follow(1.0, live)[0] == ["a"]
    retire.step(2.0, roster, live, assigns=True)
    assert pods.ended == ["a"]


def test_who_joins_takes_the_oldest_launch() -> None:
    roster = Roster(parts={"l-1": (0, 1), "l-2": (2,)}, launched={"l-1": 1.0, "l-2": 2.0})
    joined, gone = roster.follow(5.0, {"pod-x": report("pod-x")}, claims=True)
    assert (joined, gone) == (["pod-x"], [])
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
