"""`srtm stat` before gateways and nsqds whose HTTP door is closed."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.distributors import DistributorProcess
from tests.support.programs import run_srtm
from tests.support.servers import Nsqd, Servers, free_port, wait_for

CLOSED = "--tls-required=true"


@pytest.fixture(scope="module")
def root(authority: Authority) -> str:
    return f"--nsqd-tls-root-ca-file={authority.ca_file}"


@pytest.fixture(scope="module")
def pair(authority: Authority) -> list[str]:
    cert, key = authority.issue("b1", dns=["b1"], ip=["127.0.0.1"])
    return [f"--tls-cert={cert}", f"--tls-key={key}", CLOSED]


@pytest.fixture(scope="module")
def secure() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def plain(shared: Servers, pair: list[str], secure: str) -> str:
    """The HTTP address of a gateway whose HTTPS address is `secure`."""
    gateway = shared.gateway(*pair, f"--https-address={secure}", "--topic=t,rate=550,burst=20")
    return gateway.http


def stat(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_srtm("stat", "--count=1", "--json", *arguments)


def at(address: str) -> str:
    return f"--nsqd-http-address={address}"


def rate_of(shown: subprocess.CompletedProcess[str]) -> float:
    assert shown.stderr == ""
    (row,) = json.loads(shown.stdout)
    return float(row["srtm"]["rate"])


def error_of(shown: subprocess.CompletedProcess[str], code: int) -> str:
    assert shown.returncode == code, shown.stdout + shown.stderr
    assert shown.stderr.count("\n") == 1
    return shown.stderr.removeprefix("srtm: ").rstrip()


def test_its_https_address_is_read(plain: str, secure: str, root: str) -> None:
    assert rate_of(stat(at(f"https://{secure}"), root)) == 550


def test_its_http_address_leads_to_the_https_door(plain: str, root: str) -> None:
    """As nsqadmin goes on: brokers announce their HTTP port alone."""
    assert rate_of(stat(at(plain), root)) == 550


def test_without_an_authority_the_remedy_is_said(plain: str, secure: str) -> None:
    port = secure.partition(":")[2]
    assert error_of(stat(at(plain)), 3) == (
        f"{plain} answers by HTTPS alone (TLS_REQUIRED), at port {port}: give "
        "--nsqd-tls-root-ca-file, by which it is verified"
    )
    assert error_of(stat(at(f"https://{secure}")), 2) == (
        f"--nsqd-http-address https://{secure} needs --nsqd-tls-root-ca-file, by which it is "
        "verified"
    )


def test_a_stranger_is_not_believed(plain: str, secure: str, root: str, tmp_path: Path) -> None:
    other = f"--nsqd-tls-root-ca-file={Authority(tmp_path / 'o').ca_file}"
    for address in (plain, f"https://{secure}"):
        assert "its certificate is not accepted" in error_of(stat(at(address), other), 3)
        named = stat(at(address), root, "--nsqd-tls-server-name=b2")
        assert "is not valid for 'b2'" in error_of(named, 3)
        assert rate_of(stat(at(address), root, "--nsqd-tls-server-name=b1")) == 550


def test_a_gateway_that_takes_only_known_clients(
    servers: Servers, pair: list[str], root: str, authority: Authority
) -> None:
    policy = [f"--tls-root-ca-file={authority.ca_file}", "--tls-client-auth-policy=require-verify"]
    door = f"--https-address=127.0.0.1:{free_port()}"
    gateway = servers.gateway(*pair, *policy, door, "--topic=t,rate=550,burst=20")
    cert, key = authority.issue("eye", client=True)
    shown = (f"--nsqd-tls-cert={cert}", f"--nsqd-tls-key={key}")
    assert rate_of(stat(at(gateway.http), root, *shown)) == 550
    assert "only clients" in error_of(stat(at(gateway.http), root), 3)
    assert error_of(stat(at(gateway.http), root, shown[0]), 2) == (
        "--nsqd-tls-cert and --nsqd-tls-key go together"
    )


def test_a_gateway_without_an_https_door(servers: Servers, pair: list[str], root: str) -> None:
    gateway = servers.gateway(*pair, "--https-address=")
    assert error_of(stat(at(gateway.http), root), 3) == (
        f"{gateway.http} answers by HTTPS alone (TLS_REQUIRED) and has no HTTPS door: start it "
        "with --https-address"
    )


def test_a_plain_nsqd_is_read_alike(shared: Servers, pair: list[str], root: str) -> None:
    door = f"127.0.0.1:{free_port()}"
    nsqd: Nsqd = shared.nsqd(*pair, f"--https-address={door}")
    for address in (nsqd.http, f"https://{door}"):
        shown = stat(at(address), root)
        assert (shown.stdout, shown.stderr) == ("[]\n", "")
    assert "--nsqd-tls-root-ca-file" in error_of(stat(at(nsqd.http)), 3)


def test_brokers_that_a_distributor_names(
    servers: Servers, distributor: DistributorProcess, pair: list[str], root: str
) -> None:
    asked = f"--distributor-address={distributor.address}"
    servers.gateway(
        *pair, asked, "--broker-name=b1", "--broker-capacity=100",
        f"--https-address=127.0.0.1:{free_port()}", "--default-limit=rate=550,burst=20",
        "--topic=t,rate=550,burst=20",
    )  # fmt: skip
    wait_for(lambda: distributor.ok("GET", "/brokers")["brokers"], "it is known")
    shown = stat(asked, root)
    assert shown.stderr == ""
    assert {row["broker"] for row in json.loads(shown.stdout)} == {"b1"}
    assert "TLS_REQUIRED" in error_of(stat(asked), 3)
