"""The store in one SQLite file: WAL, and every commit on disk before it is acknowledged."""

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from distributor.store.errors import StoreError, StoreLost
from distributor.store.statements import Statement, Value
from distributor.store.store import Store, latest, migrations
from srtm.errors import UnavailableError

_REFUSED = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "it cannot be written to",
    sqlite3.SQLITE_IOERR: "the disk failed or is full",
}
"""primary result codes after which SQLite has rolled the transaction back"""


class SqliteStore(Store):
    """Raises UnavailableError where `path` cannot be opened, is no database, or is corrupted.

    Who leads holds an flock on `path`.lock: SQLite's own locks would let two programs take turns.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._leads = False
        try:
            self._lock = Path(f"{path}.lock").open("ab")  # noqa: SIM115, held until close
        except OSError as error:
            raise UnavailableError(
                f"store {path}: {error.strerror}; --store names a file in a folder that is there"
            ) from None
        try:
            with self._clear():
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
                self._database = sqlite3.connect(
                    path, timeout=5, isolation_level=None, check_same_thread=False
                )
                self._check()
        except BaseException:
            self._lock.close()
            raise

    def lead(self) -> bool:
        if not self._leads:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            with self._errors():
                self._database.execute("PRAGMA journal_mode = WAL")
                self._database.execute("PRAGMA synchronous = FULL")
                self._migrate()
            self._leads = True
        return True

    def confirm(self) -> None:
        """An flock ends with its process."""
        if not self._leads:
            raise StoreLost(f"store {self._path}: not held")

    def write(self, statements: Sequence[Statement]) -> None:
        self.confirm()
        with self._errors(), self._transaction():
            for statement in statements:
                self._database.executemany(statement.sql, statement.rows)

    def query(self, sql: str) -> list[tuple[Value, ...]]:
        with self._errors():
            return self._database.execute(sql).fetchall()

    def close(self) -> None:
        self._database.close()
        self._lock.close()
        self._leads = False

    def _check(self) -> None:
        fault = self._database.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if fault != "ok":
            raise sqlite3.DatabaseError(fault)
        version = self._version()
        if version > latest():
            raise UnavailableError(
                f"store {self._path} has schema {version} and this program knows {latest()}: "
                "a newer one wrote it; use that, or another file"
            )

    def _version(self) -> int:
        return int(self._database.execute("PRAGMA user_version").fetchone()[0])

    def _migrate(self) -> None:
        for number, statements in migrations(self._version()):
            with self._transaction():
                for sql in statements:
                    self._database.execute(sql)
                self._database.execute(f"PRAGMA user_version = {number}")

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _REFUSED:
                raise StoreError(f"store {self._path}: {_REFUSED[code]} ({error})") from None
            raise StoreLost(f"store {self._path}: {error}") from None

    @contextlib.contextmanager
    def _clear(self) -> Iterator[None]:
        """Errors while it is opened, as one line with a remedy."""
        try:
            yield
        except OSError as error:
            raise UnavailableError(f"store {self._path}: {error.strerror}") from None
        except sqlite3.DatabaseError as error:
            fault = " ".join(str(error).split())
            if isinstance(error, sqlite3.OperationalError):
                raise UnavailableError(f"store {self._path}: {fault}") from None
            raise UnavailableError(
                f"store {self._path} is corrupted ({fault}): put a copy of it back, or move it "
                "away to start with an empty one"
            ) from None
