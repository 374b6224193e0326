"""The inner loops of placement against the same written plainly: all brokers looked at."""

from hypothesis import assume, given
from hypothesis import strategies as st

from distributor.placement.correlation import spread
from distributor.placement.packing import best_fit_decreasing
from distributor.placement.water_filling import water_fill

Topic = tuple[list[list[int]], list[int]]


@st.composite
def topics(draw: st.DrawFn) -> Topic:
    """Groups, heaviest first in each, and weights."""
    most = draw(st.sampled_from([1, 3, 1000]))  # equal, with many ties, with few
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=8))
    weights = [draw(st.integers(1, most)) for _ in range(sum(sizes))]
    numbers = list(range(len(weights)))
    groups = []
    for size in sizes:
        groups.append(sorted(numbers[:size], key=lambda number: -weights[number]))
        numbers = numbers[size:]
    return groups, weights


rooms_of_any = st.lists(st.integers(0, 2000), min_size=1, max_size=7)


def plain_spread(
    groups: list[list[int]], weights: list[int], quotas: list[int], rooms: list[int]
) -> tuple[list[int], list[int]] | None:
    """`spread`; None where somebody has to meet one of his group."""
    brokers, total = range(len(quotas)), sum(quotas)
    broker_of, gaps = [-1] * len(weights), list(rooms)
    lacking = list(quotas)

    def give(member: int, broker: int) -> None:
        broker_of[member] = broker
        gaps[broker] -= weights[member]
        lacking[broker] -= weights[member]

    for members in groups:
        size = sum(weights[member] for member in members)
        cells = [size * quota for quota in quotas]
        for member in members:
            broker = min(
                brokers, key=lambda at: (-cells[at], cells[at] == size * quotas[at], at)
            )  # of two that lack the same, the one that has some already
            if cells[broker] >= weights[member] * total:
                cells[broker] -= weights[member] * total
                give(member, broker)
    over = [
        (-weights[member], number, members.index(member), member)
        for number, members in enumerate(groups)
        for member in members
        if broker_of[member] < 0
    ]
    unfit = []
    given: set[tuple[int, int]] = set()
    for minus_weight, number, _, member in sorted(over):
        fitting = [broker for broker in brokers if gaps[broker] >= -minus_weight]
        free = [broker for broker in fitting if (number, broker) not in given]
        if free:
            broker = min(free, key=lambda at: (-lacking[at], at))
            given.add((number, broker))
            give(member, broker)
        elif fitting:
            return None
        else:
            unfit.append(member)
    return broker_of, unfit


@given(topics(), st.data())
def test_spread_is_what_it_is_written_plainly(topic: Topic, data: st.DataObject) -> None:
    groups, weights = topic
    total = sum(weights)
    parts = data.draw(st.lists(st.integers(1, 100), min_size=1, max_size=7))
    tight = data.draw(st.sampled_from([1.0, 1.02, 1.2, 3.0]))
    rooms = [int(part * total * tight / sum(parts)) + 1 for part in parts]
    quotas = water_fill(total, rooms, [0] * len(rooms))
    found = plain_spread(groups, weights, quotas, rooms)
    broker_of, unfit, met = spread(groups, weights, quotas, rooms)
    assert (found is None) == bool(met)
    assume(found is not None)
    assert (broker_of, unfit) == found


def plain_best_fit(weights: list[int], rooms: list[int], opened: int) -> tuple[list[int], int]:
    broker_of, gaps = [-1] * len(weights), list(rooms)
    for member in sorted(range(len(weights)), key=lambda member: (-weights[member], member)):
        weight = weights[member]
        fitting = [broker for broker in range(opened) if gaps[broker] >= weight]
        if not fitting and opened < len(rooms) and rooms[opened] >= weight:
            fitting = [opened]
            opened += 1
        if fitting:
            broker = min(fitting, key=lambda at: (gaps[at], at))
            broker_of[member] = broker
            gaps[broker] -= weight
    return broker_of, opened


@given(topics(), rooms_of_any, st.data())
def test_best_fit_is_what_it_is_written_plainly(
    topic: Topic, rooms: list[int], data: st.DataObject
) -> None:
    opened = data.draw(st.integers(0, len(rooms)))
    rooms[opened:] = sorted(rooms[opened:], reverse=True)
    found = best_fit_decreasing(topic[1], rooms, opened)
    assert found == plain_best_fit(topic[1], rooms, opened)
