"""Routes through a gateway that requires TLS, a certificate and AUTH."""

from typing import Any

from srtm.bridge.check import check
from srtm.bridge.file import read_bridge_file
from srtm.bridge.lookup import nsqds_of
from srtm.client import features
from srtm.nsq.blocking import Blocking
from srtm.nsq.commands import pub
from tests.support.bridges import back, bridge, out, publish, read, write
from tests.support.certificates import Authority
from tests.support.distributors import DistributorProcess
from tests.support.guarded import SECRET, guarded_gateway
from tests.support.kafka import Kafka
from tests.support.servers import GatewayProcess, Nsqd, Servers, wait_for


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


def test_what_check_says_of_each(servers: Servers, kafka: Kafka, authority: Authority) -> None:
    """As the routes connect, up to AUTH: who answers, and why another does not."""
    wrong = servers.folder / "wrong"
    wrong.write_text("not-a-secret")
    wrong.chmod(0o600)
    cert, key = authority.issue("nsqd", ip=["127.0.0.1"])
    pair = f"--tls-cert={cert}", f"--tls-key={key}"
    strict = servers.nsqd(*pair, "--https-address=", "--tls-required=true")
    plain = servers.nsqd()
    secure = servers.gateway(*pair, "--https-address=", nsqd=plain)
    required = servers.gateway(*pair, "--https-address=", "--tls-required=true", nsqd=plain)
    trusting = {"tls_v1": True, "tls_root_ca_file": authority.ca_file}
    with guarded_gateway(servers, authority) as guarded:
        gateway, options = guarded.gateway, guarded.options

        def without(*names: str) -> dict[str, Any]:
            return {name: value for name, value in options.items() if name not in names}

        cases: list[tuple[Nsqd | GatewayProcess, dict[str, Any], str]] = [
            (gateway, options, "answers by TLS, with AUTH"),
            (secure, trusting, "answers by TLS"),
            (secure, {}, "answers"),
            (plain, {}, "answers"),
            (gateway, {}, "it requires AUTH, and no secret is given: see auth-secret-file"),
            (required, {}, "it requires TLS; give the route tls-v1 = true"),
            (strict, {}, "it requires TLS; give the route tls-v1 = true"),
            (gateway, without("tls_root_ca_file"), "its certificate is not accepted: "),
            (strict, trusting | {"tls_server_name": "b.example"}, "ostname mismatch"),
            (gateway, without("tls_cert", "tls_key"), "only clients that show a certificate"),
            (gateway, without("auth_secret_file"), "requires AUTH, and no secret is given: see"),
            (gateway, options | {"auth_secret_file": str(wrong)}, "E_AUTH_FAILED AUTH failed"),
            (plain, trusting, "it offers no TLS, and this side does not go on in clear text"),
        ]
        ways = [out, back]
        routes = [
            ways[number % 2](at, f"check-{number}", **given, name=f"route-{number}")
            for number, (at, given, _) in enumerate(cases)
        ]
        write(servers.folder / "check.toml", kafka, *routes)
        said = [str(each) for each in check(read_bridge_file(servers.folder / "check.toml"))]
    for number, (at, _, words) in enumerate(cases):
        waits = "" if words.startswith("answers") else "WAITS: "
        [line] = [each for each in said if each.startswith(f"route-{number}: {waits}{at.tcp}")]
        assert words in line
        assert waits or line.endswith(words)
    assert SECRET not in "".join(said)


def test_check_tries_those_that_others_name(
    servers: Servers, kafka: Kafka, distributor: DistributorProcess
) -> None:
    lookupd, web, _ = servers.lookupd()
    nsqd = servers.nsqd(f"--lookupd-tcp-address={lookupd}")
    publish(nsqd, "named", [b"x"])
    gateway = servers.gateway(f"--distributor-address={distributor.address}")
    distributor.topic("placed")
    wait_for(lambda: nsqds_of(web, "named"), "nsqlookupd knows it")
    wait_for(lambda: distributor.ok("GET", "/brokers")["brokers"], "it has reported")
    named = out(nsqd, "named") | {"lookupd": [web]}
    placed = back(gateway, "placed") | {"distributor": distributor.address}
    for route in (named, placed):
        del route["nsqd"]
    write(servers.folder / "check.toml", kafka, named, placed)
    said = [str(each) for each in check(read_bridge_file(servers.folder / "check.toml"))]
    for address in (nsqds_of(web, "named").pop(), gateway.tcp):
        assert [each for each in said if each.endswith(f": {address} answers")]
