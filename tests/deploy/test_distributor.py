"""`srtm up` with a distributor: topics with publishers are placed, and stay so."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from distributor.cli.topic_file import TopicFile, read_topic_file
from distributor.remote import Remote
from srtm.client import SyncPublisher
from srtm.deploy.placed_topics import PlacedTopics
from srtm.deploy.up import Running, running
from srtm.deployment.layout import Layout
from srtm.http.client import Endpoint, get_json
from srtm.text.address import free_addresses
from srtm.text.errors import Exit
from tests.support.deployments import Spec, need_nsq, outside, processes_of, srtm, wait_for
from tests.support.distributors import DistributorProcess, distributors_in
from tests.support.programs import run_srtm

SECRET = "0123456789abcdef-secret"
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
    return spec_in(tmp_path)


def spec_in(folder: Path) -> Spec:
    """Three brokers, and a topic of 60 messages/s that two of them hold."""
    ports = free_addresses(7)
    (folder / "publishers.csv").write_text(CSV)
    return {
        "deployment": {"data-path": str(folder / "d")},
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
                "publishers": str(folder / "publishers.csv"),
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
        no_files = dict.fromkeys(("token-file", "tls-root-ca-file", "tls-cert", "tls-key"), "")
        assert saved["distributor"] == {"http-address": address, **no_files}
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


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[Spec, Running, list[str]]]:
    """One with a token, for tests that leave it as it is; and what `srtm up` says."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="srtm-") as name:
        need_nsq(patch)
        folder = Path(name)
        spec = spec_in(folder)
        (folder / "token").write_text(SECRET)
        (folder / "token").chmod(0o600)
        spec["distributor"]["token-file"] = str(folder / "token")
        said: list[str] = []
        with running(spec, say=said.append) as deployment:
            wait_for(lambda: shares(deployment) == [(33, 6)] * 2)
            yield spec, deployment, said


@contextmanager
def hanging(deployment: Running) -> Iterator[None]:
    """Its distributor."""
    os.kill(deployment.pids["distributor"], signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(deployment.pids["distributor"], signal.SIGCONT)


def test_a_token_guards_it_and_is_in_no_command_line(
    guarded: tuple[Spec, Running, list[str]],
) -> None:
    spec, _, _ = guarded
    assert not [words for words in processes_of(spec).values() if SECRET in words]
    where = f"--deployment={spec['deployment']['data-path']}"
    assert "split by the distributor" in srtm("topic", "set", "sensors", "--burst=12", where)
    moved = srtm("topic", "set", "sensors", "--migrate=auto", where)
    assert moved == "topic sensors: migrate auto\n"


def test_while_the_distributor_hangs_its_topics_stay_its_own(
    guarded: tuple[Spec, Running, list[str]],
) -> None:
    spec, deployment, _ = guarded
    with hanging(deployment):
        done = run_srtm(
            "topic", "list", "--json", f"--deployment={spec['deployment']['data-path']}"
        )
    assert done.returncode == Exit.UNAVAILABLE
    assert "the answer is incomplete: distributor does not answer" in done.stderr
    [topic] = json.loads(done.stdout)["topics"]
    assert (topic["owner"], topic["last_known"]) == ("distributor", True)
    assert (topic["rate"], topic["burst"], topic["slo"]) == (66, 12, "0.99@5ms")


def test_a_gateway_comes_back_while_the_distributor_hangs(
    guarded: tuple[Spec, Running, list[str]],
) -> None:
    _, deployment, said = guarded
    with hanging(deployment):
        os.kill(deployment.pids["broker-1-gateway"], signal.SIGKILL)
        wait_for(lambda: "broker-1-gateway is back (restart 1)" in said)
        # Its lease may have ended for all that it knows: one message, and its part of the rate.
        assert shares(deployment)[0] == (pytest.approx(33 / 6), 1)
    wait_for(lambda: shares(deployment) == [(33, 6)] * 2)


@pytest.mark.parametrize(
    ("capacity", "begins", "has"),
    [
        pytest.param(
            0.0, "topic sensors is the distributor's, and not placed: ", "not measured", id="none"
        ),
        pytest.param(
            15.0, "topic sensors is the distributor's: ", "; without a broker: ", id="few"
        ),
    ],
)
def test_who_finds_no_room_is_told(
    tmp_path: Path, distributor: DistributorProcess, capacity: float, begins: str, has: str
) -> None:
    """What `srtm up` says of a topic that it places."""
    for name in ("broker-1", "broker-2", "broker-3"):
        distributor.broker(name, capacity)
    said = placed_by(distributor).place(sensors(tmp_path))
    assert said.startswith(begins)
    assert has in said
    found = distributor.ok("GET", "/topics/sensors")
    assert (found["publishers"], found["placed"]) == (6, 3 if capacity else 0)


def test_placing_again_changes_nothing(tmp_path: Path, distributor: DistributorProcess) -> None:
    for name in ("broker-1", "broker-2", "broker-3"):
        distributor.broker(name, 40.0)
    said = placed_by(distributor).place(sensors(tmp_path))
    before = distributor.ok("GET", "/topics/sensors/placements/current")
    assert placed_by(distributor).place(sensors(tmp_path)) == said
    assert distributor.ok("GET", "/topics/sensors/placements/current") == before


def placed_by(distributor: DistributorProcess) -> PlacedTopics:
    return PlacedTopics(Remote(Endpoint(distributor.address)))


def sensors(folder: Path) -> TopicFile:
    return read_topic_file(topic_file(folder, spec_in(folder)["topic"][0]))


def topic_file(folder: Path, table: dict[str, Any]) -> Path:
    file = folder / "topic.toml"
    file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items()))
    return file


