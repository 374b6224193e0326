"""Who is next of those that wait, where the contract is fair: each publisher in turn."""

from collections import Counter
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtm.gateway.arrival_order import ArrivalOrder
from srtm.gateway.fair_order import FairOrder
from srtm.gateway.run import Run
from srtm.limits.bucket import NEVER
from tests.gateway.test_topic_bucket_time import ELEMENT, Publisher
from tests.support.cases import cases


def run_of(publisher: str, stamp: int, count: int = 1, atomic: bool = False) -> Run:
    messages = [ELEMENT * count] if atomic else [ELEMENT] * count
    run = Run(b"t", messages, count, atomic, None)
    run.owner, run.stamp = Publisher(publisher), stamp
    return run


class Door:
    """Serves a queue without a bucket: one token, or those of one batch, at each step."""

    def __init__(self, order: ArrivalOrder) -> None:
        self.order = order
        self.now = 0
        self.served: list[tuple[str, int, Run]] = []

    def offer(self, publisher: str, count: int = 1, atomic: bool = False) -> Run:
        self.now += 1
        run = run_of(publisher, self.now, count, atomic)
        self.order.add(run)
        return run

    def step(self) -> Run | None:
        self.now += 1
        run = self.order.first(self.now)
        if run is None:
            return None
        assert not run.void
        assert run.admitted < run.count
        taken = run.count if run.atomic else 1
        run.admitted += taken
        run.since = self.now
        self.order.advance(run, self.now)
        self.served.append((run.owner.publisher, taken, run))
        return run

    def finish(self) -> None:
        while self.step() is not None:
            pass

    def names(self) -> str:
        return "".join(name for name, _, _ in self.served)


def test_arrival_order_serves_the_oldest_first() -> None:
    door = Door(ArrivalOrder())
    door.offer("a", 3)
    door.offer("b")
    door.finish()
    assert door.names() == "aaab"


def test_publishers_take_turns_message_by_message() -> None:
    door = Door(FairOrder({}))
    door.offer("a", 3)
    door.offer("b", 2)
    door.offer("a")
    door.step()
    door.offer("c", 2)
    door.finish()
    assert door.names() == "abacbaca"[: len(door.names())]
    assert Counter(door.names()) == {"a": 4, "b": 2, "c": 2}


def test_a_batch_goes_when_the_others_have_had_as_many_tokens() -> None:
    door = Door(FairOrder({}))
    door.offer("a", 3, atomic=True)
    for _ in range(5):
        door.offer("b")
    door.finish()
    assert door.names() in ("bbabbb", "bbbabb")


def test_batches_that_come_one_after_the_other_gain_nothing() -> None:
    """A publisher that waits for each answer has nothing saved when its next batch comes."""
    door = Door(FairOrder({}))
    door.offer("b", 1000)
    for _ in range(20):
        batch = door.offer("a", 10, atomic=True)
        while batch.admitted == 0:
            door.step()
    taken = Counter[str]()
    for name, count, _ in door.served:
        taken[name] += count
    assert abs(taken["a"] - taken["b"]) <= 20 + 10


def test_publishers_of_one_key_are_one() -> None:
    door = Door(FairOrder({"a1": "key a", "a2": "key a"}))
    first, second, other = door.offer("a1", 2), door.offer("a2", 2), door.offer("b", 2)
    door.finish()
    assert [run for _, _, run in door.served] == [first, other, first, other, second, second]


def test_many_connections_of_one_publisher_are_one() -> None:
    door = Door(FairOrder({}))
    for _ in range(5):
        door.offer("noisy")
    quiet = door.offer("quiet")
    door.step()
    door.step()
    assert quiet.admitted == 1


def test_who_is_first_goes_before_who_comes_while_a_batch_waits_for_its_tokens() -> None:
    order = FairOrder({})
    batch, late = run_of("a", 1, 100, atomic=True), run_of("b", 2)
    order.add(batch)
    assert order.first(1) is batch
    order.add(late)
    assert order.first(50) is batch
    assert order.first(NEVER) is batch


