"""The assignor and the plan that it follows: each partition once, whoever is there. Pure."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.assignors.abstract import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

from srtm.autoscaler.live.planned import Planned
from srtm.consumer.assignor import Assignor, join, said_version
from srtm.consumer.ledger import Ledger
from srtm.consumer.sharing import shared
from srtm.consumer.wire import Command, Leader, PartitionPlan, Report, Word
from srtm.host.clock import NS

NAMES = [f"m{n}" for n in range(5)]


def plan(version: int = 1, **parts: tuple[int, ...]) -> PartitionPlan:
    return PartitionPlan(
        name="c", epoch=1, version=version, parts=parts, loads={0: 10, 1: 1, 2: 1, 3: 8}
    )


@given(
    st.sets(st.integers(0, 9)),
    st.sets(st.sampled_from(NAMES), min_size=1),
    st.dictionaries(st.integers(0, 12), st.sampled_from(NAMES)),
    st.booleans(),
)
def test_each_partition_goes_to_one_member(
    partitions: set[int], members: set[str], owners: dict[int, str], away: bool
) -> None:
    parts = {n: tuple(p for p, owner in owners.items() if owner == n) for n in owners.values()}
    found = shared(partitions, sorted(members), plan(**parts), away)
    assert sorted(p for part in found.values() for p in part) == sorted(partitions)
    assert found.keys() == members
    for partition, owner in owners.items():
        if partition in partitions and owner in members:
            assert partition in found[owner]


@pytest.mark.parametrize(
    ("members", "made", "away", "wanted"),
    [
        pytest.param(["a", "b"], plan(a=(0, 1), b=(2, 3)), False,
                     {"a": (0, 1), "b": (2, 3)}, id="the-plan"),
        pytest.param(["b", "a"], plan(a=(0, 1), b=(2, 3)), False,
                     {"a": (0, 1), "b": (2, 3)}, id="not-by-position"),
        pytest.param(["a", "x"], plan(a=(0, 1, 2, 3)), False,
                     {"a": (0, 1, 2, 3), "x": ()}, id="more-members-than-the-plan"),
        pytest.param(["a", "b"], plan(a=(1,), b=(2,), gone=(0, 3)), False,
                     {"a": (0, 1), "b": (2, 3)}, id="a-planned-member-is-away"),
        pytest.param(["a", "x"], plan(a=(1, 2), gone=(0, 3)), False,
                     {"a": (0, 1, 2, 3), "x": ()}, id="who-is-not-in-the-plan-waits"),
        pytest.param(["a", "x"], plan(a=(1, 2), gone=(0, 3)), True,
                     {"a": (1, 2, 3), "x": (0,)}, id="but-not-where-nobody-leads"),
        pytest.param(["a", "b"], None, True,
                     {"a": (0, 2), "b": (1, 3)}, id="no-plan-was-ever-made"),
    ],
)  # fmt: skip
def test_who_gets_what(
    members: list[str], made: PartitionPlan | None, away: bool, wanted: dict[str, tuple[int, ...]]
) -> None:
    assert shared(range(4), members, made, away) == wanted


# --- the assignor ---------------------------------------------------------------------------------


class Known:
    """A source."""

    def __init__(self, made: PartitionPlan | None, name: str = "a") -> None:
        self.plan = made
        self.name = name
        self.leader_is_away = False


def cluster(partitions: set[int] | None) -> Any:
    return SimpleNamespace(partitions_for_topic=lambda topic: partitions)


def member(id_: str, data: bytes | None, instance: str | None = None) -> Any:
    said = ConsumerProtocolSubscription(0, ["t"], data)
    return SimpleNamespace(member_id=id_, group_instance_id=instance, metadata=said)


def said(name: str) -> bytes:
    return json.dumps({"name": name, "version": 1}).encode()


def given_out(assignor: Assignor, partitions: set[int] | None, *members: Any) -> dict[str, Any]:
    found = assignor.assign(cluster(partitions), list(members))
    return {id_: [each.partition for each in got.partitions()] for id_, got in found.items()}


def test_members_are_known_by_what_they_say() -> None:
    assignor = Assignor("t", Known(plan(a=(0, 1), b=(2, 3))))
    two = (member("id-1", said("b")), member("id-2", said("a"), "instance"))
    assert given_out(assignor, {0, 1, 2, 3}, *two) == {"id-1": [2, 3], "id-2": [0, 1]}
    by_instance = (member("id-1", None, "b"), member("id-2", None, "a"))
    assert given_out(assignor, {0, 1, 2, 3}, *by_instance) == {"id-1": [2, 3], "id-2": [0, 1]}


@pytest.mark.parametrize(
    "data", [None, b"", b"\xff", b"[]", b"7", b'{"name": 7}', b"[" * 100_000, said("a")]
)
def test_what_a_member_says_badly_is_survived(data: bytes | None) -> None:
    """The second one who calls himself `a` goes by his member id."""
    assignor = Assignor("t", Known(plan(a=(0, 1, 2, 3))))
    found = given_out(assignor, {0, 1, 2, 3}, member("id-1", said("a")), member("id-2", data))
    assert found == {"id-1": [0, 1, 2, 3], "id-2": []}


def test_without_metadata_the_plan_says_which_partitions_there_are() -> None:
    assignor = Assignor("t", Known(plan(a=(0, 1))))
    assert given_out(assignor, None, member("id-1", said("a"))) == {"id-1": [0, 1]}


def test_who_shares_out_without_any_metadata_joins_again() -> None:
    """Or the group would have no partitions until metadata change: for minutes."""
    assignor = Assignor("t", Known(None))
    assert not assignor.is_behind
    assert given_out(assignor, None, member("id-1", said("a"))) == {"id-1": []}
    assert assignor.is_behind
    assignor.metadata({"t"})
    assert not assignor.is_behind
    assert given_out(assignor, {0, 1}, member("id-1", said("a"))) == {"id-1": [0, 1]}
    assert not assignor.is_behind


def test_no_exception_leaves_assign(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Known):
        @property
        def leader_is_away(self) -> bool:
            raise RuntimeError("broken")

        @leader_is_away.setter
        def leader_is_away(self, value: bool) -> None:
            pass

    assignor = Assignor("t", Broken(plan(a=(0, 1))))
    found = given_out(assignor, {0, 1, 2}, member("id-1", said("a")), member("id-2", None))
    assert found == {"id-1": [0, 2], "id-2": [1]}
    assert "shared out evenly" in caplog.text


def test_a_new_plan_is_a_reason_to_join_again_and_only_one() -> None:
    source = Known(plan(1, a=(0,)))
    assignor = Assignor("t", source)
    assert assignor.is_behind
    first = assignor.metadata({"t"})
    assert not assignor.is_behind
    source.plan = plan(2, a=(0,))
    assert assignor.is_behind
    assert assignor.metadata({"t"}).user_data != first.user_data  # or the broker does nothing
    assert not assignor.is_behind


@pytest.mark.parametrize(
    ("data", "is_behind"),
    [
        pytest.param(None, True, id="nothing"),
        pytest.param(b"\xff", True, id="nonsense"),
        pytest.param(b'{"version": "3"}', True, id="no-number"),
        pytest.param(b'{"version": 2}', True, id="an-older-one"),
        pytest.param(b'{"version": 3}', False, id="this-one"),
    ],
)
def test_who_is_assigned_by_the_newest_plan_does_not_join_again(
    data: bytes | None, is_behind: bool
) -> None:
    """It joined before it had read that plan; the leader had."""
    source = Known(plan(2, a=(0,)))
    assignor = Assignor("t", source)
    assignor.metadata({"t"})
    source.plan = plan(3, a=(0,))
    assigned = ConsumerProtocolAssignment(0, [("t", [0])], data)
    assignor.on_assignment(assigned, 1)
    assert assignor.is_behind is is_behind


@pytest.mark.parametrize(
    ("needed", "rejoining", "calls"),
    [
        pytest.param(False, False, [], id="all-is-well"),
        pytest.param(True, False, ["ask", "poll"], id="it-is-to-join"),
        pytest.param(False, True, ["ask", "poll"], id="the-reason-went-away-under-way"),
    ],
)
def test_a_join_is_seen_to_its_end(needed: bool, rejoining: bool, calls: list[str]) -> None:
    made: list[str] = []
    coordinator = SimpleNamespace(
        need_rejoin=lambda: needed,
        rejoining=rejoining,
        request_rejoin=lambda: made.append("ask"),
        poll=lambda timeout_ms: made.append("poll"),
    )
    join(SimpleNamespace(_coordinator=coordinator))
    assert made == calls


def test_an_assignment_says_by_which_plan_it_was_made() -> None:
    leader = Assignor("t", Known(plan(3, a=(0, 1))))
    found = leader.assign(cluster({0, 1}), [member("id-1", said("a"))])
    assert said_version(found["id-1"].user_data) == 3
    assert not Assignor("t", Known(None)).assign(cluster({0}), [member("x", None)])["x"].user_data


# --- what the controller says ---------------------------------------------------------------------


class Run:
    """A leader of the group whose words all arrive at once."""

    def __init__(self) -> None:
        self.now = NS
        self.direct = Planned("c", 1.0, 1, 0, Ledger())
        self.beat = 0
        self.see(Report(name="a", beat=1), Report(name="b", beat=1))
        self.direct.wanted = {"a": frozenset({0, 1}), "b": frozenset({2})}

    def see(self, *words: Word) -> None:
        for word in words:
            self.direct.see(word, self.now)

    def step(self, seconds: float = 0.0, arrive: bool = True) -> list[PartitionPlan]:
        self.now += round(seconds * NS)
        self.beat += 1
        self.direct.beat(self.beat, self.now)
        reports = [each.model_copy(update={"beat": self.beat + 1})
                   for each in self.direct.ledger.members.values()]  # fmt: skip
        self.see(*reports, Leader(name="c", epoch=1, beat=self.beat))
        words, _ = self.direct.step(self.now, lambda process: False)
        if arrive:
            self.see(*words)
        return [each for each in words if isinstance(each, PartitionPlan)]

    def has(self, **parts: tuple[int, ...]) -> None:
        self.see(*(
            Report(name=name, beat=self.beat, holds=dict.fromkeys(part, 1))
            for name, part in parts.items()
        ))  # fmt: skip


def test_a_plan_is_written_once_and_again_where_it_was_not_carried_out() -> None:
    run = Run()
    (first,) = run.step()
    assert first.parts == {"a": (0, 1), "b": (2,)}
    run.has(a=(0, 1), b=(2,))
    assert not run.step()
    assert run.direct.settled()
    assert not run.step(10)
    run.has(a=(0,), b=(1, 2))
    assert not run.step(1)
    (repaired,) = run.step(3)
    assert repaired.parts == first.parts
    assert repaired.version > first.version
    assert run.direct.repairs == 1
    assert not run.step(4)  # the next repair waits for longer
    assert run.step(3)


def test_a_plan_that_was_lost_is_said_again() -> None:
    run = Run()
    (lost,) = run.step(arrive=False)
    assert not run.step(0.5)
    (again,) = run.step(1)
    assert again.parts == lost.parts


def test_who_leaves_is_told_so_and_is_not_in_the_plan() -> None:
    run = Run()
    run.step()
    run.direct.wanted = {"a": frozenset({0, 1, 2})}
    run.direct.leaving = {"b"}
    (made,) = run.step()
    assert made.parts == {"a": (0, 1, 2)}
    command = run.direct.ledger.commands["b"]
    assert isinstance(command, Command)
    assert command.leave
    assert not run.direct.settled()
