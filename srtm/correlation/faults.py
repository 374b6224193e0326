"""What Spark says in a hundred lines, as one."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from srtm.text.errors import SrtmError, UnavailableError


class DamagedFile(SrtmError):
    """A file of a trace, at `path`: its footer is whole, and what is before it cannot be read."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path}: {BEFORE_ITS_FOOTER}; remove this file")
        self.path = path


BEFORE_ITS_FOOTER = "a damaged trace: its footer is whole, and what is before it cannot be read"


@contextmanager
def one_line(trace: Path, out: Path | None = None) -> Iterator[None]:
    """Make one line of what goes wrong in a job on `trace`, which leaves a result in `out`. Raises
    SrtmError for what Spark does, UnavailableError where it is gone."""
    try:
        yield
    except ConnectionError:
        raise UnavailableError(SPARK_ENDED) from None
    except (PySparkException, Py4JError) as error:
        raise _error(_said(error), trace, out) from error


def _said(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # PySpark asks the JVM for the text, which may be gone
        return type(error).__name__


def _error(said: str, trace: Path, out: Path | None) -> SrtmError:
    if any(sign in said for sign in _ENDED):
        return UnavailableError(SPARK_ENDED)
    if "No space left on device" in said:
        if out is None:
            return SrtmError("TMPDIR, where Spark works: the disk is full")
        return SrtmError(
            f"--out {out}: the disk is full (or that of TMPDIR, where Spark works); nothing was "
            "written there"
        )
    for sign, line in _SIGNS.items():
        if sign in said:
            return SrtmError(line.format(trace=trace))
    found = _FILE.search(said)
    if "FAILED_READ_FILE" in said and found is not None:
        return DamagedFile(Path(unquote(found[1])))
    first = next((line for line in said.splitlines() if line.strip()), "it says no more")
    return SrtmError(f"Spark failed: {first.strip()[:300]}")


_FILE = re.compile(r"file:/{0,2}(/\S+?\.parquet)")
_GONE = (
    "--trace {trace}: a file went away while it was read, as gateways remove old ones; run it again"
)
_SIGNS = {
    "FILE_NOT_EXIST": _GONE,
    "FileNotFoundException": _GONE,
    "Java heap space": "Spark ran out of memory: choose a --topic, or a shorter trace",
}
"""in an error -> what to say; the first that is there"""
SPARK_ENDED = "Spark's JVM has ended; was it killed?"
_ENDED = ("Connection refused", "Answer from Java side is empty")
