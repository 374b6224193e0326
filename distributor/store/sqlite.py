"""The store in one SQLite file: WAL, and every commit on disk before it is acknowledged."""

import contextlib
import errno
import fcntl
import os
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from distributor.store.errors import StoreError, StoreLost
from distributor.store.rows import Snapshot
from distributor.store.statements import Statement, Value, put_leader
from distributor.store.store import Store, latest, migrations, this_process
from srtm.text.errors import UnavailableError

_REFUSED = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "it cannot be written to",
    sqlite3.SQLITE_IOERR: "the disk failed or is full",
}
"""primary result codes after which SQLite has rolled the transaction back"""
_REMEDIES = {
    errno.ENOENT: "; --store names a file in a folder that is there",
    errno.EISDIR: "; --store names a file",
    errno.EACCES: "; the user of this process has to be able to write the file and its folder",
}
"""what to do where the file cannot be opened"""
_BUSY_SECONDS = 5
_LOG_BYTES = 1 << 20
"""of the log when it is written back; it is read after each transaction"""
_FRAME_BYTES = 24
"""before each page in the log"""


class SqliteStore(Store):
    """Raises UnavailableError where `path` cannot be opened, is no database, or is corrupted.

    Who leads holds an flock on the file itself, by whatever name it was opened: SQLite's own locks
    would let two programs take turns. Before and after each transaction the leader looks whether
    the file and its log still are what their names lead to, as what is written into files that were
    removed is gone with the process, and whether anybody else has written into them: between the
    transactions neither changes; in one the log grows, and nothing else does. So the log is
    written back and emptied apart from them.
    """

    def __init__(self, path: Path) -> None:
        self._path = Path(os.path.realpath(path))
        self._log = self._path.with_name(f"{self._path.name}-wal")
        self._leads = False
        self._term = ""
        self._opened: dict[Path, tuple[int, int]] = {}
        self._left: dict[Path, tuple[int, int]] = {}  # as the last write of ours left them
        self._logged: bytes | None = None  # the log's content; None where others keep it in use
        self._empty_at = _LOG_BYTES
        with self._clear():
            opened = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._file = os.fdopen(opened, "r+b", buffering=0)
        try:
            names = os.fstat(self._file.fileno()).st_nlink
            if names > 1:
                raise UnavailableError(
                    f"store {path} has {names} names (hard links), and SQLite keeps a log for each "
                    "name: remove all but one"
                )
            with self._clear():
                self._database = self._connect()
                self._check()
        except BaseException:
            self._file.close()
            raise

    def lead(self, name: str = "") -> bool:
        if not self._leads:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            with self._errors():
                self._database.execute("PRAGMA journal_mode = WAL")
                self._database.execute("PRAGMA synchronous = FULL")
                self._database.execute("PRAGMA wal_autocheckpoint = 0")
                self._migrate()
                term = secrets.token_hex(8)
                leader = put_leader(term, name or this_process())
                with self._transaction():
                    self._database.executemany(leader.sql, leader.rows)
                self._opened = {self._log: _inode(os.stat(self._log))}
            self._opened[self._path] = _inode(os.fstat(self._file.fileno()))
            self._check_names()
            self._empty_log()
            self._leads, self._term = True, term
        return True

    def confirm(self) -> None:
        """An flock ends with its process; the file's content is read anew."""
        self._check_files()
        with self._errors():
            try:
                fresh = self._connect()
            except sqlite3.OperationalError:
                return  # no descriptor is free; the files are what they were
            with contextlib.closing(fresh):
                self._check_term(fresh)

    def write(self, statements: Sequence[Statement]) -> None:
        self._check_files()
        try:
            with self._errors(), self._transaction():
                self._check_term(self._database)
                for statement in statements:
                    self._database.executemany(statement.sql, statement.rows)
            self._check_written()
        except StoreError:
            self._logged, self._empty_at = None, 0  # part of it may stand in the log
            raise
        finally:
            self._look()
        self._check_names()
        if self._left[self._log][0] >= self._empty_at:
            self._empty_log()

    def query(self, sql: str) -> list[tuple[Value, ...]]:
        with self._errors():
            return self._database.execute(sql).fetchall()

    def at_one_instant(self) -> Snapshot:
        with self._errors():
            self._database.execute("BEGIN")
        try:
            return self.snapshot()
        finally:
            with self._errors():
                self._database.execute("ROLLBACK")

    def close(self) -> None:
        self._database.close()
        self._file.close()
        self._leads = False

    def _connect(self, mode: str = "rwc") -> sqlite3.Connection:
        return sqlite3.connect(
            f"{self._path.as_uri()}?mode={mode}",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )

    def _check_files(self) -> None:
        """Raises StoreLost where a restart may not find what was written here."""
        self._check_names()
        for path, left in self._left.items():
            if _content(path) != left:
                self._overwritten(path)

    def _check_written(self) -> None:
        """Raises StoreLost where somebody wrote into the files while a transaction was made: a
        restart reads the log only as far as it is whole."""
        self._check_names()
        if _content(self._path) != self._left[self._path]:
            self._overwritten(self._path)
        if self._logged is None:
            return
        with contextlib.suppress(OSError):
            found = self._log.read_bytes()
            page_size = int.from_bytes(found[8:12], "big")
            committed = found[-page_size - _FRAME_BYTES :][4:8]  # the end of a transaction has it
            is_whole = any(committed) or found == self._logged  # nothing had to be changed
            if not is_whole or not found.startswith(self._logged):
                self._overwritten(self._log)
            self._logged = found

    def _overwritten(self, path: Path) -> None:
        self._leads = False
        raise StoreLost(f"store {self._path}: somebody else has written into {path.name}")

    def _empty_log(self) -> None:
        """Write it back into the file; it stays as it is where a reader needs it."""
        with self._errors():
            self._database.execute("PRAGMA busy_timeout = 0")
            busy, *_ = self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._database.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000}")
        self._look()
        self._logged = None if busy else b""
        self._empty_at = self._left[self._log][0] + _LOG_BYTES

    def _look(self) -> None:
        self._left = {path: _content(path) for path in self._opened}

    def _check_names(self) -> None:
        if not self._opened:
            raise StoreLost(f"store {self._path}: not held")
        for path, inode in self._opened.items():
            try:
                found = _inode(os.lstat(path))  # a link leads to another log
            except OSError:
                found = None
            if found != inode:
                self._leads = False
                raise StoreLost(
                    f"store {self._path}: {path.name} is not the file that was opened: somebody "
                    "removed or replaced it"
                )

    def _check_term(self, database: sqlite3.Connection) -> None:
        term, process = database.execute("SELECT term, process FROM leader").fetchone()
        if not self._leads or term != self._term:
            self._leads = False
            raise StoreLost(f"store {self._path}: {process} leads now")

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
            remedy = _REMEDIES.get(error.errno or 0, "")
            raise UnavailableError(f"store {self._path}: {error.strerror}{remedy}") from None
        except sqlite3.DatabaseError as error:
            fault = " ".join(str(error).split())
            if isinstance(error, sqlite3.OperationalError):
                raise UnavailableError(f"store {self._path}: {fault}") from None
            raise UnavailableError(
                f"store {self._path} is corrupted ({fault}): put a copy of it back, or move it "
                "away to start with an empty one"
            ) from None


def _content(path: Path) -> tuple[int, int]:
    """Its size and the time of the last write into it; (0, 0) where it is not there."""
    with contextlib.suppress(OSError):
        found = os.stat(path)
        return found.st_size, found.st_mtime_ns
    return 0, 0


class SqliteReader(SqliteStore):
    """A store that is there and is only read. It opens the file by SQLite alone: as this process
    may have the store open already, a descriptor that is closed here would end its locks, and
    another process would take the log for its own."""

    def __init__(self, path: Path) -> None:
        """Raises UnavailableError where there is none."""
        self._path = Path(os.path.realpath(path))
        with self._clear():
            self._database = self._connect("rw")

    def lead(self, name: str = "") -> bool:
        return False

    def close(self) -> None:
        self._database.close()


def _inode(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
