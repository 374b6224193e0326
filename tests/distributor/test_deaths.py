"""Death, take-over and a failing disk: what was acknowledged is there, on both stores."""

import json
import os
import signal
import threading
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from tests.support.distributors import DistributorProcess, Starter
from tests.support.postgres import Postgres
from tests.support.servers import http, wait_for


def led(starter: Starter, store: str, *flags: str) -> DistributorProcess:
    running = starter(store, *flags)
    running.wait_leading()
    return running


def test_what_was_acknowledged_survives_kill_9(start: Starter, store: str) -> None:
    first = led(start, store)
    brokers = first.placed(100.0, 100.0, publishers=12, keys=["k0", "k1", "k2"], max_wait="2s")
    first.ok("POST", "/brokers/b2/drain", {"drain": True})
    group = {"name": "g1", "publishers": ["p0", "p5"], "lift": 9.0, "q": 0.0, "coincidences": 30}
    proposal = {"first": 0, "last": 1, "publishers": 12, "groups": [group | {"share": 0.5}]}
    first.ok("PUT", "/topics/t/groups", proposal)
    first.ok("POST", "/topics/t/groups", {"decision": "accept"})
    first.ok("PUT", "/topics/t/groups", proposal | {"last": 2, "groups": []})
    paths = [
        "/topics",
        "/topics/t/groups",
        "/topics/t/placements",
        "/topics/t/placements/current",
        *(f"/topics/t/publishers/p{n}" for n in range(12)),
    ]
    before = [first.ok("GET", path) for path in paths]
    first.process.kill()
    second = led(start, store)
    assert [second.ok("GET", path) for path in paths] == before
    shown = {each["name"]: each for each in second.ok("GET", "/brokers")["brokers"]}
    assert [each["allocated"] for each in shown.values()] == [60.0, 60.0]
    epoch = brokers[0].epoch
    for each in brokers:
        each.distributor = second
        each.report()
    assert brokers[0].epoch > epoch  # epochs only grow
    assert [each.shares["t"]["rate"] for each in brokers] == [75.0, 75.0]
    states = {each["name"]: each["state"] for each in second.ok("GET", "/brokers")["brokers"]}
    assert states == {"b1": "up", "b2": "draining"}


def test_registrations_in_the_midst_of_which_it_is_killed(start: Starter, store: str) -> None:
    """Every one that was answered is there; those that were not may be."""
    first = led(start, store)
    first.topic()
    answered: list[object] = []
    enough = threading.Event()

    def register(part: int) -> None:
        host = HTTPConnection(first.address, timeout=20)
        for number in range(10_000):
            row = {"id": f"p{part}-{number}", "rate": 1.0}
            try:
                host.request("POST", "/v1/topics/t/publishers", json.dumps({"publishers": [row]}))
                response = host.getresponse()
                response.read()
            except (OSError, HTTPException):
                return
            assert response.status == 200
            answered.append(row["id"])
            if len(answered) > 200:
                enough.set()

    threads = [threading.Thread(target=register, args=(part,)) for part in range(8)]
    for each in threads:
        each.start()
    assert enough.wait(30)
    first.process.kill()
    for each in threads:
        each.join(30)
    second = led(start, store)
    kept = second.ok("GET", "/topics/t")["publishers"]
    assert kept >= len(answered)
    assert kept <= len(answered) + len(threads)
    for publisher in answered:
        assert second.where(str(publisher))["rate"] == 1.0


def test_a_share_that_may_be_held_is_not_given_away_after_kill_9(
    start: Starter, store: str
) -> None:
    first = led(start, store)
    b1, b2 = first.placed(100.0, 90.0, publishers=5)
    first.ok("POST", "/brokers/b1/drain", {"drain": True})
    first.place()
    first.process.kill()
    second = led(start, store)
    b1.distributor = b2.distributor = second
    b2.report()
    assert b2.shares == {}  # b1 has all of it and knows nothing yet
    b1.report("t")
    b2.report()
    assert b2.shares == {}  # told, not acknowledged
    b1.report("t")
    b2.report()
    assert b2.shares["t"]["rate"] <= 150.0 - b1.shares["t"]["rate"]


def test_one_leads_the_other_says_503_and_takes_over(start: Starter, store: str) -> None:
    first = led(start, store)
    second = start(store)
    wait_for(lambda: _answers(second), "the second listens", 20)
    first.topic()
    first.publishers(3)
    status, refused = second.call("PUT", "/topics/u", {"rate": 1.0, "burst": 1.0})
    assert status == 503
    assert f"process {first.process.popen.pid} on " in refused["error"]
    assert "srtm_distributor_leading 0.0\n" in http(second.address, "/metrics")[1]
    waits = f"waits until it may lead: process {first.process.popen.pid} on "
    wait_for(lambda: waits in second.process.text(), "its log says for whom it waits")
    first.process.kill()
    second.wait_leading()
    assert second.process.text().count(waits) == 1
    assert second.ok("GET", "/topics/t")["publishers"] == 3
    assert "srtm_distributor_leading 1.0\n" in http(second.address, "/metrics")[1]


def _answers(distributor: DistributorProcess) -> bool:
    try:
        return http(distributor.address, "/v1/health")[1]["leading"] is False
    except OSError:
        return False


def test_a_leader_that_lost_postgresql_steps_down_and_leads_again(
    start: Starter, server: Postgres
) -> None:
    url = server.database()
    running = led(start, url)
    running.topic()
    other = url.replace("?", "?application_name=cut&")
    import psycopg

    with psycopg.connect(other, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'srtm distributor' AND datname = current_database()"
        )
    status, _ = running.call("PUT", "/topics/u", {"rate": 1.0, "burst": 1.0})
    assert status in (200, 503)  # 200: it had noticed, and led again
    running.wait_leading()
    names = [each["topic"] for each in running.ok("GET", "/topics")["topics"]]
    assert names == (["t", "u"] if status == 200 else ["t"])
    running.ok("PUT", "/topics/u", {"rate": 1.0, "burst": 1.0})


def test_a_full_disk_is_503_with_nothing_half_done(start: Starter, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    running = start(path, largest_file=400_000)
    running.wait_leading()
    running.topic()
    running.publishers(10)
    rows = [{"id": f"q{n}" * 40, "rate": 1.0} for n in range(10_000)]
    status, refused = running.call("POST", "/topics/t/publishers", {"publishers": rows})
    assert status == 503
    assert "full" in refused["error"]
    assert running.ok("GET", "/topics/t")["publishers"] == 10
    running.ok("POST", "/topics/t/publishers", {"publishers": [{"id": "small", "rate": 1.0}]})
    running.process.kill()
    again = led(start, str(path))
    assert again.ok("GET", "/topics/t")["publishers"] == 11


def test_a_corrupted_store_is_one_line_and_exit_3(start: Starter, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(os.urandom(8192))
    running = start(path)
    assert running.process.popen.wait(60) == 3
    assert running.process.text().startswith(f"srtm: store {path} is corrupted (")
    assert running.process.text().count("\n") == 1


def test_sigterm_ends_it_with_a_watch_open(start: Starter, tmp_path: Path) -> None:
    running = led(start, str(tmp_path / "store.db"))
    running.topic()
    host = HTTPConnection(running.address, timeout=20)
    host.request("GET", "/v1/topics/t/watch?id=p")
    response = host.getresponse()
    assert response.readline().startswith(b'{"id":"p"')
    running.process.signal(signal.SIGTERM)
    assert running.process.popen.wait(60) == 0
    host.close()
