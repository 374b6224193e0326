"""From a trace to its groups by Spark, and steps on frames of a few rows."""

import json
import logging
import math
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from srtm.correlation.arrow import pack
from srtm.correlation.correlate_command import correlate
from srtm.correlation.faults import one_line
from srtm.correlation.groups.candidates import CANDIDATES, PLAN, candidates, plan
from srtm.correlation.groups.components import COMPONENTS, components
from srtm.correlation.groups.edges import discoveries
from srtm.correlation.groups.evidence import GROUPS, changes
from srtm.correlation.groups.pairs import LARGEST, PAIRS, judged_pairs
from srtm.correlation.groups.publishers import SERIES, UNITS
from srtm.correlation.groups.settings import Settings
from srtm.correlation.result import Result, read_result
from srtm.correlation.run import Request, run
from srtm.text.errors import SrtmError, UnavailableError, UsageError
from tests.support.cases import LONG
from tests.support.planted import BEGAN_SECONDS, Planted, planted, recovered, write_table

# --- a whole run: each topic is a case --------------------------------------------------------

TOGETHER = planted(1, sizes=(5, 8), alone=6)
TWO_HOSTS = planted(2, sizes=(6, 8), alone=6)
CLOCKS = planted(3, sizes=(8, 10), alone=6, periodic=True, bursts=100)
LOUD = planted(4, sizes=(5, 6), alone=4)
AHEAD_US = 150_000
WINDOW_SECONDS = 100


def host_ahead(trace: Planted) -> Planted:
    """Publishers of odd numbers are at a host whose clock is ahead."""
    times = [each + AHEAD_US * (at % 2) for at, each in enumerate(trace.times)]
    return Planted(times, trace.label)


def with_half_of_everything(trace: Planted) -> Planted:
    random = np.random.default_rng(5)
    loud = np.sort(random.integers(0, 10_000_000, max(trace.flat.size, 2_000)))
    return Planted([*trace.times, loud], np.append(trace.label, -100))


def of_windows() -> Planted:
    """One group goes on, one ends with the first window."""
    goes_on = planted(13, sizes=(5,), alone=2, bursts=90)
    ends = planted(14, sizes=(5,), alone=0, bursts=30, seconds=WINDOW_SECONDS)
    begin = -BEGAN_SECONDS % WINDOW_SECONDS * 1_000_000  # windows are counted from 1970
    times = [each + begin for each in [*goes_on.times, *ends.times]]
    return Planted(times, np.zeros(len(times)))


CASES: Mapping[str, pa.Table] = {
    "together": TOGETHER.table("together"),
    "two-hosts": host_ahead(TWO_HOSTS).table("two-hosts", ("b0", "b1")),
    "clocks": CLOCKS.table("clocks"),
    "loud": with_half_of_everything(LOUD).table("loud"),
    "one": planted(6, sizes=(), alone=1).table("one"),
    "windows": of_windows().table("windows"),
}


