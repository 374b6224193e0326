"""Where publishers send that are outside a trial: only where room was measured or is expected."""

import re
from collections.abc import Mapping
from itertools import zip_longest
from math import inf

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from distributor.fitting import (
    CapacityModel,
    Done,
    Fitting,
    Load,
    Meanwhile,
    Mode,
    Result,
    Round,
    Sample,
    Settings,
)
from distributor.fitting.elsewhere import Rooms, elsewhere
from distributor.fitting.topic import FittedTopic
from distributor.fitting.trial import Trial
from distributor.fitting.verdict import Answer, Verdict
from distributor.model import Broker, Publisher
from srtm.limits.slo import SLO
from tests.support.cases import cases
from tests.support.fitting_brokers import (
    Behaviour,
    Late,
    carry_out,
    contract,
    holding,
    measured,
    publishers,
    rates,
)

_ROUNDING = 1e-6  # messages/s


def verdict(answer: Answer) -> Verdict:
    return Verdict(answer, 0.0, 1.0, False, "")


def known(*rounds: tuple[str, float, Answer]) -> Rooms:
    """(broker, messages/s, what came of it)"""
    rooms = Rooms()
    for name, rate, answer in rounds:
        rooms = rooms.judged({name: rate}, {name: verdict(answer)})
    return rooms


# --- what is known of a broker ------------------------------------------------------------------

HOLDS, LATE, UNSURE = Answer.HOLDS, Answer.VIOLATED, Answer.UNSURE


@pytest.mark.parametrize(
    ("rounds", "held", "late_from"),
    [
        pytest.param([], 0, inf, id="nothing"),
        pytest.param([(50, HOLDS), (30, HOLDS)], 50, inf, id="the-most-that-it-held"),
        pytest.param([(80, LATE), (60, LATE)], 0, 60, id="late-and-never-seen-to-hold"),
        pytest.param([(80, LATE), (50, HOLDS), (60, LATE)], 50, 60, id="in-between"),
        pytest.param([(50, HOLDS), (30, HOLDS), (40, LATE)], 30, 40, id="the-late-one-counts"),
        pytest.param([(50, HOLDS), (50, LATE)], 0, 50, id="once-so-and-once-so"),
        pytest.param([(50, UNSURE)], 0, inf, id="not-sure-says-nothing"),
    ],
)
def test_what_is_known(rounds: list[tuple[float, Answer]], held: float, late_from: float) -> None:
    rooms = known(*(("b0", rate, answer) for rate, answer in rounds))
    assert (rooms.held("b0"), rooms.late_from("b0")) == (held, late_from)


# --- who takes how many --------------------------------------------------------------------------


def topic_of(
    mine: list[Publisher], brokers: list[Broker], burst: float = 200.0, rate: float = 1.1
) -> FittedTopic:
    offered = sum(each.rate for each in mine)
    return FittedTopic(
        contract(rate * offered, burst), SLO.parse("0.99@1ms"), tuple(brokers), tuple(mine), 1.0
    )


def taken(topic: FittedTopic, rooms: Rooms, model: CapacityModel | None = None) -> dict[str, float]:
    """messages/s by broker, with b0 judged with one publisher and all the others elsewhere."""
    trial = Trial({topic.publishers[0].id: "b0"}, frozenset(["b0"]), ())
    found = elsewhere(topic, trial, rooms, model or CapacityModel())
    return rates(found, topic.publishers)


FOUR = [Broker(f"b{n}", 500.0) for n in range(4)]


@pytest.mark.parametrize(
    ("rooms", "expected"),
    [
        pytest.param([], {"b1": 490}, id="the-fewest-that-were-not-judged"),
        pytest.param([("b2", 490, HOLDS)], {"b2": 490}, id="first-where-room-was-measured"),
        pytest.param([("b2", 200, HOLDS)], {"b2": 490}, id="then-up-to-its-capacity"),
        pytest.param(
            [("b2", 200, HOLDS), ("b2", 300, LATE)],
            {"b1": 290, "b2": 200},
            id="a-full-one-gets-what-it-held-and-an-idle-one-the-rest",
        ),
        pytest.param(
            [("b1", 300, LATE), ("b1", 100, HOLDS), ("b2", 300, LATE), ("b3", 300, LATE)],
            {"b1": 100},
            id="a-full-one-gets-what-it-held-and-the-rest-is-held",
        ),
        pytest.param([(f"b{n}", 10, LATE) for n in range(4)], {}, id="nobody-has-room"),
    ],
)
def test_who_takes_whom(rooms: list[tuple[str, float, Answer]], expected: dict[str, float]) -> None:
    topic = topic_of(publishers(50), FOUR)
    assert taken(topic, known(*rooms)) == {"b0": 10.0, **expected}


