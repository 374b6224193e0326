"""What the bridge is compared with: `python -m benchmarks.bridge.programs NAME ...`.

out, in: the plainest loop that a user would write with pynsq and confluent-kafka, as durable as the
bridge. drain, and `produce` and `publish` here: one side alone, as fast as it goes.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

from srtm.nsq.blocking import Blocking
from srtm.nsq.commands import message, mpub, rdy, sub
from srtm.nsq.frames import ERROR, MESSAGE


def plain_out(nsqd: str, topic: str, channel: str, kafka: str, target: str) -> None:
    """NSQ -> Kafka: FIN each message when Kafka has reported it."""
    import nsq
    import tornado.ioloop
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": kafka,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "log_level": 0,
        }
    )

    def handler(found: Any) -> None:
        found.enable_async()
        producer.produce(
            target,
            found.body,
            headers=[
                ("nsq-host", nsqd),
                ("nsq-topic", topic),
                ("nsq-message-id", found.id),
                ("nsq-attempts", str(found.attempts)),
                ("nsq-time", str(found.timestamp)),
            ],
            on_delivery=lambda error, _: found.finish() if error is None else found.requeue(),
        )

    def report() -> None:
        producer.poll(0)

    nsq.Reader(topic, channel, handler, nsqd_tcp_addresses=[nsqd], max_in_flight=2500)
    tornado.ioloop.PeriodicCallback(report, 1).start()
    nsq.run()


def plain_in(kafka: str, topic: str, nsqd: str, target: str) -> None:
    """Kafka -> NSQ: PUB each record, and store its offset with nsqd's OK."""
    import nsq
    import tornado.ioloop
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": target,
            "auto.offset.reset": "earliest",
            "enable.auto.offset.store": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    writer = nsq.Writer([nsqd])
    under_way = 0

    def published(record: Any) -> Any:
        def done(_: Any, data: Any) -> None:
            nonlocal under_way
            under_way -= 1
            if isinstance(data, bytes):
                consumer.store_offsets(message=record)

        return done

    def poll() -> None:
        nonlocal under_way
        while under_way < 1000 and writer.conns:
            records = consumer.consume(100, 0.001)
            if not records:
                break
            for record in records:
                if record.error() is None:
                    under_way += 1
                    writer.pub(target, record.value(), callback=published(record))

    tornado.ioloop.PeriodicCallback(poll, 1).start()
    nsq.run()


def produce(kafka: str, topic: str, count: int, size: int, headers: bool = True) -> float:
    """Seconds for so many records, with the bridge's headers and a callback."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": kafka,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
        }
    )
    body = b"x" * size
    done: list[object] = []
    report = done.append
    began = time.monotonic()
    for number in range(count):
        given: list[tuple[str, str | bytes | None]] | None = None
        if headers:
            given = [
                ("nsq-host", "127.0.0.1:4150"),
                ("nsq-topic", topic),
                ("nsq-message-id", b"%016x" % number),
                ("nsq-attempts", b"1"),
                ("nsq-time", b"%d" % (1_700_000_000_000_000_000 + number)),
            ]
        producer.produce(topic, body, headers=given, on_delivery=lambda error, _: report(error))
        if number % 500 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    assert not any(done)
    return time.monotonic() - began


def drain(nsqd: str, topic: str, channel: str) -> None:
    """Consume until the program is ended, with one write of FINs for each read."""
    with Blocking(nsqd, {"output_buffer_size": 65_536, "output_buffer_timeout": 25}) as link:
        link.identify().ask(sub(topic.encode(), channel.encode()))
        link.write(rdy(2500))
        link.socket.settimeout(None)
        while data := link.socket.recv(1 << 18):
            raw, ends = link.v2.receive_raw(data)
            start = 0
            ids = []
            for end in ends:
                if raw[start + 7] == MESSAGE:
                    ids.append(raw[start + 18 : start + 34])
                start = end
            if ids:
                link.write(b"FIN " + b"\nFIN ".join(ids) + b"\n")


def publish(nsqd: str, topic: str, count: int, size: int, batch: int = 1000) -> float:
    """Seconds for MPUBs through `nsqd`, eight of them without an answer. Each is made of its
    bodies, as by any program that has messages to send."""
    number = count // batch
    name, bodies = topic.encode(), [b"x" * size] * batch
    with Blocking(nsqd, {}) as link:
        link.identify()
        began = time.monotonic()
        sent = answered = 0
        while answered < number:
            while sent < number and sent - answered < 8:
                link.write(mpub(name, [message(body) for body in bodies], batch))
                sent += 1
            for kind, said in link.frames():
                if kind == ERROR:
                    raise SystemExit(f"nsqd says {said!r}")
                answered += 1
        return time.monotonic() - began


PROGRAMS: dict[str, Callable[..., None]] = {"out": plain_out, "in": plain_in, "drain": drain}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
