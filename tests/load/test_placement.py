"""`srtm load` follows a placement: every publisher at its own gateway, groups as they are known."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from srtm.http.client import Endpoint
from srtm.load import LoadSettings
from srtm.load.placement import PlacedPublisher, read_placement, settings_of
from srtm.load.schedule import build_schedule
from srtm.text.errors import UnavailableError, UsageError
from tests.support.distributors import DistributorProcess, distributors_in, settle, srtm
from tests.support.programs import SRTM
from tests.support.servers import GatewayProcess, Servers, wait_for


@pytest.fixture(scope="module")
def distributor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DistributorProcess]:
    with distributors_in(tmp_path_factory.mktemp("distributor")) as start:
        running = start()
        running.wait_leading()
        yield running


def endpoint(distributor: DistributorProcess) -> Endpoint:
    return Endpoint(distributor.address)


def test_settings_of_a_placement() -> None:
    placed = [
        PlacedPublisher("a", "k", 1.0, "h:1"),
        PlacedPublisher("b", None, 2.0, "h:2"),
        PlacedPublisher("c", "k", 3.0, "h:2"),
        PlacedPublisher("k", None, 4.0, "h:1"),  # named as the key is: not of its group
    ]
    assert settings_of(placed) == {
        "publishers": 4,
        "ids": ("a", "b", "c", "k"),
        "rates": (1.0, 2.0, 3.0, 4.0),
        "groups": (0, 1, 0, 2),
        "publish_addresses": ("h:1", "h:2"),
        "assignment": (0, 1, 1, 0),
    }
    assert len(build_schedule(LoadSettings("t", **settings_of(placed)))) > 0


def test_the_placement_is_read_whole(distributor: DistributorProcess) -> None:
    brokers = [distributor.broker(name, 40.0) for name in ("b1", "b2")]
    distributor.topic("whole")
    distributor.publishers(6, "whole")
    with pytest.raises(UsageError, match="topic whole has no placement yet"):
        read_placement(endpoint(distributor), "whole")
    plan = distributor.place("whole")
    settle(*brokers)
    placed = read_placement(endpoint(distributor), "whole")
    assert [(each.id, each.key, each.rate) for each in placed] == [
        (f"p{n}", f"k{n % 3}", 10.0) for n in range(6)
    ]
    wanted = {each["publisher"]: f"{each['broker']}:4150" for each in plan["assignments"]}
    assert {each.id: each.address for each in placed} == wanted


def test_a_broker_without_its_share_is_waited_for_and_then_named(
    distributor: DistributorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srtm.load.placement._SETTLE_SECONDS", 0.5)
    silent = distributor.broker("silent", 1000.0)
    distributor.topic("late")
    distributor.publishers(3, "late")
    distributor.place("late", policy="single")
    with pytest.raises(UnavailableError, match=r"after 0.5 s 3 publishers .* no share: silent"):
        read_placement(endpoint(distributor), "late")
    settle(silent)
    assert len(read_placement(endpoint(distributor), "late")) == 3


def test_publishers_without_a_broker_are_told(distributor: DistributorProcess) -> None:
    distributor.topic("crowded", rate=50000.0, burst=100.0)
    distributor.publishers(3, "crowded", rate=8000.0)
    settle(distributor.broker("big", 10000.0))
    distributor.place("crowded")
    with pytest.raises(
        UsageError, match="topic crowded: 2 of 3 publishers have no broker; srtm plac"
    ):
        read_placement(endpoint(distributor), "crowded")


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        pytest.param(["--topic", "none"], 2, "topic none is not registered", id="no-topic"),
        pytest.param(["--distributor-address", "127.0.0.1:1"], 3, "nothing listens", id="nobody"),
    ],
)
def test_a_slip_is_one_line(
    distributor: DistributorProcess, flags: list[str], code: int, said: str
) -> None:
    done = srtm("load", "--distributor-address", distributor.address, *flags)
    assert done.returncode == code
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_load_goes_where_the_placement_says(servers: Servers, tmp_path: Path) -> None:
    with distributors_in(tmp_path) as start:
        running = start()
        running.wait_leading()
        gateways: dict[str, GatewayProcess] = {
            name: servers.gateway(
                f"--distributor-address={running.address}",
                f"--broker-name={name}",
                "--broker-capacity=150",
            )
            for name in ("b1", "b2")
        }
        running.topic("t", rate=400.0, burst=200.0)
        rates: dict[str, float] = {f"p{n}": 20.0 + 10 * (n % 2) for n in range(8)}
        rows = [{"id": name, "key": f"k{n % 4}", "rate": r} for n, (name, r) in
                enumerate(rates.items())]  # fmt: skip
        running.ok("POST", "/topics/t/publishers", {"publishers": rows})
        plan = running.place()
        assert {each["name"] for each in plan["brokers"]} == {"b1", "b2"}
        done = srtm("load", "--topic=t", f"--distributor-address={running.address}",
                    "--duration=2s", "--json")  # fmt: skip
        assert done.returncode == 0, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        settings = document["settings"]
        assert settings["rates"] == list(rates.values())
        assert settings["groups"] == [0, 1, 2, 3, 0, 1, 2, 3]
        at = {gateways[name].tcp: name for name in gateways}
        connected = [at[settings["publish_addresses"][index]] for index in settings["assignment"]]
        wanted = {each["publisher"]: each["broker"] for each in plan["assignments"]}
        assert connected == [wanted[name] for name in rates]
        offered = Counter({name: gateways[name].offered("t") for name in gateways})
        assert offered.total() == document["counts"]["planned"] == document["counts"]["received"]
        schedule = build_schedule(
            LoadSettings(**{**settings, **{k: tuple(v) for k, v in settings.items()
                                           if isinstance(v, list)}})
        )  # fmt: skip
        assert offered == Counter(connected[publisher] for publisher in schedule.publishers)


def test_the_load_follows_a_move_and_loses_nothing(servers: Servers, tmp_path: Path) -> None:
    with distributors_in(tmp_path) as start:
        running = start()
        running.wait_leading()
        gateways = [
            servers.gateway(
                f"--distributor-address={running.address}",
                f"--broker-name=b{number}",
                "--broker-capacity=1000",
            )
            for number in range(2)
        ]
        running.topic("t", rate=20_000.0, burst=200.0)  # a floor of 100/s: the move is quick
        running.publishers(8, rate=20.0)
        running.ok("POST", "/brokers/b1/drain", {"drain": True})
        running.place()
        process = servers.process(
            "load",
            [*SRTM, *("load", "--topic=t", "--json", "--duration=8s"),
             f"--distributor-address={running.address}"],
        )  # fmt: skip
        wait_for(lambda: gateways[0].offered("t") > 50, "it sends to b0", 20)
        assert gateways[1].offered("t") == 0
        running.ok("POST", "/brokers/b1/drain", {"drain": False})
        running.ok("POST", "/brokers/b0/drain", {"drain": True})
        running.place()
        wait_for(lambda: gateways[1].offered("t") > 50, "it sends to b1", 20)
        left = gateways[0].offered("t")
        assert process.popen is not None
        assert process.popen.wait(30) == 0, process.text()
        assert gateways[0].offered("t") == left, "nobody stayed"
        document = json.loads(process.text())
        assert document["moves"] == 8
        assert document["problems"] == []
        counts = document["counts"]
        assert counts["planned"] == counts["received"] == counts["acknowledged"]
        offered = {gateway.tcp: gateway.offered("t") for gateway in gateways}
        shares = document["brokers"]
        assert {at: each["counts"]["received"] for at, each in shares.items()} == offered