def test_no_more_than_the_rounds_have_taught_to_expect() -> None:
    model = CapacityModel()
    for rate, late in ((400.0, 0.3), (200.0, 0.03), (100.0, 0.003), (50.0, 0.0003)):
        model = model.learnt("b0", Load(rate, rate / 100, int(rate / 10)), late * 1e6, 1e6)
    found = taken(topic_of(publishers(50), FOUR), Rooms(), model)
    assert all(100 <= found[name] <= 160 for name in ("b1", "b2", "b3"))
    measured_more = taken(topic_of(publishers(50), FOUR), known(("b3", 250, HOLDS)), model)
    assert measured_more["b3"] == 250


RATE = st.sampled_from([1.0, 2.5, 10.0, 40.0])
SOME_PUBLISHERS = st.lists(
    st.tuples(RATE, st.sampled_from([None, *"abcd"])), min_size=1, max_size=60
).map(lambda all_: [Publisher(f"p{n:02}", key, rate) for n, (rate, key) in enumerate(all_)])


@st.composite
def trials(draw: st.DrawFn) -> tuple[FittedTopic, Trial, Rooms]:
    """Any trial, beside any knowledge."""
    mine = draw(SOME_PUBLISHERS)
    limits = draw(st.lists(st.tuples(st.integers(0, 800), st.integers(0, 50)), min_size=1))
    brokers = [Broker(f"b{n}", float(cap), float(others)) for n, (cap, others) in enumerate(limits)]
    names = [each.name for each in brokers]
    topic = topic_of(mine, brokers, burst=draw(st.sampled_from([1.0, 2.0, 200.0])))
    most = int(topic.contract.burst)
    used = names[:most]
    assignment = {
        each.id: at for each in mine if (at := draw(st.sampled_from([None, *used]))) is not None
    }
    judged = frozenset(draw(st.sets(st.sampled_from(names)))) & set(assignment.values())
    rounds = st.tuples(st.sampled_from(names), st.integers(1, 900), st.sampled_from(list(Answer)))
    rooms = known(*draw(st.lists(rounds, max_size=12)))
    return topic, Trial(assignment, judged, ()), rooms


@given(trials())
def test_nobody_goes_where_there_is_no_room(found: tuple[FittedTopic, Trial, Rooms]) -> None:
    topic, trial, rooms = found
    assignment = elsewhere(topic, trial, rooms, CapacityModel())
    assert trial.assignment.items() <= assignment.items()
    assert assignment.keys() <= {each.id for each in topic.publishers}
    before, after = topic.rates(trial.assignment), topic.rates(assignment)
    left: dict[str, float] = {}
    for broker in topic.brokers:
        name, room = broker.name, rooms.held(broker.name)
        if rooms.late_from(name) == inf:
            room = max(room, broker.rcap)
        room = 0.0 if name in trial.judged else min(room, broker.rcap)
        there = after.get(name, 0.0)
        assert there <= max(before.get(name, 0.0), room) + _ROUNDING
        left[name] = room - there
    for each in topic.publishers:
        if each.id not in assignment:  # it is held: nobody has room for it, and b leaves no broker
            more = len(after) < int(topic.contract.burst)
            open_ = [name for name in left if more or name in after]
            assert all(left[name] < each.rate + _ROUNDING for name in open_)


# --- the search ----------------------------------------------------------------------------------


def searched(
    mine: list[Publisher],
    limits: Mapping[str, float],
    mode: Mode,
    declared: float = 5_000.0,
    burst: float = 200.0,
    behaviour: Behaviour | None = None,
) -> tuple[Done, list[Round]]:
    offered = sum(each.rate for each in mine)
    settings = Settings(mode=mode, meanwhile=Meanwhile.ELSEWHERE)
    brokers = [Broker(name, declared) for name in limits]
    fitting = Fitting(contract(1.1 * offered, burst), brokers, mine, settings)
    return carry_out(fitting, mine, behaviour or holding(limits))


def late_at(later: Round) -> set[str]:
    """Brokers that the round before this one found violated."""
    found = (re.match(r"(b\d+): .*: violated, ", each) for each in later.reasons)
    return {each[1] for each in found if each}


def check(
    mine: list[Publisher], rounds: list[Round], behaviour: Behaviour, noisy: bool = False
) -> None:
    """Nobody is lost, nobody outside a trial goes to a judged broker, and a broker that was judged
    late gets, outside its trials, no more than it held.

    noisy: rounds may contradict each other, and the trial goes by the last one; so only those who
           are sent elsewhere are looked at
    """
    held: dict[str, list[float]] = {}
    late: dict[str, float] = {}
    for current, later in zip_longest(rounds, rounds[1:]):
        there = rates(current.assignment, mine)
        assert not {*current.held} & current.assignment.keys()
        assert {*current.held} | current.assignment.keys() == {each.id for each in mine}
        assert {*current.elsewhere} <= current.assignment.keys()
        assert not current.helping & current.judged
        for name, rate in there.items():
            outside = name in current.helping if noisy else name not in current.judged
            if name in late and outside:
                most = max((each for each in held.get(name, []) if each < late[name]), default=0)
                assert rate <= most + _ROUNDING, (current.epoch, name)
        for name, rate in there.items():
            if not behaviour(name, rate, current).late:
                held.setdefault(name, []).append(rate)
        for name in late_at(later) if later else ():
            late[name] = min(late.get(name, inf), there[name])


