"""Schemas of frames, and that of a trace: one row for each run of arrivals of one publisher."""

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from srtm.traces.version import VERSION, VERSION_KEY

_TYPES: dict[str, DataType] = {
    each.simpleString(): each
    for each in (
        BinaryType(), BooleanType(), DoubleType(), IntegerType(), LongType(), StringType(),
        ArrayType(LongType(), False), ArrayType(StringType(), False),
    )
}  # fmt: skip


def columns(ddl: str, nullable: bool = False) -> StructType:
    """The schema of `name type, ...`, as Spark's own `fromDDL` gives it, which needs a JVM."""
    pairs = (each.split() for each in ddl.split(","))
    return StructType([StructField(name, _TYPES[kind], nullable) for name, kind in pairs])


TRACE = columns(
    "time bigint, topic string, publisher string, broker string, messages int, bytes bigint, "
    "wait bigint, outcome string"
)
TRACE["time"].metadata = {VERSION_KEY: str(VERSION)}
TRACE["wait"].nullable = True
"""time: of arrival, ns since 1970; wait: for tokens, ns, of the run's last message, null if it was
not admitted; outcome: one of OUTCOMES. A file that Spark writes names its version in the metadata
of `time`."""

RANGES = {
    "time": (0, 4_102_444_800 * 10**9),
    "messages": (1, 2**31 - 1),
    "bytes": (0, 2**40),
    "wait": (0, 4_102_444_800 * 10**9),
}
"""The least and the most that can be: to the year 2100, and so much of one read that sums of many
rows are numbers still."""
