"""go-nsq's own test suite, unchanged, with the gateway where it expects nsqd: 127.0.0.1:4150/4151.

It runs in a network namespace of its own, where these ports are free, once before an nsqd of the
usual kind and once before one that requires TLS, a certificate and AUTH of the gateway.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.auth_server import allowing, auth_server
from tests.support.certificates import Authority
from tests.support.servers import GatewayProcess, Servers, http, wait_for

MODULE = Path(__file__).parents[2] / "srtm" / "deploy" / "binaries"
PORTS = 4150, 4151
ALONE = {"TestConsumerBackoffDisconnect"}
"""Speaks to a broker of its own alone, which ends and listens at the same port again: that may be
taken by then, for a connection of the kernel's choice."""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Path:
    """go-nsq's tests as a program, of the version that the NSQ programs here are built with. Beside
    it is the client's certificate, which go-nsq itself does not ship."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    program = tmp_path_factory.mktemp("go-nsq") / "go-nsq.test"
    built = subprocess.run(
        ["go", "test", "-c", "-o", str(program), "github.com/nsqio/go-nsq"],
        cwd=MODULE,
        env={**os.environ, "GOFLAGS": "-mod=readonly"},
        capture_output=True,
        text=True,
    )
    if built.returncode:
        pytest.skip(f"go-nsq's tests cannot be built: {built.stderr}")
    test = program.parent / "test"
    test.mkdir()
    cert, key = authority.issue("go-nsq", client=True)
    shutil.copy(cert, test / "client.pem")
    shutil.copy(key, test / "client.key")
    return program


@pytest.fixture(scope="module")
def namespace() -> tuple[list[str], list[str]]:
    """How a program is started in a network of its own, and how another joins it by its pid."""
    for alone, join in (
        (["unshare", "-n"], ["nsenter", "-n", "-t"]),
        (["unshare", "-rn"], ["nsenter", "--preserve-credentials", "-U", "-n", "-t"]),
    ):
        if (
            shutil.which("unshare")
            and not subprocess.run(
                [*alone, "sh", "-c", "ip link set lo up"], capture_output=True
            ).returncode
        ):
            return [*alone, "sh", "-c", 'ip link set lo up; exec "$@"', "sh"], join
    pytest.skip("no network namespace can be made here (unshare -rn, ip)")
    raise AssertionError


@pytest.fixture(params=["nsqd", "nsqd-that-requires-tls-and-auth"])
def gateway(
    servers: Servers,
    namespace: tuple[list[str], list[str]],
    authority: Authority,
    request: pytest.FixtureRequest,
) -> Iterator[GatewayProcess]:
    cert, key = authority.issue("localhost", dns=["localhost"])
    tls = [f"--tls-cert={cert}", f"--tls-key={key}", f"--tls-root-ca-file={authority.ca_file}"]
    to_nsqd: list[str] = []
    with auth_server() as asked:
        if request.param == "nsqd":
            nsqd = servers.nsqd(gateway_ports=PORTS, unix=True)
        else:
            secret = servers.folder / "secret"
            secret.write_text("of-the-gateway")
            secret.chmod(0o600)
            asked.answers["of-the-gateway"] = allowing("publish", "subscribe")
            own = authority.issue("gateway", client=True)
            to_nsqd = [
                f"--nsqd-tls-root-ca-file={authority.ca_file}",
                f"--nsqd-tls-cert={own[0]}",
                f"--nsqd-tls-key={own[1]}",
                f"--nsqd-auth-secret-file={secret}",
            ]
            nsqd = servers.nsqd(
                *tls,
                "--tls-client-auth-policy=require-verify",
                "--tls-required=tcp-https",
                "--https-address=",
                f"--auth-http-address={asked.address}",
                gateway_ports=PORTS,
                unix=True,
            )
        gateway = servers.gateway(
            "--default-limit=rate=5000,burst=50,slo=0.99@10ms",
            *tls,
            *to_nsqd,
            nsqd=nsqd,
            ports=PORTS,
            prefix=tuple(namespace[0]),
            wait=False,
        )
        wait_for(lambda: Path(gateway.admin).exists() and _healthy(gateway), "the gateway is ready")
        yield gateway


def _healthy(gateway: GatewayProcess) -> bool:
    try:
        return http(gateway.admin, "/health")[0] == 200
    except OSError:
        return False


def test_go_nsqs_own_tests_pass_against_the_gateway(
    suite: Path, gateway: GatewayProcess, namespace: tuple[list[str], list[str]]
) -> None:
    """Each in a process of its own: a consumer of go-nsq may log after its test has ended, and Go
    ends the process of whoever does so."""
    join = [*namespace[1], str(gateway.process.popen.pid), str(suite)]

    def run(*flags: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*join, *flags], capture_output=True, text=True, timeout=120, cwd=suite.parent
        )

    names = re.findall(r"^Test\w+$", run("-test.list=Test").stdout, re.MULTILINE)
    assert {"TestConsumerTLSSnappy", "TestConsumerTLSClientCert", "TestProducer"} & {*names}
    assert len(names) >= 24
    assert {*names} > ALONE
    for name in sorted({*names} - ALONE):
        done = run("-test.v", f"-test.run=^{name}$", "-test.timeout=100s")
        assert f"--- PASS: {name}" in done.stdout, done.stdout[-4000:] + done.stderr[-2000:]
    topics = http(gateway.admin, "/topics")[1]["topics"]
    assert sum(topic["admitted"] for topic in topics) > 50, "they went through the gateway"
