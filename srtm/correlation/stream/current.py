"""Groups that are kept current: a result is replaced whenever its trace has changed."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from srtm.correlation.faults import SPARK_ENDED
from srtm.correlation.run import NoArrivals, Request, run
from srtm.correlation.stream.kafka import Intake
from srtm.correlation.stream.state import lines
from srtm.correlation.trace import open_trace
from srtm.text.errors import SrtmError, UnavailableError, UsageError

_LOOK_SECONDS = 0.5


class Current:
    """The result of `request`. every_seconds: between two looks at the trace; say: told what
    happens."""

    def __init__(
        self,
        spark: SparkSession,
        request: Request,
        every_seconds: float,
        say: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._request = request
        self._every_seconds = every_seconds
        self._say = say
        self._seen: object = None
        self._look_at = 0.0
        self._faults = set[str]()

    def look(self, now: float, left_out: tuple[str, ...] = ()) -> bool:
        """Find the groups anew where it is time to and the trace has changed; did it?

        now: monotonic seconds; left_out: lines for the result, of records that never came into the
        trace. Raises UsageError."""
        if now < self._look_at:
            return False
        self._look_at = now + self._every_seconds
        trace = open_trace(self._request.trace, skip=True)
        self._tell(trace.faults)
        seen = [(path, _size(path)) for path in trace.files], left_out
        if seen == self._seen:
            return False
        self._seen = seen
        if not trace.rows:
            self._say(f"waiting for arrivals in {self._request.trace}")
            return False
        try:
            asked = replace(self._request, skip_damaged=True, left_out=left_out)
            result, faults = run(self._spark, asked)
        except NoArrivals as error:
            self._say(f"waiting: {error}")
            return False
        except (UsageError, UnavailableError):
            raise
        except SrtmError as error:  # a file was removed, the disk is full: the next look may do
            self._say(f"{error}; the result before it stays")
            self._seen = None
            return False
        self._tell(faults)
        groups = sum(len(each.groups) for each in result.topics)
        topics, files = len(result.topics), len(trace.files)
        self._say(f"{groups:,} groups in {topics:,} topics, from {files:,} files")
        return True

    def _tell(self, faults: tuple[str, ...]) -> None:
        """Tell of each file that is left out, once."""
        for line in faults:
            if line not in self._faults:
                self._faults.add(line)
                self._say(f"left out: {line}")


def follow(current: Current, intake: Intake | None) -> None:
    """Keep the result current, without an end, and stop `intake` at last. Raises SrtmError for what
    time does not mend."""
    try:
        while True:
            now = time.monotonic()
            left_out: tuple[str, ...] = ()
            if intake is not None:
                intake.keep_running(now)
                ledger = intake.ledger
                left_out = tuple(lines(ledger.bad)) if ledger else ()
            current.look(now, left_out)
            time.sleep(_LOOK_SECONDS)
    except (Py4JNetworkError, ConnectionError):
        raise UnavailableError(SPARK_ENDED) from None
    finally:
        if intake is not None:
            intake.stop()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1
