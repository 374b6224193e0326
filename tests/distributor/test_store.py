"""One suite for both stores, and what is each one's own."""

import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from distributor.store import (
    BrokerRow,
    FittingRow,
    GrantRow,
    LineageRow,
    ModelRow,
    PlacementRow,
    PublisherRow,
    Snapshot,
    Statement,
    Store,
    StoreError,
    StoreLost,
    TopicRow,
    open_store,
    open_to_read,
)
from distributor.store.sqlite import SqliteStore
from distributor.store.statements import (
    HISTORY,
    Value,
    delete_broker,
    delete_lost,
    delete_publisher,
    delete_topic,
    put_broker,
    put_epoch,
    put_fitting,
    put_grants,
    put_grouping,
    put_leader,
    put_lineage,
    put_lost,
    put_model,
    put_placement,
    put_publishers,
    put_topic,
)
from distributor.store.store import latest
from srtm.text.errors import UnavailableError, UsageError
from tests.support.postgres import Postgres
from tests.support.servers import wait_for

Opener = Callable[[], Store]


@pytest.fixture(params=["sqlite", "postgresql"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens the same store each time; all are closed with the test."""
    if request.param == "sqlite":
        where = str(tmp_path / "store.db")
    else:
        where = request.getfixturevalue("server").database()
    opened: list[Store] = []

    def open_again() -> Store:
        opened.append(open_store(where))
        return opened[-1]

    yield open_again
    for store in opened:
        store.close()


BROKER = BrokerRow("b1", "h:1", "h:2", 1234.5, False)
TOPIC = TopicRow("t", '{"rate": 1}', '["k"]', grouping='{"number": 1}')
PUBLISHERS = [PublisherRow("t", "p1", "k", 0.1, None), PublisherRow("t", "ß/🙂", None, 2.5, None)]
PLACEMENT = PlacementRow("t", 7, 1.5, "srtm", "{}")
GRANT = GrantRow("t", "b1", 7, 0.1, 3.0)
FITTING = FittingRow("t", '{"state": "running"}')
MODEL = ModelRow("b1", '{"rounds": 1}')


def fill(store: Store) -> None:
    store.write(
        [
            put_epoch(7),
            put_broker(BROKER),
            put_topic(TOPIC),
            put_grouping("t", TOPIC.grouping),
            put_publishers(PUBLISHERS),
            *put_placement(PLACEMENT, {"p1": "b1"}),
            *put_grants("b1", [GRANT]),
            put_fitting(FITTING),
            put_model([MODEL]),
        ]
    )


def test_a_new_store_is_empty(opener: Opener) -> None:
    store = opener()
    assert store.lead()
    assert store.snapshot() == Snapshot(0, (), (), (), (), (), (), ())


def test_what_was_written_is_there_when_it_is_opened_again(opener: Opener) -> None:
    store = opener()
    store.lead()
    fill(store)
    store.close()
    again = opener()
    assert again.lead()
    assert again.snapshot() == Snapshot(
        7,
        (BROKER,),
        (TOPIC,),
        (PublisherRow("t", "p1", "k", 0.1, "b1"), PUBLISHERS[1]),
        (PLACEMENT,),
        (GRANT,),
        (FITTING,),
        (MODEL,),
    )


def test_what_is_put_again_is_replaced(opener: Opener) -> None:
    store = opener()
    store.lead()
    fill(store)
    moved = BrokerRow("b1", "h:9", "h:2", 0.0, True)
    store.write(
        [
            put_broker(moved),
            put_topic(TopicRow("t", "{}", None)),
            put_publishers([PublisherRow("t", "p1", None, 9.0, None)]),
            *put_grants("b1", [GrantRow("t", "b1", 8, 0.0, 0.0)]),
            put_fitting(FittingRow("t", "{}")),
            put_model([ModelRow("b1", "{}"), ModelRow("b2", "{}")]),
        ]
    )
    found = store.snapshot()
    assert found.brokers == (moved,)
    assert found.topics == (TopicRow("t", "{}", None, grouping=TOPIC.grouping),)
    assert found.publishers[0] == PublisherRow("t", "p1", None, 9.0, "b1")  # it keeps its broker
    assert found.grants == (GrantRow("t", "b1", 8, 0.0, 0.0),)
    assert found.fittings == (FittingRow("t", "{}"),)
    assert found.model == (ModelRow("b1", "{}"), ModelRow("b2", "{}"))


def test_what_is_deleted_is_gone_but_for_a_deleted_topics_grants(opener: Opener) -> None:
    store = opener()
    store.lead()
    fill(store)
    store.write([delete_publisher("t", "p1")])
    assert [row.id for row in store.snapshot().publishers] == ["ß/🙂"]
    store.write(delete_topic("t"))
    assert store.snapshot() == Snapshot(7, (BROKER,), (), (), (), (GRANT,), (), (MODEL,))
    store.write(delete_broker("b1"))
    assert store.snapshot() == Snapshot(7, (), (), (), (), (), (), ())


def test_the_epoch_never_goes_back(opener: Opener) -> None:
    store = opener()
    store.lead()
    store.write([put_epoch(9)])
    store.write([put_epoch(4)])
    assert store.snapshot().epoch == 9


def test_old_placements_make_room(opener: Opener) -> None:
    store = opener()
    store.lead()
    for epoch in range(HISTORY + 5):
        store.write(put_placement(PlacementRow("t", epoch, 0.0, "lb", "{}"), {}))
    kept = [row.epoch for row in store.snapshot().placements]
    assert kept == list(range(5, HISTORY + 5))


def test_a_write_that_fails_in_the_middle_leaves_nothing(opener: Opener) -> None:
    store = opener()
    store.lead()
    with pytest.raises(StoreError):
        store.write([put_epoch(1), put_broker(BROKER), Statement("no such words", [()])])
    again = opener() if not _leads(store) else store
    again.lead()
    assert again.snapshot() == Snapshot(0, (), (), (), (), (), (), ())


def _leads(store: Store) -> bool:
    try:
        store.confirm()
    except StoreLost:
        store.close()
        return False
    return True


def test_one_leads_and_the_other_takes_over(opener: Opener) -> None:
    first, second = opener(), opener()
    assert first.lead()
    assert first.lead()
    first.confirm()
    assert not second.lead()
    with pytest.raises(StoreLost):
        second.confirm()
    with pytest.raises(StoreLost):
        second.write([put_epoch(5)])
    fill(first)
    first.close()
    wait_for(second.lead, "the second leads")  # PostgreSQL ends a session in its own time
    assert second.snapshot().epoch == 7


def test_a_leader_whose_connection_was_cut_writes_no_more(server: Postgres) -> None:
    url = server.database()
    first, second = open_store(url), open_store(url)
    try:
        first.lead()
        assert not second.lead()
        second.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
        with pytest.raises(StoreLost):
            first.write([put_epoch(99)])
        with pytest.raises(StoreLost):
            first.confirm()
        wait_for(second.lead, "the second leads")
        assert second.snapshot().epoch == 0
    finally:
        first.close()
        second.close()


# --- SQLite alone ---------------------------------------------------------------------------------


def test_every_commit_of_sqlite_is_on_disk(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "s.db"))
    store.lead()
    assert store.query("PRAGMA journal_mode") == [("wal",)]
    assert store.query("PRAGMA synchronous") == [(2,)]  # FULL
    assert store.query("PRAGMA user_version") == [(latest(),)]
    store.close()


def _corrupted(path: Path) -> None:
    store = open_store(str(path))
    store.lead()
    rows = [PublisherRow("t", f"p{n:06}", None, 1.0, None) for n in range(2000)]
    store.write([put_publishers(rows)])
    store.close()
    assert not path.with_name(path.name + "-wal").exists()
    content = bytearray(path.read_bytes())
    content[8192:20000] = b"\x5a" * (20000 - 8192)
    path.write_bytes(content)


def _newer(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        pytest.param(lambda p: p.write_bytes(b"no database" * 99), "is corrupted (", id="garbage"),
        pytest.param(_corrupted, "is corrupted (", id="pages-overwritten"),
        pytest.param(
            _newer, f"has schema 99 and this program knows {latest()}", id="of-a-newer-program"
        ),
        pytest.param(lambda p: p.mkdir(), "Is a directory", id="a-folder"),
    ],
)
def test_a_spoilt_file_is_one_clear_line(
    tmp_path: Path, spoil: Callable[[Path], object], said: str
) -> None:
    path = tmp_path / "s.db"
    spoil(path)
    with pytest.raises(UnavailableError) as refused:
        open_store(str(path))
    assert str(refused.value).startswith(f"store {path}")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_full_disk_keeps_nothing_and_the_store_goes_on(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "s.db"))
    store.lead()
    fill(store)
    before = store.snapshot()
    store.query("PRAGMA max_page_count = 15")
    rows = [PublisherRow("t", f"p{n}" * 50, None, 1.0, None) for n in range(5000)]
    with pytest.raises(StoreError, match="the disk is full") as refused:
        store.write([put_epoch(8), put_publishers(rows)])
    assert not isinstance(refused.value, StoreLost)
    assert store.snapshot() == before
    store.write([put_epoch(9)])
    assert store.snapshot().epoch == 9
    store.close()


def test_what_a_killed_writer_had_committed_is_there(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    program = (
        "import os, signal, sys\n"
        "from distributor.store import open_store\n"
        "from distributor.store.statements import put_epoch\n"
        "store = open_store(sys.argv[1])\n"
        "store.lead()\n"
        "store.write([put_epoch(5)])\n"
        "store._database.execute('BEGIN IMMEDIATE')\n"
        "store._database.executemany(put_epoch(6).sql, put_epoch(6).rows)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program, str(path)], cwd=root, timeout=60)
    assert done.returncode == -9
    store = open_store(str(path))
    assert store.lead()
    assert store.snapshot().epoch == 5
    store.close()


# --- where it is --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "kind", "said"),
    [
        pytest.param("mysql://h/d", UsageError, "postgresql://HOST/NAME", id="another-database"),
        pytest.param("/no/such/folder/s.db", UnavailableError, "No such file", id="no-folder"),
        pytest.param(
            "postgresql://postgres@/d?host=/no/such/socket&connect_timeout=1",
            UnavailableError,
            "PostgreSQL",
            id="no-server",
        ),
    ],
)
def test_a_store_that_cannot_be_opened_is_one_clear_line(
    where: str, kind: type[Exception], said: str
) -> None:
    if where.startswith("postgresql"):
        pytest.importorskip("psycopg")
    with pytest.raises(kind, match=said) as refused:
        open_store(where)
    assert "\n" not in str(refused.value)


# --- one leader, and the file that it opened -----------------------------------------------------


def test_who_is_second_is_told_which_process_leads(opener: Opener) -> None:
    first, second = opener(), opener()
    first.lead()
    assert not second.lead()
    assert f"process {os.getpid()} on {socket.gethostname()}" in second.leader()


def test_a_leader_that_another_has_replaced_in_the_store_writes_no_more(opener: Opener) -> None:
    """Whatever let both in (a lock that a network's file system forgot): the row decides."""
    first = opener()
    first.lead()
    first.write([put_epoch(1)])
    first.write([put_leader("another", "process 1 on elsewhere")])
    with pytest.raises(StoreLost, match="process 1 on elsewhere leads now"):
        first.write([put_epoch(2)])
    with pytest.raises(StoreLost):
        first.confirm()
    assert first.snapshot().epoch == 1


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda p: p.with_name("link.db").symlink_to(p), id="through-a-symlink"),
        pytest.param(lambda p: p.with_name("s.db.lock").unlink(missing_ok=True), id="lock-removed"),
        pytest.param(lambda p: p.with_name("folder").symlink_to(p.parent), id="linked-folder"),
    ],
)
def test_one_leads_whatever_the_file_is_called(
    tmp_path: Path, other: Callable[[Path], object]
) -> None:
    path = tmp_path / "s.db"
    first = open_store(str(path))
    first.lead()
    other(path)
    names = [tmp_path / "link.db", tmp_path / "folder" / "s.db", path]
    second = open_store(str(next(each for each in names if each.exists())))
    assert not second.lead()
    first.close()
    assert second.lead()
    second.close()


