"""Big bodies under way to a topic: within its bound, in order, and a slow one keeps nobody out."""

from srtm.gateway.backlogs import Backlogs
from srtm.gateway.bodies import Bodies

SECOND = 1_000_000_000


class Reader:
    def __init__(self, log: "list[Reader]") -> None:
        self._log = log

    def resume(self, reason: object) -> None:
        self._log.append(self)


def readers(count: int) -> "tuple[list[Reader], list[Reader]]":
    """So many, and the list of those that were let in."""
    log: list[Reader] = []
    return [Reader(log) for _ in range(count)], log


def test_bodies_come_until_the_bound_is_reached() -> None:
    bodies = Bodies(100, Backlogs(1 << 30, 100))
    (a, b, c), _ = readers(3)
    assert bodies.begin(a, 60, 0, now=0)
    assert bodies.begin(b, 60, 0, now=0), "one may go past it"
    assert not bodies.begin(c, 1, 0, now=0)
    assert not Bodies(100, Backlogs(1 << 30, 100)).begin(c, 1, 100, now=0), (
        "what has come counts as well"
    )


def test_those_that_wait_are_let_in_in_order_and_only_while_there_is_room() -> None:
    bodies = Bodies(100, Backlogs(1 << 30, 100))
    (a, b, c, d, e), log = readers(5)
    bodies.begin(a, 100, 0, now=0)
    for reader in (b, c, d):
        assert not bodies.begin(reader, 60, 0, now=0)
        bodies.wait(reader, 60)
    bodies.let_in(0, now=1)
    assert log == [], "nothing has ended"
    bodies.end(a)
    assert not bodies.begin(e, 1, 0, now=1), "nobody overtakes"
    bodies.let_in(90, now=1)
    assert log == [b], "its message is in the backlog now"
    bodies.end(b)
    bodies.let_in(0, now=2)
    assert log == [b, c, d]
    assert bodies.waiting == 0


def test_one_that_leaves_while_it_waits_is_not_let_in() -> None:
    bodies = Bodies(100, Backlogs(1 << 30, 100))
    (a, b, c), log = readers(3)
    bodies.begin(a, 100, 0, now=0)
    bodies.wait(b, 50)
    bodies.wait(c, 50)
    bodies.end(b)
    bodies.end(a)
    bodies.end(a)
    bodies.let_in(0, now=1)
    assert log == [c]


def test_a_slow_body_keeps_its_bytes_reserved_for_ten_seconds() -> None:
    bodies = Bodies(100, Backlogs(1 << 30, 100))
    (slow, late, waiting), log = readers(3)
    bodies.begin(slow, 100, 0, now=0)
    assert not bodies.begin(late, 1, 0, now=10 * SECOND - 1)
    bodies.wait(waiting, 50)
    assert bodies.next_at(now=5) == 10 * SECOND
    bodies.let_in(0, now=10 * SECOND)
    assert log == [waiting]
    bodies.end(slow)
    assert bodies.begin(late, 1, 49, now=11 * SECOND)
    assert not bodies.begin(slow, 1, 49, now=11 * SECOND), "its bytes were taken off once"
