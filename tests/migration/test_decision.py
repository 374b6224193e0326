"""Who leaves a broker in trouble, and for where."""

from typing import Any

import pytest

from distributor.migration import (
    Decision,
    Memory,
    Sender,
    Source,
    Target,
    TopicSeen,
    Trouble,
    relieve,
)
from distributor.migration.settings import MOST_MOVES

NOW = 10_000.0


def source(*senders: tuple[str, float], load: float = 250.0, **values: Any) -> Source:
    """b1 of 200 messages/s, 70 too many: (id, rate) of topic t, or "topic/id" """
    found = [
        Sender(*(name.split("/") if "/" in name else ("t", name)), None, rate)  # type: ignore[misc]
        for name, rate in senders
    ]
    trouble = Trouble(load, 200.0, "too much comes")
    return Source("b1", trouble, tuple(found), **values)


def topic(name: str = "t", **values: Any) -> TopicSeen:
    settings = {"brokers": frozenset({"b1"}), "most_brokers": 3, "publishers": 20}
    return TopicSeen(name, **(settings | values))


def of(
    asked: Source,
    *targets: Target,
    topics: tuple[TopicSeen, ...] = (),
    memory: Memory | None = None,
) -> Decision:
    known = {each.name: each for each in topics or (topic(),)}
    return relieve(asked, targets, known, memory or Memory(NOW), NOW)


def moved(found: Decision) -> dict[str, str]:
    return {each.publisher: each.target for each in found.moves}


GROWN = (("p1", 150.0), ("p2", 20.0), ("p3", 20.0), ("p4", 20.0), ("p5", 20.0), ("p6", 20.0))


def test_the_one_that_has_grown_moves() -> None:
    found = of(source(*GROWN), Target("b2", 200, 20))
    assert moved(found) == {"p1": "b2"}
    assert found.reasons[0] == "broker b1: too much comes"
    assert "70 messages/s have to leave b1" in found.reasons[1]
    assert "p1 sends 150 messages/s; b2 is new to the topic" in found.moves[0].reason
    assert not found.by_itself


def test_where_it_does_not_fit_the_others_move() -> None:
    found = of(source(*GROWN), Target("b2", 200, 90))
    assert set(moved(found)) == {"p2", "p3", "p4", "p5"}


@pytest.mark.parametrize(
    ("asked", "targets", "said"),
    [
        pytest.param(source(*GROWN), [], "no broker has room: add one", id="alone"),
        pytest.param(
            source(*GROWN), [Target("b2", 200, 180)], "no broker has room: add one", id="head-room"
        ),
        pytest.param(
            source(*GROWN), [Target("b2", 200, 170)], "room for 10 messages/s, and 70", id="little"
        ),
        pytest.param(
            source(("p1", 230.0), ("p2", 20.0)),
            [Target("b2", 200, 20)],
            "publisher p1 of topic t alone sends 230 messages/s, and no broker has room for more "
            "than 160",
            id="too-big",
        ),
        pytest.param(
            source(("p2", 20.0), unknown={"198.51.100.7": 230.0}),
            [Target("b2", 200, 20)],
            "230 messages/s come from who is not placed there and cannot be moved: 198.51.100.7",
            id="strangers",
        ),
        pytest.param(
            source(*GROWN),
            [Target("b2", 200, 20, "is drained")],
            "broker b2 is drained",
            id="drained",
        ),
    ],
)
def test_why_nobody_moves(asked: Source, targets: list[Target], said: str) -> None:
    found = of(asked, *targets)
    assert not found.moves
    assert any(said in reason for reason in found.reasons), found.reasons


def test_b_allows_no_other_broker() -> None:
    full = topic(brokers=frozenset({"b1", "b3"}), most_brokers=2)
    found = of(source(*GROWN), Target("b2", 200, 0), Target("b3", 200, 180), topics=(full,))
    assert not found.moves
    assert "topic t: its b allows 2 brokers, and those have no room" in found.reasons


def test_a_broker_that_serves_the_topic_comes_first() -> None:
    spread = topic(brokers=frozenset({"b1", "b3"}))
    found = of(source(*GROWN), Target("b2", 500, 0), Target("b3", 500, 100), topics=(spread,))
    assert moved(found) == {"p1": "b3"}


