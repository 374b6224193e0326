"""Kafka -> NSQ through the brokers that the Load Distributor gives."""

from tests.bridge.test_kafka_to_nsq import IN_MEMORY
from tests.bridge.test_nsq_to_kafka import open_channel
from tests.support.bridges import bridge
from tests.support.distributors import distributors_in
from tests.support.kafka import Kafka
from tests.support.servers import Servers, wait_for


def test_the_bridge_publishes_where_the_distributor_says_and_follows_a_move(
    servers: Servers, kafka: Kafka
) -> None:
    kafka.create("placed", 4)
    with distributors_in(servers.folder) as start:
        distributor = start()
        distributor.wait_leading()
        gateways = [
            servers.gateway(
                f"--distributor-address={distributor.address}",
                f"--broker-name=b{number}",
                "--broker-capacity=200000",
                nsqd=servers.nsqd(IN_MEMORY),
            )
            for number in range(2)
        ]
        for gateway in gateways:
            open_channel(gateway.nsqd, "placed", "reader")
        distributor.topic("placed", rate=100_000.0, burst=2000.0)
        made = bridge(
            servers,
            kafka.address,
            {
                "from": "kafka:placed",
                "group": "placed",
                "to": "nsq:placed",
                "distributor": distributor.address,
                "publishers": 2,
                "rate": 20_000,
            },
            wait=False,
        )
        route = "test.kafka:placed"

        def registered() -> bool:
            listed = distributor.call("GET", f"/topics/placed/publishers/{route}-1")
            return listed[0] == 200

        wait_for(registered, "its lanes are publishers", 20)
        distributor.place("placed", policy="srtm")
        made.wait_ready(20)
        kafka.produce("placed", [b"%d" % n for n in range(5000)])
        wait_for(lambda: kafka.committed("placed", "placed") == 5000, "all are published", 30)
        before = [gateway.nsqd.message_count("placed") for gateway in gateways]
        assert sum(before) == 5000
        busy = before.index(max(before))
        distributor.ok("POST", f"/brokers/b{busy}/drain", {"drain": True})
        distributor.place("placed", policy="srtm")
        wait_for(
            lambda: set(made.route()["nsqd"].values()) == {gateways[1 - busy].tcp},
            "it has moved",
            20,
        )
        kafka.produce("placed", [b"%d" % n for n in range(5000, 10_000)])
        wait_for(lambda: kafka.committed("placed", "placed") == 10_000, "the rest, too", 30)
        after = [gateway.nsqd.message_count("placed") for gateway in gateways]
        assert sum(after) == 10_000
        assert after[busy] == before[busy]
        assert made.process.stop() == 0, made.process.text()
