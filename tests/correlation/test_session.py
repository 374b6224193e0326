"""How Spark starts and ends, and what is said where it cannot. No test of this file starts it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from srtm.correlation import session as module
from srtm.correlation.session import kafka_jars, spark_session
from srtm.text.errors import Exit, UnavailableError

ROOT = Path(__file__).parents[2]
HEAVY = ("pyspark", "pandas", "pyarrow")


def test_only_the_jobs_import_spark() -> None:
    code = (
        "import sys, srtm.cli.main, srtm.gateway.gateway_command, srtm.deploy.up_command\n"
        "import distributor.cli.serve, srtm.correlation.correlate_command\n"
        f"print([each for each in {HEAVY} if each in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert said.stdout.strip() == "[]", said.stderr


def test_the_core_knows_nothing_of_the_jobs() -> None:
    theirs = (ROOT / "srtm" / "correlation", ROOT / "srtm" / "demo")
    for part in ("srtm", "distributor", "tb_adaptor", "kernel"):
        for file in (ROOT / part).rglob("*.py"):
            if not any(file.is_relative_to(folder) for folder in theirs):
                found = re.search(r"^\s*(from|import) srtm\.correlation", file.read_text(), re.M)
                assert found is None, file


def test_without_java_one_line_says_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match=r"Java is not installed.*JRE") as refused:
        module.require_java()
    assert refused.value.exit_code == Exit.UNAVAILABLE
    assert "\n" not in str(refused.value)


def test_a_wrong_java_home_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UnavailableError, match=f"JAVA_HOME={tmp_path}: no bin/java"):
        module.require_java()


def test_without_pyspark_one_line_says_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(UnavailableError, match=r"pip install 'srtm\[spark\]'"), spark_session():
        pass


def test_a_java_that_dies_is_quoted(tmp_path: Path) -> None:
    """In a process of its own: this one may have a Spark."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'Error: a bad JVM' >&2\nexit 1\n")
    java.chmod(0o755)
    code = "from srtm.correlation.session import spark_session\nwith spark_session(): pass"
    said = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"JAVA_HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
        timeout=60,
    )
    assert "Spark does not start: Error: a bad JVM" in said.stderr.splitlines()[-1]
    assert not list(tmp_path.glob("srtm-spark-*"))


def test_the_connector_that_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "JARS", tmp_path)
    with pytest.raises(UnavailableError, match="make setup"):
        kafka_jars()
    (tmp_path / "a.jar").touch()
    (tmp_path / "b.jar").touch()
    assert kafka_jars() == f"{tmp_path}/a.jar,{tmp_path}/b.jar"
