"""`srtm consume`."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from srtm.consumer.batch import Batch, Record
from srtm.consumer.file import ConsumerTable
from srtm.consumer.pool_file import PoolFile
from srtm.consumer.required import require_client
from srtm.consumer.scaled_file import ScaledFile, read_scaled_file
from srtm.consumer.share_file import ShareConsumerTable, ShareFile
from srtm.options.logs import log_level_option, log_to_stderr
from srtm.text.errors import UsageError

if TYPE_CHECKING:
    from srtm.consumer.teller import Teller


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@log_level_option
def consume(file: Path, log_level: str) -> None:
    """Run one consumer of FILE's group or pool, under the controller of `srtm autoscale run`.

    The consumer gathers records, passes them to `process` of [consumer], passes the results to the
    sink, and commits (Kafka), accepts (Kafka's share groups) or finishes (NSQ) the records that the
    sink has taken. It follows the controller, and goes on while there is none.

    SIGTERM ends it after the batch in hand. /ping, /stats and /metrics are at http-address of
    [consumer].
    """
    log_to_stderr(log_level)
    raise click.exceptions.Exit(consume_file(file))


def consume_file(
    path: str | Path,
    process: Callable[[list[Record]], Any] | None = None,
    callback: Callable[[Any, Batch], Any] | None = None,
) -> int:
    """Run one consumer from Python, in the main thread, as `srtm consume` does: `process` and
    `callback` come before those that the file names. Returns the exit code. Raises SrtmError."""
    path = Path(path)
    file = read_scaled_file(path)
    if not isinstance(file, PoolFile):
        require_client(file, path)
    table = file.consumer
    if table is None:
        if process is None and callback is None:
            raise UsageError(f"{path}: there is no [consumer]; it says what is done with records")
        kind = ShareConsumerTable if isinstance(file, ShareFile) else ConsumerTable
        table = kind(process="given:here")
    return _run(file, table, path, process, callback)


def _run(
    file: ScaledFile,
    table: ConsumerTable,
    path: Path,
    process: Callable[[list[Record]], Any] | None,
    callback: Callable[[Any, Batch], Any] | None,
) -> int:
    from srtm.consumer.door import open_door  # tornado
    from srtm.consumer.figures import Figures
    from srtm.consumer.function import Caller, load
    from srtm.consumer.sinks import Callback, NoSink, Parquet, Sink
    from srtm.consumer.status import Status
    from srtm.consumer.work import Work

    folder = path.parent / table.path
    if process is None and table.process and table.process != "given:here":
        process = load(table.process, folder, f"{path}: process")
    call = Caller(table.batch_timeout)
    sink: Sink = NoSink()
    if callback is None and table.callback:
        callback = load(table.callback, folder, f"{path}: callback")
    if callback is not None:
        sink = Callback(callback, call)
    elif table.sink == "parquet":
        sink = Parquet(path.parent / table.folder)
    figures = Figures()
    if table.http_address is not None:
        open_door(table, Status(figures), f"{path}: [consumer]")
    teller = _teller(file, table, path)
    work = Work(process, sink, call, figures, None if teller is None else teller.ages)
    try:
        if isinstance(file, PoolFile):
            from srtm.consumer.pool_runner import PoolRunner

            return PoolRunner(file, table, work, figures).run()
        if isinstance(file, ShareFile):
            from srtm.consumer.share_runner import ShareRunner  # librdkafka, an extra

            return ShareRunner(file, table, work, figures).run()
        from srtm.consumer.runner import Runner  # librdkafka, an extra

        return Runner(file, table, work, figures).run()
    finally:
        if teller is not None:
            teller.close()


def _teller(file: ScaledFile, table: ConsumerTable, path: Path) -> "Teller | None":
    """Who tells a journey how old messages are, where there is one. Raises UsageError."""
    if not table.journey_address:
        return None
    from srtm.consumer.ages import Ages  # numpy
    from srtm.consumer.teller import Teller
    from srtm.http.service import service_at

    if isinstance(file, PoolFile):
        ages = Ages(file.nsq.topic)
        whose = {"topic": file.nsq.topic, "channel": file.nsq.channel}
    else:  # a group, or a share group
        ages = Ages("")
        whose = {"topic": file.group.topic, "group": file.group.id}
    where = f"{path}: journey-token-file of [consumer]"
    journeys = service_at(table.journey_address, table.journey_files, where)
    teller = Teller(ages, journeys, whose, f"{socket.gethostname()}:{os.getpid()}")
    teller.start()
    return teller