def test_a_file_with_a_second_hard_link_is_refused(tmp_path: Path) -> None:
    """SQLite names its log after the path, so two names would have two logs."""
    path = tmp_path / "s.db"
    open_store(str(path)).close()
    path.with_name("other.db").hardlink_to(path)
    with pytest.raises(UnavailableError, match="has 2 names"):
        open_store(str(path))


@pytest.mark.parametrize("name", ["s.db", "s.db-wal"])
@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_acknowledged_once_the_file_is_gone(
    tmp_path: Path, name: str, replaced: bool
) -> None:
    path = tmp_path / "s.db"
    store = open_store(str(path))
    store.lead()
    store.write([put_epoch(1)])
    store.confirm()
    (tmp_path / name).unlink()
    if replaced:
        (tmp_path / name).touch()
    with pytest.raises(StoreLost, match=f"{name} is not the file that was opened"):
        store.write([put_epoch(2)])
    with pytest.raises(StoreLost):
        store.confirm()
    store.close()


def test_a_file_that_goes_while_it_is_written_is_not_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = open_store(str(path))
    store.lead()

    def unlinking() -> Iterator[tuple[Value, ...]]:
        path.unlink()
        yield (5,)

    with pytest.raises(StoreLost, match="is not the file"):
        store.write([Statement(put_epoch(5).sql, unlinking())])  # type: ignore[arg-type]
    store.close()


