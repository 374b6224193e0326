"""What a pool's controller and `watch` are shown of its messages and consumers."""

from collections.abc import Mapping
from dataclasses import dataclass

from srtm.autoscaler.live.monitor import Reading


@dataclass(frozen=True, slots=True)
class PoolReading:
    """reading: one entry for each broker of NSQ, or partition of Kafka, in the order of `parts`
    clients:  consumer -> messages that it has finished, or 0 where nobody tells
    client_ids: as consumers call themselves
    deferred: messages that are not due yet, or that were requeued with a delay
    """

    reading: Reading
    parts: tuple[str, ...] = ()
    clients: Mapping[str, int] | None = None
    client_ids: frozenset[str] = frozenset()
    waiting: int = 0
    deferred: int = 0
    paused: bool = False
    faults: tuple[str, ...] = ()
