"""Journeys over the real parts: nsqd, a gateway, consumers, and a bridge with Kafka."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from srtm.host.clock import boot_id
from srtm.journey.causes import Leg
from srtm.journey.file import read_journeys
from srtm.journey.leg_report import place_of
from srtm.journey.resplit import Standing
from srtm.journey.state import SplitDecision, State
from srtm.limits.slo import SLO
from srtm.nsq.commands import pub
from tests.support.kafka import Kafka
from tests.support.programs import SRTM, run_srtm
from tests.support.servers import GatewayProcess, Process, Servers, free_port, http, wait_for
from tests.support.v2 import V2

WORK = """
import json, time
from pathlib import Path

HERE = Path(__file__).parent


def handle(records):
    time.sleep(0.005)
    return records


def keep(results, batch):
    now = time.time_ns()
    with open(HERE / "ages.txt", "a") as file:
        file.writelines(f"{now - int(each.value)}\\n" for each in results)
"""
COUNT = 60
COUNTS = {"lost": 0, "unknown": 0}


class Journey:
    """`srtm journey run` of one journey to a consumer, whose sink notes ages by the publisher's own
    clock."""

    def __init__(self, servers: Servers, gateway: GatewayProcess) -> None:
        self.servers = servers
        self.gateway = gateway
        self.folder = servers.folder / "journey"
        self.folder.mkdir()
        self.address = f"127.0.0.1:{free_port()}"
        (self.folder / "work.py").write_text(WORK)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def journeys(self, slo: str = "0.9@5s", more: str = "") -> Path:
        return self.write(
            "journeys.toml",
            f"""
            [journeys]
            http-address = "{self.address}"

            [[journey]]
            topic = "alarms"
            slo = "{slo}"
            consumers = "consumers.toml"
            {more}
            """,
        )

    def consumers(self, source: str) -> Path:
        return self.write(
            "consumers.toml",
            f"""
            {source}
            [consumer]
            process = "work:handle"
            sink = "callback"
            callback = "work:keep"
            journey-address = "{self.address}"
            """,
        )

    def pool(self) -> Path:
        return self.consumers(
            f"""
            [nsq]
            topic = "alarms"
            channel = "handlers"
            nsqd = ["{self.gateway.tcp}"]
            nsqd-http = ["{self.gateway.http}"]
            [group]
            slo = "0.99@2s"
            """
        )

    def group(self, kafka: Kafka, topic: str, handover: str = "direct") -> Path:
        return self.consumers(
            f"""
            [kafka]
            bootstrap-servers = "{kafka.address}"
            [group]
            topic = "{topic}"
            id = "{topic}-workers"
            slo = "0.99@2s"
            handover = "{handover}"
            """
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        """The service and one consumer."""
        ours = [
            self.start("journey-run", "journey", "run", str(self.folder / "journeys.toml")),
            self.start("consume", "consume", str(self.folder / "consumers.toml")),
        ]
        try:
            wait_for(lambda: self.told()["fault"] == "", "gateway and consumer tell")
            yield
        finally:
            for each in ours:
                each.stop()

    def start(self, name: str, *arguments: str) -> Process:
        return self.servers.process(name, [*SRTM, *arguments])

    def told(self) -> dict[str, Any]:
        try:
            document = http(self.address, "/stats")[1]
        except OSError:
            return {"fault": "not there yet"}
        assert isinstance(document, dict)
        [found] = document["journeys"]
        assert isinstance(found, dict)
        return found

    def publish(self, count: int = COUNT) -> None:
        with V2(self.gateway.tcp) as publisher:
            for _ in range(count):
                publisher.send(pub(b"alarms", b"%d" % time.time_ns()))
                assert publisher.reply() == b"OK"

    def kept(self) -> list[int]:
        """Ages by the publisher's own clock, ns."""
        path = self.folder / "ages.txt"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def measured(self) -> dict[str, Any]:
        """Once every message's age is known."""
        return wait_for(
            lambda: (found := self.told())["count"] >= COUNT and found, "all ages are known"
        )


