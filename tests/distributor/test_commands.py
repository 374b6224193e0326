"""`srtm topic register`, `srtm placement` and `srtm broker` against a real distributor."""

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from distributor.cli.topic_file import read_topic_file
from srtm.text.errors import UsageError
from tests.support.distributors import ROOT, DistributorProcess, distributors_in, settle, srtm
from tests.support.programs import SRTM
from tests.support.servers import free_port, wait_for

TOPIC = """\
name = "sensors"
rate = 150
burst = 20
slo = "0.99@1ms"
max-wait = "2s"
keys = ["room-1", "room-2"]
publishers = "publishers.csv"
"""
CSV = "id,key,rate\np1,room-1,10\np2,room-1,10\np3,room-2,5\np4,,2.5\n"


def written(folder: Path, topic: str = TOPIC, publishers: str = CSV, name: str = "csv") -> Path:
    (folder / f"publishers.{name}").write_text(publishers)
    file = folder / "sensors.toml"
    file.write_text(topic)
    return file


def test_register_plan_apply_show_explain(distributor: DistributorProcess, tmp_path: Path) -> None:
    brokers = [distributor.broker(name, 20.0) for name in ("b1", "b2")]
    done = distributor.srtm("topic", "register", str(written(tmp_path)))
    assert (done.returncode, done.stderr) == (0, "")
    said = "topic sensors: 4 publishers with 27.5 messages/s registered"
    waits = "placed on no broker yet: srtm placement apply sensors"
    assert done.stdout == f"{said}; {waits}\n"
    topic = distributor.ok("GET", "/topics/sensors")
    assert (topic["keys"], topic["max_wait"], topic["offered"]) == (
        ["room-1", "room-2"],
        "2s",
        27.5,
    )

    planned = distributor.srtm("placement", "plan", "sensors", "--json")
    plan = json.loads(planned.stdout)
    assert plan["epoch"] is None
    assert distributor.ok("GET", "/topics/sensors")["placed"] == 0
    applied = json.loads(distributor.srtm("placement", "apply", "sensors", "--json").stdout)
    assert applied["assignments"] == plan["assignments"]
    assert {each["name"] for each in applied["brokers"]} == {"b1", "b2"}
    settle(*brokers)
    again = distributor.srtm("topic", "register", str(written(tmp_path)))
    assert again.stdout == f"{said}\n"

    shown = distributor.srtm("placement", "show", "sensors")
    assert f"policy srtm, epoch {applied['epoch']}" in shown.stdout
    explained = distributor.srtm("placement", "explain", "sensors")
    assert f"epoch {applied['epoch']}, " in explained.stdout
    assert "- concentration: " in explained.stdout
    one = distributor.srtm("placement", "explain", "sensors", "p3")
    where = distributor.where("p3", "sensors")["broker"]
    assert one.stdout.startswith(f"p3: {where}, 5 messages/s, group room-2\nepoch ")
    document = json.loads(
        distributor.srtm("placement", "explain", "sensors", "p4", "--json").stdout
    )
    assert document["placement"]["epoch"] == applied["epoch"]


def test_without_brokers_it_says_where_they_come_from(
    distributor: DistributorProcess, tmp_path: Path
) -> None:
    assert "registers itself" in distributor.srtm("broker", "list").stdout
    distributor.srtm("topic", "register", str(written(tmp_path)))
    assert "add brokers with room" in distributor.srtm("placement", "apply", "sensors").stderr
    refused = distributor.srtm("placement", "fit", "sensors")
    assert (refused.returncode, refused.stderr) == (
        2,
        "srtm: topic sensors: no brokers take publishers; srtm broker list shows each\n",
    )


