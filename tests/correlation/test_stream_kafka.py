"""`srtm correlate stream` on a real Kafka, killed in the middle: no arrival is lost or doubled."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from srtm.correlation.result import read_result
from srtm.correlation.stream.state import STATE, read_ledger
from tests.support.kafka import Kafka, kafka_in
from tests.support.planted import planted
from tests.support.programs import SRTM
from tests.support.servers import Process, wait_for
from tests.support.traces import rows_of

ROOT = Path(__file__).parents[2]
BAD = [b"{", b'{"time": 1}', None]
SECONDS = 400.0
"""for a machine with much else to do"""


def rows(seed: int) -> list[bytes | None]:
    """Of a trace with planted groups; `bytes` numbers them."""
    table = planted(seed, sizes=(5, 6), alone=4, bursts=40).table().to_pylist()
    documents = (each | {"bytes": seed * 100_000 + at} for at, each in enumerate(table))
    return [json.dumps(each).encode() for each in documents]


def numbers(records: list[bytes | None]) -> list[int]:
    return [json.loads(each)["bytes"] for each in records if each is not None]


def take_back(kafka: Kafka, records: list[bytes | None]) -> None:
    """Send them in a transaction that is aborted."""
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": kafka.address,
        "transactional.id": "taken-back",
    }
    producer = Producer(settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    for each in records:
        producer.produce("arrivals", each)
    producer.flush(60)
    producer.abort_transaction(60)


class Stream:
    def __init__(self, folder: Path, kafka: str) -> None:
        self.trace, self.out = folder / "trace", folder / "out"
        command = ["correlate", "stream", "--kafka", kafka, "--kafka-topic=arrivals"]
        # So groups are found once, from what the killed one has left.
        paths = [f"--trace={self.trace}", f"--out={self.out}", "--every=1h"]
        self.process = Process(
            [*SRTM, *command, *paths],
            folder / "stream.log",
            {"PYTHONPATH": str(ROOT), "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"},
        )

    def ledger(self) -> Any:
        return read_ledger(self.trace / STATE / "ledger.json")

    def numbers(self) -> list[int]:
        return sorted(each["bytes"] for each in rows_of(self.trace))

    def said(self, words: str) -> None:
        def is_said() -> bool:
            assert self.process.alive, self.process.text()
            return words in self.process.text()

        wait_for(is_said, words, SECONDS)

    def has(self, count: int) -> None:
        def there() -> bool:
            assert self.process.alive, self.process.text()
            return len(self.numbers()) >= count

        wait_for(there, f"{count} arrivals are in the trace", SECONDS)


@pytest.mark.timeout(900)
def test_nothing_is_lost_or_doubled_by_kills_and_outages(tmp_path: Path) -> None:
    first, second, third = rows(1), rows(2), rows(3)
    with kafka_in(tmp_path / "kafka") as kafka:
        kafka.create("arrivals", partitions=2)
        stream = Stream(tmp_path, kafka.address)
        try:
            with kafka.dead():
                stream.process.start()
                stream.said("waiting for Kafka")
            kafka.produce("arrivals", [*first, *BAD])
            stream.has(len(first))
            stream.process.kill()  # its ledger, Spark's commit and a result may be half way
            kafka.produce("arrivals", second)
            stream.process.start()
            stream.has(len(first) + len(second))
            take_back(kafka, rows(4))
            kafka.produce("arrivals", [*third, *BAD])
            sent = numbers([*first, *second, *third])
            stream.has(len(sent))
            wait_for(lambda: stream.ledger().rows == len(sent), "they are counted", SECONDS)
            wait_for(lambda: stream.out.exists(), "there are groups", SECONDS)
            assert stream.process.stop() == 0, stream.process.text()
        finally:
            stream.process.kill()
    assert stream.numbers() == sorted(sent)
    assert sum(stream.numbers()) == sum(sent)
    assert stream.ledger().left_out == 2 * len(BAD)
    assert stream.process.text().rstrip().endswith("ended")
    assert "Traceback" not in stream.process.text()
    (topic,) = read_result(stream.out).topics
    assert topic.groups
    assert "are no arrivals: not JSON" in stream.process.text()
