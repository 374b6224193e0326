"""A batch of a stream becomes one file of a trace, once, however often Spark hands it over.

The file's number is the batch's. Spark repeats a batch, with the same records, when it was killed
before the batch was noted in its checkpoint: then the file or the ledger says that it is done.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from srtm.correlation.schema import TRACE
from srtm.correlation.stream.records import FAULT, arrivals
from srtm.correlation.stream.state import BadRecords, Ledger, lines, write_ledger
from srtm.traces.compaction import Damaged, compact
from srtm.traces.files import parquet_into, publish, remove_old, remove_unfinished
from srtm.traces.schema import SCHEMA

FILE_BYTES = 64 << 20
_MOST_BYTES = 4 << 30
"""of the trace that is made"""


class Batches:
    """Into `folder`; `path`: the ledger's. kept_seconds: older files go; say: told of records that
    are no arrivals."""

    def __init__(
        self,
        folder: Path,
        path: Path,
        ledger: Ledger,
        kept_seconds: float,
        say: Callable[[str], None],
    ) -> None:
        """Raises OSError."""
        self.ledger = ledger
        self._folder = folder
        self._path = path
        self._prefix = f"kafka~{ledger.query[:8]}"
        self._kept_seconds = kept_seconds
        self._say = say
        self._damaged: set[Path] = set()
        remove_unfinished(folder)

    def take(self, records: DataFrame, batch: int) -> None:
        """Take a batch of records into the folder; for foreachBatch. Raises what Spark does, and
        OSError."""
        if batch <= self.ledger.batch:
            return
        read = arrivals(records).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            counts = read.groupBy(FAULT).agg(
                f.count("*").alias("count"),
                f.max(f.struct("offset", "partition", "shown")).alias("newest"),
            )
            rows, bad = 0, dict[str, BadRecords]()
            for row in counts.collect():
                if row[FAULT] is None:
                    rows = row["count"]
                else:
                    bad[row[FAULT]] = BadRecords(count=row["count"], **row["newest"].asDict())
            if rows:
                good = read.where(f.col(FAULT).isNull()).select(*TRACE.fieldNames())
                self._write(good, batch + 1)
        finally:
            read.unpersist()
        self.ledger = self.ledger.after(batch, rows, bad)
        write_ledger(self._path, self.ledger)
        for line in lines(bad):
            self._say(line)
        self._tidy()

    def _write(self, rows: DataFrame, number: int) -> None:
        """Write the rows by the one task that has them all, in order of topic and time."""
        folder, prefix = self._folder, self._prefix

        def write_file(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            def write(file: IO[bytes]) -> None:
                with parquet_into(file) as parquet:
                    for each in batches:
                        parquet.write_table(pa.Table.from_batches([each]).cast(SCHEMA))

            publish(folder, prefix, (number, number), write)
            yield from ()

        one = rows.repartition(1).sortWithinPartitions("topic", "time")
        one.mapInArrow(write_file, "done boolean").collect()

    def _tidy(self) -> None:
        """Small files become bigger ones, and old ones go."""
        with suppress(OSError):  # the next batch tries again
            remove_old(self._folder, self._prefix, time.time(), self._kept_seconds, _MOST_BYTES)
            try:
                compact(self._folder, self._prefix, FILE_BYTES, self._damaged)
            except Damaged as error:
                self._damaged.add(error.path)
