"""What an operator or a network does to shares that follow traffic: the contract is kept, and what
is wrong is one clear line. (Clocks that are stepped, two distributors, contracts that are lowered
and stores that are lost while shares move: `tests.distributor.lease_faults`.)"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.distributors import (
    DistributorProcess,
    FakeBroker,
    Starter,
    distributors_in,
    settle,
)
from tests.support.servers import wait_for

RATE, BURST = 200.0, 20.0
LEASE_SECONDS = 3.0


def placed(distributor: DistributorProcess, count: int) -> list[FakeBroker]:
    capacities = [1000.0] * count
    brokers = distributor.placed(*capacities, publishers=16, policy="lb", rate=RATE, burst=BURST)
    assert [share(each)["rate"] for each in brokers] == [RATE / count] * count
    return brokers


def share(broker: FakeBroker) -> dict[str, Any]:
    return broker.shares.get("t", {"rate": 0.0, "burst": 0.0, "safe_rate": 0.0, "safe_burst": 0.0})


def report(broker: FakeBroker, **topic: Any) -> tuple[int, Any]:
    body = {
        "applied_epoch": broker.epoch,
        "store": broker.store,
        "process": broker.process,
        "seconds": 1.0,
        "topics": [{"topic": "t", **topic}],
    }
    status, answer = broker.distributor.settled("POST", f"/brokers/{broker.name}/report", body)
    if status == 200:
        broker.epoch = answer["epoch"]
        broker.shares = {each["topic"]: each for each in answer["topics"]}
    return status, answer


def busy(broker: FakeBroker, rate: int = 150) -> None:
    """A second's report of messages that came one by one, of which 60 wait."""
    arrivals = [(1000 - 1000 * place / rate, 1) for place in range(rate)]
    status, answer = report(broker, offered=float(rate), arrivals=arrivals, waiting=60.0)
    assert status == 200, answer


def total(near: Sequence[FakeBroker], away: Sequence[FakeBroker] = ()) -> tuple[float, float]:
    """What all of them may hold: those that are away their safe shares."""
    rate = sum(share(each)["rate"] for each in near) + sum(share(e)["safe_rate"] for e in away)
    burst = sum(share(each)["burst"] for each in near) + sum(share(e)["safe_burst"] for e in away)
    return rate, burst


def test_half_of_the_brokers_are_cut_off(start: Starter, tmp_path: Path) -> None:
    """While their leases last nothing of theirs moves; then the others get what they cannot hold,
    and give it back."""
    distributor = start(tmp_path / "store.db", f"--lease-duration={LEASE_SECONDS:g}s")
    distributor.wait_leading()
    brokers = placed(distributor, 4)
    near, away = brokers[:2], brokers[2:]
    cut_at = time.monotonic()

    def follows() -> bool:
        busy(near[0])
        report(near[1])
        is_held = time.monotonic() < cut_at + LEASE_SECONDS / 2
        rate, burst = total(brokers) if is_held else total(near, away)
        assert rate <= RATE
        assert burst <= BURST
        return bool(share(near[0])["rate"] > 120)

    wait_for(follows, "b1 has what b3 and b4 cannot hold", 40)
    status, _ = report(away[0])
    assert status == 200
    settle(*brokers)
    assert total(brokers) <= (RATE, BURST)
    assert share(away[0])["rate"] > 0


def test_a_second_distributor_moves_nothing(start: Starter) -> None:
    first = start()
    first.wait_leading()
    b1, b2 = placed(first, 2)
    second = start()
    wait_for(lambda: "waits until it may lead" in second.process.text(), "a second one waits", 20)
    for _ in range(5):
        busy(b1)
        report(b2)
    status, answer = second.call("GET", "/topics/t/adaptation")
    assert (status, "does not lead" in answer["error"]) == (503, True)
    moved = second.call("PUT", "/topics/t/adaptation", {"policy": "off"})
    assert moved[0] == 503
    b1.distributor = second
    assert report(b1, offered=150.0)[0] == 503, "it grants nothing"
    b1.distributor = first
    settle(b1, b2)
    assert total([b1, b2]) <= (RATE, BURST)


