"""Events that come all the time, at even distances."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import Producer

from benchmarks.harness.kafka import TOPIC
from srtm.text.errors import UnavailableError

_FLUSH_SECONDS = 10.0


@dataclass(slots=True)
class Sent:
    """count: events so far; they are numbered from 0 on"""

    count: int = 0


@contextmanager
def even_load(address: str, partitions: int, rate: float) -> Iterator[Sent]:
    """Send events at even distances to each partition in turn, for the time of a `with` block.
    rate: events/s of each partition. Raises UnavailableError where Kafka does not take them."""
    over, sent = threading.Event(), Sent()
    producer = Producer(
        {"bootstrap.servers": address, "linger.ms": 0, "log.connection.close": False}
    )

    def produce() -> None:
        begun = time.monotonic()
        while not over.wait(0.002):
            while sent.count < (time.monotonic() - begun) * rate * partitions:
                body = str(sent.count).encode()
                producer.produce(TOPIC, body, partition=sent.count % partitions)
                sent.count += 1
            producer.poll(0)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield sent
    finally:
        over.set()
        thread.join()
        left = producer.flush(_FLUSH_SECONDS)
    if left:
        raise UnavailableError(f"Kafka did not take {left} events in {_FLUSH_SECONDS:g} s")
