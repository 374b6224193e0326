"""Online fitting carried out by `srtm distributor`: brokers that a test plays, and real ones."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.distributors import DistributorProcess, FakeBroker, distributors_in
from tests.support.servers import free_port, wait_for

LATE = {"served": 500, "near": 500, "late": 500, "late_at_broker": 500}
ON_TIME = {"served": 500, "near": 0, "late": 0, "late_at_broker": 0}
Counts = dict[str, float]
Start = Callable[[], DistributorProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts one that leads, each time on the same store and address."""
    with distributors_in(tmp_path) as starter:
        address = f"127.0.0.1:{free_port()}"

        def start() -> DistributorProcess:
            running = starter(tmp_path / "store.db", "--lease-duration=2s", address=address)
            running.wait_leading()
            return running

        yield start


@pytest.fixture
def distributor(start: Start) -> DistributorProcess:
    return start()


@contextmanager
def reporting(
    distributor: DistributorProcess, counts: Callable[[FakeBroker], Counts], *names: str
) -> Iterator[dict[str, FakeBroker]]:
    """Brokers that report ten times a second until the end of the block, or until their name is
    taken out of the mapping. counts: what one has measured of a tenth of a second."""
    brokers = {name: distributor.broker(name, 1000.0) for name in names}
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.1):
            for broker in list(brokers.values()):
                try:
                    busy = ["t"] if broker.shares else []
                    broker.report(*busy, seconds=0.1, **counts(broker))
                except (OSError, AssertionError):  # the distributor is away, or starts
                    continue

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield brokers
    finally:
        over.set()
        thread.join()


def fitting(distributor: DistributorProcess) -> Any:
    return distributor.ok("GET", "/topics/t/fitting")


def ended(distributor: DistributorProcess, seconds: float = 40.0) -> Any:
    wait_for(lambda: fitting(distributor)["state"] != "running", "the fitting ends", seconds)
    return fitting(distributor)


def test_from_one_violated_broker_to_two_that_hold(
    distributor: DistributorProcess, tmp_path: Path
) -> None:
    """A broker with the whole topic is late; with half of it, it is not."""

    def counts(broker: FakeBroker) -> Counts:
        share = broker.shares.get("t")
        return LATE if share and share["rate"] > 100 else ON_TIME

    distributor.topic()
    distributor.publishers(10)
    with reporting(distributor, counts, "b1", "b2", "b3") as brokers:
        began = distributor.ok("POST", "/topics/t/fitting", {})
        assert (began["state"], began["round"]) == ("running", 0)
        status, refused = distributor.call("POST", "/topics/t/fitting", {})
        assert status == 409
        assert "topic t is being fitted" in refused["error"]
        wait_for(lambda: fitting(distributor)["round"], "the first round")
        status, refused = distributor.call("POST", "/topics/t/placements", {})
        assert status == 409
        assert "--stop" in refused["error"]
        done = ended(distributor)
        assert done["state"] == "met"
        assert len(done["brokers"]) == 2
        assert done["round"] == 2
        shares = [brokers[name].shares["t"] for name in done["brokers"]]
        assert sum(each["rate"] for each in shares) == pytest.approx(150)
        assert not done["held"]
    plan = distributor.ok("GET", "/topics/t/placements/current")
    assert plan["policy"] == "fit"
    assert [each["publishers"] for each in plan["brokers"]] == [5, 5]
    assert not plan["unplaced"]
    history = distributor.ok("GET", "/topics/t/placements")["placements"]
    assert [len(each["brokers"]) for each in history] == [2, 2, 1]
    assert "violated" in " ".join(history[1]["reasons"])
    with closing(sqlite3.connect(tmp_path / "store.db")) as store:
        learnt = store.execute("SELECT broker FROM capacity_model").fetchall()
    assert {name for (name,) in learnt} == set(done["brokers"])


def test_publishers_that_do_not_follow_are_not_judged(distributor: DistributorProcess) -> None:
    """All of the load stays at b3, which is none of the round's once everybody is placed."""

    def counts(broker: FakeBroker) -> Counts:
        return {"offered": 100.0 if broker.name == "b3" else 0.0}

    distributor.topic()
    distributor.publishers(10)
    with reporting(distributor, counts, "b1", "b2", "b3") as brokers:
        brokers["b3"].shares["t"] = {}  # so that it reports the topic from the start
        distributor.ok("POST", "/brokers/b3/drain", {"drain": True})
        distributor.place()
        distributor.ok("POST", "/topics/t/fitting", {})
        done = ended(distributor)
    assert done["state"] == "stopped"
    reasons = " ".join(done["reasons"])
    assert "the messages of the 10 publishers placed on b1 come through other brokers" in reasons


def test_none_that_keeps_the_slo(distributor: DistributorProcess) -> None:
    distributor.topic()
    distributor.publishers(10)
    with reporting(distributor, lambda _: LATE, "b1", "b2"):
        distributor.ok("POST", "/topics/t/fitting", {})
        done = ended(distributor)
        assert done["state"] == "best"
        assert "no design" in " ".join(done["reasons"])
        assert not distributor.ok("GET", "/topics/t/placements/current")["unplaced"]