FIGURES = {"b0": 500.0, "b1": 200.0, "b2": 300.0, "b3": 1_000.0}  # 50, 20, 30, 100 of 150


@pytest.mark.parametrize("mode", list(Mode))
def test_full_brokers_of_earlier_rounds_are_left_alone_and_idle_ones_used(mode: Mode) -> None:
    mine = publishers(150)
    done, rounds = searched(mine, FIGURES, mode)
    check(mine, rounds, holding(FIGURES))
    assert done.result is Result.MET
    assert all(rate <= FIGURES[name] for name, rate in rates(done.assignment, mine).items())
    over: dict[str, int] = {}
    for each in rounds:
        for name, rate in rates(each.assignment, mine).items():
            if name not in each.judged and rate > FIGURES[name]:
                over[name] = over.get(name, 0) + 1
    # A broker of which nothing is known may be tried with too many, once.
    assert all(times == 1 for times in over.values())
    assert "b3" in {name for each in rounds for name in each.helping}
    if any(each.held for each in rounds):
        short = next(each for each in rounds if each.held)
        assert f"{len(short.held)} publishers held: no broker outside the trial" in str(
            short.reasons
        )


@hypothesis_settings(max_examples=cases(150))
@given(
    st.builds(
        publishers,
        st.integers(20, 150),
        st.sampled_from([1.0, 10.0]),
        groups=st.sampled_from([1, 7, 30]),
    )
    | SOME_PUBLISHERS,
    st.lists(st.integers(2, 110), min_size=1, max_size=6),
    st.sampled_from(list(Mode)),
    st.sampled_from([0.4, 5.0]),
    st.sampled_from([2.0, 200.0]),
    st.sampled_from([0.0, 0.2]),
)
def test_a_search_with_hidden_capacities(
    mine: list[Publisher],
    percents: list[int],
    mode: Mode,
    declared: float,
    burst: float,
    noise: float,
) -> None:
    """percents: of the topic, what each broker really holds; declared: parts of it, what it says
    noise: part of its capacity that a broker has less in every other round
    """
    offered = sum(each.rate for each in mine)
    by_name = {f"b{n}": offered * each / 100 for n, each in enumerate(percents)}

    def behaviour(broker: str, rate: float, current: Round) -> Late:
        limit = by_name[broker] * (1 - noise * (current.epoch % 2))
        return Late(0.2 if rate > limit else 0.0)

    done, rounds = searched(mine, by_name, mode, declared * offered, burst, behaviour)
    check(mine, rounds, behaviour, noisy=noise > 0)
    everybody = {each.id for each in mine}
    assert set(done.assignment) == (set() if done.result is Result.OUT_OF_BROKERS else everybody)
    if done.result is Result.MET:
        there = rates(done.assignment, mine)
        assert all(rate <= by_name[name] for name, rate in there.items())


# --- brokers that help are measured too -----------------------------------------------------------


def second_round(helping: float | None) -> tuple[Fitting, Round, Round | Done]:
    """After b0 failed with everybody; helping: the late share of those who help, None: silence."""
    mine = publishers(100)
    brokers = [Broker(f"b{n}", 5_000.0) for n in range(3)]
    settings = Settings(mode=Mode.PAPER, meanwhile=Meanwhile.ELSEWHERE)
    fitting = Fitting(contract(), brokers, mine, settings)

    def behaviour(broker: str, rate: float, current: Round) -> Late:
        return Late(0.2 if broker == "b0" else helping or 0.0)

    found: list[Round] = []
    what = fitting.next([], 0.0)
    for _ in range(2):
        assert isinstance(what, Round)
        found.append(what)
        now = what.look_again_at
        samples: list[Sample] = measured(what, what.began_at, now, mine, behaviour)
        if helping is None:
            samples = [each for each in samples if each.broker in what.judged]
        what = fitting.next(samples, now)
    return fitting, found[1], what


@pytest.mark.parametrize(
    ("helping", "still"),
    [
        pytest.param(0.0, True, id="it-holds"),
        pytest.param(0.2, False, id="it-is-late-too"),
        pytest.param(None, True, id="nothing-was-measured"),
    ],
)
def test_a_broker_that_helps_and_is_late_helps_no_more(helping: float | None, still: bool) -> None:
    _, second, third = second_round(helping)
    assert second.helping == {"b1"}
    assert isinstance(third, Round)
    assert third.judged == {"b0"}
    assert ("b1" in third.helping) is still
    assert third.helping
