"""The small pure parts: words, ledger, bounds, roster, states, sinks, self-measure, executor."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.autoscaler.decision import Action, Decision, Handover, Member
from srtm.autoscaler.live.bounds import Unsound, adopted, bounded, possible
from srtm.autoscaler.live.roster import Roster, identified
from srtm.autoscaler.live.states import STEPS, Event, State, step
from srtm.autoscaler.live.warned import Warned
from srtm.autoscaler.observation import ConsumerSeen, Observation, PartitionSeen
from srtm.autoscaler.policies.srtm import Srtm
from srtm.autoscaler.simulator.arrivals import ArrivalModel, arrivals_of, even_shares
from srtm.autoscaler.simulator.run import simulate
from srtm.autoscaler.simulator.setting import Setting
from srtm.consumer.batch import Batch, LeaseLost, Record
from srtm.consumer.capacity import SelfMeasure
from srtm.consumer.door import open_door
from srtm.consumer.function import Caller
from srtm.consumer.ledger import Ledger
from srtm.consumer.process import Process, here, of_pid
from srtm.consumer.sinks import Parquet, file_name, rows_of
from srtm.consumer.wire import Command, Ended, Leader, Note, Report, Word, decode, encode
from srtm.http.metrics import Text
from srtm.limits.slo import SLO
from srtm.options.door import HttpDoor
from srtm.text.address import Address
from tests.support.servers import free_port, http, wait_for

# --- words ----------------------------------------------------------------------------------------

WORDS = [
    Leader(name="c", epoch=1, beat=1),
    Command(name="m", leader="c", epoch=1, version=1, start={0: 1}, stop=(1,)),
    Report(name="m", beat=1, holds={0: 1}),
    Note(name="0001", document={"number": 1}),
]


@pytest.mark.parametrize("word", WORDS)
def test_a_word_comes_back_as_it_went(word: Any) -> None:
    key, value = encode("g/t", word)
    assert decode("g/t", key, value) == word
    assert decode("other/t", key, value) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param(None, b"{}", id="no-key"),
        pytest.param(b"\xff", b"{}", id="no-text"),
        pytest.param(b'["g/t"]', b"{}", id="short-key"),
        pytest.param(b'["g/t", "member", 7]', b"{}", id="name"),
        pytest.param(b'["g/t", "king", "m"]', b"{}", id="kind"),
        pytest.param(b'["g/t", "member", "m"]', b"[" * 100_000, id="deep"),
        pytest.param(b'["g/t", "member", "m"]', b'{"name": "x", "beat": 1}', id="other-name"),
        pytest.param(b'["g/t", "member", "m"]', b'{"name": "m", "beat": -1}', id="range"),
        pytest.param(b'["g/t", "command", "m"]', None, id="tombstone-of-a-command"),
    ],
)
def test_what_is_no_word_is_passed_over(key: bytes | None, value: bytes | None) -> None:
    assert decode("g/t", key, value) is None


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes_are_survived(key: bytes, value: bytes) -> None:
    decode("g/t", key, value)


# --- the ledger -----------------------------------------------------------------------------------


def told(*words: Word) -> tuple[Ledger, list[bool]]:
    ledger = Ledger()
    return ledger, [ledger.apply(word) for word in words]


def lead(name: str, epoch: int) -> Leader:
    return Leader(name=name, epoch=epoch, beat=1)


def command(leader: str, epoch: int, version: int, **what: Any) -> Command:
    return Command(name="m", leader=leader, epoch=epoch, version=version, **what)


@pytest.mark.parametrize(
    ("words", "counts", "leader"),
    [
        pytest.param([lead("a", 1), lead("b", 1)], [True, False], "a", id="first-of-an-epoch"),
        pytest.param([lead("a", 1), lead("b", 2)], [True, True], "b", id="later-epoch"),
        pytest.param([lead("b", 2), lead("a", 1)], [True, False], "b", id="earlier-epoch"),
        pytest.param([lead("a", 1), lead("a", 1)], [True, True], "a", id="a-beat"),
        pytest.param([command("b", 3, 1), lead("a", 2)], [True, False], "b", id="compacted-claim"),
        pytest.param(
            [lead("a", 1), Report(name="m", beat=1, epoch=4), lead("a", 1), lead("a", 5)],
            [True, True, False, True],
            "a",
            id="members-remember-a-later-leader",
        ),
    ],
)
def test_one_leads(words: list[Word], counts: list[bool], leader: str) -> None:
    ledger, found = told(*words)
    assert found == counts
    assert ledger.leader == leader


def test_who_does_not_lead_commands_nothing() -> None:
    ledger, counts = told(
        lead("a", 1),
        command("a", 1, 1, start={0: 1}),
        lead("b", 2),
        command("a", 1, 2, start={0: 1, 1: 2}),
    )
    assert counts == [True, True, True, False]
    assert ledger.commands["m"].version == 1
    assert ledger.stale == {"m"}


@pytest.mark.parametrize(
    ("words", "may"),
    [
        pytest.param([Report(name="m", beat=1, holds={0: 1})], {0}, id="what-it-reports"),
        pytest.param([command("a", 1, 1, start={0: 1})], {0}, id="what-it-was-told"),
        pytest.param(
            [command("a", 1, 1, start={1: 1}, stop=(0,)), Report(name="m", beat=1, holds={0: 1})],
            {0, 1},
            id="both-until-it-says-so",
        ),
        pytest.param(
            [
                command("a", 1, 1, start={1: 1}, stop=(0,)),
                Report(name="m", beat=1, version=1, holds={1: 1}),
            ],
            {1},
            id="done",
        ),
        pytest.param(
            [Report(name="m", beat=1, holds={0: 1}), Report(name="m", beat=2, gone=True)],
            set(),
            id="gone",
        ),
        pytest.param(
            [
                Report(name="m", beat=1, holds={0: 1}),
                command("a", 1, 1, stop=(0,), fence=True),
                Report(name="m", beat=2, version=1, holds={}),
            ],
            {0},
            id="a-fenced-member's-word-counts-for-nothing",
        ),
        pytest.param(
            [Report(name="m", beat=1, holds={0: 1}), Ended(name="m"), Report(name="m", beat=2)],
            set(),
            id="ended-for-good",
        ),
    ],
)
def test_who_may_have_what(words: list[Word], may: set[int]) -> None:
    ledger, _ = told(lead("a", 1), *words)
    assert ledger.may_hold("m") == may


# --- bounds ---------------------------------------------------------------------------------------


def seen(*parts: tuple[int, ...], partitions: int = 4) -> Observation:
    return Observation(
        at=1.0,
        partitions=tuple(PartitionSeen(p, 10.0 * (p + 1), 0) for p in range(partitions)),
        consumers=tuple(ConsumerSeen(f"c{n}", 100.0, part) for n, part in enumerate(parts)),
        new_mu=100.0,
    )


def up(*members: tuple[str | None, tuple[int, ...]]) -> Decision:
    return Decision(Action.UP, tuple(Member(*each) for each in members), "because")


def test_a_decision_within_the_bounds_is_left_alone() -> None:
    decision = up(("c0", (0, 1)), (None, (2, 3)))
    assert bounded(seen((0, 1, 2, 3)), decision, 1, 4).members == decision.members


@pytest.mark.parametrize(
    ("now", "decision", "least", "most", "action", "counts"),
    [
        pytest.param(
            seen((0, 1, 2, 3)),
            up(("c0", (0,)), (None, (1,)), (None, (2,)), (None, (3,))),
            1, 2, Action.UP, [2, 2], id="more-than-the-most",
        ),
        pytest.param(
            seen((0, 1), (2, 3)),
            up(("c0", (0,)), ("c1", (1, 2)), (None, (3,))),
            1, 2, Action.NONE, [], id="at-the-most-already",
        ),
        pytest.param(
            seen((0, 1, 2, 3)), Decision(Action.NONE), 2, 4, Action.UP, [4, 0], id="fewer"
        ),
        pytest.param(
            seen((0, 1), (2,), (3,)), Decision(Action.NONE), 1, 2, Action.DOWN, [3, 1],
            id="the-most-was-lowered",
        ),
        pytest.param(
            seen(), up((None, (0, 1, 2, 3))), 0, 0, Action.NONE, [], id="nothing-can-be-launched"
        ),
    ],
)  # fmt: skip
def test_bounds(
    now: Observation,
    decision: Decision,
    least: int,
    most: int,
    action: Action,
    counts: list[int],
) -> None:
    found = bounded(now, decision, least, most)
    assert found.action is action
    assert sorted(len(each.partitions) for each in found.members) == sorted(counts)
    if found.members:
        assert sorted(p for each in found.members for p in each.partitions) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "decision",
    [
        pytest.param(up(("c0", (0, 1, 2))), id="a-partition-left-out"),
        pytest.param(up(("c0", (0, 1, 2, 3)), (None, (3,))), id="a-partition-twice"),
        pytest.param(up(("c9", (0, 1, 2, 3))), id="a-consumer-that-is-not-there"),
        pytest.param(up(("c0", (0, 1)), ("c0", (2, 3))), id="a-consumer-twice"),
    ],
)
def test_an_unsound_decision_is_refused(decision: Decision) -> None:
    with pytest.raises(Unsound):
        bounded(seen((0, 1, 2, 3)), decision, 1, 4)
    assert possible(seen((0, 1, 2, 3)), decision, 1, 4).action is Action.NONE


def test_watch_shows_what_is_possible() -> None:
    wanted = up(("c0", (0, 1)), (None, (2,)), (None, (3,)))
    assert len(possible(seen((0, 1, 2, 3)), wanted, 1, 2).members) == 2


def test_what_nobody_has_goes_to_who_has_least() -> None:
    found = adopted(seen((3,), (0,)), "nobody looks after them")
    assert {each.consumer: each.partitions for each in found.members} == {
        "c0": (3, 1),
        "c1": (0, 2),
    }


# --- roster ---------------------------------------------------------------------------------------


def test_what_is_meant_for_a_launch_stays_where_it_is_until_it_joins() -> None:
    roster = Roster()
    live = {"m0": Report(name="m0", beat=1, launch="c0")}
    roster.begin(identified(live), {"m0": (0, 1)})
    decision = up(("c0", (0,)), (None, (1,)))
    assert roster.adopt(1.0, decision, iter(["c1"])) == ["c1"]
    assert roster.wanted({"m0": (0, 1)}) == {"m0": {0, 1}}
    live["m1"] = Report(name="m1", beat=1, launch="c1")
    assert roster.follow(3.0, identified(live)) == []
    assert roster.startups == [2.0]
    assert roster.wanted({"m0": (0, 1), "m1": ()}) == {"m0": {0}, "m1": {1}}


def test_what_a_dead_consumer_had_does_not_wait_for_a_launch() -> None:
    """It is with those that have fewest, the same ones each time, until the launch has joined."""
    roster = Roster()
    live = {name: name for name in ("a", "b", "c")}
    roster.begin(live, {"a": (0,), "b": (1, 2), "c": (3, 4, 5)})
    del live["c"]
    assert roster.follow(1.0, live) == ["c"]
    decision = up(("a", (0,)), ("b", (1, 2)), (None, (3, 4, 5)))
    assert roster.adopt(1.0, decision, iter(["d"])) == ["d"]
    shared = {"a": {0, 3, 4}, "b": {1, 2, 5}}
    assert roster.wanted({"a": (0,), "b": (1, 2)}) == shared
    assert roster.wanted({"a": (0,), "b": (1, 2, 5)}) == shared, "one was told of it, one was not"
    roster.leaving = {"a"}
    assert roster.wanted({"a": (0,), "b": (1, 2)}) == {"a": {0}, "b": {1, 2, 3, 4, 5}}
    roster.leaving = set()
    roster.follow(4.0, {**live, "d": "d"})
    told = {"a": (0, 3, 4), "b": (1, 2, 5), "d": ()}
    assert roster.wanted(told) == {"a": {0}, "b": {1, 2}, "d": {3, 4, 5}}


def test_one_that_comes_back_under_a_new_name_is_the_same_consumer() -> None:
    roster = Roster()
    roster.begin(identified({"m0": Report(name="m0", beat=1, launch="c0")}), {"m0": (0, 1)})
    roster.follow(1.0, identified({"m9": Report(name="m9", beat=1, launch="c0")}))
    assert roster.wanted({}) == {"m9": {0, 1}}


def test_who_leaves_is_not_seen_by_policies_and_not_taken_for_new() -> None:
    roster = Roster()
    live = {name: name for name in ("a", "b")}
    roster.begin(live, {"a": (0,), "b": (1,)})
    roster.adopt(1.0, Decision(Action.DOWN, (Member("a", (0, 1)),)), iter(()))
    roster.follow(2.0, live)
    assert [each.id for each in roster.consumers({})] == ["a"]
    assert roster.leaving == {"b"}
    roster.follow(3.0, {"a": live["a"]})
    assert roster.leaving == set()


def test_what_the_broker_assigned_comes_before_what_was_meant() -> None:
    """A launch has nothing before it has joined, and of two reports one counts."""
    roster = Roster()
    live = {name: name for name in ("a", "b")}
    roster.begin(live, {"a": (0,), "b": (1,)})
    members = (Member("a", (0,)), Member("b", (1,)), Member(None, (2, 3)))
    roster.adopt(1.0, Decision(Action.UP, members), iter(["c"]))
    held = {"a": {0: 1, 2: 1}, "b": {1: 1, 2: 1, 3: 1}}
    roster.reflect({name: Report(name=name, beat=2, holds=holds) for name, holds in held.items()})
    assert roster.parts == {"a": (0, 2), "b": (1, 3), "c": ()}


# --- states ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("event", list(Event))
def test_a_step_is_in_the_table_or_is_named(state: State, event: Event) -> None:
    if event in STEPS[state]:
        assert step(state, event) in STEPS
    else:
        with pytest.raises(ValueError, match=f"{event} in state {state}"):
            step(state, event)


# --- functions and sinks --------------------------------------------------------------------------


def batch(check: Callable[[], None] = lambda: None) -> Batch:
    records = tuple(Record("t", p, 10 + n, None, b"v") for p in (1, 0) for n in range(2))
    return Batch(records, {0: 3, 1: 4}, check)


def test_a_parquet_file_is_named_by_what_is_in_it(tmp_path: Path) -> None:
    sink = Parquet(tmp_path / "lake")
    sink.write(rows_of(batch()), batch())
    sink.write(rows_of(batch()), batch())
    assert [file.name for file in (tmp_path / "lake").iterdir()] == [file_name(batch())]
    assert file_name(batch()).startswith("t-0-10-11-")


def test_a_lease_that_ends_while_a_file_is_written_leaves_none(tmp_path: Path) -> None:
    def lost() -> None:
        raise LeaseLost

    with pytest.raises(LeaseLost):
        Parquet(tmp_path).write([{"a": 1}], batch(lost))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TypeError, match="takes dicts"):
        Parquet(tmp_path).write([1], batch())


def test_functions_sync_and_async_and_too_slow() -> None:
    async def soon(value: int) -> int:
        return value + 1

    async def never() -> None:
        await asyncio.Event().wait()

    call = Caller(0.05)
    assert call(lambda value: value, 3) == 3
    assert call(soon, 3) == 4
    with pytest.raises(TimeoutError):
        call(never)
    call.close()


def test_capacity_is_that_of_full_batches() -> None:
    measure = SelfMeasure(500)
    assert measure.mu == 0
    for records in (1, 3, 2, 5, 4, 150, 7, 100):
        measure.see(records, 0.010 + records * 0.005)
    assert measure.mu == pytest.approx(500 / (0.010 + 500 * 0.005), rel=0.02)
    even = SelfMeasure(500)
    for _ in range(20):
        even.see(10, 0.06)
    assert even.mu == pytest.approx(10 / 0.06)


# --- processes ------------------------------------------------------------------------------------


def test_a_process_is_known_by_its_place_pid_and_beginning() -> None:
    me = here()
    assert not me.is_dead
    assert Process(me.place, me.pid, me.begun - 1).is_dead
    assert not Process("elsewhere", 2**22 + 1, 5).is_dead
    assert Process(me.place, 2**22 + 1, 5).is_dead
    assert of_pid(me.pid) == me
    assert of_pid(2**22 + 1) is None


# --- the policy of a group that has a most --------------------------------------------------------


def test_the_policy_srtm_never_asks_for_more_than_the_most() -> None:
    """Or it would ask again each interval, and partitions would go round."""
    slo = SLO(0.99, 0.5)
    setting = Setting(slo, mu=100.0, handover=Handover.DIRECT)
    rates = [50.0] * 10 + [900.0] * 20
    arrivals = arrivals_of(rates, even_shares(8), ArrivalModel.POISSON, 1)
    run = simulate(Srtm(slo, 1.0, (Handover.DIRECT,), 3), arrivals, setting)
    assert max(count for _, count in run.replicas) == 3


def test_a_door_takes_no_descriptors_beyond_its_own() -> None:
    class Nothing:
        def fault(self) -> str:
            return ""

        def stats(self) -> dict[str, Any]:
            return {}

        def metrics(self) -> Text:
            return Text()

    port = free_port()
    open_door(HttpDoor(http_address=Address("127.0.0.1", port)), Nothing(), "here")
    before = len(list(Path("/proc/self/fd").iterdir()))
    idle = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(200)]
    try:
        idle[-1].settimeout(10)
        assert idle[-1].recv(1) == b""  # it is closed; the first ones are not
        taken = len(list(Path("/proc/self/fd").iterdir())) - before - len(idle)
        assert taken <= 110
    finally:
        for each in idle:
            each.close()
    wait_for(lambda: answers(port), "it answers again", 20)


def answers(port: int) -> bool:
    try:
        return http(f"127.0.0.1:{port}", "/ping")[0] == 200
    except OSError:
        return False


HOT = "partition 0 brings more than the {}/s that a consumer serves: add partitions"


def test_a_warning_is_told_once_for_as_long_as_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    warned = Warned()
    for second in range(0, 90, 2):  # the rate is about mu, which is learnt meanwhile
        warned.tell([HOT.format(100 + second / 7)] if second % 4 else [], float(second))
        assert len(warned.now) == (second > 0)
    assert [each.message for each in caplog.records] == [HOT.format(100 + 2 / 7)]
    warned.tell([], 160.0)
    assert warned.now == ()
    warned.tell([HOT.format(100), HOT.replace("partition 0", "partition 1")], 161.0)
    assert len(caplog.records) == 3, "it is over, and another one is another"
