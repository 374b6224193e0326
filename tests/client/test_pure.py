"""The publisher's parts without I/O: route, outbox, window, backoff."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.client.outbox import Outbox, nothing_behind_ran
from srtm.client.place import Place, read_place
from srtm.client.route import TABLE, Event, Route, State
from srtm.client.window import Window
from srtm.host.backoff import FIRST_SECONDS, backoff_seconds

A, B, C = (Place(f"{name}:4150", name, 1) for name in "abc")
NONE = Place("", "", 1)


def at(place: Place, epoch: int) -> Place:
    return Place(place.address, place.broker, epoch)


# --- route --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "state", "address", "moves"),
    [
        pytest.param([], State.HOMELESS, "", 0, id="nothing-is-known"),
        pytest.param([A], State.CONNECTING, "a:4150", 0, id="the-first-place-is-dialled"),
        pytest.param([A, Event.CONNECTED], State.OPEN, "a:4150", 0, id="connected-it-is-open"),
        pytest.param(
            [A, Event.CONNECTED, at(B, 2)],
            State.LEAVING,
            "a:4150",
            0,
            id="a-move-stops-sending",
        ),
        pytest.param(
            [A, Event.CONNECTED, at(B, 2), Event.ANSWERED],
            State.CONNECTING,
            "b:4150",
            1,
            id="all-answered-it-goes-to-the-new-gateway",
        ),
        pytest.param(
            [A, Event.CONNECTED, at(B, 2), Event.BROKEN],
            State.CONNECTING,
            "b:4150",
            1,
            id="the-old-gateway-dies-in-the-middle-of-a-move",
        ),
        pytest.param(
            [A, Event.CONNECTED, at(B, 2), at(A, 3)],
            State.OPEN,
            "a:4150",
            0,
            id="a-move-called-off-before-it-left",
        ),
        pytest.param(
            [A, Event.CONNECTED, at(B, 2), at(C, 3), Event.ANSWERED],
            State.CONNECTING,
            "c:4150",
            1,
            id="the-newest-of-two-moves-counts",
        ),
        pytest.param(
            [at(A, 5), Event.CONNECTED, at(B, 4)],
            State.OPEN,
            "a:4150",
            0,
            id="an-older-epoch-is-ignored",
        ),
        pytest.param(
            [A, Event.CONNECTED, at(A, 9)], State.OPEN, "a:4150", 0, id="the-same-place-again"
        ),
        pytest.param(
            [A, Event.CONNECTED, Event.BROKEN], State.WAITING, "a:4150", 0, id="a-gateway-dies"
        ),
        pytest.param(
            [A, Event.BROKEN, Event.RETRY],
            State.CONNECTING,
            "a:4150",
            0,
            id="it-is-tried-again",
        ),
        pytest.param(
            [A, Event.BROKEN, at(B, 2)],
            State.CONNECTING,
            "b:4150",
            1,
            id="placed-elsewhere-while-it-waits",
        ),
        pytest.param([A, at(B, 2)], State.CONNECTING, "b:4150", 1, id="placed-while-it-dials"),
        pytest.param([A, Event.CONNECTED, at(NONE, 2)], State.HELD, "a:4150", 0, id="held"),
        pytest.param(
            [A, Event.CONNECTED, at(NONE, 2), at(A, 3)],
            State.OPEN,
            "a:4150",
            0,
            id="and-let-go",
        ),
        pytest.param(
            [A, Event.CONNECTED, at(NONE, 2), at(B, 3), Event.ANSWERED],
            State.CONNECTING,
            "b:4150",
            1,
            id="held-and-placed-elsewhere",
        ),
        pytest.param(
            [A, Event.CONNECTED, at(NONE, 2), Event.BROKEN],
            State.HOMELESS,
            "a:4150",
            0,
            id="held-and-its-gateway-dies",
        ),
        pytest.param([at(NONE, 1)], State.HOMELESS, "", 0, id="held-before-its-first-place"),
        pytest.param([A, at(NONE, 2)], State.HOMELESS, "a:4150", 0, id="held-while-it-dials"),
        pytest.param([A, Event.CLOSE, at(B, 2)], State.CLOSED, "a:4150", 0, id="closed-is-closed"),
    ],
)
def test_a_route_goes(steps: list[Place | Event], state: State, address: str, moves: int) -> None:
    route = Route()
    for step in steps:
        if isinstance(step, Place):
            route.placed(step)
        else:
            route.step(step)
    assert (route.state, route.address, route.moves) == (state, address, moves)


def test_an_event_that_cannot_come_names_the_state() -> None:
    with pytest.raises(ValueError, match="'connected' cannot come while homeless"):
        Route().step(Event.CONNECTED)


def test_every_state_but_closed_can_be_closed_and_every_state_is_reached() -> None:
    assert {state for state in State if Event.CLOSE in TABLE[state]} == set(State) - {State.CLOSED}
    reached = {state for row in TABLE.values() for state in row.values()} | {State.HOMELESS}
    assert reached == set(State)


@given(
    st.lists(
        st.one_of(
            st.builds(lambda name, epoch: Place(name, name, epoch), st.sampled_from(["a", "b", ""]),
                      st.integers(0, 5)),
            st.sampled_from([Event.CONNECTED, Event.ANSWERED, Event.BROKEN, Event.RETRY]),
        ),
        max_size=30,
    )
)  # fmt: skip
def test_it_sends_only_to_one_gateway_and_changes_it_only_between_connections(
    steps: list[Place | Event],
) -> None:
    route, newest = Route(), -1
    for step in steps:
        before, address = route.state, route.address
        if isinstance(step, Place):
            route.placed(step)
            newest = max(newest, step.epoch)
        elif step in TABLE[route.state]:
            route.step(step)
        if address != route.address:
            assert route.state is State.CONNECTING, "it never goes over while it may send"
            assert before in (
                State.HOMELESS,
                State.CONNECTING,
                State.WAITING,
                State.LEAVING,
            )
        if route.place is not None and not route.place.address:
            assert route.state in (State.HOMELESS, State.HELD)
        else:
            assert route.state is not State.HELD
        if route.state is State.OPEN:
            assert route.place is not None
            assert route.address == route.place.address
        if route.place is not None:
            assert route.place.epoch == newest
        if route.state is State.LEAVING:
            assert route.place is not None
            assert route.address != route.place.address


@pytest.mark.parametrize(
    ("document", "place"),
    [
        pytest.param(
            {"id": "p", "broker": "x", "tcp_address": "h:1", "epoch": 3},
            Place("h:1", "x", 3),
            id="placed",
        ),
        pytest.param({"broker": None, "tcp_address": None, "epoch": 0}, None, id="not-placed"),
        pytest.param(
            {"broker": None, "tcp_address": None, "epoch": 4}, Place("", "", 4), id="no-more"
        ),
    ],
)
def test_a_place_is_read(document: dict[str, object], place: Place | None) -> None:
    assert read_place(document) == place


def test_what_is_no_place_is_refused() -> None:
    with pytest.raises(ValueError, match="no place of a publisher"):
        read_place({"broker": "x", "tcp_address": 5, "epoch": 1})


# --- outbox -------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["put", "take", "answer", "back", "lose"]), max_size=60))
def test_each_message_is_stored_or_lost_once_and_in_order(steps: list[str]) -> None:
    box: Outbox[int] = Outbox()
    put = 0
    ended: list[int] = []
    for step in steps:
        if step == "put":
            box.put(put)
            put += 1
        elif step == "take":
            box.take(3, lambda entry: False)
        elif step == "answer" and box.in_flight:
            ended.append(box.answered())
        elif step == "back":
            box.put_back()
        elif step == "lose":
            ended += box.lost()
    ended += box.lost() + box.give_up()
    assert ended == list(range(put))
    assert box.idle


def test_what_its_sender_has_given_up_is_not_sent() -> None:
    box: Outbox[int] = Outbox()
    for number in range(5):
        box.put(number)
    assert box.take(2, lambda entry: entry in (0, 2)) == [1, 3]
    assert box.in_flight == 2


@pytest.mark.parametrize(
    ("code", "sentence", "sure"),
    [
        pytest.param("E_PUB_FAILED", "over the limit of topic t (2/s)", True, id="over-the-limit"),
        pytest.param("E_MPUB_FAILED", "over the limit of topic t", True, id="a-batch-over-it"),
        pytest.param("E_BAD_MESSAGE", "PUB message too big", True, id="its-form"),
        pytest.param("E_PUB_FAILED", "PUB failed write: no space left", False, id="a-full-disk"),
        pytest.param("E_NEW", "of a later nsqd", False, id="an-error-that-nobody-knows"),
    ],
)
def test_is_it_sure_that_nothing_behind_an_error_ran(code: str, sentence: str, sure: bool) -> None:
    assert nothing_behind_ran(code, sentence) is sure


# --- window -------------------------------------------------------------------------------------


def test_who_comes_first_gets_room_first_and_a_big_batch_goes_alone() -> None:
    async def work() -> None:
        window = Window(3)
        entered: list[int] = []

        async def enter(count: int) -> None:
            await window.enter(count)
            entered.append(count)

        await enter(3)
        tasks = []
        for count in (5, 1, 2):
            tasks.append(asyncio.create_task(enter(count)))
            await asyncio.sleep(0)
        assert entered == [3]
        window.leave(2)
        await asyncio.sleep(0)
        assert entered == [3], "one message is left, so five wait, and the others behind them"
        window.leave(1)
        await asyncio.sleep(0)
        assert entered == [3, 5]
        window.leave(5)
        await asyncio.gather(*tasks)
        assert entered == [3, 5, 1, 2]
        assert window.used == 3

    asyncio.run(work())


def test_who_gives_up_leaves_no_hole_in_the_window() -> None:
    async def work() -> None:
        window = Window(1)
        await window.enter(1)
        first, second, third = (asyncio.create_task(window.enter(1)) for _ in range(3))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        window.leave(1)  # second has its turn now ...
        second.cancel()  # ... and gives up before it knows
        await asyncio.gather(first, second, return_exceptions=True)
        await third
        assert window.used == 1

    asyncio.run(work())


def test_a_window_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="0 messages in flight"):
        Window(0)


# --- backoff ------------------------------------------------------------------------------------


@given(st.floats(0, 1), st.floats(0.2, 60))
def test_waits_double_up_to_their_bound(jitter: float, most: float) -> None:
    waits = [backoff_seconds(attempt, jitter, most) for attempt in range(100)]
    assert all(after >= before for before, after in pairwise(waits))
    assert FIRST_SECONDS / 2 <= waits[0] <= FIRST_SECONDS
    assert most / 2 <= waits[-1] <= most


@pytest.mark.parametrize(
    ("attempt", "jitter", "most"),
    [
        pytest.param(-1, 0.0, 1.0, id="attempt-under-0"),
        pytest.param(0, 1.5, 1.0, id="jitter-over-1"),
        pytest.param(0, 0.5, 0.0, id="no-bound"),
    ],
)
def test_a_backoff_of_no_sense_is_refused(attempt: int, jitter: float, most: float) -> None:
    with pytest.raises(ValueError, match="attempts count from 0"):
        backoff_seconds(attempt, jitter, most)
