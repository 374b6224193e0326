"""Consumers of a Kafka share group, and the controller that scales them, on a real Kafka."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from srtm.kafka.file import KafkaTable
from srtm.kafka.share import ShareGroup as Asked
from srtm.text.errors import UnavailableError
from tests.support.kafka import Kafka, kafka_in
from tests.support.servers import Servers, free_port, http, wait_for
from tests.support.share_groups import SETTINGS, ShareGroup, share_group

Make = Callable[..., ShareGroup]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with kafka_in(tmp_path_factory.mktemp("kafka"), **SETTINGS) as found:
        yield found


@pytest.fixture
def make(kafka: Kafka, servers: Servers) -> Iterator[Make]:
    made: list[ShareGroup] = []

    def one(topic: str, partitions: int = 2, **tables: dict[str, Any]) -> ShareGroup:
        made.append(share_group(kafka, servers, topic, partitions, **tables))
        return made[-1]

    yield one
    for each in made:
        each.end()


def dead(group: ShareGroup) -> list[tuple[bytes | None, dict[str, bytes]]]:
    found = group.kafka.records(f"{group.topic}.dead")
    return [(each.value, each.headers) for each in found]


def test_more_consumers_than_partitions_have_each_record_once(make: Make) -> None:
    group = make("many", partitions=1)
    consumers = [group.consumer() for _ in range(3)]
    for _ in range(10):
        group.produce(100)
    group.wait_kept()
    for each in consumers:
        each.popen.send_signal(signal.SIGTERM)
        assert each.popen.wait(10) == 0, each.text()
    assert max(group.ids().values()) == 1


POISON = (
    "import asyncio, os, time, work\n"
    "class Mute(Exception):\n"
    "    def __str__(self):\n"
    "        raise RuntimeError('no text')\n"
    "def handle(records):\n"
    "    if any((each.value or b'').startswith(b'poison') for each in records):\n"
    "        raise ValueError('it is poison')\n"
    "    if any(each.value == b'surrogate' for each in records):\n"
    "        raise ValueError('of a file \\udcff')\n"
    "    if any(each.value == b'hangs' for each in records):\n"
    "        time.sleep(60)\n"
    "    if any(each.value == b'mute' for each in records):\n"
    "        raise Mute\n"
    "    if any(each.value == b'cancelled' for each in records):\n"
    "        raise asyncio.CancelledError\n"
    "    if any(each.value == b'killer' for each in records):\n"
    "        os._exit(9)\n"
    "    return work.handle(records)\n"
)


def poisoned(make: Make, topic: str, **tables: dict[str, Any]) -> ShareGroup:
    """A group whose consumers fail at records that begin with poison, and die of killers."""
    group = make(topic, **{"consumer": {"process": "poison:handle"}, **tables})
    (group.folder / "poison.py").write_text(POISON)
    return group


def test_a_record_that_fails_holds_up_nobody_and_is_a_dead_letter(make: Make) -> None:
    group = poisoned(make, "poison")
    group.kafka.produce("poison", [b"poison"], keys=[b"k"], headers=[("mine", b"1")])
    group.produce(500)
    consumer = group.consumer()
    group.wait_kept()
    wait_for(lambda: len(dead(group)) == 1, "it is a dead letter", 30)
    ((value, headers),) = dead(group)
    assert (value, headers["mine"], headers["srtm-topic"]) == (b"poison", b"1", b"poison")
    assert (headers["srtm-deliveries"], headers["srtm-reason"]) == (
        b"4",
        b"ValueError: it is poison",
    )
    assert consumer.text().count("Traceback") == 1, "it is told once"
    assert max(group.ids().values()) == 1, "what was beside it was not processed twice"
    wait_for(lambda: lag(group) == 0, "it is done with")


def test_many_that_fail_together_hold_up_nobody(make: Make) -> None:
    group = poisoned(make, "herd", consumer={"process": "poison:handle", "batch": 500})
    group.kafka.produce("herd", [b"poison %d" % n for n in range(20)])
    group.produce(400)
    group.consumer()
    group.wait_kept(30)
    group.wait(lambda: len(dead(group)) == 20, "the others are dead letters", 60)
    assert all((value or b"").startswith(b"poison") for value, _ in dead(group))


def test_a_record_that_kills_takes_nobody_along(make: Make) -> None:
    group = poisoned(make, "killer")
    group.kafka.produce("killer", [b"killer"])
    group.produce(60)
    for _ in range(12):
        consumer = group.consumer()
        wait_for(
            lambda each=consumer: not each.alive or len(group.ids()) >= group.sent, "all or death"
        )
        if consumer.alive:
            break
    group.wait_kept()
    assert dead(group) == []


def test_what_hangs_each_time_is_a_dead_letter(make: Make) -> None:
    group = poisoned(make, "hang", consumer={"process": "poison:handle", "batch-timeout": "300ms"})
    group.kafka.produce("hang", [b"hangs"])
    for _ in range(12):
        consumer = group.consumer()
        wait_for(lambda each=consumer: not each.alive or dead(group), "death, or a letter")
        if dead(group):
            break
    ((value, headers),) = dead(group)
    assert (value, headers["srtm-deliveries"]) == (b"hangs", b"5")
    group.produce(20)
    group.consumer()
    group.wait_kept()


def test_whatever_a_function_raises_makes_a_dead_letter(make: Make) -> None:
    group = poisoned(make, "odd")
    odd = [b"surrogate", b"mute", b"cancelled"]
    group.kafka.produce("odd", odd)
    group.produce(50)
    group.consumer()
    group.wait_kept()
    wait_for(lambda: len(dead(group)) == 3, "they are dead letters", 30)
    reasons = {value: headers["srtm-reason"] for value, headers in dead(group)}
    assert reasons == {
        b"surrogate": rb"ValueError: of a file \udcff",
        b"mute": b"Mute, whose text cannot be had",
        b"cancelled": b"CancelledError: ",
    }


def test_a_sink_that_is_away_for_a_while_makes_no_dead_letters(make: Make) -> None:
    """For longer than it takes to fail as often as Kafka delivers a record."""
    group = make("down", consumer={"callback": "down:keep", "batch": 50})
    (group.folder / "down.py").write_text(
        "import pathlib, work\n"
        "def keep(results, batch):\n"
        "    if (pathlib.Path(__file__).parent / 'is-down').exists():\n"
        "        raise OSError('the sink is down')\n"
        "    work.keep(results, batch)\n"
    )
    marker = group.folder / "is-down"
    marker.touch()
    consumer = group.consumer()
    group.produce(300)
    wait_for(lambda: "the sink is down" in consumer.text(), "it fails")
    threading.Event().wait(3.0)
    assert dead(group) == []
    marker.unlink()
    group.wait_kept()
    assert dead(group) == []


def test_it_ends_where_its_group_is_no_share_group_or_has_another_lock(
    make: Make, kafka: Kafka
) -> None:
    group = make("classic", partitions=1)
    other = Consumer({"bootstrap.servers": kafka.address, "group.id": "classic-workers"})
    try:
        other.subscribe(["classic"])
        wait_for(lambda: other.poll(0.1) or other.assignment(), "the other one has joined", 30)
        refused = group.consumer()
        assert refused.popen.wait(30) == 3
        assert "share group classic-workers cannot be used any more: " in refused.text()
        assert "Traceback" not in refused.text()
    finally:
        other.close()
    group = make("lock", partitions=1)
    consumer = group.consumer()
    group.produce(10)
    group.wait_kept()
    lock = ("share.record.lock.duration.ms", "1000")
    entry = ConfigEntry(*lock, incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ConfigResource.Type.GROUP, "lock-workers", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": kafka.address})
    (done,) = admin.incremental_alter_configs([changed]).values()
    done.result(10)
    assert consumer.popen.wait(30) == 2
    assert "after 1 s Kafka gives a record to another consumer" in consumer.text()


def test_a_big_batch_of_a_slow_function_makes_no_dead_letters(make: Make) -> None:
    """All of it comes at once, and takes longer than the lock."""
    group = make("slow", partitions=1)
    group.produce(1500)
    for _ in range(2):
        group.consumer(EACH="0.005")
    group.wait_kept(120)
    assert dead(group) == []


def test_what_is_too_large_for_the_dead_letters_is_named_there(make: Make) -> None:
    group = poisoned(make, "large")
    group.kafka.create("large.dead", 1, max_message_bytes="5000")
    group.kafka.produce("large", [b"poison" + b"x" * 20_000])
    group.produce(50)
    group.consumer()
    group.wait_kept()
    wait_for(lambda: len(dead(group)) == 1, "it is a dead letter", 30)
    ((value, headers),) = dead(group)
    assert (value, headers["srtm-bytes"], headers["srtm-topic"]) == (None, b"20006", b"large")


def test_aborted_records_do_not_come(make: Make, kafka: Kafka) -> None:
    group = make("aborted")
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": "t"})
    producer.init_transactions(30)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for number in range(20):
            producer.produce("aborted", b"%d" % (number if end == producer.commit_transaction
                                                 else 1000 + number))  # fmt: skip
        producer.flush(30)
        end(30)
    group.consumer()
    group.sent = 20
    group.wait_kept()
    assert set(group.ids()) == {str(n) for n in range(20)}


def test_sigterm_ends_it_while_kafka_answers_nobody(make: Make) -> None:
    group = make("frozen-kafka", partitions=1)
    group.produce(2000)
    consumer = group.consumer(EACH="0.005")
    group.wait(lambda: len(group.ids()) > 20, "it works")
    with group.kafka.frozen():
        consumer.popen.send_signal(signal.SIGTERM)
        assert consumer.popen.wait(30) == 0, consumer.text()
    group.consumer()
    group.wait_kept()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"isolation.level": "read_committed"}, "not applicable for share consumer"),
        ({"session.timeout.ms": 10000}, "not supported"),
        ({"client.id": "me"}, "client.id cannot be set: the controller knows consumers by it"),
    ],
)
def test_a_setting_that_it_cannot_have_is_refused(
    make: Make, setting: dict[str, Any], said: str
) -> None:
    group = make("settings-" + next(iter(setting)).replace(".", "-"))
    ((name, value),) = setting.items()
    text = group.file.read_text()
    table = f"[kafka.settings]\n{json.dumps(name)} = {json.dumps(value)}\n[group]"
    group.file.write_text(text.replace("[group]", table))
    consumer = group.consumer()
    assert consumer.popen.wait(30) == 2, consumer.text()
    assert said in consumer.text()
    assert "Traceback" not in consumer.text()
    assert group.command("run").returncode == 2


def lag(group: ShareGroup) -> int | None:
    """Of all partitions; None while Kafka knows of none."""
    asked = Asked(
        KafkaTable(bootstrap_servers=group.kafka.address), f"{group.topic}-workers", group.topic
    )
    try:
        found = asked.lags(range(2))
    finally:
        asked.close()
    return sum(found.values()) if found else None


def test_what_the_sink_refuses_comes_again(make: Make) -> None:
    group = make("again", consumer={"process": "work:fails_once"})
    group.consumer()
    group.produce(100)
    group.wait_kept()
    assert (group.folder / "failed").exists()
    assert dead(group) == []


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_what_a_lost_consumer_held_goes_to_another(make: Make, how: str) -> None:
    group = make(how)
    (group.folder / "stall").touch()
    group.kafka.produce(group.topic, [b"stall"])
    first = group.consumer()
    wait_for(lambda: group.stalled() == [first.popen.pid], "it has the record in hand")
    number = signal.SIGKILL if how == "killed" else signal.SIGSTOP
    os.kill(first.popen.pid, number)
    (group.folder / "stall").unlink()
    group.consumer()
    wait_for(lambda: group.ids()["stall"] == 1, "another one has it", 30)
    if how == "frozen":
        os.kill(first.popen.pid, signal.SIGCONT)
        gives_up = "nothing of the batch goes to the sink"
        ends = "a batch takes longer than batch-timeout"  # whichever thread wakes first
        wait_for(lambda: gives_up in first.text() or ends in first.text(), "it drops the batch")
    group.produce(50)
    group.wait_kept()
    assert group.ids()["stall"] == 1


def test_what_comes_while_kafka_is_away_is_not_lost(make: Make) -> None:
    group = make("away")
    address = f"127.0.0.1:{free_port()}"
    group.write(consumer={"http-address": address})
    group.consumer()
    group.produce(100)
    group.wait_kept()
    with group.kafka.dead():
        wait_for(lambda: "NOK" in http(address, "/ping")[1], "it says so", 30)
    group.produce(100)
    group.wait_kept()
    wait_for(lambda: http(address, "/ping")[1] == "OK", "all is well", 30)


def test_a_controller_replaces_who_dies_and_explains(make: Make) -> None:
    group = make("replaced", group={"min": 3, "max": 3})
    controller = group.controller()
    group.wait_consumers(3)
    group.produce(300)
    group.wait_kept()
    assert max(group.ids().values()) == 1
    os.kill(group.pids()[0], signal.SIGKILL)
    group.wait(lambda: "is gone" in controller.text(), "that is noticed")
    group.produce(200)
    group.wait_kept()
    group.wait_consumers(3)
    stats = group.stats()
    assert (stats["topic"], stats["group"], stats["health"]) == (
        "replaced",
        "replaced-workers",
        "OK",
    )
    assert 'group="replaced/replaced-workers"' in http(group.address, "/metrics")[1]
    looked = group.command("watch", "--count", "1")
    assert looked.returncode == 0, looked.stderr
    assert "replaced/1" in looked.stdout
    assert "there is no consumer" in group.command("explain").stdout
    controller.stop(60)
    assert group.command("stop").returncode == 0
    assert group.pids() == []


def test_scale_in_drains(make: Make) -> None:
    """Who leaves gives back what it has not begun: nothing waits for the lock, or comes twice."""
    group = make("drained", group={"min": 3, "max": 3})
    first = group.controller(EACH="0.01")
    group.wait_consumers(3)
    first.stop(60)
    group.produce(300)
    group.wait(lambda: len(group.ids()) > 30, "they work")
    group.write(group={"min": 1, "max": 1})
    group.controller()
    group.wait_consumers(1)
    group.wait_kept()
    assert set(group.ids().values()) == {1}
    assert len(group.pids()) == 1
    wait_for(lambda: lag(group) == 0, "all is finished")


def test_what_cannot_work_is_said_in_one_line(make: Make, kafka: Kafka) -> None:
    group = make("short", consumer={"batch-timeout": "3s"})
    done = group.consumer()
    assert done.popen.wait(30) == 2
    assert (
        "batch-timeout of [consumer] is 3 s, and after 3 s Kafka gives a record to another"
        in done.text()
    )
    kafka.delete("short")
    wait_for(lambda: not kafka.partitions("short"), "it is gone")
    gone = group.consumer()
    assert gone.popen.wait(30) == 3
    assert "has no topic short; create it" in gone.text()
    asked = Asked(KafkaTable(bootstrap_servers=f"127.0.0.1:{free_port()}"), "g", "t")
    with pytest.raises(UnavailableError, match="share group g: "):
        asked.members()
