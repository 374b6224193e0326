"""What no set of routes may do: go in a circle, or take each other's messages. Pure."""

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import combinations
from typing import Protocol

from srtm.bridge.names import TOPIC, End, collides, overlap


class Way(Protocol):
    """A route, as far as it can stand in another's way."""

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> End: ...
    @property
    def target(self) -> End: ...
    @property
    def dead_letter(self) -> End | None: ...
    @property
    def group(self) -> str: ...
    @property
    def loop(self) -> bool: ...


def refuse_conflicts(routes: Sequence[Way]) -> None:
    """Raises ValueError that names the routes and the remedy."""
    for one, other in combinations(routes, 2):
        _refuse_fight(one, other)
        _refuse_collision(one, other)
    for route in routes:
        if route.dead_letter and any(
            overlap(_reach(route, route.dead_letter), _reach(route, end))
            for end in (route.source, route.target)
            if end.system == route.dead_letter.system
        ):
            raise ValueError(f"route {route.name}: its dead letters would go where it works")
    circle = _circle([route for route in routes if not route.loop])
    if circle:
        raise ValueError(
            f"the routes {', '.join(circle)} go in a circle: a message would come back; if it is "
            "meant (or their brokers are not the same), write loop = true"
        )


def _refuse_fight(one: Way, other: Way) -> None:
    system = one.source.system
    if system != other.source.system or not overlap(one.source.topic, other.source.topic):
        return
    if system == "nsq":
        kind, mine, theirs, parts = "channel", one.source.channel, other.source.channel, "messages"
    else:
        kind, mine, theirs, parts = "group", one.group, other.group, "partitions"
    if mine == theirs:
        raise ValueError(
            f"routes {one.name} and {other.name} fight over {kind} {mine} of "
            f"{_topics(one, other)}: each would get a part of the {parts}; give each its own {kind}"
        )


def _topics(one: Way, other: Way) -> str:
    names = dict.fromkeys([one.source.topic, other.source.topic])
    return "topic " + " and ".join(names)


def _refuse_collision(one: Way, other: Way) -> None:
    def ends(route: Way) -> list[str]:
        found = [end for end in (route.source, route.target, route.dead_letter) if end]
        return [_reach(route, each) for each in found if each.system == "kafka"]

    for name in ends(one):
        for beside in ends(other):
            if "*" not in name + beside and collides(name, beside):
                raise ValueError(
                    f"routes {one.name} and {other.name}: Kafka refuses topic {name} beside "
                    f"{beside}, as its metrics write both alike"
                )


def _reach(route: Way, end: End) -> str:
    """The names that it can have, as a pattern."""
    return end.topic.replace(TOPIC, route.source.topic)


def _circle(routes: Sequence[Way]) -> list[str]:
    """The names of routes that lead back to the first of them; [] where there are none."""
    feeders = {
        number: [n for n, other in enumerate(routes) if _feeds(other, route)]
        for number, route in enumerate(routes)
    }
    try:
        TopologicalSorter(feeders).prepare()
    except CycleError as error:
        circle = error.args[1][1:]
        first = circle.index(min(circle))
        return [routes[n].name for n in circle[first:] + circle[:first]]
    return []


def _feeds(one: Way, other: Way) -> bool:
    """Does what leaves `one` come to `other`?"""
    return any(
        end.system == other.source.system and overlap(_reach(one, end), other.source.topic)
        for end in (one.target, one.dead_letter)
        if end
    )
