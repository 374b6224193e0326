"""Kafka -> NSQ through the brokers that the Load Distributor gives."""

from tests.support.bridges import IN_MEMORY, bridge, open_channel, write
from tests.support.distributors import DistributorProcess, distributors_in, srtm
from tests.support.kafka import Kafka
from tests.support.servers import GatewayProcess, Servers, wait_for


def test_check_asks_the_distributor_for_the_topic(
    servers: Servers, kafka: Kafka, distributor: DistributorProcess
) -> None:
    kafka.create("asked")
    file = servers.folder / "check.toml"
    route = {"from": "kafka:asked", "group": "asked", "to": "nsq:{topic}"}

    def check(address: str) -> tuple[int, str]:
        write(file, kafka, route | {"distributor": address})
        done = srtm("bridge", "check", str(file))
        assert done.stderr == ""
        return done.returncode, done.stdout

    code, said = check(distributor.address)
    assert code == 3
    assert "does not know topic asked; srtm topic register" in said
    distributor.topic("asked", rate=1500.0)
    code, said = check(distributor.address)
    assert code == 0, said
    assert f"distributor {distributor.address} knows topic asked: 1,500 messages/s" in said
    assert distributor.ok("GET", "/topics/asked/publishers")["publishers"] == []
    code, said = check(servers.nsqd().http)
    assert code == 3
    assert "does not know topic" not in said


def gateways_of(servers: Servers, address: str) -> list[GatewayProcess]:
    """Two brokers of the distributor there, each with a channel for the topic `alone`."""
    found = []
    for number in range(2):
        nsqd = servers.nsqd(IN_MEMORY)
        open_channel(nsqd, "alone", "reader")
        flags = (f"--distributor-address={address}", f"--broker-name=b{number}")
        found.append(servers.gateway(*flags, "--broker-capacity=200000", nsqd=nsqd))
    return found


def test_it_publishes_where_the_distributor_says_and_waits_for_one_that_is_away(
    servers: Servers, kafka: Kafka
) -> None:
    kafka.create("alone", 2)
    kafka.produce("alone", [b"%d" % n for n in range(1000)])
    with distributors_in(servers.folder) as start:
        distributor = start()
        distributor.wait_leading()
        gateways = gateways_of(servers, distributor.address)
        distributor.process.kill()
        route = {"from": "kafka:alone", "group": "alone", "to": "nsq:{topic}"}
        route |= {"distributor": distributor.address, "publishers": 2, "rate": 20_000}
        made = bridge(servers, kafka, route, wait=False)

        def total() -> int:
            return sum(gateway.nsqd.message_count("alone") for gateway in gateways)

        wait_for(lambda: "has named no gateway yet" in made.reason(), "it says why", 20)
        assert total() == 0
        distributor.process.start()
        distributor.wait_leading()
        # The topic is not there yet, and comes later.
        wait_for(
            lambda: "alone" in made.reason() and "publisher" in made.reason(), "it is refused", 20
        )
        distributor.topic("alone", rate=100_000.0, burst=2000.0)

        def registered() -> bool:
            path = "/topics/alone/publishers/test.kafka:alone-0"
            return bool(distributor.call("GET", path)[0] == 200)

        def placed() -> bool:
            body = {"policy": "srtm"}
            return bool(distributor.call("POST", "/topics/alone/placements", body)[0] == 200)

        wait_for(registered, "it is a publisher", 20)
        wait_for(placed, "its brokers have reported", 20)
        wait_for(lambda: total() == 1000, "all are published", 30)
        distributor.process.kill()
        kafka.produce("alone", [b"%d" % n for n in range(1000, 2000)])
        wait_for(lambda: total() == 2000, "it keeps its place", 20)
        distributor.process.start()
        distributor.wait_leading()
        busy = [each.nsqd.message_count("alone") > 0 for each in gateways].index(True)
        distributor.ok("POST", f"/brokers/b{busy}/drain", {"drain": True})
        wait_for(placed, "its brokers have reported", 20)
        other = {gateways[1 - busy].tcp}
        wait_for(lambda: set(made.route()["nsqd"].values()) == other, "it has moved", 20)
        before = gateways[busy].nsqd.message_count("alone")
        kafka.produce("alone", [b"%d" % n for n in range(2000, 3000)])
        wait_for(lambda: total() == 3000, "the rest is published, too", 20)
        assert gateways[busy].nsqd.message_count("alone") == before
        assert made.process.stop() == 0, made.process.text()
        assert "Traceback" not in made.process.text()