def cut(path: Path) -> None:
    os.truncate(path, 0)


def overwrite(path: Path) -> None:
    content = path.read_bytes()
    with path.open("r+b") as file:
        file.write(content[:32] + bytes(len(content) - 32))


@pytest.mark.parametrize("change", [cut, overwrite])
@pytest.mark.parametrize("name", ["s.db", "s.db-wal"])
def test_another_content_is_noticed_while_it_is_written(
    tmp_path: Path, name: str, change: Callable[[Path], None]
) -> None:
    """Under load nearly all of the time is within a transaction."""
    store = open_store(str(tmp_path / "s.db"))
    store.lead()
    for epoch in range(5):
        store.write([put_epoch(epoch)])

    def changing() -> Iterator[tuple[Value, ...]]:
        change(tmp_path / name)
        yield (9,)

    with pytest.raises(StoreLost):
        store.write([Statement(put_epoch(9).sql, changing())])  # type: ignore[arg-type]
    store.close()


def test_a_link_in_the_place_of_the_file_is_noticed(tmp_path: Path) -> None:
    """It leads to the same file, and to another log."""
    path, away = tmp_path / "s.db", tmp_path / "away.db"
    store = open_store(str(path))
    store.lead()
    path.rename(away)
    path.symlink_to(away)
    with pytest.raises(StoreLost, match="is not the file"):
        store.write([put_epoch(1)])
    store.close()