def test_ctrl_c_leaves_the_fitting_and_says_so(
    distributor: DistributorProcess, tmp_path: Path
) -> None:
    distributor.broker("b1")
    distributor.topic()
    distributor.publishers(2)
    command = [*SRTM, "placement", "fit", "t"]
    following = subprocess.Popen(
        [*command, "--distributor-address", distributor.address],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: distributor.call("GET", "/topics/t/fitting")[1].get("round"), "it follows")
    following.send_signal(signal.SIGINT)
    said = following.communicate(timeout=20)[1]
    assert following.returncode == 1
    assert "srtm: a fitting that has begun goes on: " in said
    assert "Traceback" not in said
    assert distributor.ok("GET", "/topics/t/fitting")["state"] == "running"


def test_brokers_are_listed_drained_and_forgotten(
    distributor: DistributorProcess, tmp_path: Path
) -> None:
    distributor.broker("b1")
    listed = distributor.srtm("broker", "list")
    assert "b1" in listed.stdout
    assert "up" in listed.stdout
    drained = distributor.srtm("broker", "drain", "b1")
    assert drained.stdout == "broker b1 takes no new publishers\n"
    document = json.loads(distributor.srtm("broker", "list", "--json").stdout)
    assert document["brokers"][0]["state"] == "draining"
    undone = distributor.srtm("broker", "drain", "b1", "--undo")
    assert undone.stdout == "broker b1 takes publishers again\n"
    refused = distributor.srtm("broker", "forget", "b1")
    assert refused.returncode == 2
    assert refused.stderr.startswith("srtm: broker b1 is in contact, or may have been until now: ")


def test_a_lost_broker_can_be_forgotten(tmp_path: Path) -> None:
    with distributors_in(tmp_path) as start:
        running = start(tmp_path / "s.db", "--lease-duration=6s")
        running.wait_leading()
        running.broker("b1")
        running.process.kill()
        again = start(tmp_path / "s.db", "--lease-duration=2s")  # shorter than before
        again.wait_leading()  # it has not heard of the broker since
        assert again.ok("GET", "/brokers")["brokers"][0]["state"] == "lost"
        assert "ask again in" in again.srtm("broker", "forget", "b1").stderr

        def forgotten() -> bool:
            return again.srtm("broker", "forget", "b1").stdout == "broker b1 is forgotten\n"

        wait_for(forgotten, "the leases of before have ended", 60)
        assert again.ok("GET", "/brokers") == {"brokers": [], "warnings": []}


def test_json_lines_and_registering_again(distributor: DistributorProcess, tmp_path: Path) -> None:
    topic = TOPIC.replace("publishers.csv", "publishers.jsonl")
    lines = '{"id": "p1", "key": "room-1", "rate": 10}\n\n{"id": "p2", "rate": 1.5}\n'
    file = written(tmp_path, topic, lines, "jsonl")
    for _ in range(2):
        done = distributor.srtm("topic", "register", str(file), "--json")
        assert json.loads(done.stdout) == {"topic": "sensors", "registered": 2}
    assert distributor.ok("GET", "/topics/sensors")["publishers"] == 2


