"""From --store to a store."""

from pathlib import Path

from distributor.store.postgres import PostgresStore
from distributor.store.sqlite import SqliteReader, SqliteStore
from distributor.store.store import Store
from srtm.text.errors import UsageError


def open_store(where: str) -> Store:
    """A path is a SQLite file, made where there is none; postgresql://... a PostgreSQL database.
    Raises UsageError for another kind of URL, UnavailableError where it cannot be opened."""
    return PostgresStore(where) if is_postgres(where) else SqliteStore(Path(where))


def open_to_read(where: str) -> Store:
    """A store that is there, and that this process may have open too. Raises UnavailableError where
    it cannot be opened."""
    return PostgresStore(where) if is_postgres(where) else SqliteReader(Path(where))


def is_postgres(where: str) -> bool:
    """Raises UsageError for a URL of another kind."""
    if where.startswith(("postgresql://", "postgres://")):
        return True
    if "://" in where:
        kind = where.partition("://")[0]
        raise UsageError(f"--store {kind}://...: write a path (SQLite) or postgresql://HOST/NAME")
    return False