def test_a_contract_that_is_too_small_is_not_searched(distributor: DistributorProcess) -> None:
    distributor.topic(rate=90.0)
    distributor.publishers(10)
    with reporting(distributor, lambda _: ON_TIME, "b1"):
        distributor.ok("POST", "/topics/t/fitting", {})
        done = ended(distributor)
    assert done["state"] == "contract too small"
    assert done["rate"] == pytest.approx(110)
    assert done["round"] == 0
    assert distributor.call("GET", "/topics/t/placements/current")[0] == 404


def test_a_broker_that_vanishes_in_a_round(distributor: DistributorProcess) -> None:
    distributor.topic()
    distributor.publishers(10)
    with reporting(distributor, lambda _: ON_TIME, "b1", "b2") as brokers:
        distributor.ok("POST", "/topics/t/fitting", {})
        wait_for(lambda: fitting(distributor)["round"], "the first round")
        (first,) = fitting(distributor)["brokers"]
        del brokers[first]
        done = ended(distributor)
        assert done["state"] == "met"
        assert done["brokers"] == list(brokers)
    history = distributor.ok("GET", "/topics/t/placements")["placements"]
    assert any(f"{first} is lost" in " ".join(each["reasons"]) for each in history)


def test_a_distributor_killed_in_a_round_goes_on_with_it(start: Start) -> None:
    distributor = start()
    distributor.topic()
    distributor.publishers(10)
    with reporting(distributor, lambda _: ON_TIME, "b1"):
        distributor.ok("POST", "/topics/t/fitting", {"meanwhile": "elsewhere", "batch": 2})
        wait_for(lambda: fitting(distributor)["round"], "the first round")
        distributor.process.kill()
        again = start()
        assert fitting(again)["asked"]["batch"] == 2
        done = ended(again)
        assert done["state"] == "met", done["reasons"]


def test_elsewhere_goes_to_no_broker_that_an_earlier_round_found_full(
    distributor: DistributorProcess,
) -> None:
    """Brokers hold 10, 4, 6 and 20 of 30 publishers, and all declare room for every one of them.
    With an even split b2 and b3 are late, and shed; b1 was late with half of the topic."""
    limits = {"b1": 100.0, "b2": 40.0, "b3": 60.0, "b4": 200.0}

    def counts(broker: FakeBroker) -> Counts:
        share = broker.shares.get("t")
        late = share and share["rate"] / 1.1 > limits[broker.name] + 0.01
        return (LATE if late else ON_TIME) | {"served": 5_000}  # a round is sure soon

    def shedding() -> bool:
        return any(" hold: " in why for why in fitting(distributor)["reasons"])

    distributor.topic(rate=330.0)
    distributor.publishers(30)
    with reporting(distributor, counts, *limits):
        distributor.ok("POST", "/topics/t/fitting", {"meanwhile": "elsewhere"})
        wait_for(shedding, "violated brokers shed", 60)
        shown = fitting(distributor)
        plan = distributor.ok("GET", "/topics/t/placements/current")
        distributor.ok("DELETE", "/topics/t/fitting")
    assert shown["brokers"] == ["b2", "b3"]
    there = {each["name"]: each for each in plan["brokers"]}
    assert 0 < there["b1"]["rate"] <= limits["b1"]
    assert shown["held"] == len(plan["unplaced"])
    assert shown["held"] + sum(each["publishers"] for each in there.values()) == 30


def test_stopped_and_whom_it_held_is_placed(distributor: DistributorProcess) -> None:
    """With no broker left, the violated one's publishers are halved: the others are held."""
    distributor.topic()
    distributor.publishers(10)
    with reporting(distributor, lambda b: LATE if b.name == "b1" else ON_TIME, "b1", "b2"):
        assert distributor.call("DELETE", "/topics/t/fitting")[0] == 409
        distributor.ok("POST", "/topics/t/fitting", {})
        wait_for(lambda: fitting(distributor)["held"], "publishers are held", 60)
        assert distributor.ok("GET", "/topics/t/placements/current")["unplaced"]
        stopped = distributor.ok("DELETE", "/topics/t/fitting")
        assert stopped["state"] == "stopped"
        assert not distributor.ok("GET", "/topics/t/placements/current")["unplaced"]
        assert distributor.place()["policy"] == "srtm"


@pytest.mark.parametrize(
    ("prepare", "status", "said"),
    [
        pytest.param(lambda d: None, 404, "topic t is not registered", id="no-topic"),
        pytest.param(lambda d: d.topic(), 409, "has no publishers", id="no-publishers"),
    ],
)
def test_what_cannot_be_fitted(
    distributor: DistributorProcess,
    prepare: Callable[[DistributorProcess], None],
    status: int,
    said: str,
) -> None:
    prepare(distributor)
    found, refused = distributor.call("POST", "/topics/t/fitting", {})
    assert found == status
    assert said in refused["error"]
