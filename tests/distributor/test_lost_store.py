"""A store that is lost, or an older copy: the side with the older state yields."""

import resource
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.distributors import (
    DistributorProcess,
    FakeBroker,
    Starter,
    settle,
)
from tests.support.servers import http, wait_for

LEASE = "--lease-duration=1s"
"""The shortest: a distributor that knows less listens for 4/3 of it. A machine that is busy for so
long ends it, so only who listens has it."""
LONG = "--lease-duration=1h"


def led(start: Starter, path: Path, *flags: str) -> DistributorProcess:
    running = start(path, *flags)
    running.wait_leading()
    return running


def placed(distributor: DistributorProcess, brokers: int = 2) -> list[FakeBroker]:
    """Topic t (150/s, 20) over `brokers`, and topic u that is registered and placed nowhere."""
    found = [distributor.broker(f"b{n}", 100.0) for n in range(1, brokers + 1)]
    distributor.topic(mode="reject", max_wait="2s")
    distributor.publishers(12)

    def is_placed() -> bool:
        """A machine that is busy for a short lease ends it, and a broker without one has no
        room."""
        for each in found:
            each.report()
        return distributor.call("POST", "/topics/t/placements", {})[0] == 200

    wait_for(is_placed, "topic t is placed", 20)
    distributor.topic("u", rate=5.0)
    settle(*found)
    return found


def remove(path: Path) -> None:
    for each in path.parent.glob(f"{path.name}*"):
        each.unlink()


def copy(path: Path, to: Path) -> None:
    """As a back-up of a running store is made."""
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)


def put_back(copied: Path, path: Path) -> None:
    remove(path)
    shutil.copy(copied, path)


def shares(broker: FakeBroker) -> dict[str, tuple[float, float]]:
    return {name: (each["rate"], each["burst"]) for name, each in broker.shares.items()}


def warnings(distributor: DistributorProcess) -> str:
    return "; ".join(distributor.ok("GET", "/health")["warnings"])


