"""`srtm up` with a distributor: topics with publishers are placed, and stay so."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from srtm.client import SyncPublisher
from srtm.deploy.up import running
from srtm.http.client import get_json
from srtm.text.address import free_addresses
from srtm.text.errors import Exit
from tests.support.deployments import Spec, need_nsq, outside, processes_of, srtm, wait_for
from tests.support.programs import run_srtm

CSV = "id,key,rate\n" + "".join(f"p{n},room-{n % 2},10\n" for n in range(6))


@pytest.fixture(autouse=True)
def _real_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    need_nsq(monkeypatch)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Short, for the paths of unix sockets, and gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="srtm-") as folder:
        yield Path(folder)


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """Three brokers, and a topic of 60 messages/s that two of them hold."""
    ports = free_addresses(7)
    (tmp_path / "publishers.csv").write_text(CSV)
    return {
        "deployment": {"data-path": str(tmp_path / "d")},
        "distributor": {"http-address": str(ports[6]), "lease-duration": "5s"},
        "broker": [
            {"tcp-address": str(ports[k]), "http-address": str(ports[k + 1]), "capacity": 40}
            for k in (0, 2, 4)
        ],
        "topic": [
            {
                "name": "sensors",
                "rate": 66,
                "burst": 12,
                "slo": "0.99@5ms",
                "publishers": str(tmp_path / "publishers.csv"),
            }
        ],
    }


def ask(spec: Spec, path: str) -> Any:
    return get_json(spec["distributor"]["http-address"], f"/v1{path}")


def places(spec: Spec, topic: str = "sensors") -> dict[str, str]:
    plan = ask(spec, f"/topics/{topic}/placements/current")
    return {each["publisher"]: each["broker"] for each in plan["assignments"]}


def shares(deployment: Any, topic: str = "sensors") -> list[tuple[float, float]]:
    """(r_l, b_l) as the gateways have them."""
    rows = [
        row
        for broker in deployment.brokers
        for row in get_json(broker.admin_socket, "/topics")["topics"]
        if row["topic"] == topic and "rate" in row
    ]
    return [(row["rate"], row["burst"]) for row in rows]


def depth(spec: Spec, broker: str) -> int:
    index = int(broker.rpartition("-")[2]) - 1
    web = spec["broker"][index]["http-address"]
    topics = get_json(web, "/stats?format=json")["topics"]
    return sum(each["message_count"] for each in topics if each["topic_name"] == "sensors")


def test_placed_published_killed_and_ended(tmp_path: Path, spec: Spec) -> None:
    address = spec["distributor"]["http-address"]
    with outside(tmp_path, spec) as up:
        up.until("is up")
        assert address in up.output
        assert [line for line in up.lines if "topic" in line] == [
            "srtm up: topic sensors is the distributor's: 3 publishers on broker-1 "
            "(r = 33, b = 6), 3 publishers on broker-2 (r = 33, b = 6)"
        ]
        where = places(spec)
        assert sorted(where) == [f"p{n}" for n in range(6)]
        saved = json.loads((tmp_path / "d" / "deployment.json").read_text())
        assert saved["distributor"] == {"http-address": address, "token-file": ""}
        with SyncPublisher("sensors", id="p1", distributor=address) as publisher:
            publisher.publish(b"first")
            assert depth(spec, where["p1"]) == 1

            pid = next(
                pid for pid, words in processes_of(spec).items() if "srtm distributor" in words
            )
            os.kill(pid, signal.SIGKILL)
            publisher.publish(b"without")  # nothing of it waits for the distributor
            up.until("distributor is back (restart 1)")
            publisher.publish(b"with")
        assert depth(spec, where["p1"]) == 3
        assert places(spec) == where
        assert ask(spec, "/topics/sensors")["publishers"] == 6

        up.process.terminate()
        code, lines = up.end()
        assert code == Exit.OK
        assert not processes_of(spec)
        assert "killed" not in lines[-1]
    for k in (1, 2, 3):
        assert "drained" in (tmp_path / "d" / "logs" / f"broker-{k}-gateway.log").read_text()


def test_a_second_run_moves_nobody_and_places_who_is_new(tmp_path: Path, spec: Spec) -> None:
    with running(spec):
        first = ask(spec, "/topics/sensors/placements/current")
        before = places(spec)
    with running(spec) as deployment:
        assert ask(spec, "/topics/sensors/placements/current")["epoch"] == first["epoch"]
        assert places(spec) == before
        wait_for(lambda: shares(deployment) == [(33, 6)] * 2)
    (tmp_path / "publishers.csv").write_text(CSV + "new,room-0,10\n")
    with running(spec):
        after = places(spec)
        assert after.pop("new") in {"broker-1", "broker-2", "broker-3"}
        assert after == before


def test_its_contract_is_set_shown_and_deleted_at_the_distributor(spec: Spec) -> None:
    where = f"--deployment={spec['deployment']['data-path']}"
    spec["topic"].append({"name": "split", "rate": 30, "burst": 9})
    said: list[str] = []
    with running(spec) as deployment:
        assert srtm("topic", "set", "sensors", "--rate=132", where) == (
            "topic sensors: rate=132 burst=12 mode=delay slo=0.99@5ms, split by the distributor\n"
        )
        wait_for(lambda: shares(deployment) == [(66, 6)] * 2)
        assert shares(deployment, "split") == [(10, 3)] * 3
        assert "over 3 brokers" in srtm("topic", "set", "split", "--rate=60", where)
        listed = json.loads(srtm("topic", "list", "--json", where))["topics"]
        assert [(each["topic"], each["owner"], each["rate"]) for each in listed] == [
            ("sensors", "distributor", 132),
            ("split", "deployment", 60),
        ]
        assert (listed[0]["publishers"], listed[0]["placed"]) == (6, 6)
        rows = srtm("topic", "describe", "sensors", where).splitlines()
        assert [row.split()[:3] for row in rows[2:4]] == [
            ["broker-1", "66", "6"],
            ["broker-2", "66", "6"],
        ]
        assert rows[4].split()[:9] == (
            ["all,", "by", "the", "distributor", "(6", "of", "6", "publishers", "placed)"]
        )
        assert rows[4].split()[9:11] == ["132", "12"]
        assert rows[5].startswith("shares since 20")
        adapted = srtm("topic", "set", "sensors", "--adapt=paper", "--adapt-window=20s", where)
        assert adapted.startswith("topic sensors: policy paper, window 20s, every 10s")
        assert ask(spec, "/topics/sensors")["rate"] == 132, "its contract stays"
        described = json.loads(srtm("topic", "describe", "sensors", "--json", where))
        assert described["adaptation"]["policy"] == "paper"
        with pytest.raises(subprocess.CalledProcessError) as refused:
            srtm("topic", "set", "split", "--adapt=off", where)
        assert "topic split is split evenly, and stays so" in refused.value.stderr

    with running(spec, say=said.append) as deployment:
        assert said[0] == (
            "topic sensors keeps rate=132 burst=12 mode=delay slo=0.99@5ms, as set at run time, "
            "not the file's rate=66 burst=12 mode=delay slo=0.99@5ms"
        )
        assert ask(spec, "/topics/sensors")["rate"] == 132
        srtm("topic", "delete", "sensors", where)
        assert ask(spec, "/topics")["topics"] == []
        wait_for(lambda: shares(deployment) == [])
    with running(spec, say=said.append):
        assert "topic sensors stays deleted, as done at run time" in said[-2]
        assert ask(spec, "/topics")["topics"] == []


def test_no_one_is_placed_on_brokers_without_a_capacity(spec: Spec) -> None:
    for broker in spec["broker"]:
        del broker["capacity"]
    said: list[str] = []
    with running(spec, say=said.append):
        assert len(said) == 1
        assert said[0].startswith("topic sensors is the distributor's, and not placed: ")
        assert ask(spec, "/topics/sensors")["publishers"] == 6


def test_a_topic_has_one_owner_whoever_registered_it(tmp_path: Path, spec: Spec) -> None:
    placed = spec["topic"].pop()
    file = tmp_path / "hand.toml"
    file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in placed.items()))
    with running(spec):
        address = spec["distributor"]["http-address"]
        srtm("topic", "register", str(file), "--distributor-address", address)
    spec["topic"].append({"name": "sensors", "rate": 1, "burst": 3})
    said: list[str] = []
    with running(spec, say=said.append) as deployment:
        assert said == [
            "topic sensors is the distributor's, as it was registered there; its contract here is "
            "not used: give it publishers, or delete it with srtm topic delete sensors"
        ]
        assert shares(deployment) == []


def test_a_token_guards_it_and_is_in_no_command_line(tmp_path: Path, spec: Spec) -> None:
    secret = "0123456789abcdef-secret"
    file = tmp_path / "token"
    file.write_text(secret)
    file.chmod(0o600)
    spec["distributor"]["token-file"] = str(file)
    with running(spec) as deployment:
        wait_for(lambda: shares(deployment) == [(33, 6)] * 2)
        assert not [words for words in processes_of(spec).values() if secret in words]
        where = f"--deployment={spec['deployment']['data-path']}"
        assert "split by the distributor" in srtm("topic", "set", "sensors", "--burst=20", where)
        moved = srtm("topic", "set", "sensors", "--migrate=auto", where)
        assert moved == "topic sensors: migrate auto\n"


@pytest.mark.parametrize(
    ("change", "flags", "said"),
    [
        pytest.param({"publishers": "none.csv"}, [], "none.csv: No such file", id="no-file"),
        pytest.param({"publishers": "none.csv"}, ["--check"], "none.csv: No", id="no-file-checked"),
        pytest.param({"keys": ["room-0"]}, [], "key 'room-1' is none of the topic's 1", id="key"),
        pytest.param({"token-file": "no-token"}, [], "no-token: No such file", id="no-token"),
        pytest.param({"token-file": "no"}, ["--check"], "no: No such file", id="no-token-checked"),
    ],
)
def test_a_slip_is_one_line_and_nothing_is_started(
    tmp_path: Path, spec: Spec, change: dict[str, Any], flags: list[str], said: str
) -> None:
    table = spec["distributor"] if "token-file" in change else spec["topic"][0]
    table.update(change)
    with outside(tmp_path, spec, *flags) as up:
        code, lines = up.end()
    assert code == Exit.USAGE
    assert len(lines) == 1
    assert said in lines[0]
    assert not list((tmp_path / "d").glob("logs/*"))


def test_a_gateway_comes_back_while_the_distributor_hangs(spec: Spec) -> None:
    said: list[str] = []
    with running(spec, say=said.append) as deployment:
        wait_for(lambda: shares(deployment) == [(33, 6)] * 2)
        os.kill(deployment.pids["distributor"], signal.SIGSTOP)
        try:
            os.kill(deployment.pids["broker-1-gateway"], signal.SIGKILL)
            wait_for(lambda: "broker-1-gateway is back (restart 1)" in said)
            # Its lease may have ended for all that it knows: one message, and its part of the rate.
            assert shares(deployment)[0] == (pytest.approx(33 / 6), 1)
        finally:
            os.kill(deployment.pids["distributor"], signal.SIGCONT)
        wait_for(lambda: shares(deployment) == [(33, 6)] * 2)


def test_while_the_distributor_hangs_its_topics_stay_its_own(spec: Spec) -> None:
    with running(spec) as deployment:
        wait_for(lambda: shares(deployment) == [(33, 6)] * 2)
        os.kill(deployment.pids["distributor"], signal.SIGSTOP)
        try:
            done = run_srtm(
                "topic", "list", "--json", f"--deployment={spec['deployment']['data-path']}"
            )
        finally:
            os.kill(deployment.pids["distributor"], signal.SIGCONT)
    assert done.returncode == Exit.UNAVAILABLE
    assert "this is not all: distributor does not answer" in done.stderr
    [topic] = json.loads(done.stdout)["topics"]
    assert (topic["owner"], topic["last_known"]) == ("distributor", True)
    assert (topic["rate"], topic["burst"], topic["slo"]) == (66, 12, "0.99@5ms")


def test_who_finds_no_room_is_told(spec: Spec) -> None:
    for broker in spec["broker"]:
        broker["capacity"] = 15
    said: list[str] = []
    with running(spec, say=said.append):
        assert sorted(places(spec).values()) == ["broker-1", "broker-2", "broker-3"]
    assert len(said) == 1
    assert "1 publisher on broker-3" in said[0]
    assert "; without a broker: " in said[0]


def test_a_topic_goes_over_to_the_distributor_and_stays_there(spec: Spec) -> None:
    publishers = spec["topic"][0].pop("publishers")
    with running(spec) as deployment:
        assert shares(deployment) == [(22, 4)] * 3
    spec["topic"][0]["publishers"] = publishers
    with running(spec) as deployment:
        wait_for(lambda: shares(deployment) == [(33, 6)] * 2)
    del spec["topic"][0]["publishers"]
    said: list[str] = []
    with running(spec, say=said.append) as deployment:
        wait_for(lambda: shares(deployment) == [(33, 6)] * 2)
    assert [line.partition(",")[0] for line in said] == ["topic sensors is the distributor's"]
