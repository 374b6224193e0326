"""Where a publisher is to send, as the Load Distributor says it."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Place:
    """A gateway: `address` is its host:port for TCP, "" for none any more. A place of a higher
    epoch replaces one of a lower, never the other way round."""

    address: str
    broker: str = ""
    epoch: int = 0


def read_place(document: dict[str, Any]) -> Place | None:
    """The place in an answer about one publisher; None where it never had one. Raises
    ValueError."""
    address, broker, epoch = (document.get(key) for key in ("tcp_address", "broker", "epoch"))
    if broker is None and epoch == 0:
        return None
    if broker is None:
        address = broker = ""
    if not isinstance(address, str) or not isinstance(broker, str) or type(epoch) is not int:
        raise ValueError(f"no place of a publisher: {document!r:.200}")
    return Place(address, broker, epoch)
