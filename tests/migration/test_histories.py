"""Random traffic for an hour: head-room and budget are kept, and nobody goes to and fro."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from distributor.migration import (
    Memory,
    Sender,
    Source,
    Target,
    TopicSeen,
    Trouble,
    relieve,
)
from distributor.migration.settings import (
    COOL_DOWN_SECONDS,
    HEADROOM,
    MOST_MOVES,
    MOVE_EVERY_SECONDS,
    RETURN_SECONDS,
    WINDOW_SECONDS,
)
from tests.support.cases import cases


class World:
    """Publishers of one topic on brokers of known capacity, looked at once in a window."""

    def __init__(self, capacities: list[int], rates: list[int]) -> None:
        self.capacities = {f"b{at}": float(each) for at, each in enumerate(capacities)}
        self.rates = {f"p{at}": float(each) for at, each in enumerate(rates)}
        self.places = dict.fromkeys(self.rates, "b0")
        self.memory = Memory(0.0)
        self.moves: list[tuple[float, str, str, str]] = []
        """(at, publisher, from, to)"""

    def load(self, broker: str) -> float:
        return sum(rate for each, rate in self.rates.items() if self.places[each] == broker)

    def look(self, now: float) -> None:
        for broker, capacity in self.capacities.items():
            if self.load(broker) > capacity:
                self.relieve(broker, now)

    def relieve(self, broker: str, now: float) -> None:
        load, capacity = self.load(broker), self.capacities[broker]
        self.memory.in_trouble(broker, capacity, now)
        senders = [Sender("t", each, None, self.rates[each]) for each in self.at(broker)]
        targets = [
            Target(each, holds, self.load(each))
            for each, holds in self.capacities.items()
            if each != broker
        ]
        topic = TopicSeen("t", frozenset(self.places.values()), 9, len(self.rates), {}, True)
        trouble = Trouble(load, capacity, "")
        found = relieve(
            Source(broker, trouble, tuple(senders)), targets, {"t": topic}, self.memory, now
        )
        for move in found.moves:
            assert self.places[move.publisher] == broker == move.source
            self.places[move.publisher] = move.target
            self.memory.moved("t", move.publisher, broker, now)
            self.moves.append((now, move.publisher, broker, move.target))
            assert self.load(move.target) <= HEADROOM * self.capacities[move.target] + 1e-6

    def at(self, broker: str) -> list[str]:
        return [each for each, place in self.places.items() if place == broker]


worlds = st.builds(
    World,
    st.lists(st.integers(50, 300), min_size=2, max_size=4),
    st.lists(st.integers(1, 120), min_size=1, max_size=8),
)
changes = st.lists(
    st.tuples(st.integers(1, 30), st.integers(0, 7), st.integers(1, 300)), max_size=40
)
"""(windows until then, publisher, its new rate)"""


@settings(max_examples=cases(150))
@given(worlds, changes)
def test_any_history(world: World, changes: list[tuple[int, int, int]]) -> None:
    now = 0.0
    for windows, publisher, rate in changes:
        for _ in range(windows):
            now += WINDOW_SECONDS
            world.look(now)
        world.rates[f"p{publisher % len(world.rates)}"] = float(rate)
    for (at, who, from_, _), (later, same, _, to) in combinations(world.moves, 2):
        if who == same:
            assert later - at >= COOL_DOWN_SECONDS
            assert to != from_ or later - at >= RETURN_SECONDS
    times = [at for at, *_ in world.moves]
    for first, last in combinations(range(len(times)), 2):
        seconds = times[last] - times[first]
        assert last - first + 1 <= MOST_MOVES + seconds / MOVE_EVERY_SECONDS + 1e-6


@settings(max_examples=cases(100))
@given(worlds)
def test_traffic_that_stays_the_same_ends_all_moves(world: World) -> None:
    """Each change leaves head-room, so it is not undone; what cannot be mended is left alone."""
    for window in range(1, 40):
        world.look(window * WINDOW_SECONDS)
    moves = len(world.moves)
    assert moves <= len(world.rates)
    for window in range(40, 400):
        world.look(window * WINDOW_SECONDS)
    assert len(world.moves) == moves