def test_a_group_stays_spread() -> None:
    """Of two alike the one whose group is crowded goes, and to where least of its group is."""
    senders = (Sender("t", "a1", "a", 80.0), Sender("t", "z1", "z", 80.0))
    asked = Source("b1", source().trouble, senders)
    groups = {"a": {"b1": 10.0, "b2": 90.0}, "z": {"b1": 60.0, "b2": 40.0, "b3": 20.0}}
    known = topic(brokers=frozenset({"b1", "b2", "b3"}), groups=groups)
    found = of(asked, Target("b2", 300, 0), Target("b3", 300, 0), topics=(known,))
    assert moved(found) == {"z1": "b3"}


def test_one_topic_has_the_cold_start_where_that_is_enough() -> None:
    senders = [("t/p1", 40.0), ("t/p2", 40.0), ("u/q1", 45.0), ("u/q2", 20.0)]
    topics = (topic("t"), topic("u"))
    assert of(source(*senders), Target("b2", 300, 0), topics=topics).topics == {"t"}
    few = of(source(*senders[1:]), Target("b2", 300, 0), topics=topics)
    assert moved(few) == {"p2": "b2", "q1": "b2"}, "no topic alone is enough"


def test_topics_that_need_no_person_come_first() -> None:
    topics = (topic("t"), topic("u", by_itself=True))
    senders = [("t/p1", 90.0), ("u/q1", 45.0), ("u/q2", 40.0)]
    found = of(source(*senders), Target("b2", 300, 0), topics=topics)
    assert (found.topics, found.by_itself) == ({"u"}, True)
    mixed = of(source(*senders[:2]), Target("b2", 300, 0), topics=topics)
    assert (mixed.topics, mixed.by_itself) == ({"t"}, False)


def test_the_budget_lets_a_part_go_first() -> None:
    many = source(*((f"p{number}", 10.0) for number in range(15)), load=300.0)
    found = of(many, Target("b2", 900, 0), topics=(topic(publishers=20),))
    assert len(found.moves) == 4, "a fifth of the topic's publishers"
    assert any("budget of moves allows 4 now" in reason for reason in found.reasons)
    memory = Memory(NOW)
    for number in range(MOST_MOVES):
        memory.moved("other", f"q{number}", "b9", NOW)
    spent = of(many, Target("b2", 900, 0), memory=memory)
    assert not spent.moves
    assert any("budget of moves allows 0 now" in reason for reason in spent.reasons)


def test_who_moved_stays_for_a_while_and_goes_back_much_later() -> None:
    memory = Memory(NOW - 9_000)
    memory.moved("t", "p1", "b2", NOW - 60)
    found = of(source(("p1", 150.0), ("p2", 40.0)), Target("b2", 900, 0), memory=memory)
    assert not found.moves
    assert any("p1 moved lately" in reason for reason in found.reasons)
    memory = Memory(NOW - 9_000)
    memory.moved("t", "p1", "b2", NOW - 1_000)
    both = (Target("b2", 900, 0), Target("b3", 900, 0))
    asked = source(("p1", 150.0), ("p2", 40.0))
    assert not of(asked, both[0], memory=memory).moves, "not back yet"
    assert moved(of(asked, *both, memory=memory)) == {"p1": "b3"}
    memory = Memory(NOW - 9_000)
    memory.moved("t", "p1", "b2", NOW - 4_000)
    assert moved(of(asked, both[0], memory=memory)) == {"p1": "b2"}
    memory.in_trouble("b2", 900, NOW - 1_000)
    assert not of(asked, both[0], memory=memory).moves, "b2 was in trouble since"


def test_a_broker_that_was_in_trouble_takes_nobody() -> None:
    memory = Memory(NOW)
    memory.in_trouble("b2", 900, NOW - 10)
    found = of(source(*GROWN), Target("b2", 900, 0), memory=memory)
    assert not found.moves
    assert "broker b2 was in trouble itself lately" in found.reasons
    late = Memory(NOW - 999)
    late.in_trouble("b2", 100, NOW - 999)
    found = of(source(*GROWN), Target("b2", 900, 0), memory=late)
    assert set(moved(found)) == {"p2", "p3", "p4", "p5"}, "it holds 100, as it was late with more"
