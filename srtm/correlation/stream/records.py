"""Records of Kafka as arrivals: JSON objects with the names of a trace's columns."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StringType

from srtm.correlation.schema import RANGES, TRACE
from srtm.traces.chunk import OUTCOMES

FAULT = "fault"
_LONGEST_NAME = 256
"""characters; a gateway cuts them there"""
_SHOWN = 200
"""characters of a record that is no arrival"""
_EARLIEST_NS = 10**17
"""of 1973: in microseconds, and in whatever is coarser, it will be that in the year 5138"""
_AHEAD_NS = 3_600 * 1_000_000_000
"""by which an arrival may be later than its record, as two clocks differ"""


def arrivals(records: DataFrame) -> DataFrame:
    """The columns of TRACE, all null where there is a fault, and:

    fault:  why a record is no arrival, one of few sentences; null where it is one
    shown:  its first characters
    partition, offset: its own

    records: value (binary), timestamp, partition, offset. Of the same records it says the same.
    """
    text = f.col("value").cast("string")
    read = records.select(
        "partition",
        "offset",
        (f.unix_micros("timestamp") * 1_000).alias("made"),
        f.when(f.is_valid_utf8(text), text).alias("text"),
    ).withColumn("document", _whole_json())
    columns = [_value(each.name, each.dataType.simpleString()) for each in TRACE.fields]
    kinds = [_kind(each.name).alias(f"{each.name}_kind") for each in TRACE.fields]
    found = read.select("partition", "offset", "made", "text", "document", *columns, *kinds)
    good = f.col(FAULT).isNull()
    return found.withColumn(FAULT, _fault()).select(
        *(f.when(good, f.col(name)).alias(name) for name in TRACE.fieldNames()),
        FAULT,
        "partition",
        "offset",
        f.substring(f.coalesce("text", f.lit("")), 1, _SHOWN).alias("shown"),
    )


def _whole_json() -> Column:
    """Spark's parser stops where the document ends, whatever stands behind it. So the text is the
    first of two elements, and the other one is a mark that only what is behind it can hide."""
    mark = f.sha2("text", 256)
    pair = f.try_parse_json(f.concat(f.lit("["), "text", f.lit(',"'), mark, f.lit('"]')))
    return f.when(
        f.try_variant_get(pair, "$[1]", "string") == mark,
        f.try_variant_get(pair, "$[0]", "variant"),
    )


def _value(name: str, kind: str) -> Column:
    return f.try_variant_get("document", f"$.{name}", kind).alias(name)


def _kind(name: str) -> Column:
    """Null: there is no such column."""
    return f.schema_of_variant(f.try_variant_get("document", f"$.{name}", "variant"))


def _fault() -> Column:
    tests = [
        (f.col("document").isNull(), "not JSON"),
        (~f.schema_of_variant("document").startswith("OBJECT"), "not a JSON object"),
    ]
    for field in TRACE.fields:
        name, kind = field.name, f.col(f"{field.name}_kind")
        wanted = "STRING" if isinstance(field.dataType, StringType) else "BIGINT"
        none = kind.isNull() | (kind == "VOID")
        wrong = (~none) & ((kind != wanted) | f.col(name).isNull())
        if not field.nullable:
            tests.append((none, f"no column {name!r}"))
        tests.append((wrong, f"{name} is no {field.dataType.simpleString()}"))
        if wanted == "STRING":
            length = f.length(name)
            tests.append(
                ((length < 1) | (length > _LONGEST_NAME),
                 f"{name} has not 1 to {_LONGEST_NAME} characters")
            )  # fmt: skip
        elif isinstance(field.dataType, LongType):
            tests.append((f.col(name) < 0, f"{name} is negative"))
    tests.append((f.col("messages") < 1, "messages is less than 1"))
    for name in ("bytes", "wait"):
        tests.append((f.col(name) > RANGES[name][1], f"{name} is more than can be"))
    coarse = f.col("time") < _EARLIEST_NS
    tests.append((coarse, "time is before 1973: it has to be nanoseconds since 1970"))
    late = f.col("time") > f.col("made") + _AHEAD_NS
    tests.append((late, "time is more than an hour after the record's"))
    tests.append((~f.col("outcome").isin(*OUTCOMES), f"outcome is none of {', '.join(OUTCOMES)}"))
    first, *others = tests
    chosen = f.when(first[0], f.lit(first[1]))
    for test, words in others:
        chosen = chosen.when(test, f.lit(words))
    return chosen
