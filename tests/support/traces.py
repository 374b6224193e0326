"""Traces of gateways for tests: read whole, and written without a gateway."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from srtm.traces import chunk
from srtm.traces.chunk import Chunk
from srtm.traces.names import whole_trace

Row = tuple[int, str, str, int, int, int, int]
"""stamp, topic, publisher, messages, bytes with prefixes, wait, outcome"""


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Each once, in order of files."""
    tables = [pq.read_table(file) for file in whole_trace(folder)] if folder.exists() else []
    return pa.concat_tables(tables).to_pylist() if tables else []


def messages_by(folder: Path, *columns: str) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for row in rows_of(folder):
        key = tuple(row[each] for each in columns)
        key = key[0] if len(key) == 1 else key
        found[key] = found.get(key, 0) + row["messages"]
    return found


def writer_process(pid: int) -> psutil.Process:
    """The one that writes the trace of the gateway `pid`."""
    (child,) = [
        each for each in psutil.Process(pid).children() if "srtm.traces.process" in each.cmdline()
    ]
    return child


def chunk_of(rows: Sequence[Row], anew: bool = False, offset_ns: int = 0) -> bytes:
    """As a gateway hands it over, with all its names."""
    topics = list(dict.fromkeys(row[1] for row in rows))
    publishers = list(dict.fromkeys(row[2] for row in rows))
    columns = (
        [row[0] for row in rows],
        [topics.index(row[1]) for row in rows],
        [publishers.index(row[2]) for row in rows],
        *([row[place] for row in rows] for place in range(3, 7)),
    )
    return chunk.build(anew, offset_ns, (topics, publishers), columns)  # type: ignore[arg-type]


def parsed(*chunks: bytes) -> list[Chunk]:
    return list(chunk.read(bytearray(b"".join(chunks))))
