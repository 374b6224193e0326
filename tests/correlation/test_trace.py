"""A folder of Parquet files: what is read, what is refused, and that nothing goes unnoticed."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from srtm.correlation.schema import TRACE
from srtm.correlation.trace import open_trace, version_of
from srtm.text.errors import UsageError
from srtm.traces.version import VERSION, VERSION_KEY


def write(
    path: Path,
    rows: int = 3,
    version: str | None = str(VERSION),
    compression: str = "snappy",
    **columns: Any,
) -> Path:
    """A file of `rows` rows; columns: others in place of them, None: left out."""
    values: dict[str, Any] = {
        "time": pa.array(range(rows), pa.int64()),
        "topic": pa.array(["t"] * rows, pa.string()),
        "publisher": pa.array([f"p{each}" for each in range(rows)], pa.string()),
        "broker": pa.array(["b0"] * rows, pa.string()),
        "messages": pa.array([1] * rows, pa.int32()),
        "bytes": pa.array([100] * rows, pa.int64()),
        "wait": pa.array([None] * rows, pa.int64()),
        "outcome": pa.array(["admitted"] * rows, pa.string()),
    }
    table = pa.table({name: each for name, each in (values | columns).items() if each is not None})
    if version is not None:
        table = table.replace_schema_metadata({VERSION_KEY: version})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression=compression)
    return path


def test_files_of_all_brokers_are_one_trace(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "b0" / "1.parquet")
    write(tmp_path / "b1" / "1.parquet", 4)
    write(tmp_path / "b1" / "2.parquet", 0)
    found = open_trace(tmp_path)
    assert (len(found.files), found.rows, found.faults) == (3, 7, ())
    frame = found.frame(spark)
    assert frame.count() == 7
    assert frame.columns == [each.name for each in TRACE.fields]


def test_publishers_may_be_a_dictionary(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "1.parquet", publisher=pa.array(["a", "a", "b"]).dictionary_encode())
    rows = open_trace(tmp_path).frame(spark).select("publisher").collect()
    assert [each.publisher for each in rows] == ["a", "a", "b"]


@pytest.mark.parametrize("folder", ["day[12]", "{a,b}", "*", "a?", "a b", "a%20b", "c\\d", "#é"])
def test_a_folder_is_read_as_it_is_written(
    spark: SparkSession, tmp_path: Path, folder: str
) -> None:
    """Spark takes patterns, in which these signs stand for others."""
    write(tmp_path / folder / "1.parquet", 3)
    for other in ("day1", "a", "ab", "a0", "c", "cd"):
        write(tmp_path / other / "1.parquet", 7)
    assert open_trace(tmp_path / folder).frame(spark).count() == 3


def test_compressions_that_spark_knows(spark: SparkSession, tmp_path: Path) -> None:
    codecs = ("snappy", "zstd", "gzip", "lz4", "none")
    for codec in codecs:
        write(tmp_path / f"{codec}.parquet", publisher=pa.array([codec] * 3), compression=codec)
    counts = open_trace(tmp_path).frame(spark).groupBy("publisher").count().collect()
    assert {row.publisher: row["count"] for row in counts} == dict.fromkeys(codecs, 3)


def test_an_empty_trace_has_no_rows_and_all_columns(spark: SparkSession, tmp_path: Path) -> None:
    found = open_trace(tmp_path)
    assert found.rows == 0
    assert found.frame(spark).schema.simpleString() == TRACE.simpleString()
    assert found.frame(spark).count() == 0


@pytest.mark.parametrize(
    "name", [".1.parquet", "1.parquet.tmp", "_temporary/1.parquet", ".new/1.parquet"]
)
def test_what_a_writer_has_under_way_is_left_out(tmp_path: Path, name: str) -> None:
    write(tmp_path / name)
    write(tmp_path / "0.parquet")
    found = open_trace(tmp_path)
    assert (found.rows, found.unfinished, found.faults) == (3, 1, ())


def truncated(path: Path) -> None:
    path.write_bytes(write(path, 100).read_bytes()[:-20])


def spoilt(**columns: Any) -> Any:
    return lambda path: write(path, **columns)


FAULTS = [
    pytest.param(truncated, "truncated, or not Parquet", id="truncated"),
    pytest.param(lambda path: path.write_bytes(b""), "truncated", id="of-no-bytes"),
    pytest.param(lambda path: path.write_text("time,topic\n"), "not Parquet", id="csv"),
    pytest.param(spoilt(version=None), "no trace of srtm", id="foreign"),
    pytest.param(spoilt(version="0"), "older", id="an-older-version"),
    pytest.param(
        spoilt(version="2"),
        "a trace of version 2; this srtm reads 1: it is newer: update srtm",
        id="a-newer-version",
    ),
    pytest.param(spoilt(version="1; DROP"), "no trace", id="no-number"),
    pytest.param(spoilt(broker=None), "no column 'broker'", id="column"),
    pytest.param(
        spoilt(time=pa.array([0.5, 1.5, 2.5])),
        "column 'time' is double, not bigint",
        id="a-column-of-another-type",
    ),
    pytest.param(
        spoilt(publisher=pa.array(["a", None, "b"])),
        "column 'publisher' has rows without a value",
        id="nobody",
    ),
    pytest.param(
        spoilt(compression="brotli"),
        "column 'time' is compressed by BROTLI, which Spark cannot read; write it with one of",
        id="a-compression-that-spark-does-not-know",
    ),
    pytest.param(
        spoilt(time=pa.array([-1, 5, 6])),
        "column 'time' has -1, which cannot be",
        id="before-1970",
    ),
    pytest.param(
        spoilt(time=pa.array([1, 5, 2**63 - 1])),
        "column 'time' has 9,223,372,036,854,775,807, which cannot be",
        id="after-2100",
    ),
    pytest.param(
        spoilt(messages=pa.array([1, 0, 2], pa.int32())),
        "column 'messages' has 0",
        id="no-messages",
    ),
    pytest.param(
        spoilt(bytes=pa.array([2**62] * 3)),
        "column 'bytes' has",
        id="bytes-that-overflow",
    ),
]


@pytest.mark.parametrize(("damage", "said"), FAULTS)
def test_a_file_that_cannot_be_read_is_refused_or_left_out_and_named(
    tmp_path: Path, damage: Any, said: str
) -> None:
    write(tmp_path / "good.parquet")
    damage(tmp_path / "bad.parquet")
    with pytest.raises(UsageError, match=said) as refused:
        open_trace(tmp_path)
    assert "bad.parquet" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "--skip-damaged" in str(refused.value)
    found = open_trace(tmp_path, skip=True)
    assert [path.name for path in found.files] == ["good.parquet"]
    assert len(found.faults) == 1
    assert "bad.parquet" in found.faults[0]


def test_many_faults_are_still_one_line(tmp_path: Path) -> None:
    for number in range(10):
        write(tmp_path / f"{number}.parquet", version="7")
    with pytest.raises(UsageError, match="7 more such files"):
        open_trace(tmp_path)


def test_no_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        open_trace(tmp_path / "none")


def test_what_spark_writes_by_the_schema_is_a_trace(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(1, "t", "p", "b", 1, 100, None, "admitted")]
    spark.createDataFrame(rows, TRACE).write.parquet(str(tmp_path / "batch"))
    assert open_trace(tmp_path).rows == 1


@pytest.mark.parametrize(
    ("metadata", "version"),
    [
        pytest.param(None, None, id="none"),
        pytest.param({b"srtm_trace_version": b"12"}, 12, id="ours"),
        pytest.param({b"srtm_trace_version": b"-1"}, None, id="negative"),
        pytest.param({b"srtm_trace_version": b"9" * 50}, None, id="a-long-one"),
        pytest.param({b"srtm_trace_version": b"\xff"}, None, id="bytes"),
        pytest.param(
            {b"org.apache.spark.sql.parquet.row.metadata": b"[1"}, None, id="a-broken-document"
        ),
        pytest.param(
            {b"org.apache.spark.sql.parquet.row.metadata": b'{"fields": [3]}'}, None, id="odd"
        ),
    ],
)
def test_versions_by_metadata(metadata: dict[bytes, bytes] | None, version: int | None) -> None:
    assert version_of(metadata) == version


def test_rows_that_a_compacted_file_holds_too_are_read_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name, rows in (("1", 2), ("2", 3), ("1..0000000002", 5), ("3", 1)):
        number, dots, last = name.partition("..")
        write(tmp_path / f"b-{int(number):010d}{dots}{last}.parquet", rows)
    found = open_trace(tmp_path)
    assert found.rows == 6
    assert found.frame(spark).count() == 6
