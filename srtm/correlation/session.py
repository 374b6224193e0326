"""One Spark session: local and quiet by default, a cluster's under spark-submit."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from srtm.text.errors import UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS = Path(__file__).parents[2] / ".setup" / "spark"
"""Spark's Kafka connector, where `make setup` puts it (spark_pom.xml)"""

_MOST_MEMORY = 4 << 30
"""Bytes of the JVM's heap. The largest bench, 10^7 arrivals, needs 2 GB."""
_PARTITIONS_PER_CORE = 4
"""Tasks of a shuffle at first; Spark joins small ones, and large ones are asked for by number."""

_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.file.ref = file
appender.file.type = Console
appender.file.name = file
appender.file.target = SYSTEM_ERR
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


@contextmanager
def spark_session(
    settings: Mapping[str, str] | None = None, kafka: bool = False
) -> "Iterator[SparkSession]":
    """The active session if there is one, or that of spark-submit, which is left as it is; else a
    local one on all cores, ended with the block, its temporary folder removed.

    settings: Spark's own, above the ones of here; kafka: with the connector's jars.
    Raises UnavailableError where PySpark, Java or the jars are missing.
    """
    require_pyspark()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has made the JVM
        yield _configured(SparkSession.builder, _EVERYWHERE | dict(settings or {})).getOrCreate()
        return
    require_java()
    folder = Path(tempfile.mkdtemp(prefix="srtm-spark-"))
    try:
        with _started(folder, dict(settings or {}), kafka) as session:
            yield session
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_EVERYWHERE = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
}


def _local(folder: Path) -> dict[str, str]:
    cores = len(os.sched_getaffinity(0))
    memory = min(_MOST_MEMORY, psutil.virtual_memory().total // 3)
    return _EVERYWHERE | {
        "spark.master": f"local[{cores}]",
        "spark.app.name": "srtm",
        "spark.driver.memory": f"{memory >> 20}m",
        # The driver's JVM does all the work: results of many tasks are small.
        "spark.driver.maxResultSize": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={folder}/log4j2.properties "
        f"-Djava.io.tmpdir={folder} -XX:+UseParallelGC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": str(_PARTITIONS_PER_CORE * cores),
        "spark.python.worker.reuse": "true",
    }


@contextmanager
def _started(folder: Path, settings: dict[str, str], kafka: bool) -> "Iterator[SparkSession]":
    from pyspark import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    (folder / "log4j2.properties").write_text(_LOG4J)
    log = folder / "spark.log"
    values = _local(folder) | ({"spark.jars": kafka_jars()} if kafka else {}) | settings
    # PySpark asks the environment alone for the Python of its workers.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        with _stderr_to(log):
            session = _configured(SparkSession.builder, values).getOrCreate()
    except (PySparkException, RuntimeError, OSError) as error:
        raise UnavailableError(f"Spark does not start: {_why(log) or error}") from None
    gateway = SparkContext._gateway
    try:
        yield session
    finally:
        with suppress(Exception):  # after Ctrl-C its JVM may be gone
            session.stop()
        _end(gateway)
        SparkContext._gateway = SparkContext._jvm = None


def _configured(
    builder: "SparkSession.Builder", values: Mapping[str, str]
) -> "SparkSession.Builder":
    for name, value in values.items():
        builder = builder.config(name, value)
    return builder


def _end(gateway: object) -> None:
    """Its JVM would live as long as this process."""
    process = getattr(gateway, "proc", None)
    with suppress(Exception):
        gateway.shutdown()  # type: ignore[attr-defined]
    if process is not None:
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(10)
        except Exception:
            process.kill()
            process.wait()


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """What the JVM says from its start on goes to a file: a terminal stays quiet."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _why(log: Path) -> str:
    """The JVM's last words."""
    with suppress(OSError):
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
        said = [line for line in lines if line and not line.startswith(("at ", "WARNING", "..."))]
        return next((line for line in said if line.startswith("Error")), (said or [""])[-1])
    return ""


def require_spark() -> None:
    """What a session of one's own needs. Raises UnavailableError."""
    require_pyspark()
    require_java()


def require_pyspark() -> None:
    try:
        import pyspark.sql  # noqa: F401
    except ImportError:
        raise UnavailableError("Spark is not installed: pip install 'srtm[spark]'") from None


def require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home:
        if not os.access(Path(home) / "bin" / "java", os.X_OK):
            raise UnavailableError(
                f"JAVA_HOME={home}: no bin/java there; Spark needs Java 17 or 21"
            )
    elif shutil.which("java") is None:
        raise UnavailableError(
            "Java is not installed, and Spark needs it: install a JRE of version 17 or 21 (Debian: "
            "apt-get install openjdk-17-jre-headless), or set JAVA_HOME"
        )


def kafka_jars() -> str:
    """The jars of Spark's Kafka connector, for spark.jars. Raises UnavailableError."""
    found = sorted(map(str, JARS.glob("*.jar")))
    if not found:
        raise UnavailableError(
            "Spark's Kafka connector is not there: install Maven and run make setup"
        )
    return ",".join(found)