@pytest.fixture
def journey(servers: Servers) -> Journey:
    return Journey(servers, servers.gateway("--topic", "alarms,rate=1000,burst=10,slo=0.99@50ms"))


def test_ages_are_those_that_the_consumer_sees_itself(journey: Journey) -> None:
    """The publisher's clock is read before its PUB, so each age by it is a little longer."""
    journey.pool()
    journey.journeys()
    with journey.running():
        journey.publish()
        found = journey.measured()
        kept = sorted(journey.kept())
        another = {"topic": "alarms", "channel": "handlers", "consumer": "b", "topics": {}}
        counts = {"boot_id": boot_id(), "lost": 3000, "unknown": 2}
        assert http(journey.address, "/ages", json.dumps(another | counts).encode())[0] == 200
        shown = run_srtm("journey", "show", "--journey-address", journey.address)
        assert "alarms" in shown.stdout
        assert "token wait" in shown.stdout
        assert "alarms: 3,000 messages are in no figure: the reports" in shown.stdout
        assert "alarms: 2 messages are in no figure: they have no time" in shown.stdout
        metrics = http(journey.address, "/metrics")[1]
        assert 'srtm_journey_matched_messages_total{journey="alarms"} 60.0' in metrics
        assert 'srtm_journey_lost_messages_total{journey="alarms"} 3000.0' in metrics
        assert 'srtm_journey_unknown_messages_total{journey="alarms"} 2.0' in metrics
    assert len(kept) == COUNT
    assert (found["message_count"], found["unmatched_count"]) == (COUNT, 0)
    assert found["clock_error_seconds"] == 0
    assert found["budget_left"] == 1
    # The sink's work after its own look at the clock is in the age that is told.
    middle = kept[COUNT // 2 - 1] / 1e9
    assert abs(found["p50_seconds"] - middle) < max(0.02 * middle, 0.02)
    assert list(found["causes"]) == ["token wait", "gateway", "queue", "processing"]
    assert found["causes"]["processing"] > 0.005


def test_a_journey_over_a_bridge_and_kafka(journey: Journey, kafka: Kafka) -> None:
    topic = kafka.create("events", 2)
    journey.group(kafka, topic, handover="assignor")
    bridge = journey.write(
        "bridge.toml",
        f"""
        [bridge]
        http-address = "127.0.0.1:{free_port()}"
        [kafka]
        bootstrap-servers = "{kafka.address}"
        [[route]]
        from = "nsq:alarms/bridge"
        to = "kafka:{topic}"
        nsqd = ["{journey.gateway.tcp}"]
        slo = "0.99@1s"
        """,
    )
    journey.journeys(
        more=f"""
        bridge = "bridge.toml"
        nsqd-http = ["{journey.gateway.http}"]
        """
    )
    carries = journey.start("bridge", "bridge", "run", str(bridge))
    try:
        with journey.running():
            journey.publish()
            found = journey.measured()
            kept = journey.kept()
    finally:
        carries.stop()
    assert len(kept) == COUNT
    assert list(found["causes"]) == ["token wait", "gateway", "bridge", "queue", "processing"]
    assert [each["leg"] for each in found["legs"]] == ["broker", "bridge", "consumer"]
    assert all(each["count"] == COUNT for each in found["legs"])
    assert found["unmatched_count"] == 0


def standing(journey: Journey, slo: str, **slos: str) -> None:
    """Leave a split in force, as a service before this one does."""
    state = State(journey.folder / "journeys.journeys.json")
    found = {Leg(leg): SLO.parse(slo) for leg, slo in slos.items()}
    [row] = read_journeys(journey.folder / "journeys.toml").all
    places = {leg: place_of(row, leg) for leg in found}
    split = Standing(SLO.parse(slo), found, 1.0, 1.7e9, places)
    state.decide("alarms", split, SplitDecision(1.7e9, "a", "b", {}))


def test_a_pool_keeps_the_slo_that_the_journey_wants(journey: Journey) -> None:
    door = f"127.0.0.1:{free_port()}"
    path = journey.pool()
    path.write_text(f'{path.read_text()}\n[controller]\nhttp-address = "{door}"\n')
    journey.journeys()
    standing(journey, "0.9@5s over 1h", broker="0.99@40ms", consumer="0.95@1500ms over 1h")
    journey.publish(1)

    def keeps(slo: str) -> bool:
        try:
            return bool(http(door, "/stats")[1].get("slo") == slo)
        except OSError:
            return False

    def ended(mode: str) -> str:
        """The service with this mode, until the controller has taken up what it says."""
        service = journey.start("journey-run", "journey", "run", str(journey.journeys(more=mode)))
        slo = "0.95@1.5s over 1h" if "auto" in mode else "0.99@2s over 1h"
        wait_for(lambda: keeps(slo), f"the pool keeps {slo}")
        shown = run_srtm("journey", "explain", "--journey-address", journey.address).stdout
        assert service.stop() == 0
        return shown

    controller = journey.start("autoscale", "autoscale", "run", str(path))
    try:
        shown = ended('split = "auto"')
        assert "0.95@1.5s over 1h" in shown
        assert "for 1.00 consumers" in shown
        assert "s ago" in shown
        assert "a split is proposed, and not set" in ended('split = "propose"')
    finally:
        controller.stop()
        stopped = run_srtm("autoscale", "stop", str(path))
    assert stopped.returncode == 0, stopped.stderr
    assert "SLO 0.95@1.5s over 1h from now on" in controller.text()


def test_a_bridge_keeps_the_slo_that_the_journey_wants(journey: Journey, kafka: Kafka) -> None:
    topic, door = kafka.create("aimed"), f"127.0.0.1:{free_port()}"
    journey.group(kafka, topic)
    bridge = journey.write(
        "bridge.toml",
        f"""
        [bridge]
        http-address = "{door}"
        journey-address = "{journey.address}"
        [kafka]
        bootstrap-servers = "{kafka.address}"
        [[route]]
        from = "nsq:alarms/bridge"
        to = "kafka:{topic}"
        nsqd = ["{journey.gateway.tcp}"]
        """,
    )
    path = journey.journeys(
        more=f"""
        bridge = "bridge.toml"
        nsqd-http = ["{journey.gateway.http}"]
        split = "auto"
        """
    )
    standing(
        journey,
        "0.9@5s over 1h",
        broker="0.99@40ms",
        bridge="0.999@20ms",
        consumer="0.95@1s over 1h",
    )
    ours = [
        journey.start("bridge", "bridge", "run", str(bridge)),
        journey.start("journey-run", "journey", "run", str(path)),
    ]

    def keeps(slo: str) -> bool:
        try:
            routes = http(door, "/stats")[1]["routes"]
        except OSError:
            return False
        return [each.get("slo") for each in routes] == [slo]

    try:
        journey.publish(20)
        wait_for(lambda: keeps("0.999@20ms"), "the route keeps it")
        journey.publish(20)
        wait_for(lambda: kafka.count(topic) == 40, "all are there")
    finally:
        for each in ours:
            each.stop()
    assert "SLO 0.999@20ms, as the journey wants it" in ours[0].text()


LEG_REPORTS: list[tuple[Any, int, object]] = [
    ({"legs": []}, 200, {"slos": []}),
    ({}, 400, "no report of legs"),
    ({"legs": 5}, 400, "no report of legs"),
    ({"legs": [{}] * 257}, 400, "256 at most"),
    ({"legs": [{"leg": "broker"}]}, 400, "is asked for"),
    (
        {"legs": [{"leg": "consumer", "topic": "x", "channel": "y", "slo": "0.9@1s over 1h"}]},
        200,
        {"slos": [None]},
    ),
]


def test_reports_of_legs(journey: Journey) -> None:
    journey.pool()
    service = journey.start("run", "journey", "run", str(journey.journeys()))
    wait_for(lambda: "gateways" in journey.told(), "it is there")
    for report, status, says in LEG_REPORTS:
        found, said, _ = http(journey.address, "/legs", json.dumps(report).encode())
        assert found == status, report
        assert said == says if isinstance(says, dict) else str(says) in str(said), report
    assert service.stop() == 0
    assert "Traceback" not in service.text()


def test_one_service_keeps_the_splits_of_a_file(journey: Journey) -> None:
    journey.pool()
    path = journey.journeys(more='split = "propose"')
    service = journey.start("run", "journey", "run", str(path))
    wait_for(lambda: journey.told()["fault"] != "not there yet", "the service answers")
    second = run_srtm("journey", "run", str(path))
    assert second.returncode == 3
    assert "another srtm journey run keeps its splits there" in second.stderr
    assert service.stop() == 0


def test_check_says_what_settings_promise(journey: Journey) -> None:
    journey.pool()
    path = journey.journeys(slo="0.98@3s")
    found = run_srtm("journey", "check", str(path))
    assert found.returncode == 0
    assert "(broker 0.99@50ms, consumer 0.99@2s over 1h) promise 0.98@2.05s" in found.stdout
    path = journey.journeys(slo="0.99@3s")
    found = run_srtm("journey", "check", str(path))
    assert found.returncode == 0
    assert "by themselves, and not 0.99@3s" in found.stdout
    assert "a batch of" not in found.stdout
    pool = journey.pool()
    pool.write_text(pool.read_text().replace("[group]", "[group]\nmu = 100"))
    found = run_srtm("journey", "check", str(path))
    assert "a batch of 500 messages takes 5s at mu = 100" in found.stdout
    assert "give [consumer] batch = 50 or less" in found.stdout


def test_check_of_a_topic_without_an_slo(servers: Servers) -> None:
    journey = Journey(servers, servers.gateway("--topic", "alarms,rate=1000,burst=10"))
    journey.pool()
    found = run_srtm("journey", "check", str(journey.journeys()))
    assert found.returncode == 3
    assert f"{journey.gateway.http} has no SLO for topic alarms" in found.stdout
    with_door = journey.start("run", "journey", "run", str(journey.folder / "journeys.toml"))
    wait_for(lambda: "NO_SLO" in journey.told()["fault"], "the service says so too")
    assert with_door.stop() == 0


NO_REPORTS: list[tuple[bytes | str, int, str]] = [
    (b"{", 400, ""),
    (b"[]", 400, "no report"),
    (b"[" * 100_000, 400, ""),
    (
        json.dumps(
            {"topic": "t", "group": "g", "consumer": "", "topics": {}, "boot_id": ""} | COUNTS
        ),
        400,
        "no journey ends at topic 't'",
    ),
    (
        json.dumps(
            {
                "topic": "alarms",
                "channel": "handlers",
                "consumer": "me",
                "topics": {"alarms": {"count": 1}},
                "boot_id": "elsewhere",
                "clock": {"error_ns": 5, "offset_ns": 5},
                **COUNTS,
            }
        ),
        400,
        "no report of ages",
    ),
    (
        json.dumps(
            {
                "topic": "alarms",
                "channel": "handlers",
                "consumer": "me",
                "topics": {},
                "boot_id": "",
                "unknown": 0,
                "lost": -5,
            }
        ),
        400,
        "no integer from 0",
    ),
]


def test_reports_that_are_none(journey: Journey) -> None:
    journey.pool()
    journey.journeys()
    service = journey.start("run", "journey", "run", str(journey.folder / "journeys.toml"))
    wait_for(lambda: "gateways" in journey.told(), "it is there")
    for report, status, says in NO_REPORTS:
        body = report.encode() if isinstance(report, str) else report
        found, said, _ = http(journey.address, "/ages", body)
        assert found == status, report
        assert says in str(said), report
    assert service.stop() == 0
    assert "Traceback" not in service.text()