def test_a_lost_store_is_learnt_again_from_the_gateways(start: Starter, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    first = led(start, path)
    b1, b2 = placed(first)
    before = [shares(b1), shares(b2)]
    assert before[0]["t"] == (75.0, 10.0)
    first.process.kill()
    remove(path)
    second = led(start, path, LEASE)
    for each in (b1, b2):
        each.distributor = second
        each.report()
    assert [shares(b1), shares(b2)] == before, "nothing is granted and nothing taken away"
    assert "nothing is granted or taken away" in warnings(second)
    assert "srtm_distributor_unsure 1.0\n" in http(second.address, "/metrics")[1]
    assert "the store is another one" in second.process.text()
    listed = second.srtm("broker", "list")
    assert listed.stderr.startswith("warning: ")  # this one, or that all have been heard by now
    wait_for(lambda: "is split as gateways held it" in warnings(second), "all have been heard", 20)
    settle(b1, b2)
    assert [shares(b1), shares(b2)] == before
    topic = second.ok("GET", "/topics/t")
    assert (topic["rate"], topic["burst"], topic["mode"]) == (150.0, 20.0, "reject")
    assert (topic["slo"], topic["max_wait"]) == ("0.99@1ms", "2s")
    assert "srtm_distributor_unsure 0.0\n" in http(second.address, "/metrics")[1]
    assert "topic u had a contract in a store that was lost" in warnings(second)
    assert b1.report()["names"] is None
    assert b1.names == ["t", "u"]
    second.topic("u", rate=5.0)
    for each in (b1, b2):
        each.register(100.0)  # nobody else knows its capacity
    second.publishers(12)
    second.place()
    assert warnings(second) == ""


def test_the_floor_of_a_gateway_that_is_not_heard_is_kept_back(
    start: Starter, tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    first = led(start, path)
    b1 = placed(first)[0]
    first.process.kill()
    remove(path)
    second = led(start, path, LEASE)
    b1.distributor = second
    b1.report()
    wait_for(lambda: "t: 75 messages/s and 10 of its burst are" in warnings(second), "heard", 20)
    b1.register(100.0)
    second.publishers(12)
    second.place()
    settle(b1)
    assert shares(b1)["t"] == pytest.approx((75, 10)), "nobody knows what b2 still holds"
    second.process.kill()
    third = led(start, path, LEASE)
    b1.distributor = third
    settle(b1)
    assert shares(b1)["t"] == pytest.approx((75, 10))
    forgotten = third.srtm("broker", "forget", "~unheard")
    assert forgotten.returncode == 0, forgotten.stderr
    assert "kept back" not in warnings(third)
    settle(b1)
    assert shares(b1)["t"] == (150, 20), "the two without a broker keep nothing back"


def test_what_was_learnt_survives_a_kill_in_the_midst_of_it(start: Starter, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    first = led(start, path, LONG)
    b1, b2 = placed(first)
    before = [shares(b1), shares(b2)]
    first.process.kill()
    remove(path)
    second = led(start, path, LONG)
    b1.distributor = b2.distributor = second
    b1.report()
    second.process.kill()
    third = led(start, path, LONG)
    for each in (b1, b2):
        each.distributor = third
        each.report()
    assert [shares(b1), shares(b2)] == before
    assert "nothing is granted or taken away" in warnings(third)
    assert third.ok("GET", "/topics/t")["rate"] == 150.0


def test_an_older_copy_grants_nothing_while_the_biggest_holder_is_cut_off(
    start: Starter, tmp_path: Path
) -> None:
    path, old = tmp_path / "store.db", tmp_path / "old.db"
    first = led(start, path, LONG)
    b1, b2 = (first.broker(name, capacity) for name, capacity in (("b1", 100.0), ("b2", 110.0)))
    first.topic()
    first.publishers(5)
    first.place()  # all of it on b2
    settle(b1, b2)
    assert shares(b2)["t"] == (150.0, 20.0)
    copy(path, old)
    first.ok("POST", "/brokers/b2/drain", {"drain": True})
    first.place()  # all of it to b1
    for _ in range(6):
        b1.report()
        b2.report()
    assert shares(b1)["t"] == (150.0, 20.0)
    first.process.kill()
    put_back(old, path)
    second = led(start, path, LONG)
    b2.distributor = second
    settle(b2)
    assert shares(b2) == {}, "b1 is cut off, and has all of it"
    assert "an older copy" in second.process.text()
    b1.distributor = second
    settle(b1, b2)
    assert (shares(b1)["t"], shares(b2)) == ((150.0, 20.0), {})


def test_after_an_older_copy_the_shares_that_gateways_have_stay(
    start: Starter, tmp_path: Path
) -> None:
    path, old = tmp_path / "store.db", tmp_path / "old.db"
    first = led(start, path, LEASE)
    b1, b2 = placed(first)
    copy(path, old)
    first.topic(rate=300.0, burst=30.0)  # a newer contract than the copy's
    settle(b1, b2)
    before = [shares(b1), shares(b2)]
    assert before[0]["t"] == (150.0, 15.0)
    first.process.kill()
    put_back(old, path)
    second = led(start, path, LEASE)
    b1.distributor = b2.distributor = second
    settle(b1, b2)
    wait_for(lambda: "is split as gateways held it" in warnings(second), "all have been heard", 20)
    settle(b1, b2)
    assert [shares(b1), shares(b2)] == before
    assert second.ok("GET", "/topics/t")["rate"] == 300.0


def test_forget_means_that_what_only_gateways_know_ends(start: Starter, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    first = led(start, path)
    b1, b2 = placed(first)
    first.process.kill()
    remove(path)
    second = led(start, path, "--forget")
    for each in (b1, b2):
        each.distributor = second
        each.report()
        assert each.shares == {}
        assert each.names == []
    assert warnings(second) == ""


def test_a_gateway_of_another_store_long_after_the_start_disturbs_nobody(
    start: Starter, tmp_path: Path
) -> None:
    """Its own lease has ended with its store: what it holds is taken into account, no more."""
    first = led(start, tmp_path / "a.db")
    [stranger] = placed(first, 1)[:1]
    first.process.kill()
    second = led(start, tmp_path / "b.db", LEASE)
    b2 = second.broker("b2", 1000.0)
    second.topic("v", rate=10.0)
    wait_for(lambda: _begun(second, b2), "leases of before have ended", 20)
    stranger.distributor = second
    stranger.report()
    assert "nothing is granted" not in warnings(second)
    assert second.ok("GET", "/topics/t")["rate"] == 150.0
    second.publishers(3, "v", 1.0)
    second.place("v")
    settle(b2)
    assert shares(b2)["v"] == (10.0, 20.0)


def _begun(distributor: DistributorProcess, broker: FakeBroker) -> bool:
    """4/3 s have passed by its own clock: a lease that was told at its start is over."""
    broker.report()
    text = http(distributor.address, "/metrics")[1]
    assert "srtm_distributor_unsure 0" in text
    uptime = next(each for each in text.splitlines() if each.startswith("srtm_distributor_leads_s"))
    return float(uptime.split()[1]) > 4 / 3


def test_a_second_gateway_of_one_name_is_refused_until_the_firsts_lease_has_ended(
    start: Starter, tmp_path: Path
) -> None:
    running = led(start, tmp_path / "store.db", LEASE)
    first = FakeBroker(running, "b1", instance="aa", process="1")
    second = FakeBroker(running, "b1", instance="bb", process="2")
    first.register(100.0)
    running.topic()
    running.publishers(3)
    running.place()
    settle(first)
    status, refused = running.call("POST", "/brokers", second.description())
    assert status == 409
    assert "broker b1 is another gateway, at b1:4150" in refused["error"]
    assert "\n" not in refused["error"]
    assert (
        running.call("POST", "/brokers/b1/report", {"applied_epoch": 0, "process": "2"})[0] == 404
    )
    first.report()
    restarted = FakeBroker(running, "b1", instance="aa", process="3")
    restarted.register()  # a restart with its state file
    settle(restarted)
    assert shares(restarted)["t"] == (150.0, 20.0)
    wait_for(
        lambda: running.call("POST", "/brokers", second.description())[0] == 200, "it is free", 20
    )


def test_two_gateways_with_copies_of_one_state_file_do_not_take_turns(
    start: Starter, tmp_path: Path
) -> None:
    running = led(start, tmp_path / "store.db")
    first = FakeBroker(running, "b1", instance="aa", process="1")
    copied = FakeBroker(running, "b1", instance="aa", process="2")
    first.register(100.0)
    running.topic()
    running.publishers(3)
    running.place()
    settle(first)
    assert shares(first)["t"] == (150.0, 20.0)
    copied.register(100.0)
    assert (
        running.call("POST", "/brokers/b1/report", {"applied_epoch": 0, "process": "1"})[0] == 404
    )
    status, refused = running.call("POST", "/brokers", first.description())
    assert status == 409
    assert "with a copy of this one's --state-file" in refused["error"]
    assert running.call("POST", "/brokers", first.description())[0] == 409
    settle(copied)
    assert shares(copied)["t"] == pytest.approx((142.5, 19.0)), "less the floor of the first"
    assert "once it has ended: srtm broker forget 'b1~1'" in warnings(running)
    assert running.srtm("broker", "forget", "b1~1").returncode == 0
    assert warnings(running) == ""
    settle(copied)
    assert shares(copied)["t"] == (150.0, 20.0)


def test_a_broker_outside_the_placement_has_a_floor_once_messages_come(
    start: Starter, tmp_path: Path
) -> None:
    running = led(start, tmp_path / "store.db", LEASE)
    b1, b2 = running.placed(200.0, 100.0, publishers=5)
    assert (shares(b1)["t"], shares(b2)) == ((150.0, 20.0), {})
    assert (b2.names, b2.report()["unplaced"]) == (["t"], "floor")
    for _ in range(4):
        b2.report("t")
        rate = sum(shares(each).get("t", (0, 0))[0] for each in (b1, b2))
        burst = sum(shares(each).get("t", (0, 0))[1] for each in (b1, b2))
        assert (rate, burst) <= (150.0, 20.0)
        b1.report()
    assert shares(b2)["t"] == (7.5, 1.0)
    assert shares(b1)["t"] == pytest.approx((142.5, 19.0))

    def quiet() -> bool:
        b1.report("t")
        b2.report()
        return shares(b2) == {} and shares(b1)["t"] == (150.0, 20.0)

    wait_for(quiet, "nothing has come for a lease: it is taken back", 20)


def test_floors_for_messages_outside_the_placement_never_stop_a_placement(
    start: Starter, tmp_path: Path
) -> None:
    running = led(start, tmp_path / "store.db")
    brokers = [running.broker(f"b{n}", 40.0) for n in range(1, 4)]
    running.topic(burst=2.0)
    running.publishers(4)
    running.place()
    for _ in range(4):
        for each in reversed(brokers):
            each.report("t")
    assert [sorted(shares(each)) for each in brokers] == [["t"], [], ["t"]], "b has room for two"
    running.ok("POST", "/brokers/b3/drain", {"drain": True})
    running.place(policy="lb")
    for _ in range(6):
        for each in brokers:
            each.report("t")
    assert [sorted(shares(each)) for each in brokers] == [["t"], ["t"], []]


@pytest.mark.parametrize("epoch", [2**52, 2**52 + 7, 2**60])
def test_a_store_with_an_epoch_of_a_lie_serves_honest_gateways(
    start: Starter, tmp_path: Path, epoch: int
) -> None:
    path = tmp_path / "store.db"
    first = led(start, path)
    brokers = placed(first)
    before = [shares(each) for each in brokers]
    first.process.kill()
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE counters SET value = ? WHERE name = 'epoch'", (epoch,))
        database.commit()
    second = led(start, path)
    for each in brokers:
        each.distributor = second
    settle(*brokers)
    second.place()
    settle(*brokers)
    assert brokers[0].epoch > epoch
    assert [shares(each) for each in brokers] == before
    assert warnings(second) == ""


def test_a_gateway_that_is_refused_leaves_nothing_behind(start: Starter, tmp_path: Path) -> None:
    """What is in memory only would be missing from the store, whatever refers to it."""
    path = tmp_path / "store.db"
    first = led(start, path)
    other = first.broker("b1")
    share = {"rate": 1.0, "burst": 1.0, "topic_rate": 10.0, "topic_burst": 5.0}
    held = [
        {"topic": "good", "slo": None, **share},
        {"topic": "bad", "slo": "none", **share},
    ]
    known = {"store": "another", "newest": 5, "applied_epoch": 5, "held": held}
    assert first.call("POST", "/brokers", other.description() | known)[0] == 400
    assert first.call("GET", "/topics/good")[0] == 404
    row = {"id": "p", "rate": 1.0}
    assert first.call("POST", "/topics/good/publishers", {"publishers": [row]})[0] == 404
    first.process.kill()
    led(start, path, LEASE)


def test_what_a_full_disk_does_not_take_is_learnt_again(start: Starter, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    first = led(start, path)
    b1 = placed(first, 1)[0]
    first.process.kill()
    remove(path)
    second = led(start, path, LEASE)
    nothing = {"store": "", "applied_epoch": 0, "newest": 0, "held": [], "names": []}
    second.ok("POST", "/brokers", b1.description() | nothing)
    pid = second.process.popen.pid
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    assert second.call("POST", "/brokers", b1.description())[0] == 503
    resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
    assert second.call("GET", "/topics/t")[0] == 404
    b1.distributor = second
    wait_for(lambda: second.call("POST", "/brokers", b1.description())[0] == 200, "it registers")
    second.publishers(3)
    second.process.kill()
    third = led(start, path, LEASE)
    assert third.ok("GET", "/topics/t")["publishers"] == 3


def test_a_gateway_that_obeyed_another_distributor_meanwhile_is_led_again(
    start: Starter, tmp_path: Path
) -> None:
    """By a wrong address for a minute, say. The first one has never stopped, and its own epochs are
    older than those that the gateway knows now."""
    first = led(start, tmp_path / "a.db", LEASE)
    b1, b2 = placed(first)
    before = shares(b1)
    wait_for(lambda: _begun(first, b2), "leases of before have ended", 20)
    b1.distributor = led(start, tmp_path / "b.db", LEASE)
    b1.report()
    assert b1.epoch > b2.epoch
    b1.distributor = first
    settle(b1, b2)  # `report` refuses an epoch that is older than its own
    assert b1.store == b2.store
    assert shares(b1).keys() == before.keys()
    assert "nothing is granted" not in warnings(first)
