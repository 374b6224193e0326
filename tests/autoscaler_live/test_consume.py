"""`srtm consume` on a real Kafka: functions sync and async, sinks, health, and mistakes."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.autoscaled import WORK
from tests.support.groups import Group
from tests.support.programs import run_srtm
from tests.support.servers import free_port, http, wait_for

Make = Callable[..., Group]


def test_rows_are_in_parquet_before_they_are_committed(make_group: Make) -> None:
    group = make_group(
        "rows",
        consumer={"process": "work:rows", "sink": "parquet", "folder": "lake", "callback": ""},
    )
    group.produce(120)
    group.controller()
    wait_for(lambda: group.kafka.committed("rows-group", "rows") == 120, "all is committed", 30)
    files = sorted((group.folder / "lake").glob("*.parquet"))
    found = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert sorted(int(row["id"]) for row in found) == list(range(120))
    assert not list((group.folder / "lake").glob(".*"))
    assert files[0].name.startswith("rows-")


def test_an_async_function_and_what_the_door_says(make_group: Make) -> None:
    address = f"127.0.0.1:{free_port()}"
    group = make_group(
        "later", group={"max": 1}, consumer={"process": "work:later", "http-address": address}
    )
    group.consumer()
    group.produce(60)
    group.controller()
    group.wait_kept()
    group.check()
    wait_for(lambda: http(address, "/stats")[1]["record_count"] == 60, "it has counted them")
    status, stats, _ = http(address, "/stats")
    assert status == 200
    assert stats["health"] == "OK"
    assert stats["partitions"] == [0, 1, 2, 3]
    assert http(address, "/ping")[0] == 200
    text = http(address, "/metrics")[1]
    assert "srtm_consumer_record_count_total 60.0" in text
    assert "srtm_autoscale_leads" in http(group.address, "/metrics")[1]


def test_a_batch_that_fails_comes_again(make_group: Make) -> None:
    group = make_group("fails", consumer={"process": "work:fails_once"})
    group.produce(30)
    group.controller()
    group.wait_kept()
    group.check()
    assert set(group.ids().values()) == {1}
    assert "ValueError: not this time" in group.logs()


def test_a_small_batch_that_fails_comes_again(make_group: Make) -> None:
    """Far more than a batch comes before it is tried again."""
    group = make_group(
        "fails-small",
        1,
        group={"min": 1, "max": 1},
        consumer={"process": "work:fails_once", "batch": 2},
    )
    group.controller()
    group.wait_state(1)
    (pid,) = group.pids()
    group.produce(100)
    group.wait_kept()
    group.check()
    assert group.pids() == [pid], group.logs()


def test_a_group_that_begins_at_the_end(make_group: Make) -> None:
    """What came before it is not its own; what comes from then on is, whoever has it."""
    group = make_group("late-group", group={"reset": "latest"})
    group.kafka.produce("late-group", [b"old"] * 20)
    group.controller()
    group.wait_state(1)
    wait_for(lambda: group.kafka.committed("late-group-group", "late-group") == 20, "it begins")
    group.produce(20)
    group.wait_kept()
    assert group.ids()["old"] == 0


def test_a_topic_that_is_made_anew_is_read_from_its_beginning(make_group: Make) -> None:
    group = make_group("reborn", partitions=1, group={"min": 1, "max": 1})
    group.controller()
    group.wait_state(1)
    group.produce(10)
    wait_for(lambda: group.kafka.committed("reborn-group", "reborn") == 10, "all are done")
    group.kafka.delete("reborn")
    group.kafka.create("reborn", 1)
    group.kafka.produce("reborn", [b"new-%d" % number for number in range(20)])
    wait_for(
        lambda: {f"new-{number}" for number in range(20)} <= group.ids().keys(),
        "the new topic is read whole",
        60,
    )
    # Seen by its id, or by an offset that it does not reach yet.
    assert "it is read from its beginning" in group.logs()


def test_markers_of_transactions_are_neither_lag_nor_late(make_group: Make) -> None:
    """Ten transactions of one record, and one of many that is aborted: 22 offsets and more."""
    group = make_group("markers", partitions=1, group={"min": 1, "max": 2})
    group.controller()
    group.wait_state(1)
    producer = Producer(
        {"bootstrap.servers": group.kafka.address, "transactional.id": "markers-producer"}
    )
    producer.init_transactions(30)
    for number in range(10):
        producer.begin_transaction()
        producer.produce("markers", b"kept-%d" % number)
        producer.commit_transaction(30)
    producer.begin_transaction()
    for _ in range(50):
        producer.produce("markers", b"aborted")
    producer.flush(30)
    producer.abort_transaction(30)
    wait_for(lambda: len(group.ids()) == 10, "all that was committed is done", 60)
    wait_for(lambda: group.kafka.committed("markers-group", "markers") == 71, "to the end", 60)
    assert not any(each.startswith("aborted") for each in group.ids())


def test_offsets_that_kafka_has_deleted_are_passed_over(make_group: Make) -> None:
    group = make_group("expired", partitions=1)
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": group.kafka.address,
        "group.id": "expired-group",
    }
    consumer = Consumer(settings)
    consumer.commit(offsets=[TopicPartition("expired", 0, 5)], asynchronous=False)
    consumer.close()
    group.kafka.produce("expired", [b"gone"] * 20)
    gone = TopicPartition("expired", 0, 20)
    group.kafka.admin.delete_records([gone])[gone].result(10)
    group.produce(20)
    group.controller()
    group.wait_kept()
    group.check()
    assert min(each.offset for each in group.kept()) == 20


def test_a_topic_that_is_not_there(make_group: Make) -> None:
    group = make_group("there", group={"topic": "elsewhere"})
    consumer = group.consumer()
    assert consumer.popen.wait(60) == 3
    address = group.kafka.address
    assert consumer.text().strip() == f"srtm: Kafka at {address} has no topic elsewhere; create it"


def test_a_topic_of_the_group_that_is_not_compacted_is_told(make_group: Make) -> None:
    topic = "deleting-words"
    group = make_group("deleting", group={"metadata-topic": topic})
    group.kafka.create(topic, cleanup_policy="delete")
    group.produce(20)
    controller = group.controller()
    group.wait_kept()
    assert f"topic {topic} is not compacted (cleanup.policy=delete)" in controller.text()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param(("process =", 'process = "nowhere:f"'), "no module nowhere", id="module"),
        pytest.param(("process =", 'process = "work:f"'), "has no function f", id="function"),
        pytest.param(("[consumer]", "[executor.x]"), 'executor: unknown key "x"', id="table"),
        pytest.param(("topic =", "topic = 'a b'"), "no name of a Kafka topic", id="topic"),
        pytest.param(
            ("[group]", '[kafka.settings]\n"no.such" = 1\n[group]'),
            '[kafka.settings]: No such configuration property: "no.such"',
            id="setting",
        ),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    lines = [
        "[kafka]",
        'bootstrap-servers = "127.0.0.1:1"',
        "[group]",
        'topic = "t"',
        'id = "g"',
        'slo = "0.99@500ms"',
        "[consumer]",
        'process = "work:handle"',
    ]
    begins, put = change
    file = tmp_path / "group.toml"
    file.write_text("\n".join(put if line.startswith(begins) else line for line in lines))
    (tmp_path / "work.py").write_text(WORK)
    answer = run_srtm("consume", file, seconds=60, folder=tmp_path)
    assert answer.returncode == 2, answer.stderr
    assert says in answer.stderr
    assert answer.stderr.count("\n") == 1