def test_a_run_read_late_goes_before_the_others_of_its_publisher_only() -> None:
    door = Door(FairOrder({}))
    door.now = 10
    held = [door.offer("a", 2), door.offer("b", 1)]
    door.step()
    late = run_of("a", 5)
    door.order.add(late)
    assert door.order.oldest() is late
    door.finish()
    assert [run for _, _, run in door.served] == [held[0], held[1], late, held[0]]


def test_a_run_read_late_does_not_go_in_place_of_who_has_its_token() -> None:
    """It stood behind no token when the other one was let in, and comes before it."""
    order = FairOrder({})
    first, late = run_of("a", 500), run_of("a", 400)
    order.add(first)
    assert order.first(95) is first
    order.add(late)
    assert order.first(95) is first
    first.admitted = 1
    order.advance(first, 500)
    assert list(order) == [late]


def test_a_batch_given_up_leaves_its_turn_to_its_publishers_next_run() -> None:
    door = Door(FairOrder({}))
    batch, single, other = door.offer("a", 50, atomic=True), door.offer("a"), door.offer("b", 9)
    assert door.step() is other
    batch.void = True
    door.order.left(batch)
    assert door.step() is single
    door.finish()
    assert len(door.order) == 0


def test_the_oldest_is_found_wherever_it_waits() -> None:
    order = FairOrder({})
    runs = [run_of("ab"[n % 2], n) for n in range(6)]
    for run in runs:
        order.add(run)
    for run in runs:
        assert order.oldest() is run
        order.first(3)
        order.remove(run)
    assert order.oldest() is None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.integers(0, 4), st.integers(1, 8), st.booleans()),
        st.tuples(st.just("serve"), st.integers(1, 6), st.just(0), st.just(False)),
        st.tuples(st.just("leave"), st.integers(0, 30), st.just(0), st.just(False)),
        st.tuples(st.just("refuse"), st.integers(0, 30), st.just(0), st.just(False)),
        st.tuples(st.just("tick"), st.just(0), st.just(0), st.just(False)),
    ),
    max_size=60,
)


@given(STEPS, st.sampled_from([FairOrder, lambda _: ArrivalOrder()]))
@settings(max_examples=cases(400))
def test_each_publishers_runs_go_in_order_and_all_go(
    steps: list[tuple[str, int, int, bool]], order: object
) -> None:
    door = Door(order({}))  # type: ignore[operator]
    offered: list[Run] = []
    gone: set[Run] = set()
    for what, number, count, atomic in steps:
        waiting = [run for run in offered if run.admitted < run.count and run not in gone]
        if what == "offer":
            offered.append(door.offer(f"p{number}", count, atomic))
        elif what == "serve":
            for _ in range(number):
                door.step()
        elif what == "tick":
            door.order.drop_void()
        elif waiting:
            run = waiting[number % len(waiting)]
            gone.add(run)
            if what == "leave":
                run.void = True
                door.order.left(run)
            else:
                door.order.remove(run)
        there = {run for run in door.order if not run.void}
        assert there == {run for run in offered if run.admitted < run.count and run not in gone}
        oldest = door.order.oldest()
        assert oldest is min(there, key=lambda run: run.stamp, default=None)
        assert len(door.order) == len(list(door.order)) >= len(there)
        assert (len(door.order) > 0) == bool(there)
    door.finish()
    assert len(door.order) == 0
    assert all(run.admitted == run.count for run in offered if run not in gone)
    for publisher in {name for name, _, _ in door.served}:
        stamps = [run.stamp for name, _, run in door.served if name == publisher]
        assert stamps == sorted(stamps)


def parts(served: Iterable[tuple[str, int, Run]]) -> Mapping[str, int]:
    taken = Counter[str]()
    for name, count, _ in served:
        taken[name] += count
    return taken


