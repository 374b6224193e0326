"""The live penalty of real gateways, beside what the simulator says of the same arrivals."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from srtm.nsq.commands import message, mpub, pub
from tb_adaptor.share import Part
from tb_adaptor.simulator.judge import unsplit_waits
from tb_adaptor.simulator.run import Arrivals, simulate
from tests.support.distributors import DistributorProcess, distributors_in, srtm
from tests.support.servers import GatewayProcess, http, servers_in, wait_for
from tests.support.v2 import V2

RATE, BURST = 40.0, 40.0
CROWD = 36
"""messages at once: the whole bucket holds them, half of it 20"""
PERIOD = 2.0


@pytest.fixture(scope="module")
def world(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[DistributorProcess, list[GatewayProcess]]]:
    """Two brokers that share topics t, m and s evenly, for good; topic alone is on one of them."""
    folder = tmp_path_factory.mktemp("penalty")
    with distributors_in(folder) as start, servers_in(folder) as servers:
        distributor = start()
        distributor.wait_leading()
        gateways = [
            servers.gateway(
                f"--distributor-address={distributor.address}",
                f"--broker-name={name}",
                "--broker-capacity=1000",
                unix=True,
            )
            for name in ("b1", "b2")
        ]
        for topic, policy in (("t", "lb"), ("m", "lb"), ("s", "lb"), ("alone", "single")):
            distributor.topic(topic, rate=RATE, burst=BURST, slo=None)
            distributor.publishers(16, topic)
            off = {"policy": "off", "window": "10s", "every": "10s"}
            distributor.ok("PUT", f"/topics/{topic}/adaptation", off)
            distributor.place(topic, policy=policy)
        wait_for(
            lambda: [each.inside("t").get("rate") for each in gateways] == [20, 20],
            "both have a share",
            20,
        )
        yield distributor, gateways


def penalty(distributor: DistributorProcess, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = distributor.ok("GET", f"/topics/{topic}/penalty")
    return found


def stranded_seconds(distributor: DistributorProcess, topic: str, name: str) -> float:
    found = penalty(distributor, topic)["stranded"]
    return float(found[name] * found["seconds"]) if found else 0.0


class Crowds:
    """Each period a crowd comes to the first broker, and when it was sent is kept."""

    def __init__(
        self, gateway: GatewayProcess, topic: bytes, batches: bool, size: int = CROWD
    ) -> None:
        self.sent: list[float] = []
        self._gateway, self._topic, self._batches, self._size = gateway, topic, batches, size
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Crowds":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        one = b"".join(pub(self._topic, b"x") for _ in range(self._size))
        half = mpub(self._topic, [message(b"x")] * (self._size // 2), self._size // 2)
        crowd = half + half if self._batches else one
        with V2(self._gateway.tcp) as client:
            while not self._over.wait(PERIOD):
                self.sent.append(time.monotonic())
                client.send(crowd)


@pytest.mark.parametrize(
    ("topic", "batches"), [pytest.param("t", False, id="singles"), ("m", True)]
)
def test_crowds_on_one_half_wait_as_the_simulator_says(
    world: tuple[DistributorProcess, list[GatewayProcess]], topic: str, batches: bool
) -> None:
    distributor, gateways = world
    wait_for(
        lambda: "no messages came" in penalty(distributor, topic)["unknown"],
        "arrivals are followed, and one bucket would be full",
        30,
    )
    with Crowds(gateways[0], topic.encode(), batches) as crowds:
        found = wait_for(
            lambda: (
                (penalty(distributor, topic)["messages"] or 0) >= 3 * CROWD
                and penalty(distributor, topic)
            ),
            "three crowds were compared",
            60,
        )
    times = np.array(crowds.sent[:3]) - crowds.sent[0] + 1.0
    repeats = 2 if batches else CROWD
    arrivals = {
        "b1": Arrivals(np.repeat(times, repeats), np.full(3 * repeats, float(CROWD / repeats))),
        "b2": Arrivals(np.empty(0), np.empty(0)),
    }
    contract = Part(RATE, BURST)
    split = simulate("static", contract, arrivals).waits
    assert found["token_wait"]["mean"] == pytest.approx(float(split.mean()), rel=0.25)
    one = unsplit_waits(contract, arrivals)
    assert abs(found["unsplit"]["mean"] - float(one.mean())) <= found["error"]["mean"]
    assert found["penalty"]["mean"] > 0.1
    assert found["error"]["mean"] > 1e-3, "two clocks are never one"
    assert found["penalty"]["p99"] == pytest.approx(
        found["token_wait"]["p99"] - found["unsplit"]["p99"]
    )
    # Of each crowd 16 wait, the last for 0.8 s, while 20 tokens lie at the other broker.
    token_seconds = (16 + 1) * 16 / 2 / (RATE / 2)
    found = wait_for(
        lambda: (
            stranded_seconds(distributor, topic, "least") >= 0.7 * 3 * token_seconds
            and penalty(distributor, topic)
        ),
        "three crowds were followed",
        10,
    )["stranded"]
    assert found["most"] * found["seconds"] <= 2 * len(crowds.sent) * token_seconds


def test_a_crowd_spread_over_both_strands_nothing(
    world: tuple[DistributorProcess, list[GatewayProcess]],
) -> None:
    distributor, gateways = world
    halves = [Crowds(each, b"s", batches=False, size=CROWD // 2) for each in gateways]
    with halves[0], halves[1]:
        found = wait_for(
            lambda: (
                (penalty(distributor, "s")["messages"] or 0) >= 2 * CROWD
                and penalty(distributor, "s")
            ),
            "two crowds were compared",
            60,
        )
    assert found["stranded"]["seconds"] > PERIOD
    assert found["stranded"]["least"] == 0
    assert found["stranded"]["most"] < 1


def test_it_is_in_metrics_and_in_stat(
    world: tuple[DistributorProcess, list[GatewayProcess]],
) -> None:
    distributor, gateways = world
    with Crowds(gateways[0], b"t", batches=False):
        wait_for(lambda: penalty(distributor, "t")["messages"], "it is known", 60)
        wait_for(lambda: stranded_seconds(distributor, "t", "least"), "tokens are stranded", 30)
        metrics = http(distributor.address, "/metrics")[1]
        assert 'srtm_distributor_topic_penalty_known{topic="t"} 1' in metrics
        assert 'srtm_distributor_topic_penalty_mean_seconds{topic="t"} 0.' in metrics
        assert 'srtm_distributor_topic_stranded_tokens{topic="t"} ' in metrics
        assert 'srtm_distributor_topic_stranded_tokens_most{topic="t"} ' in metrics
        words = ["stat", f"--nsqd-http-address={gateways[0].http}", "--count=1"]
        table = srtm(*words)
        assert table.returncode == 0, table.stderr
        assert "split topic" in table.stdout
        assert "stranded tokens" in table.stdout
        rows = json.loads(srtm(*words, "--json", "--topic=t").stdout)
    [shown] = [row["penalty"] for row in rows if "penalty" in row]
    assert shown["topic"] == "t"
    assert shown["penalty"]["mean"] > 0.1
    assert shown["stranded"]["least"] > 0


def test_one_broker_shows_none(world: tuple[DistributorProcess, list[GatewayProcess]]) -> None:
    distributor, _ = world
    found = penalty(distributor, "alone")
    assert found["unknown"] == "no two brokers share the topic"
    assert found["penalty"] is None
    assert found["stranded"] is None
    shown = distributor.ok("GET", "/penalties")["penalties"]
    assert [each["topic"] for each in shown] == ["m", "s", "t"]
    assert 'topic="alone"' not in http(distributor.address, "/metrics")[1]


def test_a_broker_that_dies_makes_it_unknown(
    world: tuple[DistributorProcess, list[GatewayProcess]],
) -> None:
    distributor, gateways = world
    gateways[1].process.kill()
    wait_for(
        lambda: penalty(distributor, "t")["unknown"] == "broker b2 does not report its arrivals",
        "it is said who is silent",
        30,
    )
