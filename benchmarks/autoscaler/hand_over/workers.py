"""The consumers of each arm, as programs: ours, and plain ones of both clients. All write the same
lines: when a batch began and ended, who worked on it, and of which partitions it was."""

import sys
from pathlib import Path

_HEAD = """
import json, os, sys, time
from pathlib import Path

OUT = os.open(Path(__file__).parent / f"batches-{os.getpid()}.jsonl",
              os.O_WRONLY | os.O_CREAT | os.O_APPEND)
EACH = float(sys.argv[1])


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def keep(begun, partitions):
    line = json.dumps([begun, now(), os.getpid(), sorted(partitions)])
    os.write(OUT, (line + "\\n").encode())
"""
_OURS = """
from srtm.consumer import consume


def handle(records):
    begun = now()
    time.sleep(EACH)
    return begun


if __name__ == "__main__":
    def sink(begun, batch):
        keep(begun, batch.ranges)

    sys.exit(consume(sys.argv[2], process=handle, callback=sink))
"""
_PLAIN = """
import signal

over = []
signal.signal(signal.SIGTERM, lambda *_: over.append(1))
ADDRESS, STRATEGY, BEAT_MS = sys.argv[2], sys.argv[3], int(sys.argv[4])
"""
_CONFLUENT = """
from confluent_kafka import Consumer

consumer = Consumer({
    "bootstrap.servers": ADDRESS, "group.id": "workers", "enable.auto.commit": False,
    "auto.offset.reset": "earliest", "partition.assignment.strategy": STRATEGY,
    "heartbeat.interval.ms": BEAT_MS, "session.timeout.ms": 6000, "fetch.wait.max.ms": 20,
})
consumer.subscribe(["events"])
while not over:
    found = [each for each in consumer.consume(100, 0.02) if not each.error()]
    if found:
        begun = now()
        time.sleep(EACH)
        keep(begun, {each.partition() for each in found})
        try:
            consumer.commit(asynchronous=False)
        except Exception:
            pass
consumer.close()
"""
_KAFKA_PYTHON = """
from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

KINDS = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}
consumer = KafkaConsumer(
    "events", bootstrap_servers=ADDRESS, group_id="workers", enable_auto_commit=False,
    auto_offset_reset="earliest", partition_assignment_strategy=[KINDS[STRATEGY]],
    heartbeat_interval_ms=BEAT_MS, session_timeout_ms=6000, fetch_max_wait_ms=20,
    max_poll_records=100, isolation_level="read_committed",
)
while not over:
    found = consumer.poll(timeout_ms=20)
    if found:
        begun = now()
        time.sleep(EACH)
        keep(begun, {each.partition for each in found})
        try:
            consumer.commit()
        except Exception:
            pass
consumer.close()
"""
_TEXTS = {
    "ours": _HEAD + _OURS,
    "confluent-kafka": _HEAD + _PLAIN + _CONFLUENT,
    "kafka-python": _HEAD + _PLAIN + _KAFKA_PYTHON,
}


def command(folder: Path, client: str, batch_seconds: float, *rest: str) -> tuple[str, ...]:
    """The command line of one consumer of the arm in `folder`, where its program is written; rest:
    the group's file, or Kafka's address, the strategy and the heartbeat in ms."""
    program = folder / "worker.py"
    program.write_text(_TEXTS[client])
    return (sys.executable, str(program), str(batch_seconds), *rest)