@given(
    st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=30), min_size=2, max_size=6),
    st.integers(0, 40),
    st.integers(0, 40),
)
@settings(max_examples=cases(400))
def test_parts_of_those_that_wait_differ_by_a_token_and_the_largest_batch(
    batches: list[list[int]], begin: int, steps: int
) -> None:
    """From when two publishers wait on, whatever the others do; over a later stretch one may have
    saved for a batch before it, and the other for one behind it."""
    door = Door(FairOrder({}))
    last = {}
    for number, sizes in enumerate(batches):
        for size in sizes:
            last[f"p{number}"] = door.offer(f"p{number}", size, atomic=size > 1)
    for _ in range(begin + steps):
        door.step()
    largest = max(map(max, batches))
    waits = [name for name, run in last.items() if run.admitted == 0]
    taken = parts(door.served[begin:])
    got = [taken.get(name, 0) for name in waits] or [0]
    assert max(got) - min(got) <= 1 + largest * (2 if begin else 1)


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=8),
    st.integers(1, 400),
)
@settings(max_examples=cases(400))
def test_the_allocation_is_max_min_fair(demands: list[int], tokens: int) -> None:
    """Single messages: who asks for less than an equal part gets all, the others equal parts."""
    door = Door(FairOrder({}))
    for number, count in enumerate(demands):
        door.offer(f"p{number}", count)
    for _ in range(tokens):
        door.step()
    left, level, others = min(tokens, sum(demands)), 0.0, sorted(demands)
    while others and others[0] - level <= left / len(others):
        left -= int((others[0] - level) * len(others))
        level = float(others.pop(0))
    if others:
        level += left / len(others)
    taken = parts(door.served)
    for number, count in enumerate(demands):
        assert abs(taken.get(f"p{number}", 0) - min(count, level)) <= 1


@given(st.integers(1, 5), st.integers(1, 30), st.integers(1, 30), st.integers(0, 60))
@settings(max_examples=cases(200))
def test_nobody_starves_though_others_come_again_and_again(
    others: int, mine: int, theirs: int, begin: int
) -> None:
    """A batch waits for no more than its own cost, and a batch, of each of the others."""
    door = Door(FairOrder({}))
    waiting = {f"p{n}": door.offer(f"p{n}", theirs, atomic=True) for n in range(others)}

    def step() -> None:
        door.step()
        for name, run in waiting.items():
            if run.admitted:
                waiting[name] = door.offer(name, theirs, atomic=True)

    for _ in range(begin):
        step()
    before = len(door.served)
    batch = door.offer("mine", mine, atomic=True)
    while not batch.admitted:
        step()
    taken = parts(door.served[before:])
    assert all(taken.get(name, 0) <= mine + 2 * theirs for name in waiting)


@pytest.mark.parametrize("serves", [True, False], ids=["served", "given up"])
def test_publishers_with_nothing_waiting_leave_no_trace(serves: bool) -> None:
    order = FairOrder({})
    door, most = Door(order), 0
    for number in range(100_000):
        run = door.offer(f"p{number}", 3, atomic=True)
        if serves:
            door.step()
        else:
            order.first(door.now)
            run.void = True
            order.left(run)
        most = max(most, len(order._turns), len(order._ages))
    assert len(order) == len(order._lines) == 0
    assert most <= 20


def test_memory_is_that_of_what_waits() -> None:
    """10^4 publishers wait while another one sends and gives up, again and again."""
    order = FairOrder({})
    door = Door(order)
    for number in range(10_000):
        door.offer(f"p{number}")
    order.first(door.now)
    for _ in range(30_000):
        run = door.offer("other", 2, atomic=True)
        order.first(door.now)
        run.void = True
        order.left(run)
    assert len(order._lines) == 10_000
    assert len(order._turns) <= 2 * 10_000 + 16
    assert len(order._ages) <= 2 * 10_000 + 16
    door.finish()
    assert len(order._turns) == len(order._ages) == len(order._lines) == 0
