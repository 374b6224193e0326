"""End to end and from outside: messages with their intended send time go in on one side, and are
read on the other. Open loop: what is late is sent all the same, and counts from when it was due."""

import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.bridge.world import PARTITIONS, World
from benchmarks.harness.world import child, until
from srtm.nsq.blocking import Blocking
from srtm.nsq.commands import pub, rdy, sub

RATE = 1000  # messages/s
_WARM_SECONDS = 2.0  # not counted: joining a group, the first connections
_BEGIN_SECONDS = 30.0
_REST_SECONDS = 10.0
_STAMP_DIGITS = 20

Send = Callable[[list[bytes]], None]
Receive = Callable[[float], list[bytes]]
"""What has come, after so many seconds at most."""


_IDENTITY = {"client_id": "latency"}


@dataclass(frozen=True)
class Latency:
    """Milliseconds; missing: messages that did not come within 10 s of the last."""

    count: int
    p50_ms: float
    p99_ms: float
    missing: int


def nsq_to_kafka(made: World, topic: str, command: list[str], size: int, seconds: float) -> Latency:
    """`command` carries nsq:TOPIC to kafka:TOPIC; the topics are there."""
    consumer = Consumer(
        {"bootstrap.servers": made.kafka.address, "group.id": "latency", "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
    with Blocking(made.plain.nsqd_tcp, _IDENTITY) as link:
        link.identify()

        def send(bodies: list[bytes]) -> None:
            while _has_come(link, 0):
                link.frames()  # OKs may be many, and mean nothing here
            link.write(b"".join(pub(topic.encode(), each) for each in bodies))

        def receive(wait: float) -> list[bytes]:
            first = consumer.poll(wait)  # `consume` would wait until it has as many
            records = [first, *consumer.consume(1000, 0)] if first else []
            return [bytes(each.value() or b"") for each in records if each.error() is None]

        try:
            return _measure(made, command, send, receive, size, seconds)
        finally:
            consumer.close()


def kafka_to_nsq(made: World, topic: str, command: list[str], size: int, seconds: float) -> Latency:
    """`command` carries kafka:TOPIC to nsq:TOPIC through the gateway; both topics are there, and
    the latter has the channel `latency`."""
    producer = Producer(
        {"bootstrap.servers": made.kafka.address, "acks": "all", "linger.ms": 2, "log_level": 0}
    )
    with Blocking(made.gateway.publish_to, {**_IDENTITY, "output_buffer_size": -1}) as link:
        link.identify().ask(sub(topic.encode(), b"latency"))
        link.write(rdy(2000))

        def send(bodies: list[bytes]) -> None:
            for each in bodies:
                producer.produce(topic, each)
            producer.poll(0)

        def receive(wait: float) -> list[bytes]:
            return [each.body for each in link.messages()] if _has_come(link, wait) else []

        return _measure(made, command, send, receive, size, seconds)


def _has_come(link: Blocking, wait: float) -> bool:
    return bool(select.select([link.socket], [], [], wait)[0])


def _measure(
    made: World, command: list[str], send: Send, receive: Receive, size: int, seconds: float
) -> Latency:
    """Raises UnavailableError where nothing comes over at all."""
    with child(command, made.folder / "latency.log"):
        _begin(send, receive, size)
        over = threading.Event()
        sent: list[int] = []
        sender = threading.Thread(target=_send_all, args=(send, size, seconds, sent, over))
        sender.start()
        came: dict[int, int] = {}
        last = float("inf")
        while time.monotonic() < last and not (over.is_set() and len(came) >= len(sent)):
            for body in receive(0.05):
                came.setdefault(int(body[:_STAMP_DIGITS]), time.time_ns())
            if over.is_set() and last == float("inf"):
                last = time.monotonic() + _REST_SECONDS
        sender.join()
    counted = sent[int(_WARM_SECONDS * RATE) :]
    late = np.array([came[due] - due for due in counted if due in came], dtype=float) / 1e6
    p50, p99 = np.percentile(late, [50, 99]) if len(late) else (float("nan"), float("nan"))
    return Latency(len(late), float(p50), float(p99), len(counted) - len(late))


def _begin(send: Send, receive: Receive, size: int) -> None:
    """Send the first message, and wait until it has come over."""
    send([_body(time.time_ns(), size)])
    until(lambda: receive(0.1), "a first message is over", _BEGIN_SECONDS, poll=0)


def _send_all(
    send: Send, size: int, seconds: float, sent: list[int], over: threading.Event
) -> None:
    """Send each message at its time; `sent` has the times."""
    step = 1_000_000_000 // RATE
    due = time.time_ns()
    last = due + int((seconds + _WARM_SECONDS) * 1e9)
    try:
        while due < last:
            time.sleep(max(due - time.time_ns(), 0) / 1e9)
            now = time.time_ns()
            stamps = list(range(due, min(now, last) + 1, step))
            if stamps:
                sent += stamps
                send([_body(each, size) for each in stamps])
                due = stamps[-1] + step
    finally:
        over.set()


def _body(stamp: int, size: int) -> bytes:
    return (b"%020d" % stamp).ljust(size, b"x")
