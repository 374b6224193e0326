"""What a consumer counts of the ages of its messages."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from srtm.consumer.ages import MOST_SAMPLES, MOST_TOPICS, Ages
from srtm.consumer.batch import Record
from srtm.consumer.teller import Teller
from srtm.host.clock import boot_id
from srtm.http.client import Endpoint
from srtm.limits.bins import key_of
from srtm.limits.slots import SLOT_NS, level_of, slot_of
from srtm.nsq.checksum import checksum

MS = 1_000_000
START = 1_790_000_000_000_000_000  # ns, in 2026


def record(received: int, body: bytes = b"x", topic: str = "", kafka: int = 0) -> Record:
    """A message that nsqd received then, and Kafka, where it passed it."""
    headers = [("nsq-time", b"%d" % received)]
    if topic:
        headers.append(("nsq-topic", topic.encode()))
    at = (kafka or received) / 1e9
    return Record("k", 0, 0, None, body, tuple(headers), at)


def test_the_parts_of_an_age() -> None:
    ages = Ages("")
    one = record(START, b"body", "alarms", kafka=START + 8 * MS)
    ages.see([one], START + 20 * MS, START + 25 * MS)
    found = ages.report()
    assert found["unknown"] == 0
    [(name, topic)] = found["topics"].items()
    assert (name, topic["count"], topic["level"]) == ("alarms", 1, 0)
    assert list(topic["bridge"]) == [key_of(0.008)]
    assert list(topic["consumer"]) == [key_of(0.017)]
    [(received, of_body, bridge, queue, processing)] = topic["samples"]
    assert (received, of_body) == (START, checksum(b"body"))
    assert (round(bridge / MS), round(queue / MS), round(processing / MS)) == (8, 12, 5)


def test_a_report_begins_anew() -> None:
    ages = Ages("t")
    ages.see([record(START)], START + MS, START + 2 * MS)
    assert ages.report()["topics"]["t"]["count"] == 1
    assert ages.report() == {"unknown": 0, "topics": {}}


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param((), id="none"),
        pytest.param((("nsq-time", None),), id="no-time"),
        pytest.param((("nsq-time", b"soon"),), id="no-number"),
        pytest.param((("nsq-time", b"9" * 40),), id="a-long-number"),
        pytest.param((("nsq-time", b"9" * 19),), id="no-time-that-could-be"),
        pytest.param((("nsq-time", "\u0663".encode()),), id="another-alphabets-digit"),
    ],
)
def test_what_others_have_written_is_unknown(headers: Any) -> None:
    ages = Ages("t")
    ages.see([Record("k", 0, 0, None, None, headers, None)], START, START)
    assert ages.report() == {"unknown": 1, "topics": {}}


def test_messages_of_many_topics_take_no_more_room() -> None:
    ages = Ages("")
    ages.see([record(START, topic=f"t{n}") for n in range(MOST_TOPICS + 5)], START, START)
    found = ages.report()
    assert len(found["topics"]) == MOST_TOPICS
    assert found["unknown"] == 5


def test_many_messages_are_told_of_by_slots() -> None:
    """And with fewer again the samples grow dense."""
    ages = Ages("t")
    many = 20 * MOST_SAMPLES
    for _ in range(3):
        ages.see([record(START + n * SLOT_NS // 4) for n in range(many)], START, START)
        topic = ages.report()["topics"]["t"]
        level = topic["level"]
        assert topic["count"] == many
        assert 0 < len(topic["samples"]) <= MOST_SAMPLES
        assert level > 0
        assert all(level_of(slot_of(received)) >= level for received, *_ in topic["samples"])
    for _ in range(level):
        ages.see([record(START)], START, START)
        ages.report()
    ages.see([record(START)], START, START)
    assert ages.report()["topics"]["t"]["level"] == 0


ANSWER = {"boot_id": boot_id(), "wall_ns": 1, "topics": ["t"]}


class Journey(BaseHTTPRequestHandler):
    """The far side of a teller. reports: what came; answers: what is said to each, or a status"""

    reports: list[dict[str, Any]]
    answers: list[Any]

    def do_POST(self) -> None:
        self.reports.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        answer = self.answers.pop(0) if self.answers else dict(ANSWER)
        self.send_response(answer if isinstance(answer, int) else 200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def journey() -> Iterator[tuple[str, type[Journey]]]:
    class Fresh(Journey):
        reports, answers = [], []

    server = HTTPServer(("127.0.0.1", 0), Fresh)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}", Fresh
    server.shutdown()
    server.server_close()


def test_reports_name_the_consumer_and_its_clock(journey: tuple[str, type[Journey]]) -> None:
    address, far = journey
    far.answers += [{**ANSWER, "boot_id": "another", "wall_ns": START}, 503]
    ages = Ages("t")
    teller = Teller(ages, Endpoint(address), {"topic": "t", "channel": "c"}, "me")
    for _ in range(3):
        ages.see([record(START)], START, START)
        teller._tell()
    assert [each["topics"]["t"]["count"] for each in far.reports] == [1, 1, 1]
    assert all((each["consumer"], each["channel"]) == ("me", "c") for each in far.reports)
    assert "clock" not in far.reports[0]
    clock = far.reports[1]["clock"]
    assert clock["error_ns"] >= 0
    assert clock["offset_ns"] < 0  # 2026-09 is over
    assert far.reports[2]["lost"] == 1  # the one that was answered with 503


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({**ANSWER, "wall_ns": float("inf")}, id="a-time-that-is-none"),
        pytest.param({**ANSWER, "wall_ns": None}, id="no-time"),
        pytest.param({"boot_id": "b"}, id="a-part"),
        pytest.param([1], id="a-list"),
        pytest.param("x" * 100_000, id="long"),
        pytest.param({**ANSWER, "topics": 5}, id="no-topics"),
    ],
)
def test_whatever_the_journey_answers_the_teller_goes_on(
    journey: tuple[str, type[Journey]], answer: Any
) -> None:
    address, far = journey
    far.answers.append(answer)
    ages = Ages("t")
    teller = Teller(ages, Endpoint(address), {}, "me")
    for _ in range(2):
        ages.see([record(START)], START, START)
        teller._tell()
    assert teller.lost == 1
    assert len(far.reports) == 2


def test_only_topics_that_the_journey_asks_for_are_told(journey: tuple[str, type[Journey]]) -> None:
    address, far = journey
    ages = Ages("")
    teller = Teller(ages, Endpoint(address), {}, "me")
    ages.see([record(START, topic="t")], START, START)
    teller._tell()
    ages.see([record(START, topic=f"made-up-{n}") for n in range(100)], START, START)
    ages.see([record(START, topic="t")], START, START)
    teller._tell()
    assert list(far.reports[1]["topics"]) == ["t"]
    assert far.reports[1]["unknown"] == 100


def test_a_consumer_that_nobody_hears_keeps_no_more() -> None:
    ages = Ages("t")
    for _ in range(50):
        ages.see([record(START + n * MS) for n in range(2_000)], START, START)
    seen = ages._topics["t"]
    assert seen.count == 100_000
    assert len(seen._durations) < 20_000
    assert sum(ages.report()["topics"]["t"]["consumer"].values()) == 100_000


def test_a_journey_that_is_away_costs_its_report_and_no_more() -> None:
    ages = Ages("t")
    teller = Teller(ages, Endpoint("127.0.0.1:1"), {}, "me")
    ages.see([record(START)] * 3, START, START)
    teller._tell()
    assert teller.lost == 3
    assert ages.report()["topics"] == {}
