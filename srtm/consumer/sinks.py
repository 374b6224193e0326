"""Where results go. A sink has them for good when `write` returns; offsets are committed after."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from srtm.consumer.batch import Batch
from srtm.consumer.required import require_parquet
from srtm.host.atomic import replacing, to_disk
from srtm.text.errors import UsageError


class Sink(Protocol):
    def write(self, results: Any, batch: Batch) -> None:
        """Raises what it likes; the batch comes again then. LeaseLost is none of its faults."""


class NoSink:
    """The sink of functions that do all by themselves."""

    def write(self, results: Any, batch: Batch) -> None:
        return None


class Callback:
    """function(results, batch), sync or async."""

    def __init__(self, function: Callable[..., Any], call: Callable[..., Any]) -> None:
        self._function = function
        self._call = call

    def write(self, results: Any, batch: Batch) -> None:
        self._call(self._function, results, batch)


class Parquet:
    """One file for each batch, named by what is in it: a batch that comes again replaces itself
    where it is cut the same. A file is there whole or not at all."""

    def __init__(self, folder: Path) -> None:
        """Raises UnavailableError without pyarrow, UsageError for a folder that is none."""
        require_parquet()
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"folder {folder}: {error.strerror}") from None
        if not os.access(folder, os.W_OK):
            raise UsageError(f"folder {folder}: not writable")

    def write(self, results: Any, batch: Batch) -> None:
        import pyarrow as pa  # an extra
        import pyarrow.parquet as pq

        rows = list(results) if results is not None else []
        if not rows:
            return
        if not all(isinstance(row, dict) for row in rows):
            raise TypeError("the Parquet sink takes dicts, one for each row; process gave others")
        with replacing(self._folder / file_name(batch)) as file:
            pq.write_table(pa.Table.from_pylist(rows), file)
            to_disk(file)
            batch.check()  # as late as can be


def file_name(batch: Batch) -> str:
    """`TOPIC-PARTITION-FIRST-LAST-HASH.parquet`: of its first partition, and of all."""
    # Of every record: messages of NSQ between the same two may be others the next time.
    there = sorted((each.partition, each.offset) for each in batch.records)
    partition, (first, last) = min(batch.ranges.items())
    digest = hashlib.sha256(repr(there).encode()).hexdigest()[:8]
    return f"{batch.records[0].topic}-{partition}-{first}-{last}-{digest}.parquet"


def rows_of(batch: Batch) -> list[dict[str, Any]]:
    """What the Parquet sink gets where there is no `process`."""
    return [
        {
            "topic": each.topic,
            "partition": each.partition,
            "offset": each.offset,
            "timestamp": each.timestamp,
            "key": each.key,
            "value": each.value,
        }
        for each in batch.records
    ]
