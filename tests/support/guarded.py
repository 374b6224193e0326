"""A gateway that takes only clients with TLS, a certificate and a secret."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.auth_server import allowing, auth_server
from tests.support.certificates import Authority
from tests.support.servers import GatewayProcess, Servers, free_port

SECRET = "of-a-client"


@dataclass(frozen=True)
class Guarded:
    """options: what a client is given, by the names of srtm/options/nsq.py"""

    gateway: GatewayProcess
    options: dict[str, Any]


@contextmanager
def guarded_gateway(servers: Servers, authority: Authority) -> Iterator[Guarded]:
    secret = servers.folder / "secret-of-a-client"
    secret.write_text(f"{SECRET}\n")
    secret.chmod(0o600)
    own = authority.issue("a-client", client=True)
    cert, key = authority.issue("localhost", dns=["localhost"], ip=["127.0.0.1"])
    with auth_server() as asked:
        asked.answers[SECRET] = allowing("publish", "subscribe")
        gateway = servers.gateway(
            f"--tls-cert={cert}",
            f"--tls-key={key}",
            f"--tls-root-ca-file={authority.ca_file}",
            "--tls-client-auth-policy=require-verify",
            "--tls-required=tcp-https",
            f"--https-address=127.0.0.1:{free_port()}",
            f"--auth-http-address={asked.address}",
        )
        yield Guarded(
            gateway,
            {
                "tls_v1": True,
                "tls_root_ca_file": authority.ca_file,
                "tls_cert": own[0],
                "tls_key": own[1],
                "auth_secret_file": str(secret),
            },
        )
