"""`srtm distributor backup` of a store that is in use, and `restore`."""

import json
import os
import sqlite3
import stat
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

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
    TopicRow,
    open_store,
)
from distributor.store.copies import Contents, back_up, restore
from distributor.store.statements import put_all
from tests.support.distributors import ROOT, DistributorProcess, Starter, settle, srtm
from tests.support.postgres import Postgres
from tests.support.programs import SRTM
from tests.support.servers import wait_for

LEASE = "--lease-duration=5s"


def ok(*arguments: str) -> Any:
    done = srtm(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(*arguments: str) -> str:
    done = srtm(*arguments)
    assert done.returncode in (2, 3), (done.returncode, done.stdout, done.stderr)
    assert done.stderr.startswith("srtm: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def shown(distributor: DistributorProcess) -> Any:
    """What people see of topics, publishers and placements."""
    names = [each["topic"] for each in distributor.ok("GET", "/topics")["topics"]]
    ends = ("", "/publishers", "/placements", "/adaptation", "/migrations", "/groups")
    return {name: [distributor.ok("GET", f"/topics/{name}{end}") for end in ends] for name in names}


def test_a_running_store_is_copied_and_led_with_again(
    start: Starter, store: str, other: str, tmp_path: Path
) -> None:
    leader = start(store, LEASE)
    leader.wait_leading()
    brokers = leader.placed(600.0, 600.0, publishers=8, rate=80.0)
    leader.ok("PUT", "/topics/t/adaptation", {"policy": "off", "window": "10s", "every": "10s"})
    before, copy = shown(leader), tmp_path / "copy.db"
    found = ok("distributor", "backup", f"--store={store}", str(copy))
    assert (found["brokers"], found["topics"], found["publishers"]) == (2, 1, 8)
    assert found["epoch"] > 0
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    leader.topic("later")
    assert leader.leads()
    leader.process.stop()

    assert ok("distributor", "restore", str(copy), f"--store={other}") == found
    left = [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert not left
    again = start(other, LEASE)
    again.wait_leading()
    assert shown(again) == before
    for each in brokers:
        each.distributor = again

    def served() -> bool:
        settle(*brokers)
        held = [each.shares["t"] for each in brokers if "t" in each.shares]
        return sum(each["burst"] for each in held) == pytest.approx(20.0)

    wait_for(served, "gateways have their shares")
    again.ok("PUT", "/topics/new", {"rate": 5.0, "burst": 5.0})
    wait_for(lambda: not again.ok("GET", "/brokers")["warnings"], "gateways have been heard")


FULL = Snapshot(
    epoch=77,
    brokers=(BrokerRow("b1", "h:1", "h:2", 5.5, True, "i1"), BrokerRow("b2", "", "", 0.0, False)),
    topics=(
        TopicRow("t", '{"topic": "t"}', '["k"]', "adaptation", "migration", "grouping"),
        TopicRow("u", '{"topic": "u"}', None),
    ),
    publishers=(PublisherRow("t", "p", "k", 1.5, "b1"), PublisherRow("u", "q", None, 2.5, None)),
    placements=(PlacementRow("t", 5, 1.25, "srtm", "{}"), PlacementRow("t", 6, 2.25, "lb", "{}")),
    grants=(GrantRow("t", "b1", 6, 1.0, 2.0, 3), GrantRow("t", "b2", 7, 0.0, 0.0)),
    fittings=(FittingRow("t", "fitting"),),
    model=(ModelRow("b1", "model"),),
    lineage=LineageRow("store", "secret", unsure=True),
    lost=("gone",),
    lease_seconds=2.5,
)


@pytest.mark.parametrize("copied", [False, True])
def test_every_table_is_copied_from_each_kind_of_store(
    store: str, other: str, tmp_path: Path, copied: bool
) -> None:
    """A store of which gateways know more stays one; any other is known as a copy."""
    kept = replace(FULL, lineage=LineageRow("store", "secret", unsure=not copied))
    with closing(open_store(store)) as first:
        assert first.lead()
        first.write(put_all(kept))
    back_up(store, tmp_path / "copy.db")
    found = restore(tmp_path / "copy.db", other)
    assert found == Contents(brokers=2, topics=2, publishers=2, epoch=77)
    with closing(open_store(other)) as second:
        assert second.lead()
        lineage = LineageRow("store", "secret", unsure=not copied, copied=copied)
        assert second.snapshot() == replace(kept, lineage=lineage)


def test_a_copy_is_of_one_instant_and_leaves_the_leader_alone(
    start: Starter, store: str, tmp_path: Path
) -> None:
    """Topics register with ten publishers each while copies are made; the log of a SQLite store is
    emptied several times meanwhile."""
    leader = start(store)
    leader.wait_leading()
    over, count = threading.Event(), 0

    def register() -> None:
        nonlocal count
        while not over.is_set():
            rows = [{"id": str(n), "rate": 1.0} for n in range(10)]
            names = [f"t{count}-{n}" for n in range(10)]
            contract = {"rate": 1.0, "burst": 1.0, "publishers": rows}
            topics = [{"topic": name, **contract} for name in names]
            leader.ok("POST", "/topics", {"topics": topics})
            count += 1

    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(register)
        found = []
        try:
            for number in range(3):
                before = count
                wait_for(lambda before=before: count > before + 5, "topics come")
                copy = tmp_path / f"copy-{number}.db"
                found.append(ok("distributor", "backup", f"--store={store}", str(copy)))
        finally:
            over.set()
        busy.result()
    for each in found:
        assert each["topics"] % 10 == 0
        assert each["publishers"] == 10 * each["topics"]
    assert [each["topics"] for each in found] == sorted({each["topics"] for each in found})
    assert leader.leads()
    assert "does not lead" not in leader.process.text()


def test_an_older_copy_yields_to_what_gateways_hold(start: Starter, tmp_path: Path) -> None:
    store, copy = tmp_path / "store.db", tmp_path / "copy.db"
    leader = start(store, LEASE)
    leader.wait_leading()
    brokers = leader.placed(600.0, 600.0, publishers=8, rate=80.0, policy="lb")
    ok("distributor", "backup", f"--store={store}", str(copy))
    leader.topic(rate=300.0)
    leader.place(policy="single")
    settle(*brokers)
    settle(*brokers)
    leader.process.stop()
    restored = tmp_path / "restored.db"
    ok("distributor", "restore", str(copy), f"--store={restored}")
    again = start(restored, LEASE)
    again.wait_leading()
    held = {each.name: dict(each.shares) for each in brokers}
    for each in brokers:
        each.distributor = again

    def heard() -> bool:
        settle(*brokers)
        said = again.ok("GET", "/brokers")["warnings"]
        return any("as gateways held it" in each for each in said)

    wait_for(heard, "gateways have been heard")
    assert again.ok("GET", "/topics/t")["rate"] == 300.0
    told = {each.name: each.shares["t"]["rate"] for each in brokers if "t" in each.shares}
    had = {name: shares["t"]["rate"] for name, shares in held.items() if "t" in shares}
    # In the copy publishers are on both brokers: the adaptor may have begun to give the other one
    # its least part, a twentieth, since they were heard.
    assert 0.95 * sum(had.values()) - 1e-6 <= sum(told.values()) <= sum(had.values()) + 1e-6
    assert all(told[name] >= 0.95 * rate - 1e-6 for name, rate in had.items())


def nothing(path: Path) -> None:
    pass


def a_text(path: Path) -> None:
    path.write_text("no database\n" * 100)


def of_another_program(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE things (name TEXT)")
    database.commit()
    database.close()


def newer(path: Path) -> None:
    of_another_program(path)
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 999")
    database.close()


@pytest.mark.parametrize("does", ["backup", "restore"])
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (nothing, "there is no such store"),
        (a_text, "file is not a database"),
        (of_another_program, "is no store: no distributor has led with it"),
        (newer, "has schema 999"),
    ],
)
def test_what_is_no_store_is_refused(
    tmp_path: Path, make: Callable[[Path], None], said: str, does: str
) -> None:
    source, made = tmp_path / "source.db", tmp_path / "made.db"
    make(source)
    if does == "backup":
        assert said in refused("distributor", "backup", f"--store={source}", str(made))
    else:
        assert said in refused("distributor", "restore", str(source), f"--store={made}")
    assert sorted(tmp_path.iterdir()) == ([] if make is nothing else [source])


def test_nothing_that_is_there_is_written_over(
    start: Starter, server: Postgres, tmp_path: Path
) -> None:
    store, copy = tmp_path / "store.db", tmp_path / "copy.db"
    leader = start(store)
    leader.wait_leading()
    leader.topic()
    ok("distributor", "backup", f"--store={store}", str(copy))
    again = refused("distributor", "backup", f"--store={store}", str(copy))
    assert "copy.db is there already" in again
    assert "store.db is there already" in refused(
        "distributor", "restore", str(copy), f"--store={store}"
    )
    database = server.database()
    other = start(database)
    other.wait_leading()
    to_database = ("distributor", "restore", str(copy), f"--store={database}")
    assert "leads with that store" in refused(*to_database)
    other.topic("u")
    other.process.stop()
    assert "that database is not empty" in refused(*to_database)
    assert "is no store" in refused(
        "distributor", "backup", f"--store={server.database()}", str(tmp_path / "empty.db")
    )


def test_a_full_disk_leaves_nothing(start: Starter, tmp_path: Path) -> None:
    store, copy = tmp_path / "store.db", tmp_path / "copy.db"
    leader = start(store)
    leader.wait_leading()
    leader.topic()
    leader.publishers(2000)
    limited = ("prlimit", "--fsize=65536:unlimited")
    done = subprocess.run(
        [*limited, *SRTM, "distributor", "backup", f"--store={store}", str(copy)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert not copy.exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".copy")]


def test_options_of_the_distributor_go_behind_the_command(tmp_path: Path) -> None:
    said = refused("distributor", "--store=x.db", "backup", str(tmp_path / "copy.db"))
    assert said == "srtm: --store stands before backup: write it behind\n"
