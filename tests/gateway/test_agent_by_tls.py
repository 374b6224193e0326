"""The gateway's agent by TLS, to a real distributor: a certificate is the gateway's name there."""

from collections.abc import Callable
from pathlib import Path

import pytest

from srtm.host.certificates import TlsFiles, client_context
from tests.support.certificates import Authority
from tests.support.distributors import DistributorProcess, Starter
from tests.support.servers import GatewayProcess, Servers, wait_for


@pytest.fixture
def distributor(start: Starter, tmp_path: Path, authority: Authority) -> DistributorProcess:
    cert, key = authority.issue("distributor", ip=["127.0.0.1"])
    own = TlsFiles(*authority.issue("looker", client=True), authority.ca_file)
    running = start(
        tmp_path / "s.db",
        f"--tls-cert={cert}",
        f"--tls-key={key}",
        f"--tls-root-ca-file={authority.ca_file}",
        "--tls-client-auth-policy=require-verify",
        tls=client_context(own),
    )
    running.wait_leading()
    return running


Begin = Callable[..., GatewayProcess]


@pytest.fixture
def begin(servers: Servers, distributor: DistributorProcess, authority: Authority) -> Begin:
    def gateway(name: str, *files: str, root_ca: str = authority.ca_file) -> GatewayProcess:
        cert, key = files or authority.issue("b1", client=True)
        return servers.gateway(
            f"--distributor-address={distributor.address}",
            f"--distributor-tls-root-ca-file={root_ca}",
            f"--distributor-tls-cert={cert}",
            f"--distributor-tls-key={key}",
            f"--broker-name={name}",
        )

    return gateway


def test_a_gateway_is_known_by_its_certificate(
    begin: Begin, distributor: DistributorProcess
) -> None:
    begin("b1")
    [broker] = distributor.ok("GET", "/brokers")["brokers"]
    assert (broker["name"], broker["state"]) == ("b1", "up")


def test_one_gateway_speaks_for_no_other(begin: Begin, distributor: DistributorProcess) -> None:
    gateway = begin("b2")
    said = "does not register this broker: b1 may not speak for broker b2"
    wait_for(lambda: said in gateway.process.text(), said)
    assert distributor.ok("GET", "/brokers")["brokers"] == []


def test_a_distributor_that_is_not_trusted_is_told_in_one_line(
    begin: Begin, distributor: DistributorProcess, tmp_path: Path
) -> None:
    gateway = begin("b1", root_ca=Authority(tmp_path / "other", "another authority").ca_file)
    said = "/v1/brokers failed: its certificate is not accepted"
    wait_for(lambda: said in gateway.process.text(), said)
    assert "Traceback" not in gateway.process.text()
