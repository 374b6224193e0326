"""The store in a PostgreSQL database. Whoever holds its advisory lock leads."""

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

from distributor.store.errors import StoreError, StoreLost
from distributor.store.rows import Snapshot
from distributor.store.statements import Statement, Value, put_leader
from distributor.store.store import Store, latest, migrations, this_process
from srtm.host.clock import NS, monotonic_ns
from srtm.text.errors import UnavailableError, UsageError

LOCK = 0x5352_544D
"""key of the advisory lock: one leader for each database"""
_KEPT_NOTHING = ("53", "25006", "42501")
"""SQLSTATE (class): out of disk, memory or connections; read only; not permitted"""


class PostgresStore(Store):
    """Raises UnavailableError where the server cannot be reached, UsageError without psycopg.

    The lock belongs to the one connection: PostgreSQL frees it when that ends, however it does, and
    a write on a connection that ended fails. So two leaders cannot both write. Each write looks at
    the leader's row besides.
    """

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError:
            raise UsageError(
                "--store postgresql://... needs psycopg: pip install 'srtm[postgres]'"
            ) from None
        self._psycopg = psycopg
        self._leads = False
        self._term = ""
        self._silent: tuple[Value, ...] = ()  # the leader's session, and when it asked last
        self._silent_since = 0
        try:
            self._connection: psycopg.Connection[Any] = psycopg.connect(
                url,
                autocommit=True,
                connect_timeout=5,
                application_name="srtm distributor",
                # A server that went away without a word is noticed within about ten seconds.
                keepalives_idle=3,
                keepalives_interval=2,
                keepalives_count=3,
                tcp_user_timeout=10_000,
                options=_SESSION,
            )
        except psycopg.Error as error:
            raise UnavailableError(f"store: PostgreSQL: {_line(error)}") from None

    def lead(self, name: str = "") -> bool:
        if not self._leads:
            with self._errors():
                if not self.query(f"SELECT pg_try_advisory_lock({LOCK})")[0][0]:
                    return False
                self._migrate()
            self._leads, self._term = True, secrets.token_hex(8)
            self._write([put_leader(self._term, name or this_process())])
        return True

    def unseat(self, silent_seconds: float) -> bool:
        """Whoever leads asks once a second who does: its session tells when it asked last. How long
        that stays the same is counted by this host's clock."""
        found = self.query(
            "SELECT pid, state_change::text FROM pg_locks JOIN pg_stat_activity USING (pid) "
            f"WHERE locktype = 'advisory' AND classid = 0 AND objid = {LOCK} AND granted "
            "AND datname = current_database() AND pg_locks.database = datid "
            "AND (state <> 'active' OR wait_event_type = 'Client')"
        )
        now = monotonic_ns()
        if not found or found[0] != self._silent:
            self._silent, self._silent_since = (found[0] if found else ()), now
            return False
        if now - self._silent_since < silent_seconds * NS:
            return False
        self._silent = ()
        return bool(self.query(f"SELECT pg_terminate_backend({found[0][0]})")[0][0])

    def confirm(self) -> None:
        if not self._leads:
            raise StoreLost("store: not held")
        term, process = self.query("SELECT term, process FROM leader")[0]
        if term != self._term:
            self._leads = False
            raise StoreLost(f"store: PostgreSQL: {process} leads now")

    def write(self, statements: Sequence[Statement]) -> None:
        self.confirm()
        self._write(statements)

    def _write(self, statements: Sequence[Statement]) -> None:
        with self._errors(), self._connection.transaction(), self._connection.cursor() as cursor:
            for statement in statements:
                if statement.rows:
                    cursor.executemany(
                        statement.sql.replace("?", "%s").encode(), list(statement.rows)
                    )

    def query(self, sql: str) -> list[tuple[Value, ...]]:
        with self._errors():
            return self._connection.execute(sql.encode()).fetchall()

    def close(self) -> None:
        self._leads = False
        self._connection.close()

    def version(self) -> int:
        """The schema of the database; 0 where no distributor has led with it. Raises StoreError."""
        if self.query("SELECT to_regclass('srtm_schema')")[0][0] is None:
            return 0
        return int(self.query("SELECT max(version) FROM srtm_schema")[0][0] or 0)

    def at_one_instant(self) -> Snapshot:
        with self._errors(), self._connection.transaction():
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            return self.snapshot()

    def _migrate(self) -> None:
        self._connection.execute("CREATE TABLE IF NOT EXISTS srtm_schema (version BIGINT NOT NULL)")
        version = self.version()
        if version > latest():
            raise StoreError(
                f"store: PostgreSQL has schema {version} and this program knows {latest()}: "
                "a newer one wrote it; use that, or another database"
            )
        for number, statements in migrations(version):
            with self._connection.transaction():
                for sql in statements:
                    self._connection.execute(sql.encode())
                self._connection.execute("INSERT INTO srtm_schema VALUES (%s)", (number,))

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._psycopg.Error as error:
            state = error.sqlstate or ""
            if state.startswith(_KEPT_NOTHING) and not self._connection.closed:
                raise StoreError(f"store: PostgreSQL: {_line(error)}") from None
            self._leads = False
            raise StoreLost(f"store: PostgreSQL: {_line(error)}") from None


_SESSION = " ".join(
    f"-c {name}={value}"
    for name, value in {
        "client_connection_check_interval": "2s",
        "synchronous_commit": "on",
        # A leader whose host is gone says nothing, and its session would hold the lock until the
        # server's own keepalive ends it, two hours by default: these end it within 4 s.
        "tcp_keepalives_idle": 1,
        "tcp_keepalives_interval": 1,
        "tcp_keepalives_count": 3,
        "tcp_user_timeout": 4000,
    }.items()
)


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
