"""The consumers, as programs: an event takes 1/mu seconds of waiting, and what is written is when
it was to be sent and when it was done."""

import sys
from pathlib import Path

BATCH = 50
"""events in hand at most"""
_HEAD = """
import json, os, signal, sys, time
from pathlib import Path

FOLDER = Path(__file__).parent
OUT = os.open(FOLDER / f"done-{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
EACH = 1.0 / float(sys.argv[1])


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def serve(values):
    begun, done = now(), []
    for number, value in enumerate(values, 1):
        time.sleep(max(begun + number * EACH - now(), 0.0))
        done.append([value.decode(), now()])
    return done


def keep(done):
    os.write(OUT, "".join(json.dumps(each) + "\\n" for each in done).encode())
"""
_OURS = """
from srtm.consumer import consume


def process(records):
    return serve([each.value for each in records])


def callback(done, batch):
    keep(done)


if __name__ == "__main__":
    sys.exit(consume(sys.argv[2], process=process, callback=callback))
"""
_PLAIN = f"""
from confluent_kafka import Consumer

over = []
signal.signal(signal.SIGTERM, lambda *_: over.append(1))
consumer = Consumer({{
    "bootstrap.servers": sys.argv[2], "group.id": "workers", "enable.auto.commit": False,
    "auto.offset.reset": "earliest", "partition.assignment.strategy": "cooperative-sticky",
    "fetch.wait.max.ms": 20,
}})
consumer.subscribe(["events"])
while not over:
    found = [each for each in consumer.consume({BATCH}, 0.02) if not each.error()]
    if found:
        keep(serve([each.value() for each in found]))
        consumer.commit(asynchronous=False)
consumer.close()
"""


def command(folder: Path, plain: bool, mu: float, where: str) -> tuple[str, ...]:
    """where: Kafka's address of a plain one, the group's file of ours"""
    program = folder / "worker.py"
    program.write_text(_HEAD + (_PLAIN if plain else _OURS))
    return (sys.executable, str(program), str(mu), where)