@pytest.fixture(scope="module")
def out(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trace")
    write_table(pa.concat_tables(CASES.values()), folder)
    place = tmp_path_factory.mktemp("out") / "result"
    handler, log = logging.FileHandler(place.parent / "log"), logging.getLogger("srtm.correlation")
    log.addHandler(handler)
    log.setLevel("INFO")
    try:
        run(spark, Request(folder, place, window_seconds=WINDOW_SECONDS))
    finally:
        log.removeHandler(handler)
        log.setLevel("NOTSET")
    return place


@pytest.fixture(scope="module")
def result(out: Path) -> Result:
    return read_result(out)


@pytest.mark.parametrize(
    ("topic", "trace"),
    [
        pytest.param("together", TOGETHER, id="out-of-order"),
        pytest.param("two-hosts", TWO_HOSTS, id="a-host-whose-clock-is-ahead"),
        pytest.param("clocks", CLOCKS, id="periodic"),
        pytest.param("loud", with_half_of_everything(LOUD), id="one-sends-half-of-everything"),
    ],
)
def test_planted_groups_are_found(result: Result, topic: str, trace: Planted) -> None:
    (found,) = result.only(topic).topics
    precision, recall = recovered(trace, [group.publishers for group in found.groups])
    assert (precision, recall) == (1.0, 1.0)
    assert found.publishers == len(trace.times)
    assert found.ungrouped == len(trace.times) - sum(len(each.publishers) for each in found.groups)


def test_who_is_alone_is_in_no_group(result: Result) -> None:
    (found,) = result.only("one").topics
    assert (found.publishers, found.groups, found.ungrouped) == (1, (), 1)


def test_publishers_without_number_with_one_message_each(
    spark: SparkSession, tmp_path: Path
) -> None:
    count = 1_000_000 if LONG else 50_000
    few = Planted([np.array([0])], np.array([0])).table()
    table = few.take(np.zeros(count, int))
    for column, values in {
        "time": np.arange(count) * 1_000_000 + table["time"][0].as_py(),
        "publisher": pa.array(map("p{}".format, range(count))),
    }.items():
        table = table.set_column(table.schema.get_field_index(column), column, pa.array(values))
    write_table(table, tmp_path / "trace")
    result, _ = run(spark, Request(tmp_path / "trace", tmp_path / "out"))
    (found,) = result.topics
    assert (found.publishers, found.groups, found.ungrouped) == (count, (), count)


def test_each_group_has_its_evidence(result: Result, out: Path) -> None:
    for topic in result.topics:
        names = [group.name for group in topic.groups]
        assert names == [f"g{number + 1}" for number in range(len(names))]
        for group in topic.groups:
            assert group.lift > 3
            assert group.q <= Settings().rate
            assert group.coincidences >= 15
    rows = pq.read_table(out / "groups.parquet").to_pylist()
    assert {row["topic"] for row in rows if row["periodic"]} == {"clocks"}
    assert all(row["instants"] == sorted(row["instants"]) for row in rows)
    (row,) = (row for row in rows if row["topic"] == "together" and row["name"] == "g1")
    members = [TOGETHER.times[int(name[1:])] for name in row["publishers"]]
    for instant in row["instants"]:
        near = instant // 1_000 - 1_700_000_000_000_000
        assert sum(np.abs(each - near).min() <= 40_000 for each in members) > len(members) / 2


def test_a_result_says_what_was_run(out: Path) -> None:
    document = json.loads((out / "run.json").read_text())
    assert document["rows"] == sum(each.num_rows for each in CASES.values())
    assert document["settings"]["floor"] == 0.3
    searched = ("together", "two-hosts", "clocks", "loud", "windows")
    methods = {each["topic"]: each["method"] for each in document["plan"]}
    assert methods == dict.fromkeys(searched, "index")
    log = (out.parent / "log").read_text()
    for topic in searched:
        assert re.search(
            rf"topic {topic}, window 0: \d+ publishers, candidates by index \(bin", log
        )


def test_show_needs_no_spark(out: Path) -> None:
    shown = CliRunner().invoke(correlate, ["show", str(out), "--topic", "together"])
    assert shown.exit_code == 0, shown.output
    assert "together: 19 publishers, 2 groups, 6 in none" in shown.output
    asked = CliRunner().invoke(correlate, ["show", str(out), "--json"])
    assert json.loads(asked.output) == json.loads((out / "groups.json").read_text())


def test_groups_of_each_window(out: Path) -> None:
    """One group goes on, one ends with the first of three windows."""
    every = pq.read_table(out / "windows.parquet").to_pylist()
    rows = [row for row in every if row["topic"] == "windows"]
    first = min(row["window"] for row in rows)
    seen = [
        (row["window"] - first, len(row["publishers"]), row["before"] and 1, row["after"] and 1)
        for row in sorted(rows, key=lambda row: (row["window"], row["publishers"]))
    ]
    assert seen == [(0, 5, None, 1), (0, 5, None, None), (1, 5, 1, 1), (2, 5, 1, None)]
    assert all(row["begins"] == row["window"] * WINDOW_SECONDS * 10**9 for row in every)


def test_an_empty_trace_is_an_empty_result(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "trace").mkdir()
    found, left_out = run(spark, Request(tmp_path / "trace", tmp_path / "out"))
    assert (found, left_out) == (Result(topics=()), ())
    with pytest.raises(UsageError, match="no arrivals in it yet"):
        run(spark, Request(tmp_path / "trace", tmp_path / "other", topic="x"))
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("java.io.IOException: No space left on device", "the disk is full"),
        ("[FAILED_READ_FILE.FILE_NOT_EXIST] Error", "went away while it was read"),
        (
            "[FAILED_READ_FILE.NO_HINT] Error while reading file file:///d/b-1.parquet. x",
            "/d/b-1.parquet: a damaged trace",
        ),
        ("java.lang.OutOfMemoryError: Java heap space", "ran out of memory"),
        ("\n  Job 7 is odd\n at x\n at y", "Spark failed: Job 7 is odd"),
    ],
)
def test_what_spark_says_is_one_line(tmp_path: Path, said: str, line: str) -> None:
    with (
        pytest.raises(SrtmError, match=line) as error,
        one_line(tmp_path, tmp_path / "out"),
    ):
        raise PySparkException(said)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError(), PySparkException("Answer from Java side is empty")]
)
def test_a_spark_that_has_ended_is_not_tried_again(tmp_path: Path, error: Exception) -> None:
    with (
        pytest.raises(UnavailableError, match="JVM has ended"),
        one_line(tmp_path, tmp_path / "out"),
    ):
        raise error


# --- steps ------------------------------------------------------------------------------------


def test_components_by_spark_are_those_of_the_driver(spark: SparkSession) -> None:
    random = np.random.default_rng(9)
    chain = [(each, each + 1) for each in range(100, 130)]
    rows = [*chain, *(map(int, random.integers(0, 60, 2)) for _ in range(40)), (7, 900), (7, 901)]
    frame = spark.createDataFrame([tuple(row) for row in rows], "a bigint, b bigint").where("a!=b")
    frame = frame.persist()
    by_spark, by_driver = (
        {row.id: (row.component, row.size) for row in components(frame, most).collect()}
        for most in (0, 1_000)
    )
    assert by_spark == by_driver
    assert by_driver[130] == (100, 31)
    frame.unpersist()


