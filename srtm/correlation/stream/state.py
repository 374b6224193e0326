"""What a stream has on disk. The lock says whose a result, or a trace, is; the ledger, what became
of records: up to which batch, how many are arrivals, and why the others are none."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from srtm.host.atomic import write_json
from srtm.host.files import MOST_ROWS_BYTES, locked, read_file
from srtm.text.errors import UnavailableError, UsageError, one_line

STATE = "_stream"
"""in the folder of a trace that a stream makes: what it has to know"""


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Raises UnavailableError where another stream has `folder`, UsageError where nothing can be
    written beside it."""
    path = folder.parent / f".{folder.name}.stream"
    with ExitStack() as held:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(path))
        except BlockingIOError:
            raise UnavailableError(f"{folder}: another srtm correlate stream has it") from None
        except OSError as error:
            raise UsageError(f"{folder}: {error.strerror}") from None
        yield


class BadRecords(BaseModel):
    """partition, offset, shown: of the newest of them"""

    model_config = ConfigDict(frozen=True)

    count: int
    partition: int
    offset: int
    shown: str


class Ledger(BaseModel):
    """query: id that Spark gave to the checkpoint; topic: of Kafka; batch: the last one that is
    whole, -1: none; rows: arrivals in files; bad: by reason."""

    model_config = ConfigDict(frozen=True)

    query: str
    topic: str
    batch: int = -1
    rows: int = 0
    bad: dict[str, BadRecords] = {}

    @property
    def left_out(self) -> int:
        return sum(each.count for each in self.bad.values())

    def after(self, batch: int, rows: int, bad: dict[str, BadRecords]) -> "Ledger":
        """The ledger with one batch more."""
        counts = {why: each.count for why, each in self.bad.items()}
        merged = {
            why: each.model_copy(update={"count": each.count + counts.get(why, 0)})
            for why, each in bad.items()
        }
        changes = {"batch": batch, "rows": self.rows + rows, "bad": self.bad | merged}
        return self.model_copy(update=changes)


def lines(bad: Mapping[str, BadRecords]) -> list[str]:
    """One for each reason."""
    return [
        f"{each.count:,} records of Kafka are no arrivals: {why}; the newest at partition "
        f"{each.partition}, offset {each.offset}: {each.shown!r}"
        for why, each in sorted(bad.items())
    ]


def read_ledger(path: Path) -> Ledger | None:
    """The ledger of a file; None: there is none yet. Raises UsageError."""
    try:
        return Ledger.model_validate_json(read_file(path, MOST_ROWS_BYTES))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        raise one_line(error, str(path)) from None


def write_ledger(path: Path, ledger: Ledger) -> None:
    """Raises OSError."""
    write_json(path, ledger.model_dump())
