"""What is fitted: a topic's publishers on brokers, and the loads that a design puts on them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import fsum

from distributor.fitting.capacity import Load
from distributor.model import Broker, Publisher
from srtm.limits.contract import Contract
from srtm.limits.slo import SLO


@dataclass(frozen=True, slots=True)
class FittedTopic:
    """contract:   with an SLO
    brokers:    `allocated` is what other topics have there
    batch:      messages that a publisher sends at one instant
    """

    contract: Contract
    slo: SLO
    brokers: tuple[Broker, ...]
    publishers: tuple[Publisher, ...]
    batch: float

    @property
    def offered(self) -> float:
        """λ: messages/s that all publishers declare."""
        return fsum(publisher.rate for publisher in self.publishers)

    def rates(self, assignment: Mapping[str, str]) -> dict[str, float]:
        """messages/s of the topic by broker."""
        found: dict[str, list[float]] = {}
        for publisher in self.publishers:
            if publisher.id in assignment:
                found.setdefault(assignment[publisher.id], []).append(publisher.rate)
        return {name: fsum(each) for name, each in found.items()}

    def loads(self, assignment: Mapping[str, str]) -> dict[str, Load]:
        """The loads by broker. A group's publishers at a broker send together, `batch` messages
        each."""
        cells: dict[str, dict[str, tuple[int, float]]] = {}
        for publisher in self.publishers:
            if publisher.id in assignment:
                groups = cells.setdefault(assignment[publisher.id], {})
                key = publisher.key or f"{publisher.id}\0"
                members, rate = groups.get(key, (0, 0.0))
                groups[key] = members + 1, rate + publisher.rate
        allocated = {broker.name: broker.allocated for broker in self.brokers}
        return {name: self._load(each.values(), allocated[name]) for name, each in cells.items()}

    def _load(self, cells: Iterable[tuple[int, float]], allocated: float) -> Load:
        found = list(cells)
        rate = fsum(cell for _, cell in found)
        together = fsum(members * cell for members, cell in found) / rate
        return Load(rate + allocated, self.batch * together, sum(members for members, _ in found))
