"""A pool before gateways and nsqds whose HTTP door is closed."""

from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from srtm.autoscaler.pool.brokers import Brokers
from srtm.consumer.pool_file import NsqTable
from srtm.consumer.scaled_file import read_scaled_file
from srtm.host.certificates import TlsFiles, client_context
from srtm.nsq.commands import pub
from srtm.text.errors import UsageError
from tests.support.certificates import Authority
from tests.support.pools import Pool
from tests.support.secure import SecureV2
from tests.support.servers import GatewayProcess, Servers, free_port, wait_for


@pytest.fixture
def lookupd(servers: Servers) -> tuple[str, str]:
    tcp, web, _ = servers.lookupd()
    return tcp, web


@pytest.fixture
def secure() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def gateway(
    servers: Servers, authority: Authority, lookupd: tuple[str, str], secure: str
) -> GatewayProcess:
    """Closed to plain text at both doors; it has the topic `events`."""
    cert, key = authority.issue("b1", dns=["localhost"], ip=["127.0.0.1"])
    found = servers.gateway(
        f"--tls-cert={cert}", f"--tls-key={key}", "--tls-required=true",
        f"--https-address={secure}", f"--lookupd-tcp-address={lookupd[0]}",
    )  # fmt: skip
    publish(found, authority, 1)
    return found


@pytest.fixture
def made(servers: Servers, gateway: GatewayProcess, lookupd: tuple[str, str]) -> Iterator[Pool]:
    found = Pool(servers, lookupd[1], [gateway.http])
    yield found
    found.end()


def publish(gateway: GatewayProcess, authority: Authority, count: int) -> None:
    tls = client_context(TlsFiles(root_ca=authority.ca_file))
    with SecureV2(gateway.tcp, tls) as publisher:
        for number in range(count):
            publisher.send(pub(b"events", str(number).encode()))
            assert publisher.reply() == b"OK"


def said_of(nsq: NsqTable) -> str:
    """What a controller knows of the one broker: "" where it has read it."""
    seen: SimpleQueue[str] = SimpleQueue()
    brokers = Brokers(nsq, 0.05, lambda address, at, found: seen.put(address), lambda gone: None)
    brokers.start()
    try:
        wait_for(lambda: brokers.faults or not seen.empty(), "it is read")
        return "".join(brokers.faults)
    finally:
        brokers.close()


def test_consumers_of_brokers_that_nsqlookupd_names(
    made: Pool, gateway: GatewayProcess, authority: Authority
) -> None:
    """It knows their HTTP ports alone."""
    made.write(nsq={"tls_v1": True, "tls_root_ca_file": authority.ca_file})
    made.controller()
    made.wait_consumers(1)
    publish(gateway, authority, 20)
    made.sent = 20
    made.wait_kept()
    made.wait(lambda: made.stats()["health"] == "OK", "all is well")


def test_https_addresses_and_what_is_said_without_tls(
    gateway: GatewayProcess, authority: Authority, lookupd: tuple[str, str], secure: str
) -> None:
    channel = {"topic": "events", "channel": "c"}
    tls = {"tls-v1": True, "tls-root-ca-file": authority.ca_file}
    for http in (gateway.http, f"https://{secure}"):
        given = {**channel, "nsqd": [gateway.tcp], "nsqd-http": [http]}
        assert said_of(NsqTable.model_validate(given | tls)) == ""
    found = said_of(NsqTable.model_validate({**channel, "lookupd": [lookupd[1]]}))
    port = secure.partition(":")[2]
    assert found == (
        f"{gateway.http} answers by HTTPS alone (TLS_REQUIRED), at port {port}: set tls-v1 = true "
        "in [nsq]"
    )


@pytest.mark.parametrize(
    ("http", "says"),
    [
        pytest.param("https://h:1", "nsqd-http https://h:1 needs tls-v1 = true", id="no-tls"),
        pytest.param("https://:1", "':1' names no host", id="no-host"),
        pytest.param("http://h:1", "'http://h:1' is a URL; write HOST:PORT", id="another-scheme"),
    ],
)
def test_an_address_that_cannot_be_read_is_refused(tmp_path: Path, http: str, says: str) -> None:
    file = tmp_path / "pool.toml"
    file.write_text(
        f"""
        [nsq]
        topic = "t"
        channel = "c"
        nsqd = ["h:1"]
        nsqd-http = ["{http}"]
        [group]
        slo = "0.99@1s"
        """
    )
    with pytest.raises(UsageError, match=says) as refused:
        read_scaled_file(file)
    assert "nsqd-http" in str(refused.value)
