"""One Spark for all tests of a worker; a JVM takes 5 s to start."""

import signal
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from srtm.correlation.session import spark_session
from srtm.text.errors import UnavailableError

SMALL = {
    "spark.master": "local[2]",
    "spark.driver.memory": "700m",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    # On frames of a few rows, planning anew and compiling take longest.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A skip where Java is missing."""
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        with spark_session(SMALL) as session:
            signal.signal(signal.SIGINT, on_interrupt)  # Spark's own is not for other tests
            yield session
    except UnavailableError as error:
        pytest.skip(str(error))
