"""`srtm autoscale watch` on a real group of somebody else's consumers."""

import json
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from tests.support.kafka import Kafka
from tests.support.programs import SRTM, run_srtm
from tests.support.servers import wait_for


def group_file(folder: Path, kafka: str, topic: str, **keys: object) -> Path:
    file = folder / f"{topic}.toml"
    lines = ["[kafka]", f'bootstrap-servers = "{kafka}"', "[group]", f'topic = "{topic}"']
    values = {"id": f"{topic}-group", "slo": "0.99@500ms", "interval": "300ms", **keys}
    lines += [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    file.write_text("\n".join(lines) + "\n")
    return file


def watched(file: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return run_srtm("autoscale", "watch", file, *flags, seconds=60)


def looks(answer: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert answer.returncode == 0, answer.stderr
    return [json.loads(line) for line in answer.stdout.splitlines()]


def test_a_group_is_shown_as_it_is_and_left_alone(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create("watched", 3)
    kafka.produce(topic, [b"x"] * 90, partition=0)
    kafka.produce(topic, [b"x"] * 30, partition=1)
    over = threading.Event()
    ready = threading.Event()

    def consume() -> None:
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": kafka.address,
            "group.id": "watched-group",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer(settings)
        consumer.subscribe([topic])
        seen = 0
        while not over.is_set():
            for message in consumer.consume(50, 0.1):
                seen += 1
                if message.partition() == 1:
                    consumer.commit(message, asynchronous=False)
            if seen == 120:
                ready.set()
        consumer.close()

    thread = threading.Thread(target=consume)
    thread.start()
    try:
        assert ready.wait(30)
        file = group_file(tmp_path, kafka.address, topic, mu=200)
        found = looks(watched(file, "--count", "2", "--json", "--policy", "closer2"))
        look = found[-1]
        assert [each["lag"] for each in look["partitions"]] == [90, 0, 0]
        (consumer,) = look["consumers"]
        assert sorted(consumer["partitions"]) == [0, 1, 2]
        assert list(look["policies"]) == ["closer2"]
        assert kafka.committed("watched-group", topic) == 30
        shown = watched(file, "--count", "1")
        assert "do nothing" in shown.stdout
        assert shown.stdout.count("landau-") == shown.stdout.count("landau-mbfp") == 1
    finally:
        over.set()
        thread.join(20)


def test_without_mu_it_says_what_is_missing(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create("unknown-mu", 1)
    answer = watched(group_file(tmp_path, kafka.address, topic), "--count", "1")
    assert answer.returncode == 0
    assert "set mu in [group]" in answer.stderr


def test_one_port_for_many_consumers_is_refused(tmp_path: Path) -> None:
    file = group_file(tmp_path, "127.0.0.1:1", "any")
    table = '[consumer]\nprocess = "work:handle"\nhttp-address = "127.0.0.1:4196"\n'
    file.write_text(f"{file.read_text()}\n{table}")
    answer = run_srtm("autoscale", "run", file, seconds=60)
    assert answer.returncode == 2
    assert "of up to 8 consumers of this machine could listen on http-address" in answer.stderr
    assert answer.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["watch", "run", "explain", "stop"])
def test_a_setting_that_librdkafka_has_not_is_one_line(tmp_path: Path, command: str) -> None:
    file = group_file(tmp_path, "127.0.0.1:1", "any")
    file.write_text(f'{file.read_text()}\n[kafka.settings]\n"no.such" = 1\n')
    answer = run_srtm("autoscale", command, file, seconds=60)
    assert answer.returncode == 2
    assert answer.stderr == (
        f'srtm: {file}: [kafka.settings]: No such configuration property: "no.such"\n'
    )


@pytest.mark.parametrize(
    ("address", "topic", "keys", "code", "says"),
    [
        pytest.param("", "missing", {}, 3, "has no topic missing", id="no-topic"),
        pytest.param("127.0.0.1:1", "any", {}, 3, "is it running there?", id="no-kafka"),
        pytest.param("", "any", {"policy": "srmt"}, 2, "did you mean 'srtm'", id="policy"),
    ],
)
def test_what_is_away_or_wrong_is_one_line(
    kafka: Kafka,
    tmp_path: Path,
    address: str,
    topic: str,
    keys: dict[str, object],
    code: int,
    says: str,
) -> None:
    answer = watched(group_file(tmp_path, address or kafka.address, topic, **keys))
    assert answer.returncode == code, answer.stderr
    assert says in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_partitions_that_are_added_are_seen(kafka: Kafka, tmp_path: Path) -> None:
    from confluent_kafka.cimpl import NewPartitions

    topic = kafka.create("growing", 1)
    file = group_file(tmp_path, kafka.address, topic, mu=100)
    command = [*SRTM, "autoscale", "watch", str(file), "--json"]
    with subprocess.Popen([*command, "--count", "0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert len(json.loads(process.stdout.readline())["partitions"]) == 1
            kafka.admin.create_partitions([NewPartitions(topic, 3)])[topic].result(10)
            wait_for(lambda: kafka.partitions(topic) == 3, "the topic has grown")
            deadline = time.monotonic() + 20
            while len(json.loads(process.stdout.readline())["partitions"]) != 3:
                assert time.monotonic() < deadline
        finally:
            process.terminate()
