"""`srtm load` finds the brokers of a topic, and says so where it leaves some out."""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from srtm.deploy.up import Running, running
from srtm.load.brokers import Brokers, left_out
from srtm.text.address import free_addresses
from tests.support.deployments import need_nsq
from tests.support.programs import run_srtm
from tests.support.servers import Servers

SPLIT = Brokers(("127.0.0.1:1", "127.0.0.1:2"), split=True)


@pytest.mark.parametrize(
    ("known", "used", "said"),
    [
        pytest.param(SPLIT, SPLIT.addresses, "", id="all"),
        pytest.param(SPLIT, ["localhost:1", "127.0.0.1:2"], "", id="all-by-another-name"),
        pytest.param(SPLIT, ["127.0.0.1:1"], "without the share of 127.0.0.1:2", id="one-of-two"),
        pytest.param(SPLIT, ["127.0.0.1:9"], "", id="another-deployment"),
        pytest.param(Brokers(("h:1", "h:2")), ["h:1"], "", id="without-a-contract"),
        pytest.param(
            Brokers(("h:1",), ("h:2",), True), ["h:1"], "h:2 does not answer", id="a-silent-one"
        ),
    ],
)
def test_what_is_left_out(known: Brokers, used: list[str], said: str) -> None:
    warning = left_out("t", known, used)
    assert said in warning
    assert bool(said) == bool(warning)


@contextmanager
def deployment(**tables: Any) -> Iterator[Running]:
    """Two brokers with topic `alarms` split over them."""
    addresses = free_addresses(4)
    with tempfile.TemporaryDirectory(prefix="srtm-") as folder:
        spec = {
            "deployment": {"data-path": f"{folder}/srtm-data"},
            "distributor": False,
            "broker": [
                {"tcp-address": str(tcp), "http-address": str(http)}
                for tcp, http in zip(addresses[:2], addresses[2:], strict=True)
            ],
            "topic": [{"name": "alarms", "rate": 1100, "burst": 40, "slo": "0.99@5ms"}],
            **tables,
        }
        with running(spec) as found:
            yield found


def load(folder: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    common = ("load", "--topic=alarms", "--duration=1s", "--json")
    return run_srtm(*common, *flags, folder=folder, seconds=60)


def received(done: "subprocess.CompletedProcess[str]") -> list[int]:
    """Messages by broker."""
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["counts"]["received"] == document["counts"]["planned"] > 0
    return [share["counts"]["received"] for share in document["brokers"].values()]


def test_a_split_topic_gets_its_load_on_all_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    need_nsq(monkeypatch)
    lookupd_tcp, lookupd_http = free_addresses(2)
    lookupd = {"tcp-address": str(lookupd_tcp), "http-address": str(lookupd_http)}
    with deployment(lookupd=lookupd) as found:
        data_path = found.deployment.data_path
        first, _ = (str(each.tcp_address) for each in found.deployment.brokers)
        for done in (
            load(data_path.parent),
            load(Path("/"), f"--deployment={data_path}"),
            load(Path("/"), f"--lookupd-http-address={lookupd_http}"),
        ):
            assert len(received(done)) == 2
            assert all(count > 20 for count in received(done))
            assert done.stderr == ""
        for few in (f"--nsqd-tcp-address={first}", "--publishers=1"):
            done = load(data_path.parent, few)
            assert sum(map(bool, received(done))) == 1
            assert "split over 2 brokers and this load goes to 1 of them" in done.stderr
            assert done.stderr.count("\n") == 1


def test_without_a_deployment_it_goes_where_it_is_told(servers: Servers, tmp_path: Path) -> None:
    gateway = servers.gateway()
    done = load(tmp_path, f"--nsqd-tcp-address={gateway.tcp}")
    assert received(done)
    assert done.stderr == ""
    lost = load(tmp_path, "--deployment=nowhere")
    assert lost.returncode == 3
    assert "no deployment runs in" in lost.stderr
