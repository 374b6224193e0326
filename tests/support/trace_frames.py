"""Small traces as Spark's frames."""

from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from srtm.correlation.schema import TRACE


def frame(spark: SparkSession, rows: Iterable[Sequence[Any]]) -> DataFrame:
    """rows: (time in ns, topic, publisher, broker, messages), and maybe wait in ns and outcome."""
    return spark.createDataFrame(
        [
            (time, topic, publisher, broker, messages, 10 * messages, *(rest or (0, "admitted")))
            for time, topic, publisher, broker, messages, *rest in rows
        ],
        TRACE,
    )
