"""Routes through a gateway that requires TLS, a certificate and AUTH."""

from srtm.client import features
from srtm.nsq.blocking import Blocking
from srtm.nsq.commands import pub
from tests.support.bridges import back, bridge, out, read
from tests.support.certificates import Authority
from tests.support.guarded import SECRET, guarded_gateway
from tests.support.kafka import Kafka
from tests.support.servers import Servers, wait_for


def test_both_ways(servers: Servers, kafka: Kafka, authority: Authority) -> None:
    for topic in ("secure-out", "secure-back"):
        kafka.create(topic)
    with guarded_gateway(servers, authority) as guarded:
        gateway, options = guarded.gateway, guarded.options
        made = bridge(
            servers,
            kafka,
            out(gateway, "secure-out", **options, snappy=True),
            back(gateway, "secure-back", **options, deflate=True),
        )
        with Blocking(gateway.tcp, {}, features=features(**options)).identify() as link:
            for number in range(20):
                link.ask(pub(b"secure-out", b"%d" % number))
        kafka.produce("secure-back", [b"%d" % number for number in range(20)])
        wait_for(lambda: made.route()["delivered_count"] == 20, "all are in Kafka", 30)
        assert read(gateway.nsqd, "secure-back", 20) == [b"%d" % each for each in range(20)]
        assert SECRET not in made.process.text()
