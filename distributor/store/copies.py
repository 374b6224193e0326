"""A copy of a store at one instant, in one file, and a store made of such a copy.

The file is a SQLite store whatever was copied, so a store can move from SQLite to PostgreSQL and
back. It has the secret that proves epochs: only its owner may read it.
"""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from distributor.store.open import is_postgres
from distributor.store.postgres import PostgresStore
from distributor.store.rows import Snapshot
from distributor.store.sqlite import SqliteStore
from distributor.store.statements import put_all, put_copied
from distributor.store.store import latest
from srtm.text.errors import UnavailableError, UsageError

_LEFT = ("", "-wal", "-shm", "-journal")
"""ends of the names of SQLite's files"""


@dataclass(frozen=True, slots=True)
class Contents:
    """What a copy has. epoch: the largest that was given out by then"""

    brokers: int
    topics: int
    publishers: int
    epoch: int


def back_up(where: str, file: Path) -> Contents:
    """Copy the store at `where`, which may be in use, into `file`, which may not be there. Raises
    UsageError, UnavailableError."""
    _require_path(file)
    _require_none(file)
    with _clear(file), _beside(file) as made:
        if is_postgres(where):
            kept = _read(where)
            with closing(SqliteStore(made)) as copy:
                copy.lead("backup")
                copy.write(put_all(kept))
        else:
            path = Path(os.path.realpath(where))
            _copy(path, made)
            if path.stat().st_nlink > 1:
                raise UsageError(f"{path} has several names (hard links): remove all but one")
        found = _finished(made)
        _name(made, file)
    return found


def restore(file: Path, where: str) -> Contents:
    """Make a store at `where`, where there may be none, of the copy in `file`. Whoever leads with
    it hears the gateways for as long as a lease of before may run, as they may know more. Raises
    UsageError, UnavailableError."""
    _require_path(file)
    if is_postgres(where):
        with _clear(file), tempfile.TemporaryDirectory(prefix="srtm-restore-") as folder:
            made = Path(folder) / "copy"
            _migrate(file, made)
            found = _finished(made)
            with closing(SqliteStore(made)) as copy:
                _fill(where, copy.snapshot())
            return found
    place = Path(os.path.realpath(where))
    _require_none(place)
    with _clear(place), _beside(place) as made:
        _migrate(file, made)
        found = _finished(made)
        _name(made, place)
    return found


def _read(where: str) -> Snapshot:
    """All of a PostgreSQL database, as of one instant."""
    with closing(PostgresStore(where)) as store:
        version = store.version()
        _require_known("that database", version)
        if version < latest():
            raise UnavailableError(
                f"that database has schema {version}, and this program's is {latest()}: let this "
                "program's srtm distributor lead with it first"
            )
        return store.at_one_instant()


def _migrate(file: Path, made: Path) -> None:
    """Copy `file`, bring the copy to this program's schema, and have it say that it is one."""
    _copy(file, made)
    with closing(SqliteStore(made)) as store:
        store.lead("restore")
        store.write([put_copied()])


def _fill(where: str, kept: Snapshot) -> None:
    with closing(PostgresStore(where)) as store:
        # Before it is led with: that would change the schema of an older program's store.
        if store.version() not in (0, latest()):
            raise UsageError(_NOT_EMPTY)
        if not store.lead("restore"):
            raise UsageError(f"{store.leader()} leads with that store: stop it, or name another")
        found = store.snapshot()
        if found.lineage or found.brokers or found.topics:
            raise UsageError(_NOT_EMPTY)
        store.write(put_all(kept))


_NOT_EMPTY = "that database is not empty: a copy is restored into a new one"


def _copy(path: Path, made: Path) -> None:
    """Copy a SQLite store. Others may read it and write to it meanwhile."""
    if not path.is_file():
        raise UsageError(f"{path}: there is no such store")
    os.close(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with _clear(f"copying {path}"):
        source = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        with closing(source), closing(sqlite3.connect(made)) as copy:
            version = int(source.execute("PRAGMA user_version").fetchone()[0])
            _require_known(str(path), version)
            source.backup(copy)


def _require_known(where: str, version: int) -> None:
    """Raises UsageError for what is no store, UnavailableError for one of a newer program."""
    if not version:
        raise UsageError(f"{where} is no store: no distributor has led with it")
    if version > latest():
        raise UnavailableError(
            f"{where} has schema {version} and this program knows {latest()}: a newer one wrote "
            "it; use that"
        )


def _finished(path: Path) -> Contents:
    """Make it one file, whole and on disk. What it has."""
    with closing(sqlite3.connect(path)) as copy:
        copy.execute("PRAGMA journal_mode = DELETE")
        fault = copy.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if fault != "ok":
            raise UnavailableError(f"{path} is corrupted ({fault})")
        brokers, topics, publishers = (
            int(copy.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
            for table in ("brokers", "topics", "publishers")
        )
        epoch = copy.execute("SELECT value FROM counters WHERE name = 'epoch'").fetchone()
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return Contents(brokers, topics, publishers, int(epoch[0]) if epoch else 0)


def _name(made: Path, path: Path) -> None:
    """Give the finished file its name, which must still be free. Raises UsageError, OSError."""
    _require_none(path)
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        _require_none(path)
        raise
    try:
        made.replace(path)
    except OSError:
        path.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _require_path(file: Path) -> None:
    if str(file).startswith(("postgres:/", "postgresql:/")):  # a Path eats a slash
        raise UsageError("FILE is the path of a copy; a store of another kind goes behind --store")


def _require_none(path: Path) -> None:
    for each in (path.with_name(path.name + end) for end in _LEFT):
        if os.path.lexists(each):
            raise UsageError(f"{each} is there already: name another file, or move it away")


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """A place beside `path`, which nobody else can look into, for what is being made."""
    folder = tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        yield Path(folder) / "copy"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _clear(what: object) -> Iterator[None]:
    """Errors as one line."""
    try:
        yield
    except OSError as error:
        raise UnavailableError(f"{error.filename or what}: {error.strerror}") from None
    except sqlite3.Error as error:
        raise UnavailableError(f"{what}: {' '.join(str(error).split())}") from None
