"""Clients that lose Kafka while it names no broker: librdkafka's issue 5301. A race decides that,
but for clients that are told not to begin anew, which always lose it."""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from srtm.kafka import cut_off
from srtm.kafka.client import client_settings
from srtm.kafka.cut_off import CutOff
from srtm.kafka.file import KafkaTable
from tests.support.fenced_kafka import FencedKafka, fenced_kafka
from tests.support.servers import wait_for

ALWAYS = {"metadata.recovery.strategy": "none"}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_off, "ASK_SECONDS", 0.5)
    monkeypatch.setattr(cut_off, "LOOK_SECONDS", 0.1)


@pytest.fixture
def server() -> Iterator[FencedKafka]:
    with fenced_kafka() as found:
        yield found


def table(server: FencedKafka) -> KafkaTable:
    return KafkaTable.model_validate({"bootstrap-servers": server.address, "settings": ALWAYS})


def cut(client: Any, server: FencedKafka) -> None:
    """Have the client ask while the broker is fenced."""
    assert client.list_topics(timeout=10).brokers
    server.fenced = True
    with suppress(KafkaException):
        assert not client.list_topics(timeout=2).brokers
    server.fenced = False
    with pytest.raises(KafkaException):
        client.list_topics(timeout=1)


def test_who_is_cut_off_is_found_and_a_new_client_is_not(server: FencedKafka) -> None:
    settings = client_settings(table(server), "test")
    producer = Producer(settings)
    cut(producer, server)
    looks = CutOff(settings)
    wait_for(lambda: looks.look(producer), "it is found", 30)
    fresh = Producer(settings)
    until = time.monotonic() + 2
    while time.monotonic() < until:
        assert not looks.look(fresh)
        time.sleep(0.05)


def test_nobody_is_cut_off_from_a_kafka_that_is_away(server: FencedKafka) -> None:
    settings = client_settings(table(server), "test")
    producer = Producer(settings)
    cut(producer, server)
    looks = CutOff(settings)
    server.fenced = True
    until = time.monotonic() + 3
    while time.monotonic() < until:
        assert not looks.look(producer)
        time.sleep(0.05)
    server.fenced = False
    wait_for(lambda: looks.look(producer), "it is found", 30)


def test_what_was_found_long_ago_says_nothing(
    server: FencedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = client_settings(table(server), "test")
    producer = Producer(settings)
    cut(producer, server)
    looks = CutOff(settings)
    assert not looks.look(producer)
    wait_for(lambda: looks._found is producer, "it is found", 30)
    monkeypatch.setattr(cut_off, "ASK_SECONDS", -1.0)  # of the age that counts, too
    monkeypatch.setattr(cut_off, "LOOK_SECONDS", 0.5)
    assert not looks.look(producer)
