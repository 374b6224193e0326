from collections.abc import Iterator

import pytest

from tests.support.kafka import Kafka, kafka_in


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A Kafka that the tests of a worker share; each has topics of its own."""
    with kafka_in(tmp_path_factory.mktemp("kafka")) as found:
        yield found
