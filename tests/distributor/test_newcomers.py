"""Publishers that register into a topic that is placed already."""

from pathlib import Path

import pytest

from tests.support.distributors import DistributorProcess, FakeBroker, distributors_in, settle
from tests.support.servers import wait_for


def placed(distributor: DistributorProcess, *capacities: float) -> list[FakeBroker]:
    """Topic t with 4 publishers of 10/s on brokers of these capacities."""
    brokers = [distributor.broker(f"b{n}", each) for n, each in enumerate(capacities)]
    distributor.topic()
    distributor.publishers(4)
    distributor.place()
    settle(*brokers)
    return brokers


def register(distributor: DistributorProcess, publisher: str, rate: float = 10.0) -> None:
    rows = [{"id": publisher, "rate": rate}]
    distributor.ok("POST", "/topics/t/publishers", {"publishers": rows})


def places(distributor: DistributorProcess) -> dict[str, str]:
    plan = distributor.ok("GET", "/topics/t/placements/current")
    return {each["publisher"]: each["broker"] for each in plan["assignments"]}


@pytest.mark.parametrize(
    ("capacities", "on"),
    [
        pytest.param((100.0,), "b0", id="on-the-broker-with-room"),
        pytest.param((40.0, 30.0), "b1", id="on-a-new-broker-where-the-old-is-full"),
    ],
)
def test_a_new_one_is_placed_at_once_and_nobody_else_moves(
    distributor: DistributorProcess, capacities: tuple[float, ...], on: str
) -> None:
    brokers = placed(distributor, *capacities)
    before = places(distributor)
    register(distributor, "new")
    assert places(distributor) == {**before, "new": on}
    settle(*brokers)
    assert distributor.where("new")["broker"] == on
    assert sum(each.shares["t"]["rate"] for each in brokers if each.shares) == pytest.approx(150)
    [newest, *_] = distributor.ok("GET", "/topics/t/placements")["placements"]
    assert newest["reasons"][0] == "1 publisher registered: new"


@pytest.mark.parametrize("away", ["drained", "lost"])
def test_nobody_leaves_a_broker_that_takes_no_more(tmp_path: Path, away: str) -> None:
    with distributors_in(tmp_path) as start:
        distributor = start(tmp_path / "store.db", "--lease-duration=2s")
        distributor.wait_leading()
        nobody_leaves(distributor, away)


def nobody_leaves(distributor: DistributorProcess, away: str) -> None:
    _, b1 = placed(distributor, 50.0, 40.0)
    before = places(distributor)
    assert set(before.values()) == {"b0"}
    if away == "drained":
        distributor.ok("POST", "/brokers/b0/drain", {"drain": True})
    else:

        def is_lost() -> bool:
            b1.report()
            rows = distributor.ok("GET", "/brokers")["brokers"]
            return {row["name"]: row["state"] for row in rows}["b0"] == "lost"

        wait_for(is_lost, "b0 is out of contact", 20)
    register(distributor, "new")
    assert places(distributor) == {**before, "new": "b1"}


def test_without_room_it_is_registered_and_the_log_says_so(
    distributor: DistributorProcess,
) -> None:
    placed(distributor, 40.0)
    before = places(distributor)
    epoch = distributor.ok("GET", "/topics/t")["epoch"]
    register(distributor, "new", 100.0)
    assert places(distributor) == before
    assert distributor.where("new")["broker"] is None
    assert distributor.ok("GET", "/topics/t")["epoch"] == epoch
    assert "publishers have registered and got no broker" in distributor.process.text()


def test_a_topic_that_is_not_placed_waits_for_somebody(distributor: DistributorProcess) -> None:
    distributor.broker("b0")
    distributor.topic()
    distributor.publishers(4)
    assert distributor.ok("GET", "/topics/t")["epoch"] is None


def test_after_a_restart_it_is_placed_once_brokers_are_in_contact(
    distributor: DistributorProcess,
) -> None:
    [b0] = placed(distributor, 100.0)
    distributor.process.kill()
    distributor.process.start()
    distributor.wait_leading()
    register(distributor, "new")
    assert distributor.where("new")["broker"] is None, "no broker has reported yet"

    def has_place() -> bool:
        b0.report()
        return bool(distributor.where("new")["broker"] == "b0")

    wait_for(has_place, "it is placed", 20)
