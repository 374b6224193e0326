"""Rows of a trace, time passed in: each message is in one row, whatever becomes of it."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from srtm.gateway.backlog import Bounds
from srtm.gateway.measure.trace import _MOST_ROWS, FLUSH_NS, Trace
from srtm.gateway.run import Gone, Run
from srtm.limits.contract import Limit, Mode
from srtm.traces.chunk import ADMITTED, CLOSED, NO_WAIT, REJECTED
from srtm.traces.rows import Rows
from tests.gateway.test_topic_bucket_time import ELEMENT, NS, World
from tests.support.cases import cases
from tests.support.traces import parsed


class Pipe:
    """The process, as the gateway sees it; `takes` False: it takes nothing for now."""

    def __init__(self) -> None:
        self.takes = True
        self.dropped = 0
        self.generation = 0
        self.rows = Rows("b1")

    def put(self, data: bytes, messages: int) -> bool:
        if self.takes:
            for each in parsed(data):
                assert int(each.messages.sum()) == messages
                self.rows.name(each)
                self.rows.add(each)
        return self.takes

    def by_outcome(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for row in self.rows.table().to_pylist() if self.rows.count else ():
            found[row["outcome"]] = found.get(row["outcome"], 0) + row["messages"]
            assert row["bytes"] == row["messages"], "bodies are of one byte"
            assert (row["wait"] is None) == (row["outcome"] != "admitted")
        return found


def never(when: int, alarm: Callable[[int], None]) -> None:
    """A test flushes by hand."""


def traced(world: World) -> tuple[Trace, Pipe]:
    pipe = Pipe()
    trace = world.topic.trace = Trace(pipe, never)
    return trace, pipe


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.integers(1, 6), st.booleans()),
        st.tuples(st.just("wake"), st.integers(0, 3 * NS)),
        st.tuples(st.just("void"), st.integers(0, 9)),
        st.tuples(st.just("limit"), st.sampled_from(["delay", "reject", "short", "none"])),
        st.tuples(st.just("shut"), st.booleans()),
        st.tuples(st.just("fail")),
        st.tuples(st.just("lose")),
        st.tuples(st.just("leave"), st.integers(0, 9)),
    ),
    max_size=25,
)


@given(steps=STEPS)
@settings(max_examples=cases(150))
def test_each_message_is_in_one_row_whatever_becomes_of_it(steps: list[tuple[object, ...]]) -> None:
    world = World(2.0, 3.0, Bounds(4, 10**12, 1 << 20))  # it is full now and then
    world.publisher.lose = lambda run: None  # type: ignore[method-assign]
    trace, pipe = traced(world)
    now, offered, runs = NS, 0, []
    for step in steps:
        if step[0] == "offer":
            count, atomic = int(step[1]), bool(step[2])  # type: ignore[call-overload]
            world.offer(now, count, atomic)
            runs.append(world.topic.arrivals[-1])
            offered += count
        elif step[0] == "wake":
            now += int(step[1])  # type: ignore[call-overload]
            world.wake(now)
        elif step[0] == "void" and runs:
            world.topic.give_up(runs[int(step[1]) % len(runs)])  # type: ignore[call-overload]
        elif step[0] == "limit":
            kind = step[1]
            mode = Mode.REJECT if kind == "reject" else Mode.DELAY
            wait = 0.5 if kind == "short" else None
            limit = None if kind == "none" else Limit(rate=2, burst=3, mode=mode, max_wait=wait)
            world.topic.set_limit(limit, now)
        elif step[0] == "shut":
            world.topic.shut(bool(step[1]), now)
        elif step[0] == "fail":
            world.topic.fail_waiting("nsqd is away")
        elif step[0] == "lose":
            world.topic.lose_waiting()
        elif step[0] == "leave" and runs:
            run = runs[int(step[1]) % len(runs)]  # type: ignore[call-overload]
            run.owner = Gone("p")
            world.topic.give_up(run)
    world.topic.set_limit(None, now)
    for _ in range(3):
        now += NS
        world.wake(now)
    trace.flush(now)
    assert sum(pipe.by_outcome().values()) == offered


def test_waits_are_those_of_the_last_message() -> None:
    world = World(10.0, 2.0)
    trace, pipe = traced(world)
    world.offer(NS, 2, False)
    world.offer(NS, 3, False)
    world.offer(NS, 1, True)
    world.wake(NS)
    for step in range(1, 7):
        world.wake(NS + step * NS // 10)
    trace.flush(2 * NS)
    waits = [row["wait"] for row in pipe.rows.table().to_pylist()]
    assert [round(wait / 1e8) for wait in waits] == [0, 3, 4]


def test_names_are_told_once_and_again_after_a_loss() -> None:
    world = World(1e6, 1e6)
    trace, pipe = traced(world)

    def send(now: int) -> None:
        run = Run(b"t", [ELEMENT], 1, False, None)
        run.owner, run.stamp = world.publisher, now
        world.topic.offer(run)
        world.wake(now)
        trace.flush(now)

    send(NS)
    pipe.takes = False
    send(2 * NS)
    assert pipe.dropped == 1
    pipe.takes = True
    send(3 * NS)
    send(4 * NS)
    pipe.generation, pipe.rows = 1, Rows("b1")  # another process
    send(5 * NS)
    assert [row["publisher"] for row in pipe.rows.table().to_pylist()] == ["p"]


def test_it_is_handed_over_a_few_times_a_second_or_when_there_are_many() -> None:
    alarms: list[int] = []
    pipe = Pipe()
    trace = Trace(pipe, lambda when, alarm: alarms.append(when))
    run = Run(b"t", [ELEMENT], 1, False, None)
    run.owner, run.stamp = Gone("p"), 5
    trace.admitted(b"t", run, 0)
    trace.stage(NS, NS)
    assert pipe.rows.count == 1
    trace.admitted(b"t", run, 0)
    trace.stage(NS + 1000, NS)
    assert (pipe.rows.count, alarms) == (1, [NS + FLUSH_NS])
    for _ in range(_MOST_ROWS):
        trace.admitted(b"t", run, 0)
    trace.stage(NS + 2000, NS)
    assert pipe.rows.count == _MOST_ROWS + 2


def test_a_run_of_which_some_have_tokens_has_a_row_for_each_outcome() -> None:
    pipe = Pipe()
    trace = Trace(pipe, never)
    run = Run(b"t", [ELEMENT] * 5, 5, False, None)
    run.owner, run.stamp = Gone("p"), 5
    trace.ended(b"t", run, CLOSED)
    run.admitted, run.since = 2, 9
    trace.ended(b"t", run, REJECTED)
    trace.flush(NS)
    found = [
        (row["messages"], row["wait"], row["outcome"]) for row in pipe.rows.table().to_pylist()
    ]
    assert found == [(5, None, "closed"), (2, 4, "admitted"), (3, None, "rejected")]
    assert (ADMITTED, NO_WAIT) == (0, -1)
