"""The brokers that may take publishers of a topic, in the order in which they are taken."""

from dataclasses import dataclass

from distributor.model import Broker
from distributor.placement.assign import NANO, amount
from distributor.placement.request import Request


@dataclass(frozen=True, slots=True)
class Candidates:
    """opened:   brokers that serve the topic and are not full
    new:      brokers that do not serve it, are not full and have room; biggest residual capacity
              first
    allowed:  how many of `new` the contract's b allows: b_l >= 1 at each broker
    own:      messages/s that the topic has already, by name of each broker that serves it
    """

    opened: tuple[Broker, ...]
    new: tuple[Broker, ...]
    allowed: int
    own: dict[str, float]

    @property
    def usable(self) -> tuple[Broker, ...]:
        return (*self.opened, *self.new[: self.allowed])

    @property
    def there(self) -> list[int]:
        """Nano-messages/s of the topic at each usable broker already."""
        return [amount(self.own.get(broker.name, 0.0)) for broker in self.usable]

    @property
    def rooms(self) -> list[int]:
        """Nano-messages/s that each usable broker has left."""
        return [
            max(0, round(broker.rcap * NANO) - there)
            for broker, there in zip(self.usable, self.there, strict=True)
        ]


def candidates(asked: Request) -> Candidates:
    own = asked.serving()
    open_brokers = [broker for broker in asked.brokers if broker.name not in asked.full]
    return Candidates(
        opened=tuple(broker for broker in open_brokers if broker.name in own),
        new=tuple(broker for broker in open_brokers if broker.name not in own and broker.rcap > 0),
        allowed=max(0, asked.most_brokers - len(own)),
        own=own,
    )
