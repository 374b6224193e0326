"""Requests that wait: nobody takes the places of those who have none yet."""

import asyncio
from contextlib import ExitStack
from unittest.mock import Mock

import pytest

from srtm.gateway.http.publish import Request
from srtm.gateway.http.waiting import Full, Waiting
from tests.gateway.test_topic_bucket_time import NS, World


def fill(waiting: Waiting, stack: ExitStack, name: bytes) -> int:
    """All that it may have; how many these are."""
    count = 0
    try:
        while True:
            stack.enter_context(waiting.place(name))
            count += 1
    except Full:
        return count


@pytest.mark.parametrize(
    ("greedy", "had"),
    [
        pytest.param(1, [50], id="one-has-half"),
        pytest.param(2, [50, 25], id="the-next-half-of-the-rest"),
        pytest.param(4, [50, 25, 13, 6], id="and-so-on"),
    ],
)
def test_a_newcomer_has_a_place(greedy: int, had: list[int]) -> None:
    waiting = Waiting(100)
    with ExitStack() as stack:
        assert [fill(waiting, stack, b"%d" % name) for name in range(greedy)] == had
        with waiting.place(b"newcomer"):
            pass
        with pytest.raises(Full):
            stack.enter_context(waiting.place(b"0"))


def test_many_greedy_ones_leave_a_place_for_each_newcomer() -> None:
    """Until everybody has one: the newest of who has most gives it up."""
    waiting, gone = Waiting(100), []
    with ExitStack() as stack:
        for name in range(100):
            for number in range(100):
                word = (name, number)

                def leave(word: tuple[int, int] = word) -> bool:
                    gone.append(word)
                    return True

                try:
                    stack.enter_context(waiting.place(b"%d" % name, leave))
                except Full:
                    assert number, f"topic {name} has a place"
                    break
        assert gone[0][0] == 0, "of who had most"
        with pytest.raises(Full):
            stack.enter_context(waiting.place(b"the-hundred-and-first"))


def test_who_cannot_leave_any_more_stays() -> None:
    waiting = Waiting(3)
    with ExitStack() as stack:
        for name in (b"a", b"b"):
            fill(waiting, stack, name)
        with pytest.raises(Full):
            stack.enter_context(waiting.place(b"c"))


def test_together_they_share_alike() -> None:
    waiting = Waiting(90)
    counts = {b"a": 0, b"b": 0}
    with ExitStack() as stack:
        for _ in range(100):
            for name in counts:
                try:
                    stack.enter_context(waiting.place(name))
                    counts[name] += 1
                except Full:
                    pass
    assert counts == {b"a": 30, b"b": 30}


def test_who_leaves_makes_room() -> None:
    waiting = Waiting(10)
    for _ in range(3):
        with ExitStack() as stack:
            assert fill(waiting, stack, b"a") == 5


def test_who_gave_its_place_up_is_not_stored_after_all() -> None:
    """Its token may come before its sender is told."""

    async def yielded() -> World:
        world = World(1.0, 1.0)
        reactor, topics = Mock(), Mock(give_up=world.topic.give_up)
        owner = Request(reactor, topics, "@127.0.0.1")
        world.offer(NS, 1, False)  # takes the token
        world.publisher = owner  # type: ignore[assignment]
        world.offer(NS, 1, False)
        run = world.topic.arrivals[-1]
        world.wake(NS)
        assert owner.yields(run)
        world.wake(3 * NS)
        assert isinstance(owner.done.exception(), Full)
        return world

    meter = asyncio.run(yielded()).topic.meter
    assert (meter.offered, meter.admitted, meter.abandoned) == (2, 1, 1)
