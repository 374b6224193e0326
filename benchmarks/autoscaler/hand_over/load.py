"""Events at even distances, in a thread."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer


@contextmanager
def even_load(address: str, partitions: int, rate: float) -> Iterator[None]:
    """Send events to each partition of `events` in turn, for the time of a `with` block; rate:
    events/s of each."""
    over = threading.Event()

    def produce() -> None:
        producer = Producer(
            {"bootstrap.servers": address, "linger.ms": 0, "log.connection.close": False}
        )
        begun, sent = time.monotonic(), 0
        while not over.wait(0.002):
            while sent < (time.monotonic() - begun) * rate * partitions:
                producer.produce("events", b"event", partition=sent % partitions)
                sent += 1
            producer.poll(0)
        producer.flush(5)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