def test_a_topic_has_one_owner_whoever_registered_it(tmp_path: Path, spec: Spec) -> None:
    by_hand = topic_file(tmp_path, spec["topic"].pop())
    (tmp_path / "d").mkdir(mode=0o700)
    with distributors_in(tmp_path) as start:
        before = start(Layout(tmp_path / "d").distributor_store)
        before.wait_leading()
        assert before.srtm("topic", "register", str(by_hand)).returncode == 0
    spec["topic"].append({"name": "sensors", "rate": 1, "burst": 3})
    said: list[str] = []
    with running(spec, say=said.append) as deployment:
        assert said == [
            "topic sensors is the distributor's, as it was registered there; its contract here is "
            "not used: give it publishers, or delete it with srtm topic delete sensors"
        ]
        assert shares(deployment) == []


def test_a_topic_goes_over_to_the_distributor_and_stays_there(tmp_path: Path, spec: Spec) -> None:
    """And nobody who has a broker moves at the next start."""
    publishers = spec["topic"][0].pop("publishers")
    with running(spec) as deployment:
        assert shares(deployment) == [(22, 4)] * 3
    spec["topic"][0]["publishers"] = publishers
    with running(spec) as deployment:
        wait_for(lambda: shares(deployment) == [(33, 6)] * 2)
        first = ask(spec, "/topics/sensors/placements/current")
        before = places(spec)
    del spec["topic"][0]["publishers"]
    said: list[str] = []
    with running(spec, say=said.append) as deployment:
        wait_for(lambda: shares(deployment) == [(33, 6)] * 2)
        assert ask(spec, "/topics/sensors/placements/current")["epoch"] == first["epoch"]
        assert places(spec) == before
    assert [line.partition(",")[0] for line in said] == ["topic sensors is the distributor's"]
    spec["topic"][0]["publishers"] = publishers
    (tmp_path / "publishers.csv").write_text(CSV + "new,room-0,10\n")
    with running(spec):
        after = places(spec)
        assert after.pop("new") in {"broker-1", "broker-2", "broker-3"}
        assert after == before
