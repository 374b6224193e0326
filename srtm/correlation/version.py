"""The version that a trace's file was written in, by whoever wrote it."""

from collections.abc import Mapping

from srtm.host.files import json_of
from srtm.traces.version import VERSION, VERSION_KEY

__all__ = ["VERSION", "VERSION_KEY", "version_of"]

_SPARK_KEY = b"org.apache.spark.sql.parquet.row.metadata"
_MOST_DIGITS = 9


def version_of(metadata: Mapping[bytes, bytes] | None) -> int | None:
    """The version that a Parquet file's metadata name, by whoever wrote it; None: it is no trace.

    Spark writes no metadata of a file's own; it keeps those of columns, in a JSON document.
    """
    found = metadata or {}
    text = found.get(VERSION_KEY.encode(), b"").decode(errors="replace")
    if not text and _SPARK_KEY in found:
        text = _of_spark(found[_SPARK_KEY])
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None


def _of_spark(document: bytes) -> str:
    try:
        fields = json_of(document)["fields"]
        return next((str(each["metadata"][VERSION_KEY]) for each in fields if each["metadata"]), "")
    except (ValueError, KeyError, TypeError):
        return ""
