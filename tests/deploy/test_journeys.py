"""`[journeys]` of a deployment: it measures what the deployment's brokers and consumers tell."""

import asyncio
from pathlib import Path

import pytest

from srtm.deploy.file import read_plan
from srtm.journey.contracts import contract_slos, set_contract_slo
from srtm.journey.file import read_journeys
from srtm.limits.slo import SLO
from srtm.text.address import free_addresses
from srtm.text.errors import UsageError
from tests.support.deployments import Spec, need_nsq, outside, write_file
from tests.support.servers import http, wait_for

POOL = """
[nsq]
topic = "alarms"
channel = "handlers"
nsqd = ["{tcp}"]
nsqd-http = ["{http}"]
[group]
slo = "0.995@150ms"
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spec:
    need_nsq(monkeypatch)
    tcp, web, door, distributor = map(str, free_addresses(4))
    (tmp_path / "pool.toml").write_text(POOL.format(tcp=tcp, http=web))
    (tmp_path / "journeys.toml").write_text(
        f"""
        [journeys]
        http-address = "{door}"
        [[journey]]
        topic = "alarms"
        slo = "0.99@200ms"
        consumers = "pool.toml"
        """
    )
    return {
        "deployment": {"data-path": str(tmp_path / "d")},
        "distributor": {"http-address": distributor},
        "broker": [{"tcp-address": tcp, "http-address": web}],
        "topic": [{"name": "alarms", "rate": 100, "burst": 10, "slo": "0.995@50ms"}],
        "journeys": {"file": "journeys.toml"},
    }


def door_beside(file: Path) -> str:
    text = (file.parent / "journeys.toml").read_text()
    return text.split('http-address = "')[1].split('"')[0]


def test_it_is_started_with_the_brokers(tmp_path: Path, spec: Spec) -> None:
    with outside(tmp_path, spec) as up:
        up.until("is up")
        address = door_beside(write_file(tmp_path, spec))

        def told() -> bool:
            _, document, _ = http(address, "/stats")
            [journey] = document["journeys"]
            return list(journey["gateways"].values()) == [""]

        wait_for(told, "its gateway tells")
        status, said, _ = http(address, "/ping")
        assert status == 500
        assert "no consumer tells" in said


def test_a_contract_gets_another_slo(tmp_path: Path, spec: Spec) -> None:
    with outside(tmp_path, spec) as up:
        up.until("is up")
        path = tmp_path / "journeys.toml"
        journeys = read_journeys(path)
        owner = journeys.table.owner(str(tmp_path / "d"))
        slo = SLO.parse("0.996@60ms")
        assert asyncio.run(set_contract_slo("alarms", slo, owner)) == ""
        [journey] = journeys.all
        found = contract_slos(journey)
        assert (found.slo, found.faults) == (slo, [])
        assert asyncio.run(set_contract_slo("--help", slo, owner)) != ""
        fault = asyncio.run(set_contract_slo("nothing", slo, owner))
        assert "rate" in fault
        path.write_text(
            path.read_text().replace(
                "[journeys]",
                f'[journeys]\ndistributor-address = "{spec["distributor"]["http-address"]}"',
            )
        )
        owner = read_journeys(path).table.owner("")
        assert "nothing" in asyncio.run(set_contract_slo("nothing", slo, owner))


@pytest.mark.parametrize(
    ("slip", "says"),
    [
        pytest.param({"file": "none.toml"}, "file of [journeys]:", id="no-file"),
        pytest.param({"file": "journeys.toml", "speed": 1}, "speed", id="unknown-key"),
    ],
)
def test_a_slip_is_told(tmp_path: Path, spec: Spec, slip: dict[str, object], says: str) -> None:
    spec["journeys"] = slip
    with pytest.raises(UsageError) as refused:
        read_plan(write_file(tmp_path, spec))
    assert says in str(refused.value)


def test_its_address_is_its_own(tmp_path: Path, spec: Spec) -> None:
    file = tmp_path / "journeys.toml"
    taken = spec["broker"][0]["http-address"]
    file.write_text(file.read_text().replace(door_beside(file), taken))
    with pytest.raises(UsageError, match="is taken by http-address of broker broker-1"):
        read_plan(write_file(tmp_path, spec))
