"""Arrivals from Kafka's records, batches that are repeated, and a result that is kept current."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

from srtm.correlation.run import Request
from srtm.correlation.stream import batches as module
from srtm.correlation.stream.batches import Batches
from srtm.correlation.stream.current import Current
from srtm.correlation.stream.kafka import Intake, Source, words_of
from srtm.correlation.stream.records import FAULT, arrivals
from srtm.correlation.stream.state import STATE, Ledger, lines, only_one, read_ledger, write_ledger
from srtm.correlation.stream.stream_command import read_properties, stream
from srtm.correlation.trace import open_trace
from srtm.text.errors import SrtmError, UnavailableError, UsageError
from srtm.traces import compaction
from tests.support.planted import planted
from tests.support.small_disk import fill, small_disk
from tests.support.traces import rows_of

NOW = 1_700_000_000_000_000_000
GOOD: dict[str, Any] = {
    "time": NOW,
    "topic": "t",
    "publisher": "p",
    "broker": "b",
    "messages": 1,
    "bytes": 100,
    "wait": None,
    "outcome": "admitted",
}


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in GOOD.items() if key != name}


RECORDS: dict[str, tuple[object, str | None]] = {
    "good": (GOOD, None),
    "no-wait-at-all": (without("wait"), None),
    "columns-of-a-newer-writer": (GOOD | {"more": {"a": [1]}}, None),
    "names-of-any-script": (GOOD | {"publisher": "дверь/\u0000\n"}, None),
    "the-longest-name": (GOOD | {"publisher": "x" * 256}, None),
    "nothing": (None, "not JSON"),
    "empty": (b"", "not JSON"),
    "cut": (b'{"time": 1', "not JSON"),
    "no-text": (b"\xff\xfe", "not JSON"),
    "one-name-twice": (b'{"time": 1, "time": 2}', "not JSON"),
    "two-at-once": (json.dumps(GOOD).encode() * 2, "not JSON"),
    "a-list-unfolded": (json.dumps([GOOD, GOOD])[1:-1].encode(), "not JSON"),
    "more-behind-it": (json.dumps(GOOD).encode() + b" x", "not JSON"),
    "a-bracket-behind-it": (json.dumps(GOOD).encode() + b"] x", "not JSON"),
    "spaces-around-it": (b" \n" + json.dumps(GOOD).encode() + b"\n", None),
    "list": ([GOOD], "not a JSON object"),
    "number": (5, "not a JSON object"),
    "no-object": ({}, "no column 'time'"),
    "no-topic": (without("topic"), "no column 'topic'"),
    "null-broker": (GOOD | {"broker": None}, "no column 'broker'"),
    "time-as-text": (GOOD | {"time": "1"}, "time is no bigint"),
    "time-too-large": (GOOD | {"time": 2**63}, "time is no bigint"),
    "part-of-a-message": (GOOD | {"messages": 1.5}, "messages is no int"),
    "more-than-an-int": (GOOD | {"messages": 2**31}, "messages is no int"),
    "messages-as-true": (GOOD | {"messages": True}, "messages is no int"),
    "no-number": (b'{"time": NaN}', "not JSON"),
    "topic-as-number": (GOOD | {"topic": 5}, "topic is no string"),
    "publisher-as-object": (GOOD | {"publisher": {"id": "p"}}, "publisher is no string"),
    "wait-as-text": (GOOD | {"wait": "1ms"}, "wait is no bigint"),
    "before-1970": (GOOD | {"time": -1}, "time is negative"),
    "in-microseconds": (
        GOOD | {"time": NOW // 1_000},
        "time is before 1973: it has to be nanoseconds since 1970",
    ),
    "in-milliseconds": (
        GOOD | {"time": NOW // 1_000_000},
        "time is before 1973: it has to be nanoseconds since 1970",
    ),
    "less-than-no-bytes": (GOOD | {"bytes": -1}, "bytes is negative"),
    "negative-wait": (GOOD | {"wait": -1}, "wait is negative"),
    "bytes-that-overflow": (GOOD | {"bytes": 2**63 - 1}, "bytes is more than can be"),
    "endless-wait": (GOOD | {"wait": 2**63 - 1}, "wait is more than can be"),
    "a-number-without-an-end": (b'{"time": 1e2147483647}', "time is no bigint"),
    "a-number-of-many-digits": (b'{"time": ' + b"9" * 100_000 + b"}", "not JSON"),
    "brackets-in-brackets": (b"[" * 1_000_000, "not JSON"),
    "objects-in-objects": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "not JSON"),
    "a-huge-string": (
        GOOD | {"publisher": "x" * 20_000_000},
        "publisher has not 1 to 256 characters",
    ),
    "half-a-character": (b'{"topic": "\\ud800"}', "not JSON"),
    "no-messages": (GOOD | {"messages": 0}, "messages is less than 1"),
    "from-the-future": (GOOD | {"time": 2 * NOW}, "time is more than an hour after the record's"),
    "nameless": (GOOD | {"publisher": ""}, "publisher has not 1 to 256 characters"),
    "endless-name": (GOOD | {"topic": "x" * 257}, "topic has not 1 to 256 characters"),
    "another-outcome": (
        GOOD | {"outcome": "lost"},
        "outcome is none of admitted, rejected, closed",
    ),
}


def records(spark: SparkSession, *documents: object) -> DataFrame:
    rows = []
    for offset, each in enumerate(documents):
        is_raw = each is None or isinstance(each, bytes)
        value = each if is_raw else json.dumps(each).encode()
        rows.append((value, datetime.fromtimestamp(NOW / 1e9, UTC), 3, offset))
    schema = "value binary, timestamp timestamp, partition int, offset long"
    return spark.createDataFrame(rows, schema)


def test_a_record_is_an_arrival_or_says_why_not(spark: SparkSession) -> None:
    read = arrivals(records(spark, *(each for each, _ in RECORDS.values()))).collect()
    found = {name: row[FAULT] for name, row in zip(RECORDS, read, strict=True)}
    assert found == {name: why for name, (_, why) in RECORDS.items()}
    good = read[0].asDict()
    assert {name: good[name] for name in GOOD} == GOOD
    assert read[3]["publisher"] == "дверь/\u0000\n"
    assert max(len(row["shown"]) for row in read) <= 200


# --- batches ----------------------------------------------------------------------------------


def row(number: int) -> dict[str, Any]:
    return GOOD | {"time": NOW + number, "publisher": f"p{number}"}


class Stream:
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.path = folder / STATE / "ledger.json"
        self.path.parent.mkdir(exist_ok=True)
        self.said: list[str] = []
        self.begin()

    def begin(self) -> None:
        """As a process that starts."""
        ledger = read_ledger(self.path) or Ledger(query="0123456789", topic="arrivals")
        self.batches = Batches(self.folder, self.path, ledger, 3600, self.said.append)

    def take(self, batch: int, *documents: object) -> None:
        self.batches.take(records(self.spark, *documents), batch)

    def times(self) -> list[int]:
        return sorted(each["time"] - NOW for each in rows_of(self.folder))


@pytest.fixture
def taken(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path)


def test_a_batch_is_a_file_and_bad_records_are_counted_and_shown(taken: Stream) -> None:
    taken.take(0, row(2), b"{", row(1))
    taken.take(1, GOOD | {"bytes": -1}, b"]\x1b[2J")
    (path,) = open_trace(taken.folder).files
    assert path.name == "kafka~01234567-0000000001.parquet"
    assert pq.read_table(path).column("time").to_pylist() == [NOW + 1, NOW + 2]
    ledger = read_ledger(taken.path)
    assert ledger is not None
    assert (ledger.batch, ledger.rows) == (1, 2)
    assert {why: each.count for why, each in ledger.bad.items()} == {
        "not JSON": 2,
        "bytes is negative": 1,
    }
    assert taken.said[0] == (
        "1 records of Kafka are no arrivals: not JSON; the newest at partition 3, offset 1: '{'"
    )
    assert "\x1b" not in "".join(lines(ledger.bad)), "a terminal is shown no commands"


def test_a_batch_that_is_repeated_is_dropped(taken: Stream) -> None:
    for _ in range(2):
        taken.take(0, row(1), b"{")
    taken.begin()
    taken.take(0, row(1), b"{")
    taken.take(1, row(2))
    assert taken.times() == [1, 2]
    assert taken.batches.ledger.rows == 2
    assert taken.batches.ledger.bad["not JSON"].count == 1


def test_one_killed_before_its_ledger_is_written_is_not_doubled(
    taken: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_ledger", killed)
        with pytest.raises(KeyboardInterrupt):
            taken.take(0, row(1), b"{")
    assert taken.times() == [1], "its file is there"
    taken.begin()
    assert taken.batches.ledger.batch == -1
    taken.take(0, row(1), b"{")
    assert taken.times() == [1]
    assert (taken.batches.ledger.rows, taken.batches.ledger.left_out) == (1, 1)


def test_small_files_become_big_ones_and_no_row_is_doubled(
    taken: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "NEIGHBOURS", 2)
    for batch in range(2):
        taken.take(batch, row(batch))
    assert any(".." in path.name for path in taken.folder.iterdir())
    assert taken.times() == [0, 1]
    assert open_trace(taken.folder).rows == 2
    taken.begin()
    taken.take(1, row(1))
    assert taken.times() == [0, 1]


def test_a_full_disk_leaves_the_batch_for_the_next_try(spark: SparkSession, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "256k") as disk:
        taken = Stream(spark, disk)
        documents = [row(each) for each in range(3)]
        filler = fill(disk, 0)
        with pytest.raises(Exception, match="No space left on device"):
            taken.take(0, *documents)
        assert taken.times() == []
        assert taken.batches.ledger.batch == -1
        filler.unlink()
        taken.take(0, *documents)
        assert taken.times() == [0, 1, 2]
        assert [each.name for each in disk.iterdir() if each.suffix == ".unfinished"] == []


# --- what was there before --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "checkpoint", "said"),
    [
        pytest.param("arrivals", None, "would be read twice", id="no-checkpoint"),
        pytest.param("arrivals", "another", "would be read twice", id="another-checkpoint"),
        pytest.param("arrivals", "[", "would be read twice", id="a-spoilt-checkpoint"),
        pytest.param("more", "0123456789", "holds arrivals of Kafka topic arrivals", id="topic"),
    ],
)
def test_a_folder_of_another_stream_is_refused(
    spark: SparkSession, tmp_path: Path, topic: str, checkpoint: str | None, said: str
) -> None:
    state = tmp_path / STATE
    (state / "checkpoint").mkdir(parents=True)
    write_ledger(state / "ledger.json", Ledger(query="0123456789", topic="arrivals"))
    if checkpoint is not None:
        text = checkpoint if checkpoint == "[" else json.dumps({"id": checkpoint})
        (state / "checkpoint" / "metadata").write_text(text)
    with pytest.raises(UsageError, match=said):
        Intake(spark, Source("localhost:1", topic), tmp_path, 3600, print)


def test_a_spoilt_ledger_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "ledger.json").write_text('{"query": 1')
    with pytest.raises(UsageError, match=r"ledger\.json"):
        read_ledger(tmp_path / "ledger.json")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("org.apache.kafka.common.errors.TimeoutException: fetch", "k:1 does not answer"),
        ("UnknownTopicOrPartitionException: x", "Kafka topic arrivals: k:1 has none of this name"),
        ("No resolvable bootstrap urls given", "no host of k:1 is known"),
        ("java.io.IOException: No space left on device", "room on the disk"),
    ],
)
def test_what_is_waited_for(said: str, words: str) -> None:
    told = words_of(RuntimeError(f"[STREAM_FAILED] x\n{said}"), Source("k:1", "arrivals"))
    assert told.startswith("waiting for ")
    assert words in told


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("Some data may have been lost because they are not", "--skip-lost goes on"),
        ("[STREAM_FAILED] odd\n at x", r"Spark's stream failed: \[STREAM_FAILED\] odd$"),
    ],
)
def test_what_time_does_not_mend_ends_it(said: str, why: str) -> None:
    with pytest.raises(SrtmError, match=why):
        words_of(RuntimeError(said), Source("k:1", "arrivals"))


# --- kept current -----------------------------------------------------------------------------


def test_groups_follow_the_trace(spark: SparkSession, tmp_path: Path) -> None:
    folder, out, said = tmp_path / "trace", tmp_path / "out", list[str]()
    folder.mkdir()
    current = Current(spark, Request(folder, out, history_seconds=600), 10, said.append)
    assert not current.look(0)
    assert said == [f"waiting for arrivals in {folder}"]
    (folder / "bad-0000000001.parquet").write_bytes(b"PAR1")
    table = planted(1, sizes=(5,), alone=3).write(folder)
    assert not current.look(5), "too early"
    assert current.look(10, ("3 records left out",))
    assert not current.look(20, ("3 records left out",)), "nothing has changed"
    assert "truncated" in said[1]
    assert said[2] == "1 groups in 1 topics, from 1 files"
    document = json.loads((out / "run.json").read_text())
    assert document["left_out"][1] == "3 records left out"
    assert document["last"] == max(table.column("time").to_pylist())


@pytest.mark.parametrize("kafka", [(), ("--kafka=127.0.0.1:1", "--kafka-topic=arrivals")])
def test_two_streams_of_one_result_are_told(tmp_path: Path, kafka: tuple[str, ...]) -> None:
    """Before Spark is started."""
    mine = ["--trace", str(tmp_path), "--out", str(tmp_path / "out"), *kafka]
    with (
        only_one(tmp_path / STATE if kafka else tmp_path / "out"),
        pytest.raises(UnavailableError, match="another srtm correlate stream has it"),
    ):
        CliRunner().invoke(stream, mine, catch_exceptions=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--kafka", "k:1"], "go together", id="no-topic"),
        pytest.param(["--kafka-topic", "t"], "go together", id="no-kafka"),
        pytest.param(["--skip-lost"], "go with --kafka", id="of-kafka-alone"),
        pytest.param(["--every", "0"], "--every: more than 0", id="for-ever"),
        pytest.param(["--trace", "nowhere"], "--trace nowhere: no such folder", id="no-trace"),
        pytest.param(["--window", "1s"], "--window: at least 10 s", id="window"),
    ],
)
def test_a_slip_is_one_line(tmp_path: Path, arguments: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        CliRunner().invoke(
            stream, ["--trace", str(tmp_path), "--out", "o", *arguments], catch_exceptions=False
        )


def test_properties(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# of ours\nsecurity.protocol = SASL_SSL\n\nsasl.jaas.config=a=b;\n")
    assert read_properties(path) == {"security.protocol": "SASL_SSL", "sasl.jaas.config": "a=b;"}
    path.write_text("nonsense\n")
    with pytest.raises(UsageError, match=r"client\.properties:1: write name=value"):
        read_properties(path)
