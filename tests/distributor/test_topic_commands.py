"""`srtm topic ... --distributor-address`, `srtm broker capacity NAME N`, what a plan would move."""

import json
from pathlib import Path

import click
import pytest

from distributor.api_fields import MAX_LISTED
from distributor.cli.topics import batch_lines
from srtm.cli.main import cli
from tests.support.distributors import DistributorProcess, settle, srtm


@pytest.mark.parametrize("group", ["topic", "broker"])
def test_every_command_takes_the_distributors_address(group: str) -> None:
    context = click.Context(cli)
    found = cli.get_command(context, group)
    assert isinstance(found, click.Group)
    for name in found.list_commands(context):
        command = found.get_command(context, name)
        assert command is not None
        if name == "scale":
            continue  # its file names the distributor
        flags = {flag for each in command.params for flag in each.opts}
        assert {"--distributor-address", "--distributor-token-file"} <= flags, name


def test_a_topic_is_set_listed_described_and_deleted(distributor: DistributorProcess) -> None:
    new = distributor.srtm("topic", "set", "t", "--rate=150")
    assert new.returncode == 2
    assert "topic t has no contract, as it is not registered; to give it one, give" in new.stderr
    made = distributor.srtm("topic", "set", "t", "--rate=150", "--burst=20", "--slo=0.99@5ms")
    said = "topic t: rate=150 burst=20 mode=delay slo=0.99@5ms, split by the distributor\n"
    assert made.stdout == said
    assert distributor.srtm("topic", "set", "t", "--max-wait=2s").returncode == 0
    topic = distributor.ok("GET", "/topics/t")
    assert [topic[key] for key in ("rate", "burst", "slo", "max_wait")] == [
        150, 20, "0.99@5ms", "2s",
    ]  # fmt: skip
    distributor.publishers(4)
    assert "not placed yet" in distributor.srtm("topic", "describe", "t").stdout
    distributor.broker("b1")
    distributor.place()
    listed = distributor.srtm("topic", "list").stdout.splitlines()[2].split()
    assert listed[:9] == ["t", "150", "20", "delay", "2s", "0.99@5ms", "4", "4", "40"]
    described = distributor.srtm("topic", "describe", "t").stdout
    assert "4 of 4 publishers placed, with 40 messages/s in all" in described
    assert described.splitlines()[-2].split() == ["b1", "4", "40", "150", "20"]
    assert described.splitlines()[-1].startswith("shares since 20")
    document = json.loads(distributor.srtm("topic", "describe", "t", "--json").stdout)
    assert document["brokers"][0]["publishers"] == 4

    removed = distributor.srtm("topic", "remove", "t", "p0")
    assert removed.stdout == "publisher p0 of topic t is forgotten\n"
    assert distributor.ok("GET", "/topics/t")["publishers"] == 3
    again = distributor.srtm("topic", "remove", "t", "p0")
    assert (again.returncode, "has no publisher p0" in again.stderr) == (2, True)
    assert distributor.srtm("topic", "delete", "t").returncode == 0
    assert distributor.ok("GET", "/topics")["topics"] == []
    assert "no topic yet" in distributor.srtm("topic", "list").stdout


def test_lowering_a_contract_under_the_declared_rates_warns(
    distributor: DistributorProcess,
) -> None:
    distributor.topic(keys=["k0", "k1", "k2"])
    distributor.publishers(4)
    assert distributor.srtm("topic", "set", "t", "--rate=40").stderr == ""
    low = distributor.srtm("topic", "set", "t", "--rate=30")
    assert low.returncode == 0
    assert "have declared 40 messages/s, and the contract lets 30 messages/s" in low.stderr
    assert distributor.ok("GET", "/topics/t")["keys"] == ["k0", "k1", "k2"]


