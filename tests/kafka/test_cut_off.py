"""Clients that lose Kafka while it names no broker: librdkafka's issue 5301."""

import time
from contextlib import suppress

import pytest
from confluent_kafka import KafkaException, Producer

from srtm.kafka import cut_off
from srtm.kafka.client import client_settings
from srtm.kafka.cut_off import CutOff
from srtm.kafka.file import KafkaTable
from tests.support.fenced_kafka import FencedKafka, fenced_kafka
from tests.support.servers import wait_for

TRIES = 60
"""Of sixteen clients four were cut off, as a rule."""


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_off, "ASK_SECONDS", 0.5)
    monkeypatch.setattr(cut_off, "LOOK_SECONDS", 0.1)


def _settings(server: FencedKafka) -> dict[str, object]:
    return client_settings(KafkaTable.model_validate({"bootstrap-servers": server.address}), "t")


def _cut_off(server: FencedKafka) -> Producer:
    """A producer that does not find the broker any more, which is there."""
    for _ in range(TRIES):
        producer = Producer(_settings(server))
        producer.list_topics(timeout=5)
        server.fenced = True
        with suppress(KafkaException):
            assert not producer.list_topics(timeout=1).brokers
        server.fenced = False
        try:
            producer.list_topics(timeout=1)
        except KafkaException:
            return producer
    pytest.fail("librdkafka always finds back: is issue 5301 mended, and this not needed?")


def test_who_is_cut_off_is_found_and_a_new_client_is_not() -> None:
    with fenced_kafka() as server:
        producer = _cut_off(server)
        looks = CutOff(_settings(server))
        wait_for(lambda: looks.look(producer), "it is found", 30)
        fresh = Producer(_settings(server))
        until = time.monotonic() + 2
        while time.monotonic() < until:
            assert not looks.look(fresh)
            time.sleep(0.05)


def test_nobody_is_cut_off_from_a_kafka_that_is_away() -> None:
    with fenced_kafka() as server:
        producer = _cut_off(server)
        looks = CutOff(_settings(server))
        server.fenced = True
        until = time.monotonic() + 3
        while time.monotonic() < until:
            assert not looks.look(producer)
            time.sleep(0.05)
        server.fenced = False
        wait_for(lambda: looks.look(producer), "it is found", 30)
