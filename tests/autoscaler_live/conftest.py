from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.groups import Group, group
from tests.support.kafka import Kafka, kafka_in
from tests.support.servers import Servers


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A Kafka that the tests of a worker share; each has topics of its own. Its members of KIP-848
    beat every 300 ms, and are missed after 3 s. As most do it makes topics that it is asked for."""
    settings = {
        "auto_create_topics_enable": "true",
        "group_consumer_heartbeat_interval_ms": "300",
        "group_consumer_min_heartbeat_interval_ms": "300",
        "group_consumer_session_timeout_ms": "3000",
        "group_consumer_min_session_timeout_ms": "3000",
    }
    with kafka_in(tmp_path_factory.mktemp("kafka"), **settings) as found:
        yield found


@pytest.fixture
def make_group(kafka: Kafka, servers: Servers) -> Iterator[Callable[..., Group]]:
    """Groups whose controllers and consumers end with the test."""
    made: list[Group] = []

    def make(topic: str, partitions: int = 4, **tables: dict[str, Any]) -> Group:
        made.append(group(kafka, servers, topic, partitions, **tables))
        return made[-1]

    yield make
    for each in made:
        each.end()