def test_readers_and_a_log_that_is_emptied_disturb_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = open_store(str(path))
    store.lead()
    with closing(sqlite3.connect(path)) as reader, closing(sqlite3.connect(path)) as other:
        for epoch in range(900):
            if epoch % 300 == 0:  # it keeps the log in use for half of the time
                reader.execute("BEGIN")
                reader.execute("SELECT * FROM leader").fetchall()
            elif epoch % 300 == 150:
                reader.execute("COMMIT")
            assert other.execute("SELECT count(*) FROM leader").fetchone() == (1,)
            store.write([put_topic(TopicRow(f"t{epoch}", "x" * 2000, None))])
            store.confirm()
    assert path.with_name("s.db-wal").stat().st_size < 2 << 20
    assert len(store.snapshot().topics) == 900
    store.close()


@pytest.mark.parametrize("change", [cut, overwrite])
@pytest.mark.parametrize("name", ["s.db", "s.db-wal"])
def test_another_content_in_the_same_file_is_noticed(
    tmp_path: Path, name: str, change: Callable[[Path], None]
) -> None:
    store = open_store(str(tmp_path / "s.db"))
    store.lead()
    for epoch in range(5):
        store.write([put_epoch(epoch)])
        store.confirm()
    time.sleep(0.02)  # the kernel's stamps of files are some milliseconds apart
    change(tmp_path / name)
    with pytest.raises(StoreLost, match=f"somebody else has written into {name}"):
        store.write([put_epoch(9)])
    with pytest.raises(StoreLost):
        store.confirm()
    store.close()


def test_what_a_store_is_and_what_it_has_lost_is_kept(opener: Opener) -> None:
    store = opener()
    store.lead()
    store.write([*put_lineage(LineageRow("a1", "s", False)), put_lost(["t", "u"]), put_lost(["u"])])
    changed = LineageRow("a2", "s2", True)
    store.write([*put_lineage(changed), delete_lost("t")])
    assert (store.snapshot().lineage, store.snapshot().lost) == (changed, ("u",))
    store.write(delete_topic("u"))
    assert store.snapshot().lost == ()


def test_reading_beside_an_open_store_leaves_its_locks(tmp_path: Path) -> None:
    """Where a process closes any descriptor of a file, all its locks on that end."""
    path = tmp_path / "store.db"
    with closing(SqliteStore(path)) as store:
        store.lead("it")
        store.query("SELECT * FROM topics")

        def locks() -> list[str]:
            inode = f":{path.stat().st_ino} "
            rows = Path("/proc/locks").read_text().splitlines()
            return sorted(row.partition(": ")[2] for row in rows if inode in row)

        before = locks()
        assert any("POSIX" in row for row in before)
        with closing(open_to_read(str(path))) as reader:
            assert reader.at_one_instant().topics == ()
        assert locks() == before