def test_a_file_of_50000_publishers_goes_in_parts(
    distributor: DistributorProcess, tmp_path: Path
) -> None:
    rows = "".join(f"p{number:06},room-{number % 2 + 1},0.5\n" for number in range(50_000))
    done = distributor.srtm(
        "topic", "register", str(written(tmp_path, publishers="id,key,rate\n" + rows))
    )
    assert "topic sensors: 50,000 publishers with 25,000 messages/s registered;" in done.stdout
    assert distributor.ok("GET", "/topics/sensors")["publishers"] == 50_000


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(lambda t, p: (t, p + "p1,room-1,3\n"), ":6: id 'p1' is there twice",
                     id="the-same-id-twice"),
        pytest.param(lambda t, p: (t, p + "p9,attic,3\n"),
                     ":6: publisher p9: key 'attic' is none of the topic's 2 keys",
                     id="a-key-outside"),
        pytest.param(lambda t, p: (t, p + "p9,room-1,fast\n"), ":6: rate 'fast' is not a number",
                     id="no-number"),
        pytest.param(lambda t, p: (t, p + "p9,room-1,-1\n"), ":6: rate: ", id="a-negative-rate"),
        pytest.param(lambda t, p: (t, p + "p9,room-1,nan\n"), ":6: rate: ", id="no-finite-rate"),
        pytest.param(lambda t, p: (t, p + "p9\n"), ":6: not 3 columns", id="a-short-row"),
        pytest.param(lambda t, p: (t, p + "p9,room-1,1,1\n"), ":6: not 3 columns", id="a-long-row"),
        pytest.param(lambda t, p: (t, "id;key;rate\n"), ":1: the header is 'id;key;rate'",
                     id="another-separator"),
        pytest.param(lambda t, p: (t, "id,key,rate\n"), "no publishers", id="no-publishers"),
        pytest.param(lambda t, p: (t, ""), ":1: the header is ''", id="an-empty-file"),
        pytest.param(lambda t, p: (t.replace("csv", "txt"), p), "name it .csv", id="another-name"),
        pytest.param(lambda t, p: (t.replace("publishers.csv", "p.csv"), p), "No such file",
                     id="no-such-file"),
        pytest.param(lambda t, p: (t.replace("name", "topic"), p), "write name =", id="topic="),
        pytest.param(lambda t, p: (t.replace('name = "sensors"', ""), p), "name: needed",
                     id="no-name"),
        pytest.param(lambda t, p: (t.replace('publishers = "publishers.csv"', ""), p),
                     "publishers: needed", id="no-publishers-key"),
        pytest.param(lambda t, p: (t + "colour = 1\n", p), "colour", id="an-unknown-key"),
        pytest.param(lambda t, p: (t.replace("burst = 20", "burst = 0"), p), "burst", id="burst"),
        pytest.param(lambda t, p: (t + "=", p), "not TOML", id="no-toml"),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_line_and_nothing_is_sent(
    tmp_path: Path, change: Callable[[str, str], tuple[str, str]], said: str
) -> None:
    file = written(tmp_path, *change(TOPIC, CSV))
    with pytest.raises(UsageError) as refused:
        read_topic_file(file)
    assert said in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["broker", "list"], id="broker-list"),
        pytest.param(["broker", "drain", "b"], id="broker-drain"),
        pytest.param(["placement", "plan", "t"], id="placement-plan"),
        pytest.param(["placement", "apply", "t"], id="placement-apply"),
        pytest.param(["placement", "show", "t"], id="placement-show"),
        pytest.param(["placement", "explain", "t"], id="placement-explain"),
    ],
)
def test_without_a_distributor_it_is_one_line_and_exit_3(command: list[str]) -> None:
    address = f"127.0.0.1:{free_port()}"
    done = srtm(*command, "--distributor-address", address)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        f"srtm: no distributor answers at {address} (nothing listens there); start one with srtm "
        "distributor, or name it with --distributor-address\n"
    )


@pytest.mark.parametrize(
    ("command", "said"),
    [
        pytest.param(["placement", "show", "x"], "topic x is not registered", id="no-such-topic"),
        pytest.param(["placement", "plan"], "give TOPIC, or --offline FILE", id="plan-of-nothing"),
        pytest.param(["placement", "plan", "t", "--offline", "f"], "give TOPIC, or --offline",
                     id="plan-of-both"),
        pytest.param(["placement", "plan", "t", "--policy", "best"], "'best' is not one of",
                     id="no-such-policy"),
    ],
)  # fmt: skip
def test_what_it_refuses_is_one_line_and_exit_2(
    distributor: DistributorProcess, command: list[str], said: str
) -> None:
    done = distributor.srtm(*command)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_bad_address_is_one_line() -> None:
    done = srtm("broker", "list", "--distributor-address", "nowhere")
    assert done.returncode == 2
    assert "--distributor-address: 'nowhere' is not an address" in done.stderr
