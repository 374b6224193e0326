"""Jobs as people start them: by spark-submit, after a killed one, on a full disk."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from srtm.correlation.result import NAMES, GroupedTopic, read_result, write_json
from srtm.correlation.run import Request, run
from srtm.text.errors import SrtmError
from tests.support.planted import planted, recovered
from tests.support.small_disk import fill, small_disk

ROOT = Path(__file__).parents[2]
TRACE = planted(21, sizes=(5, 6), alone=3)
QUICK = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    TRACE.write(tmp_path / "trace")
    return tmp_path / "trace"


def is_whole(out: Path) -> bool:
    (topic,) = read_result(out).topics
    names = {each.name for each in out.iterdir()}
    return names <= set(NAMES) and recovered(
        TRACE, [group.publishers for group in topic.groups]
    ) == (1.0, 1.0)


def test_a_job_runs_where_one_was_killed_half_way(
    spark: SparkSession, trace: Path, tmp_path: Path
) -> None:
    out, left = tmp_path / "out", tmp_path / ".out.new"
    (left / "groups.parquet").mkdir(parents=True)
    (left / "groups.json").write_text("half")
    run(spark, Request(trace, out))
    assert is_whole(out)
    assert not list(tmp_path.glob(".out.*"))


@pytest.mark.timeout(600)
def test_a_job_runs_under_spark_submit(trace: Path, tmp_path: Path) -> None:
    submit = [str(Path(sys.executable).parent / "spark-submit"), "--master=local[2]"]
    quick = ["--conf=spark.sql.shuffle.partitions=1", "--conf=spark.ui.enabled=false"]
    program = str(ROOT / "srtm" / "correlation" / "submit.py")
    done = subprocess.run(
        [*submit, *quick, program, "correlate", "statistics", f"--trace={trace}", "--json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, **QUICK},
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert '"publishers": 14' in done.stdout


def test_a_full_disk_leaves_the_result_before_it(
    spark: SparkSession, trace: Path, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", "256k") as disk:
        before = GroupedTopic(topic="t", publishers=1, groups=(), ungrouped=1)
        (disk / "out").mkdir()
        write_json(disk / "out", [before.model_dump()], iter([]))
        fill(disk)
        with pytest.raises(SrtmError, match=r"the disk is full.*nothing was written") as said:
            run(spark, Request(trace, disk / "out"))
        assert "\n" not in str(said.value)
        assert {each.name for each in disk.iterdir()} == {"filler", "out"}
        assert read_result(disk / "out").topics == (before,)
