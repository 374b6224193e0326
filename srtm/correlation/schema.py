"""The rows of a trace as Spark reads them: one row for each run of arrivals of one publisher."""

from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from srtm.traces.version import VERSION, VERSION_KEY

TRACE = StructType(
    [
        StructField("time", LongType(), False, {VERSION_KEY: str(VERSION)}),
        StructField("topic", StringType(), False),
        StructField("publisher", StringType(), False),
        StructField("broker", StringType(), False),
        StructField("messages", IntegerType(), False),
        StructField("bytes", LongType(), False),
        StructField("wait", LongType(), True),
        StructField("outcome", StringType(), False),
    ]
)
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
