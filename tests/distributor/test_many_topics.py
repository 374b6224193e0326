"""Many topics in one request, and `srtm topic register` of many files and tables."""

import json
from pathlib import Path
from typing import Any

import pytest

from distributor.api_fields import MAX_PUBLISHERS, MAX_REGISTERED, PublisherAsked
from distributor.cli.topic_file import TopicFile, read_topic_files, upload
from distributor.remote import Remote
from srtm.http.client import Answer, Endpoint
from srtm.limits.contract import Contract
from srtm.text.errors import SrtmError, UnavailableError, UsageError
from tests.support.distributors import DistributorProcess, Starter, settle
from tests.support.servers import wait_for


def topic(name: str, *publishers: str, **more: object) -> dict[str, object]:
    rows = [{"id": each, "rate": 1.0} for each in publishers]
    return {"topic": name, "rate": 100.0, "burst": 10.0, "publishers": rows, **more}


def names(distributor: DistributorProcess) -> list[str]:
    return [each["topic"] for each in distributor.ok("GET", "/topics")["topics"]]


def test_all_of_it_survives_or_nothing(start: Starter, store: str) -> None:
    first = start(store)
    first.wait_leading()
    answer = first.ok("POST", "/topics", {"topics": [topic("a", "p1", "p2"), topic("b")]})
    assert answer == {"topics": 2, "registered": 2}
    wrong = topic("a", "p3", keys=["k"])
    wrong["publishers"] = [{"id": "p3", "key": "other", "rate": 1.0}]
    status, _ = first.call("POST", "/topics", {"topics": [topic("c"), wrong, topic("d")]})
    assert status == 400
    first.process.kill()
    again = start(store)
    again.wait_leading()
    assert names(again) == ["a", "b"]
    assert again.ok("GET", "/topics/a")["publishers"] == 2


