"""A Kafka group under `srtm autoscale run`."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.autoscaled import Autoscaled
from tests.support.kafka import Kafka
from tests.support.servers import Servers, free_port


@dataclass(frozen=True, order=True)
class Kept:
    """A record that a sink got. at: seconds of the machine's clock that counts sleep too."""

    at: float
    pid: int
    partition: int
    token: int
    offset: int
    id: str


class Group(Autoscaled):
    def __init__(self, kafka: Kafka, servers: Servers, topic: str) -> None:
        folder = servers.folder / topic
        folder.mkdir()
        self.kafka = kafka
        self.topic = topic
        defaults: dict[str, dict[str, Any]] = {
            "kafka": {"bootstrap-servers": kafka.address},
            "group": {
                "topic": topic,
                "id": f"{topic}-group",
                "slo": "0.99@500ms",
                "mu": 500,
                "lease": "1s",
                "interval": "300ms",
                "policy": "closer2",
            },
            "consumer": {"process": "work:handle", "sink": "callback", "callback": "work:keep"},
        }
        super().__init__(servers, folder, f"127.0.0.1:{free_port()}", defaults)

    def produce(self, count: int, partition: int = -1) -> None:
        """Ids that nobody has had yet."""
        values: list[bytes | None] = [b"%d" % (self.sent + n) for n in range(count)]
        self.kafka.produce(self.topic, values, partition=partition)
        self.sent += count

    def kept(self) -> list[Kept]:
        return sorted(Kept(*each) for each in self.lines())

    def ids(self) -> Counter[str]:
        return Counter(each.id for each in self.kept())

    def wait_kept(self, seconds: float = 60) -> None:
        """Until each id that was sent is in a sink."""
        self.wait(lambda: len(self.ids()) >= self.sent, f"{self.sent} ids are kept", seconds)

    def wait_state(self, consumers: int, seconds: float = 60) -> None:
        """Until so many consumers have every partition among them, and nothing is under way."""

        def there() -> bool:
            found = self.stats()
            return found.get("consumers") == consumers and found.get("state") == "sentinel"

        self.wait(there, f"{consumers} consumers", seconds)

    def check_kept(self) -> None:
        """Nothing is lost."""
        assert {str(n) for n in range(self.sent)} <= self.ids().keys()

    def check(self) -> None:
        """The same, and no partition is had by two: whoever has a newer token is the last to write,
        and each owner writes in order."""
        self.check_kept()
        newest: dict[int, Kept] = {}
        for each in self.kept():
            before = newest.get(each.partition)
            if before is not None:
                assert each.token >= before.token, f"{before} and then {each}"
                if each.token == before.token:
                    assert each.pid == before.pid, f"{before} and {each} have one token"
                    assert each.offset > before.offset, f"{before} and then {each}"
            newest[each.partition] = each


def group(
    kafka: Kafka, servers: Servers, topic: str, partitions: int = 4, **tables: dict[str, Any]
) -> Group:
    kafka.create(topic, partitions)
    found = Group(kafka, servers, topic)
    found.write(**tables)
    return found


@contextmanager
def under_load(group: Group, rate: int = 100) -> Iterator[None]:
    """`rate` ids/s until the block ends."""
    over = threading.Event()

    def load() -> None:
        while not over.wait(0.1):
            group.produce(rate // 10)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)
