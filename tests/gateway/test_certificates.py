"""A gateway follows the files of its certificate: what works is shown from the next handshake on,
and what does not is told of."""

import shutil
import signal
import ssl
import time
from pathlib import Path

import pytest

from srtm.nsq.commands import pub
from tests.support.certificates import Authority
from tests.support.secure import SecureV2
from tests.support.servers import GatewayProcess, Servers, free_port, http, wait_for

DAY = 86_400.0


class Secret:
    """A folder as Kubernetes mounts a secret: its files are symlinks through `..data`, which is
    swapped."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self._folder = folder
        self._authority = authority
        self._version = 0
        folder.mkdir()
        self.publish()
        for name in ("tls.crt", "tls.key"):
            (folder / name).symlink_to(f"..data/{name}")

    def publish(self, days: float = 90, fits: bool = True) -> bytes:
        """A new certificate, with a key that fits or not; what it is."""
        self._version += 1
        inner = self._folder / f"..version-{self._version}"
        inner.mkdir()
        cert, key = self._authority.issue("gateway", dns=["localhost"], days=days)
        if not fits:
            _, key = self._authority.issue("other")
        shutil.copy(cert, inner / "tls.crt")
        shutil.copy(key, inner / "tls.key")
        swapped = self._folder / "..data_tmp"
        swapped.symlink_to(inner.name)
        swapped.replace(self._folder / "..data")
        return ssl.PEM_cert_to_DER_cert(Path(cert).read_text())


@pytest.fixture
def secret(tmp_path: Path, authority: Authority) -> Secret:
    return Secret(tmp_path / "secret", authority)


@pytest.fixture
def gateway(servers: Servers, secret: Secret, tmp_path: Path) -> GatewayProcess:
    files = tmp_path / "secret"
    return servers.gateway(
        f"--tls-cert={files}/tls.crt", f"--tls-key={files}/tls.key", "--https-address="
    )


def shown(gateway: GatewayProcess, trusting: ssl.SSLContext) -> bytes | None:
    with SecureV2(gateway.tcp, trusting) as client:
        assert isinstance(client.socket, ssl.SSLSocket)
        return client.socket.getpeercert(binary_form=True)


def look(gateway: GatewayProcess) -> None:
    gateway.process.popen.send_signal(signal.SIGHUP)


def test_a_secret_that_kubernetes_swaps(
    gateway: GatewayProcess, secret: Secret, trusting: ssl.SSLContext
) -> None:
    with SecureV2(gateway.tcp, trusting) as kept:
        new = secret.publish(days=200)
        look(gateway)
        wait_for(lambda: shown(gateway, trusting) == new, "the new certificate")
        kept.send(pub(b"t", b"x"))
        assert kept.reply() == b"OK"
    end = gateway.metric("srtm_certificate_end_seconds")
    assert end == pytest.approx(time.time() + 200 * DAY, abs=DAY)


def test_a_pair_that_does_not_fit_leaves_the_old_one(
    gateway: GatewayProcess, secret: Secret, trusting: ssl.SSLContext
) -> None:
    before = shown(gateway, trusting)
    assert gateway.metric("srtm_certificate_failing") == 0
    secret.publish(fits=False)
    look(gateway)
    wait_for(lambda: gateway.metric("srtm_certificate_failing"), "the metric")
    assert shown(gateway, trusting) == before
    line = "the certificate in use stays: "
    look(gateway)
    new = secret.publish()
    look(gateway)
    wait_for(lambda: shown(gateway, trusting) == new, "the certificate after it")
    assert gateway.metric("srtm_certificate_failing") == 0
    assert gateway.process.text().count(line) == 1
    assert "tls.key: is not the key of the certificate" in gateway.process.text()


def test_a_certificate_that_ends_soon_is_told_of_at_the_start(
    servers: Servers, authority: Authority
) -> None:
    cert, key = authority.issue("gateway", days=5.5)
    gateway = servers.gateway(f"--tls-cert={cert}", f"--tls-key={key}", "--https-address=")
    assert f"{cert}: the certificate ends in 5 days" in gateway.process.text()


def test_without_a_certificate_there_is_no_metric_of_one(servers: Servers) -> None:
    assert "srtm_certificate" not in http(servers.gateway().http, "/metrics")[1]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param({"dns": ["localhost"], "ip": ["127.0.0.1"]}, "", id="its-own"),
        pytest.param({"dns": ["b.example"]}, "is not for 127.0.0.1, at which", id="another"),
    ],
)
def test_a_certificate_for_another_name_than_clients_are_told(
    servers: Servers, authority: Authority, given: dict[str, list[str]], said: str
) -> None:
    cert, key = authority.issue("gateway", days=90, **given)  # type: ignore[arg-type]
    door = f"127.0.0.1:{free_port()}"
    flags = f"--tls-cert={cert}", f"--tls-key={key}", f"--https-address={door}"
    gateway = servers.gateway(*flags)
    lines = gateway.process.text().splitlines()
    told = [line for line in lines if "--tls-cert" in line]
    assert len(told) == bool(said)
    assert said in "".join(told)
    [ready] = [line for line in lines if "ready: " in line]
    assert f", HTTPS {door}, nsqd " in ready


def test_a_broadcast_address_that_is_no_name(servers: Servers, authority: Authority) -> None:
    cert, key = authority.issue("gateway", days=90, ip=["127.0.0.1"])
    flags = f"--tls-cert={cert}", f"--tls-key={key}", "--https-address="
    gateway = servers.gateway(*flags, "--broadcast-address=.odd")
    text = gateway.process.text()
    assert "is not for .odd, at which clients are told to connect (it is no host name)" in text
    assert "HTTPS" not in text
