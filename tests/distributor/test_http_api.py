"""`srtm distributor` as a process: brokers, topics, publishers, placements."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.distributors import DistributorProcess, distributors_in, settle
from tests.support.servers import http


def test_from_a_registration_to_a_place(distributor: DistributorProcess) -> None:
    brokers = [distributor.broker(name, 100.0) for name in ("b1", "b2")]
    distributor.topic(keys=["k0", "k1", "k2"], max_wait="2s")
    distributor.publishers(12)
    assert distributor.where("p0") == {
        "id": "p0", "key": "k0", "rate": 10.0, "broker": None, "tcp_address": None, "epoch": 0,
    }  # fmt: skip
    plan = distributor.place()
    assert [(each["name"], each["r"], each["b"]) for each in plan["brokers"]] == [
        ("b1", 75.0, 10.0),
        ("b2", 75.0, 10.0),
    ]
    assert plan["epoch"] == 1
    assert len(plan["assignments"]) == 12
    assert distributor.where("p0")["broker"] is None  # its broker has no share of the topic yet
    desired = brokers[0].report()
    assert (desired.pop("names"), desired["newest"]) == (["t"], 2)
    for of_the_store in ("store", "newest", "proof", "names_version"):
        assert desired.pop(of_the_store)
    assert desired == {
        "epoch": 2,
        "lease_seconds": 30.0,
        "topics": [
            {
                "topic": "t", "rate": 75.0, "burst": 10.0, "mode": "delay", "max_wait": "2s",
                "slo": "0.99@1ms", "safe_rate": 7.5, "safe_burst": 1.0,
                "arrivals": True, "publishers": False, "emptied": 0, "topic_rate": 150.0,
                "topic_burst": 20.0, "batch": 1, "batches": "whole", "fair": None,
                "lease_grace": None,
            }
        ],
        "suspended": [],
        "report_seconds": 1.0,
        "unplaced": "floor",
        "keys": [],
    }  # fmt: skip
    settle(*brokers)
    placed = {each["publisher"]: each["broker"] for each in plan["assignments"]}
    for publisher, broker in placed.items():
        place = distributor.where(publisher)
        assert (place["broker"], place["tcp_address"]) == (broker, f"{broker}:4150")
        assert place["epoch"] == 1
    shown = distributor.ok("GET", "/brokers/b1/desired")
    assert shown["topics"] == brokers[0].report()["topics"]


def test_a_dry_run_changes_nothing(distributor: DistributorProcess) -> None:
    distributor.broker("b1")
    distributor.topic()
    distributor.publishers(3)
    dry = distributor.place(dry_run=True)
    assert dry["epoch"] is None
    assert distributor.call("GET", "/topics/t/placements/current")[0] == 404
    assert distributor.ok("GET", "/topics/t/placements") == {"placements": []}
    applied = distributor.place()
    assert {**applied, "epoch": None, "at": None} == dry


def test_history_is_newest_first_with_reasons(distributor: DistributorProcess) -> None:
    for name in ("b1", "b2"):
        distributor.broker(name)
    distributor.topic()
    distributor.publishers(6)
    distributor.place(policy="lb")
    distributor.place()
    history = distributor.ok("GET", "/topics/t/placements")["placements"]
    assert [each["policy"] for each in history] == ["srtm", "lb"]
    assert history[0]["epoch"] > history[1]["epoch"]
    assert all(each["reasons"] for each in history)
    current = distributor.ok("GET", "/topics/t/placements/current")
    assert (current["policy"], current["epoch"]) == ("srtm", history[0]["epoch"])


def test_a_drained_broker_loses_its_publishers_with_the_next_placement(
    distributor: DistributorProcess,
) -> None:
    b1, b2 = distributor.placed(1000.0, 900.0, publishers=4)
    assert b1.shares["t"]["rate"] == 150.0
    shown = distributor.ok("POST", "/brokers/b1/drain", {"drain": True})
    assert (shown["state"], shown["allocated"]) == ("draining", 40.0)
    assert distributor.where("p0")["broker"] == "b1"
    distributor.place()
    b1.report("t")
    assert (b1.shares["t"]["rate"], b1.shares["t"]["burst"]) == (7.5, 1.0)  # its floor
    assert distributor.where("p0")["broker"] == "b1"  # until b2 has a share
    b2.report()
    assert "t" not in b2.shares  # until b1's shrink is acknowledged
    b1.report("t")
    b2.report()
    b2.report()
    assert distributor.where("p0")["broker"] == "b2"
    assert b2.shares["t"]["burst"] == pytest.approx(19.0)
    assert {each["name"]: each["topics"] for each in distributor.ok("GET", "/brokers")["brokers"]}
    distributor.ok("POST", "/brokers/b1/drain", {"drain": False})
    assert distributor.ok("GET", "/brokers")["brokers"][0]["state"] == "up"


def test_keep_moves_nobody_and_places_the_new(distributor: DistributorProcess) -> None:
    brokers = [distributor.broker(name, 100.0) for name in ("b1", "b2")]
    distributor.topic()
    distributor.publishers(3)
    before = {each["publisher"]: each["broker"] for each in distributor.place()["assignments"]}
    settle(*brokers)
    distributor.publishers(15)
    after = {
        each["publisher"]: each["broker"] for each in distributor.place(keep=True)["assignments"]
    }
    assert len(after) == 15
    assert {each: after[each] for each in before} == before


def test_a_changed_contract_is_split_by_the_same_rates(distributor: DistributorProcess) -> None:
    brokers = distributor.placed(60.0, 60.0, publishers=12)
    distributor.topic(rate=300.0, burst=40.0)
    settle(*brokers)
    assert [(each.shares["t"]["rate"], each.shares["t"]["burst"]) for each in brokers] == [
        (150.0, 20.0),
        (150.0, 20.0),
    ]
    status, refused = distributor.call("PUT", "/topics/t", {"rate": 300.0, "burst": 1.0})
    assert status == 409
    assert "raise burst to 2" in refused["error"]


def test_an_older_epoch_decides_nothing_but_is_answered(distributor: DistributorProcess) -> None:
    b1, b2 = distributor.placed(1000.0, 900.0, publishers=4)
    old = b1.epoch
    distributor.ok("POST", "/brokers/b1/drain", {"drain": True})
    distributor.place()
    b1.report("t")
    late = distributor.ok("POST", "/brokers/b1/report", {"applied_epoch": old - 1})
    assert late["epoch"] == b1.epoch
    assert distributor.ok("GET", "/brokers")["brokers"][0]["applied_epoch"] == old
    b2.report()
    assert b2.shares == {}  # the late report was no acknowledgement
    b1.report("t")
    b2.report()
    assert "t" in b2.shares


def test_topics_that_a_gateway_has_are_told_again_only_when_it_asks(
    distributor: DistributorProcess,
) -> None:
    [broker] = distributor.placed(1000.0, publishers=2)
    has = {"applied_epoch": broker.epoch, "whole": False}
    same = distributor.ok("POST", "/brokers/b1/report", has)
    assert (same["topics"], same["epoch"]) == (None, broker.epoch)
    for more in ({"whole": True}, {"applied_epoch": broker.epoch - 1}, {"store": "another"}):
        answer = distributor.ok("POST", "/brokers/b1/report", has | more)
        assert [each["topic"] for each in answer["topics"]] == ["t"]
    distributor.topic(rate=90.0)
    changed = distributor.ok("POST", "/brokers/b1/report", has)
    assert [each["topic_rate"] for each in changed["topics"]] == [90.0]
    assert changed["epoch"] > broker.epoch


@pytest.mark.parametrize("epoch", [9, 5000, 2**52, 2**61])
def test_an_epoch_that_was_never_given_out_is_refused_and_harms_nobody(
    distributor: DistributorProcess, epoch: int
) -> None:
    broker, liar = distributor.placed(1000.0, 1000.0, publishers=1)
    before, largest = broker.epoch, max(broker.epoch, liar.epoch)
    lie = {"applied_epoch": epoch, "store": liar.store}
    status, refused = distributor.call("POST", "/brokers/b2/report", lie)
    assert status == 400
    assert f"shows epoch {epoch}, and {largest} is the largest" in refused["error"]
    liar.epoch = epoch
    status, refused = distributor.call("POST", "/brokers", liar.description())
    assert status == 400
    assert "no distributor has given out" in refused["error"]
    assert "srtm_distributor_refused_epochs_total 2.0\n" in http(distributor.address, "/metrics")[1]
    assert broker.report()["epoch"] == before
    assert distributor.ok("GET", "/health")["warnings"] == []


def test_a_deleted_topic_is_taken_from_its_brokers(distributor: DistributorProcess) -> None:
    [broker] = distributor.placed(1000.0, publishers=2)
    assert "t" in broker.shares
    distributor.ok("DELETE", "/topics/t")
    settle(broker)
    assert broker.shares == {}
    assert distributor.ok("GET", "/brokers")["brokers"][0]["topics"] == []
    assert distributor.call("GET", "/topics/t")[0] == 404
    distributor.topic()
    assert distributor.ok("GET", "/topics/t")["publishers"] == 0


def test_a_publisher_can_leave(distributor: DistributorProcess) -> None:
    distributor.topic()
    distributor.publishers(2)
    distributor.ok("DELETE", "/topics/t/publishers/p0")
    assert distributor.call("GET", "/topics/t/publishers/p0")[0] == 404
    assert distributor.ok("GET", "/topics/t")["publishers"] == 1


def test_names_with_every_sign_come_through(distributor: DistributorProcess) -> None:
    distributor.topic()
    body = {"publishers": [{"id": "a/b ß?", "key": None, "rate": 1}]}
    distributor.ok("POST", "/topics/t/publishers", body)
    assert distributor.where("a%2Fb%20%C3%9F%3F")["id"] == "a/b ß?"
    distributor.broker("Hall_3.[::1]:4150-b").report()


def test_registering_again_is_no_fault_and_keeps_the_place(distributor: DistributorProcess) -> None:
    distributor.placed(1000.0, publishers=2)
    distributor.publishers(2, rate=20.0)
    place = distributor.where("p0")
    assert (place["rate"], place["broker"]) == (20.0, "b1")
    body = {"name": "b1", "tcp_address": "b1:4150", "http_address": "b1:4151", "capacity": None}
    distributor.ok("POST", "/brokers", body)
    shown = distributor.ok("GET", "/brokers")["brokers"][0]
    assert (shown["capacity"], shown["allocated"]) == (1000.0, 40.0)


def rows(*publishers: dict[str, Any]) -> dict[str, Any]:
    return {"publishers": list(publishers)}


P = {"id": "p", "rate": 1.0}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        pytest.param("POST", "/topics/t/publishers", rows(P, P), 400, "publisher p is given twice",
                     id="the-same-id-twice"),
        pytest.param("POST", "/topics/t/publishers", rows({**P, "key": "z"}), 400,
                     'publisher p: key "z" is none of the 2', id="a-key-outside"),
        pytest.param("POST", "/topics/t/publishers", rows({**P, "rate": -1}), 400,
                     "publishers.0.rate", id="a-negative-rate"),
        pytest.param("POST", "/topics/t/publishers", rows({**P, "rate": "1"}), 400,
                     "publishers.0.rate", id="a-rate-as-text"),
        pytest.param("POST", "/topics/t/publishers", rows({**P, "rat": 1}), 400,
                     "publishers.0.rat", id="an-unknown-field"),
        pytest.param("POST", "/topics/t/publishers", rows(), 400, "publishers", id="nobody"),
        pytest.param("POST", "/topics/t/publishers", b"{", 400, "Invalid JSON", id="no-json"),
        pytest.param("POST", "/topics/t/publishers", b"[" * 90_000, 400, "Invalid JSON",
                     id="json-too-deep"),
        pytest.param("POST", "/topics/x/publishers", rows(P), 404, "topic x is not registered",
                     id="an-unknown-topic"),
        pytest.param("POST", "/topics/t/placements", {}, 409, "topic t has no publishers",
                     id="a-topic-with-no-publishers"),
        pytest.param("POST", "/topics/t/placements", {"policy": "best"}, 400, "policy",
                     id="an-unknown-policy"),
        pytest.param("POST", "/topics/t/placements", {"policy": "lb", "keep": True}, 400,
                     "keep goes with policy srtm", id="keep-with-another-policy"),
        pytest.param("PUT", "/topics/t", {"rate": 1, "burst": 0.5}, 400, "topic t: burst",
                     id="a-burst-under-one"),
        pytest.param("PUT", "/topics/t", {"rate": 1, "burst": 2, "slo": "x"}, 400,
                     "'x' is not an SLO", id="no-slo"),
        pytest.param("PUT", "/topics/a%20b", {"rate": 1, "burst": 2}, 400, "not a topic name",
                     id="a-bad-topic-name"),
        pytest.param("POST", "/brokers/x/report", {"applied_epoch": 0}, 404,
                     "broker x is not registered", id="a-report-of-nobody"),
        pytest.param("POST", "/brokers", {"name": "a b", "tcp_address": "h:1",
                     "http_address": "h:1"}, 400, "name", id="a-bad-broker-name"),
        pytest.param("GET", "/topics/t/watch", None, 400, "ids", id="a-watch-of-nobody"),
        pytest.param("GET", "/topics/x/watch?id=p", None, 404, "topic x", id="a-watch-of-no-topic"),
        pytest.param("GET", "/nothing", None, 404, "no such path", id="an-unknown-path"),
        pytest.param("PATCH", "/brokers", None, 405, "no such method", id="an-unknown-method"),
        pytest.param("DELETE", "/brokers", None, 405, "takes GET, POST", id="the-wrong-method"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(
    shared_distributor: DistributorProcess,
    method: str,
    path: str,
    body: object,
    status: int,
    said: str,
) -> None:
    found, answer = shared_distributor.call(method, path, body)
    assert (found, list(answer)) == (status, ["error"])
    assert said in answer["error"]
    assert "\n" not in answer["error"]
    assert len(answer["error"]) < 600
    assert shared_distributor.ok("GET", "/topics/t")["publishers"] == 0


@pytest.fixture(scope="module")
def shared_distributor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DistributorProcess]:
    with distributors_in(tmp_path_factory.mktemp("shared")) as start:
        running = start()
        running.wait_leading()
        running.topic(keys=["k", "l"])
        yield running


def test_rates_that_fit_no_broker_are_told_and_not_applied(distributor: DistributorProcess) -> None:
    distributor.broker("b1", 5.0)
    distributor.topic()
    distributor.publishers(3)
    dry = distributor.place(dry_run=True)
    assert len(dry["unplaced"]) == 3
    status, refused = distributor.call("POST", "/topics/t/placements", {})
    assert status == 409
    assert "it would place nobody" in refused["error"]
    assert distributor.ok("GET", "/topics/t")["epoch"] is None


def test_without_room_for_a_message_on_each_broker_nothing_is_applied(
    distributor: DistributorProcess,
) -> None:
    distributor.placed(1000.0, 900.0, publishers=2, burst=1.0)
    distributor.ok("POST", "/brokers/b1/drain", {"drain": True})
    status, refused = distributor.call("POST", "/topics/t/placements", {})
    assert status == 409
    assert "raise burst to 2" in refused["error"]
    assert distributor.where("p0")["broker"] == "b1"


def test_keys_that_publishers_have_cannot_be_taken_away(distributor: DistributorProcess) -> None:
    distributor.topic()
    distributor.publishers(3)
    body = {"rate": 150.0, "burst": 20.0, "keys": ["k0"]}
    status, refused = distributor.call("PUT", "/topics/t", body)
    assert status == 400
    assert '"k1"' in refused["error"]
    assert distributor.ok("GET", "/topics/t")["keys"] is None