def series_of(spark: SparkSession, trace: Planted) -> DataFrame:
    """Publisher n has id n."""
    table = {
        "unit": np.ones(len(trace.times), np.int64),
        "id": np.arange(len(trace.times)),
        "instants": np.array([each.size for each in trace.times], np.int32),
        "times": pack(trace.flat, np.diff(trace.starts)),
    }
    return spark.createDataFrame(pa.table(table), SERIES)


@pytest.mark.parametrize("values", [1, 2, 3])
def test_members_are_candidates_by_lsh(spark: SparkSession, values: int) -> None:
    trace = planted(11, sizes=(8, 8), alone=60, seconds=3_000.0)
    planned = spark.createDataFrame([("t", 0, 1, 76, "lsh", 64_000, values, 0.0)], PLAN)
    found = candidates(series_of(spark, trace), planned, Settings(), 1).collect()
    same = [trace.label[row.a] == trace.label[row.b] for row in found]
    assert all(row.a < row.b for row in found)
    assert sum(same) >= (0.4 if values > 2 else 0.8) * 56
    assert len(found) - sum(same) <= 10


def test_pairs_of_a_large_component_are_judged_alike(spark: SparkSession) -> None:
    """Those that are candidates, and each by itself, where not all pairs can be tried."""
    trace = planted(12, sizes=(6,), alone=2)
    rows = series_of(spark, trace)
    likely = spark.createDataFrame([(1, a, b) for a in range(8) for b in range(a)], CANDIDATES)
    likely = likely.selectExpr("unit", "b as a", "a as b")
    found = []
    for size in (8, LARGEST + 1):
        whole = spark.createDataFrame([(each, 0, size) for each in range(8)], COMPONENTS)
        pairs = judged_pairs(likely, whole, rows, Settings(), 1).collect()
        found.append({(row.a, row.b): (row.p, row.coincidences, row.lag_us) for row in pairs})
    assert found[0] == found[1]
    assert set(found[0]) >= {(a, b) for b in range(6) for a in range(b)}


def test_q_is_that_of_benjamini_and_hochberg(spark: SparkSession) -> None:
    p = np.array([1e-12, 1e-9, 2e-6, 1e-5, 3e-4, 2e-3])
    judged = 50
    zeros = [0.0] * (len(PAIRS) - 6)
    rows = [(1, 0, at, float(each), 1_000, 9, *zeros) for at, each in enumerate(p)]
    planned = spark.createDataFrame([("t", 0, 1, judged, "index", 64_000, 0, 0.0)], PLAN)
    found = discoveries(spark.createDataFrame(rows, PAIRS), planned).orderBy("b").collect()
    ranked = judged * (judged - 1) / 2 * p / np.arange(1, p.size + 1)
    exact = np.minimum(np.minimum.accumulate(ranked[::-1])[::-1], 1.0)
    for row, q in zip(found, exact, strict=True):
        assert q * 0.999 <= row.q <= q * 1.3


def test_each_unit_is_searched_as_is_cheapest(spark: SparkSession) -> None:
    rows = [
        ("few", 0, 1, 100, 100, 10_000, 600.0),
        ("sparse", 0, 2, 100_000, 100_000, 10_000_000, 86_400.0),
        ("dense", 0, 3, 100_000, 100_000, 10_000_000, 600.0),
        ("huge", 0, 4, 1_000_000, 1_000_000, 100_000_000, 600.0),
        ("busy", 0, 5, 10_000, 10_000, 60_000_000, 600.0),
        ("alone", 0, 6, 1, 1, 50, 600.0),
    ]
    found = {
        row.topic: row for row in plan(spark.createDataFrame(rows, UNITS), Settings()).collect()
    }
    assert {name: (row.method, row["values"]) for name, row in found.items()} == {
        "few": ("index", 0),
        "sparse": ("lsh", 1),
        "dense": ("lsh", 2),
        "huge": ("lsh", 3),
        "busy": ("lsh", 3),
    }
    assert found["dense"].bin_us == 64_000
    assert found["busy"].bin_us < 64_000  # chance would fill wider ones
    assert all(math.isfinite(row.estimated) for row in found.values())


def test_what_appeared_and_what_ended(spark: SparkSession) -> None:
    def group(window: int, name: str, *members: str) -> tuple[object, ...]:
        return ("t", window, name, list(members), 9.0, 0.0, 20, 0.5, False, [])

    rows = [
        group(7, "g1", "a", "b", "c"),
        group(7, "g2", "x", "y"),
        group(8, "g1", "a", "b", "c", "d"),
        group(8, "g2", "u", "v"),
    ]
    found = changes(spark.createDataFrame(rows, GROUPS), 60_000_000).collect()
    assert {(row.window, row.name): (row.before, row.after) for row in found} == {
        (7, "g1"): (None, "g1"),
        (7, "g2"): (None, None),
        (8, "g1"): ("g1", None),
        (8, "g2"): (None, None),
    }
    assert {row.begins for row in found} == {7 * 60_000_000_000, 8 * 60_000_000_000}