def test_a_contract_is_lowered_below_what_is_in_flight(distributor: DistributorProcess) -> None:
    b1, b2 = placed(distributor, 2)
    busy(b1)
    distributor.topic(rate=RATE / 4, burst=BURST / 4)
    for _ in range(4):
        busy(b1)  # 60 messages wait, and 5 are all that may go at once
        report(b2)
    settle(b1, b2)
    assert total([b1, b2]) <= (RATE / 4, BURST / 4)
    assert share(b1)["burst"] >= 1
    refused = distributor.srtm("topic", "set", "t", "--burst=1")
    assert refused.returncode == 2
    assert "leaves less than one message on each of 2 brokers; raise burst to 2" in refused.stderr


def test_a_broker_that_holds_a_share_is_not_forgotten(start: Starter, tmp_path: Path) -> None:
    distributor = start(tmp_path / "store.db", f"--lease-duration={LEASE_SECONDS:g}s")
    distributor.wait_leading()
    b1, b2 = placed(distributor, 2)
    b2.report("t")
    status, refused = distributor.call("DELETE", "/brokers/b2")
    assert status == 409
    assert "broker b2 is in contact" in refused["error"]

    def is_lost() -> bool:
        b1.report("t")
        return bool(distributor.ok("GET", "/brokers")["brokers"][1]["state"] == "lost")

    wait_for(is_lost, "b2 is lost", 20)
    status, refused = distributor.call("DELETE", "/brokers/b2")
    assert (status, refused["error"]) == (409, "broker b2 serves t: place that topic again first")
    distributor.place(policy="lb")
    distributor.ok("DELETE", "/brokers/b2")
    settle(b1)
    assert (share(b1)["rate"], share(b1)["burst"]) == (RATE, BURST)
    # It was not gone: whoever registers anew holds nothing that was given to b1.
    again = distributor.broker("b2", 100.0)
    settle(b1, again)
    assert total([b1, again]) <= (RATE, BURST)


@pytest.mark.parametrize(
    "nonsense",
    [
        pytest.param({"arrivals": [(2.0**52, 1)]}, id="from-the-big-bang"),
        pytest.param({"arrivals": [(0, 2.0**52)]}, id="all-at-once"),
        pytest.param({"arrivals": [(0, 0.25)] * 1_000}, id="quarters-of-messages"),
        pytest.param({"waiting": 2.0**52, "backlog": 2.0**52}, id="all-wait"),
        pytest.param({"batches": [(0, 2.0**52)] * 5_000}, id="batches-without-arrivals"),
        pytest.param(
            {
                "waits": dict.fromkeys(("clock", "seconds", "held"), 2.0**52)
                | {"bins": [(2_000, 2.0**52)] * 2_000}
            },
            id="for-ever",
        ),
        pytest.param({"offered": 1e9, "admitted": 0.0}, id="more-than-any-host-takes"),
    ],
)
def test_what_a_gateway_makes_up_moves_no_more_than_the_contract(
    shared: DistributorProcess, nonsense: dict[str, Any]
) -> None:
    brokers = [FakeBroker(shared, name) for name in ("b1", "b2")]
    for each in brokers:
        each.register()
        each.report("t")
    for number in range(6):
        values = {"offered": 10.0} | nonsense
        body = {
            "applied_epoch": brokers[0].epoch,
            "store": brokers[0].store,
            "process": "",
            "answered": number,
            "round_trip": 0.01,
            "seconds": 1.0,
            "topics": [{"topic": "t", **values}],
        }
        status, answer = shared.call("POST", "/brokers/b1/report", body)
        assert status == 200, answer
        brokers[0].epoch = answer["epoch"]
        brokers[0].shares = {each["topic"]: each for each in answer["topics"]}
        brokers[1].report("t")
        time.sleep(0.12)  # it decides ten times a second
    assert total(brokers) <= (RATE, BURST)
    assert shared.ok("GET", "/topics/t/penalty")["unknown"], "nothing is made of it"
    assert shared.ok("GET", "/topics/t/adaptation")["policy"] == "srtm"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DistributorProcess]:
    with distributors_in(tmp_path_factory.mktemp("shared")) as start:
        found = start()
        found.wait_leading()
        placed(found, 2)
        yield found
        assert "Traceback" not in found.process.text()
