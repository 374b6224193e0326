"""What is asked of a placement, checked and put in an order that no caller can influence."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import fsum

from distributor.model import Broker, Publisher
from srtm.limits.contract import Contract


@dataclass(frozen=True, slots=True)
class Request:
    """brokers:    biggest residual capacity first, ties by name
    publishers: by id
    placed:     publisher id -> broker name, of those who stay where they are
    full:       names of the brokers that take nobody, whatever their residual capacity
    """

    contract: Contract
    brokers: tuple[Broker, ...]
    publishers: tuple[Publisher, ...]
    placed: Mapping[str, str] = field(default_factory=dict)
    full: Collection[str] = ()

    @property
    def unassigned(self) -> list[Publisher]:
        """The publishers that have no broker yet."""
        return [each for each in self.publishers if each.id not in self.placed]

    @property
    def most_brokers(self) -> int:
        """b_l holds a whole message, and the largest batch, at each."""
        return int(self.contract.burst // self.contract.least_burst)

    @property
    def offered(self) -> float:
        """λ: messages/s of all publishers."""
        return fsum([publisher.rate for publisher in self.publishers])

    def serving(self) -> dict[str, float]:
        """messages/s of those who stay, by broker."""
        rates: dict[str, list[float]] = {}
        for publisher in self.publishers:
            name = self.placed.get(publisher.id)
            if name is not None:
                rates.setdefault(name, []).append(publisher.rate)
        return {name: fsum(each) for name, each in rates.items()}


def request(
    contract: Contract,
    brokers: Iterable[Broker],
    publishers: Iterable[Publisher],
    placed: Mapping[str, str] | None = None,
    full: Collection[str] = (),
) -> Request:
    """Raises ValueError for names or ids given twice, for no publishers, and for publishers placed
    or brokers full that are not among them."""
    by_room = sorted(brokers, key=lambda broker: (-broker.rcap, broker.name))
    by_id = sorted(publishers, key=lambda publisher: publisher.id)
    if not by_id:
        raise ValueError(f"topic {contract.topic} has no publishers: register at least one")
    _refuse_twice("publisher", [publisher.id for publisher in by_id])
    names = sorted(broker.name for broker in by_room)
    _refuse_twice("broker", names)
    placed = dict(placed or {})
    if placed:
        _refuse_unknown("publisher", placed, {publisher.id for publisher in by_id})
    _refuse_unknown("broker", {*placed.values(), *full}, set(names))
    return Request(contract, tuple(by_room), tuple(by_id), placed, frozenset(full))


def _refuse_twice(what: str, names: Sequence[str]) -> None:
    for one, other in pairwise(names):
        if one == other:
            raise ValueError(f"{what} {one} is given twice")


def _refuse_unknown(what: str, named: Iterable[str], known: set[str]) -> None:
    for name in sorted(named):
        if name not in known:
            raise ValueError(f"{what} {name} is not among the topic's {what}s")