def test_a_capacity_that_is_known_is_stored(distributor: DistributorProcess) -> None:
    distributor.broker("b1", 0.0)
    assert "not measured" in distributor.srtm("broker", "list").stdout
    distributor.topic()
    distributor.publishers(4)
    refused = distributor.srtm("placement", "apply", "t")
    assert refused.returncode == 2
    assert "not measured yet: b1; srtm broker capacity b1 --slo 0.99@1ms --set" in refused.stderr
    done = distributor.srtm("broker", "capacity", "b1", "5000")
    assert done.stdout == "broker b1 holds 5,000 messages/s; stored\n"
    assert distributor.srtm("placement", "apply", "t").returncode == 0
    [broker] = distributor.ok("GET", "/brokers")["brokers"]
    assert broker["capacity"] == 5000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["b1"], "--slo: within which SLO", id="no-slo"),
        pytest.param(["b1", "5", "--slo", "0.99@1ms"], "NAME N stores N", id="both"),
        pytest.param(["b9", "5"], "b9", id="no-such-broker"),
    ],
)
def test_a_slip_of_capacity_is_one_line(
    distributor: DistributorProcess, words: list[str], said: str
) -> None:
    done = distributor.srtm("broker", "capacity", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_plan_says_who_would_move(distributor: DistributorProcess) -> None:
    b1, b2 = distributor.broker("b1"), distributor.broker("b2", 900.0)
    distributor.topic()
    distributor.publishers(4)
    first = distributor.srtm("placement", "plan", "t").stdout
    assert "would move" not in first
    distributor.place()
    settle(b1, b2)
    assert "nobody would move" in distributor.srtm("placement", "plan", "t").stdout
    distributor.ok("POST", "/brokers/b1/drain", {"drain": True})
    plan = distributor.srtm("placement", "plan", "t")
    assert "would move from b1 to b2: 4 publishers: p0, p1, p2 and 1 more" in plan.stdout
    document = json.loads(distributor.srtm("placement", "plan", "t", "--json").stdout)
    assert document["moves"] == [{"from": "b1", "to": "b2", "publishers": ["p0", "p1", "p2", "p3"]}]


def test_a_url_is_told_apart_from_an_address() -> None:
    for command in (["topic", "list"], ["placement", "show", "t"], ["load"]):
        done = srtm(*command, "--distributor-address", "http://127.0.0.1:4180")
        assert done.returncode == 2
        assert "is a URL; write " in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_token_file_alone_is_a_mistake_unless_the_environment_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["topic", "list", "--deployment", str(tmp_path)]
    done = srtm(*asked, "--distributor-token-file", "token")
    assert (done.returncode, "goes with --distributor-address" in done.stderr) == (2, True)
    monkeypatch.setenv("SRTM_DISTRIBUTOR_TOKEN_FILE", "token")
    assert "no deployment runs" in srtm(*asked).stderr


def test_what_the_distributor_itself_reads_is_not_taken_for_the_commands_own(
    distributor: DistributorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SRTM_DISTRIBUTOR_TLS_ROOT_CA_FILE", "/no")
    assert distributor.srtm("broker", "list").returncode == 0
    monkeypatch.setenv("SRTM_CLIENT_TLS_ROOT_CA_FILE", "/no")
    assert distributor.srtm("broker", "list").stderr == "srtm: /no: No such file or directory\n"


def test_publishers_are_added_listed_and_told_apart_by_broker(
    distributor: DistributorProcess,
) -> None:
    distributor.topic()
    alone = distributor.srtm("topic", "add", "t", "p 1", "--rate=30", "--key=roof")
    told = "publisher p 1 of topic t: 30 messages/s, no broker yet; srtm placement plan t --keep"
    assert alone.stdout.startswith(told)
    b1 = distributor.broker("b1")
    distributor.place()
    settle(b1)
    placed = distributor.srtm("topic", "add", "t", "p2", "--rate=20")
    assert placed.stdout == "publisher p2 of topic t: 20 messages/s, on broker b1\n"
    rows = [
        line.split("  ")
        for line in distributor.srtm("topic", "publishers", "t").stdout.splitlines()
    ]
    assert [[cell.strip() for cell in row if cell][:4] for row in rows[2:]] == [
        ["p 1", "roof", "30", "b1"],
        ["p2", "-", "20", "b1"],
    ]
    document = json.loads(distributor.srtm("topic", "publishers", "t", "--json").stdout)
    assert [each["id"] for each in document["publishers"]] == ["p 1", "p2"]
    nobody = distributor.srtm("topic", "publishers", "t", "--broker=-").stdout
    assert nobody == "topic t has no such publisher\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["p", "--rate=0"], "publisher p: rate: ", id="no-rate"),
        pytest.param(["p", "--rate=nan"], "publisher p: rate: ", id="not-a-number"),
        pytest.param(["", "--rate=1"], "publisher : id: ", id="no-id"),
    ],
)
def test_a_publisher_that_cannot_be_is_one_line(
    distributor: DistributorProcess, arguments: list[str], said: str
) -> None:
    distributor.topic()
    shown = distributor.srtm("topic", "add", "t", *arguments)
    assert shown.returncode == 2
    assert said in shown.stderr
    assert len(shown.stderr.splitlines()) == 1


def test_a_long_list_comes_in_pages(
    distributor: DistributorProcess,
) -> None:
    distributor.topic(rate=1e6)
    ids = [f"p{number:06d}" for number in range(MAX_LISTED + 5)]
    distributor.ok(
        "POST",
        "/topics/t/publishers",
        {"publishers": [{"id": each, "rate": 1.0} for each in ids]},
    )
    first = distributor.ok("GET", "/topics/t/publishers")
    assert [each["id"] for each in first["publishers"]] == ids[:MAX_LISTED]
    rest = distributor.ok("GET", f"/topics/t/publishers?after={first['next']}")
    assert ([each["id"] for each in rest["publishers"]], rest["next"]) == (ids[MAX_LISTED:], None)
    shown = distributor.srtm("topic", "publishers", "t", "--json").stdout
    assert [each["id"] for each in json.loads(shown)["publishers"]] == ids
    assert distributor.call("GET", "/topics/nosuch/publishers")[0] == 404


@pytest.mark.parametrize(
    ("batch", "batches", "largest", "lines"),
    [
        pytest.param(1, "whole", 1, [], id="none-came"),
        pytest.param(
            15, "whole", 15, ["batches of up to 15: no broker's b is below that"], id="as-stated"
        ),
        pytest.param(1, "each", 1, ["batches bigger than a broker's b wait for no other broker"],
                     id="each-for-itself"),
        pytest.param(
            1, "whole", 20,
            ["batches of 20 came, over a broker's b: each waits until its broker has the whole"
             " contract; srtm topic set t --batch 20 gives each broker room for one"],
            id="b-has-room",
        ),
        pytest.param(
            1, "whole", 30,
            ["batches of 30 came, over a broker's b: each waits until its broker has the whole"
             " contract; srtm topic set t --batch 30 --burst 60 gives each broker room for one"],
            id="b-has-not",
        ),
        pytest.param(
            None, None, 40,
            ["batches of 40 or more came, over a broker's b: each waits until its broker has the"
             " whole contract; srtm topic set t --batch 40 --burst 80 gives each broker room for"
             " one"],
            id="bigger-than-b",
        ),
    ],
)  # fmt: skip
def test_what_is_said_of_the_batches_of_a_topic(
    batch: int | None, batches: str | None, largest: int, lines: list[str]
) -> None:
    topic = {"topic": "t", "burst": 40.0, "batch": batch, "batches": batches}
    assert batch_lines(topic, largest, 2) == lines