@pytest.mark.parametrize(
    ("topics", "status", "said"),
    [
        ([topic("a"), topic("a")], 400, "topic a is given twice"),
        ([topic("a", "p", "p")], 400, "publisher p is given twice"),
        ([topic("a"), topic("b", rate=-1.0)], 400, "topic b"),
        ([topic("a"), topic("no name!")], 400, "no name!"),
        ([topic("a"), topic("b", "p", keys=["x"], publishers=[{"id": "p", "key": "y", "rate": 1}])],
         400, 'key "y" is none of the 1'),
        ([topic("a"), {"topic": "b", "rate": 1.0}], 400, "burst"),
        ([topic("a", burts=1)], 400, "burts"),
        ([], 400, "topics"),
        ([topic(f"t{n}") for n in range(MAX_REGISTERED + 1)], 400, "topics"),
        ([topic("a", *map(str, range(15_000))), topic("b", *map(str, range(15_000)))],
         400, "30,000 publishers"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_one_refuses_all(
    distributor: DistributorProcess, topics: list[Any], status: int, said: str
) -> None:
    found, answer = distributor.call("POST", "/topics", {"topics": topics})
    assert (found, said in answer["error"]) == (status, True), answer
    assert "\n" not in answer["error"]
    assert names(distributor) == []


def test_contracts_in_force_change_and_newcomers_get_a_broker(
    distributor: DistributorProcess,
) -> None:
    broker, *_ = distributor.placed(1000.0, publishers=2)
    change = {"topic": "t", "rate": 90.0, "burst": 9.0, "publishers": [{"id": "new", "rate": 1.0}]}
    distributor.ok("POST", "/topics", {"topics": [change, topic("u")]})
    settle(broker)
    assert (broker.shares["t"]["rate"], broker.shares["t"]["burst"]) == (90.0, 9.0)
    wait_for(lambda: distributor.where("new")["broker"] == "b1", "it gets a broker")
    assert distributor.ok("GET", "/topics/t")["publishers"] == 3


def test_each_topic_has_a_line_in_the_audit_log(start: Starter, tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    distributor = start(tmp_path / "store.db", f"--audit-log={log}")
    distributor.wait_leading()
    distributor.ok("POST", "/topics", {"topics": [topic("a", "p1"), topic("b", rate=5.0)]})
    distributor.call("POST", "/topics", {"topics": [topic("c"), topic("c")]})
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(each["asked"], each["status"]) for each in lines] == [
        (
            {"topic": "a", "rate": 100.0, "burst": 10.0, "mode": "delay", "batch": 1,
             "batches": "whole", "publishers": 1},
            200,
        ),
        (
            {"topic": "b", "rate": 5.0, "burst": 10.0, "mode": "delay", "batch": 1,
             "batches": "whole", "publishers": 0},
            200,
        ),
        ({"topics": 2}, 400),
    ]  # fmt: skip


FLEET = """\
[[topic]]
name = "a"
rate = 100
burst = 10
publishers = "a.csv"

[[topic]]
name = "b"
rate = 50
burst = 5
slo = "0.99@5ms"
publishers = "b.csv"
"""
ALONE = 'name = "c"\nrate = 10\nburst = 2\npublishers = "a.csv"\n'


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    (tmp_path / "a.csv").write_text("id,rate\np1,1\np2,2\n")
    (tmp_path / "b.csv").write_text("id,rate\nq1,1\n")
    (tmp_path / "alone.toml").write_text(ALONE)
    file = tmp_path / "fleet.toml"
    file.write_text(FLEET)
    return file


HINT = "srtm topic list shows which are placed on no broker yet"


def test_files_of_one_and_of_many_topics(distributor: DistributorProcess, fleet: Path) -> None:
    files = (str(fleet), str(fleet.with_name("alone.toml")))
    for _ in range(2):
        done = distributor.srtm("topic", "register", *files)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"3 topics with 5 publishers registered; {HINT}\n"
    told = json.loads(distributor.srtm("topic", "register", *files, "--json").stdout)
    assert told["topics"][1] == {"topic": "b", "registered": 1}
    assert names(distributor) == ["a", "b", "c"]
    assert distributor.ok("GET", "/topics/b")["slo"] == "0.99@5ms"


def test_several_topics_are_placed_by_one_command(
    distributor: DistributorProcess, fleet: Path
) -> None:
    distributor.broker("b1", 1000.0)
    distributor.srtm("topic", "register", str(fleet))
    done = distributor.srtm("placement", "apply", "a", "b")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "topic a: 2 publishers on b1\ntopic b: 1 publisher on b1\n"
    told = json.loads(distributor.srtm("placement", "apply", "b", "a", "--json").stdout)
    assert [each["topic"] for each in told] == ["b", "a"]
    done = distributor.srtm("placement", "apply", "a", "none", "b")
    assert done.returncode == 2
    assert done.stderr.endswith("; 1 of 3 topics are placed\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("topic = []\n", "fleet.toml: topic: write name"),
        (FLEET.replace("burst = 5", "burst = 0"), "fleet.toml: topic 2"),
        (FLEET.replace('"b.csv"', '"none.csv"'), "none.csv"),
        (FLEET.replace('name = "b"', 'name = "a"'), "topic a is there twice"),
        (FLEET.replace('name = "b"\n', ""), "fleet.toml: topic 2: name: needed"),
        (FLEET.replace("slo", "solo"), "fleet.toml: topic 2"),
        ("rate = 5\n" + FLEET, "fleet.toml: rate: write it into a [[topic]]"),
        ('topic = "a"\n', "fleet.toml: topic: write name = ... for one"),
        ("topic = [1, 2]\n", "fleet.toml: topic: write name = ... for one"),
    ],
)
def test_a_bad_file_is_refused_whole(fleet: Path, text: str, said: str) -> None:
    fleet.write_text(text)
    with pytest.raises(UsageError) as error:
        read_topic_files([fleet])
    assert said in str(error.value)
    assert "\n" not in str(error.value)


class Recorder(Remote):
    """Takes requests as the distributor would; from request `fails` on it is gone."""

    def __init__(self, fails: int = 10_000) -> None:
        self.requests: list[Any] = []
        self.fails = fails

    def call(self, method: str, *path: str, body: Any = None, **_: Any) -> Any:
        if len(self.requests) >= self.fails:
            raise UnavailableError("nobody is there")
        self.requests.append((path, body))
        return {}


def of(number: int, publishers: int, keys: int = 0) -> TopicFile:
    contract = Contract(topic=f"t{number}", rate=10.0, burst=5.0)
    rows = [PublisherAsked(id=f"p{n}", rate=1.0) for n in range(publishers)]
    return TopicFile(contract, [f"{n:0250}" for n in range(keys)] or None, rows)


@pytest.mark.parametrize(
    ("topics", "requests"),
    [
        ([of(n, 0) for n in range(2500)], 3),
        ([of(n, 100) for n in range(1000)], 5),
        ([of(0, 45_000), of(1, 5)], 2 + 2),
        ([of(n, 20) for n in range(1000)], 1),
        ([*(of(n, 0) for n in range(990)), *(of(1000 + n, 2000) for n in range(10))], 1),
        ([of(0, 10, keys=20_000), of(1, 10, keys=20_000), of(2, 10)], 2 + 2),
        ([of(0, 20_000, keys=60_000)], 2),
        ([of(0, MAX_PUBLISHERS)], 1),
    ],
)
def test_requests_are_few_and_within_their_bounds(topics: list[TopicFile], requests: int) -> None:
    remote, told = Recorder(), list[int]()
    upload(remote, topics, told.append)
    assert len(remote.requests) == requests
    sent: dict[str, list[str]] = {}
    for path, body in remote.requests:
        for each in body.get("topics", []):
            assert each["topic"] not in sent
            sent[each["topic"]] = [row["id"] for row in each["publishers"]]
        if "publishers" in body:
            sent[path[1]] += [row["id"] for row in body["publishers"]]
        count = sum(len(each["publishers"]) for each in body.get("topics", [body]))
        assert count <= MAX_PUBLISHERS
        assert len(body.get("topics", [])) <= MAX_REGISTERED
        assert len(json.dumps(body)) <= 16 * 1024 * 1024
    assert sent == {each.contract.topic: [row.id for row in each.publishers] for each in topics}
    assert sum(told) == sum(len(each.publishers) for each in topics)


def test_it_says_how_far_it_came() -> None:
    topics = [of(n, 15_000) for n in range(3)]
    with pytest.raises(UnavailableError, match="15,000 of 45,000 publishers are registered"):
        upload(Recorder(fails=1), topics)
    with pytest.raises(UnavailableError, match=r"^nobody is there$"):
        upload(Recorder(fails=0), topics)


def test_a_distributor_that_is_older_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = Answer(405, b'{"error": "no such method for this path: it takes GET"}', "d")
    remote = Remote(Endpoint("127.0.0.1:1"))
    monkeypatch.setattr(remote, "_answer", lambda *_: refusal)
    with pytest.raises(SrtmError, match="is older than this program: upgrade it"):
        upload(remote, [of(0, 1)])
