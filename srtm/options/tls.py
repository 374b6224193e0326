"""The options of TLS that programs have by the same names, and what of them goes together.

What is wrong is said by the names of the flags; a key of a file is the flag without its dashes.
"""

from typing import TYPE_CHECKING, Annotated, Protocol

from pydantic import AfterValidator

from srtm.host.certificates import MIN_VERSIONS, PLAIN_TEXT, TlsFiles

if TYPE_CHECKING:  # it brings the HTTP client
    from srtm.http.service import ReachOptions


def _policy(text: str) -> str:
    if text == "require":
        raise ValueError(
            "require would take any certificate, unverified, from anybody; write require-verify"
        )
    if text not in ("", "require-verify"):
        raise ValueError(f"{text!r} is no policy; write require-verify, or leave it out")
    return text


def _min_version(text: str) -> str:
    if text not in MIN_VERSIONS:
        raise ValueError(f"{text!r} is not spoken here; write {' or '.join(MIN_VERSIONS)}")
    return text


Policy = Annotated[str, AfterValidator(_policy)]
"""The field `tls_client_auth_policy`."""

MinVersion = Annotated[str, AfterValidator(_min_version)]
"""The field `tls_min_version`."""

ROOT_CA = "file of PEM with the authorities by which clients are verified"
POLICY = "require-verify: take only clients with a certificate of --tls-root-ca-file"
DISTRIBUTOR_ROOT_CA = (
    "file of PEM with the authority of the distributor's certificate: it is reached by TLS; "
    f"{PLAIN_TEXT}: show the token to other hosts without TLS"
)
DISTRIBUTOR_CERT = "file of PEM with the own certificate at the distributor"
DISTRIBUTOR_KEY = "file of PEM with the key of --distributor-tls-cert"
MIN_VERSION = f"oldest version of TLS that is spoken: {' or '.join(MIN_VERSIONS)}"


class DoorTls(Protocol):
    """The options of a door."""

    @property
    def tls_cert(self) -> str: ...
    @property
    def tls_key(self) -> str: ...
    @property
    def tls_root_ca_file(self) -> str: ...
    @property
    def tls_client_auth_policy(self) -> str: ...
    @property
    def tls_min_version(self) -> str: ...


def check_door(options: DoorTls, *others: str) -> None:
    """others: flags that are given and have no effect without TLS. Raises ValueError."""
    if bool(options.tls_cert) != bool(options.tls_key):
        raise ValueError("TLS needs both --tls-cert and --tls-key")
    wants = [
        *(["--tls-root-ca-file"] if options.tls_root_ca_file else []),
        *(["--tls-client-auth-policy"] if options.tls_client_auth_policy else []),
        *others,
    ]
    if wants and not options.tls_cert:
        raise ValueError(f"{wants[0]} needs a certificate: give --tls-cert and --tls-key too")
    if options.tls_client_auth_policy and not options.tls_root_ca_file:
        raise ValueError(
            "--tls-client-auth-policy needs the authority that clients are verified by: give "
            "--tls-root-ca-file too"
        )


def door_files(options: DoorTls) -> TlsFiles | None:
    """What the door speaks TLS with; None where it does not."""
    if not options.tls_cert:
        return None
    return TlsFiles(
        options.tls_cert,
        options.tls_key,
        options.tls_root_ca_file,
        require_peer=bool(options.tls_client_auth_policy),
        min_version=options.tls_min_version,
    )


def check_distributor(options: "ReachOptions") -> None:
    """Raises ValueError."""
    check_client(
        "distributor",
        options.distributor_tls_root_ca_file,
        options.distributor_tls_cert,
        options.distributor_tls_key,
    )


def check_client(server: str, root_ca: str, cert: str, key: str, server_name: str = "") -> None:
    """The options by which `server` is reached: `nsqd` has --nsqd-tls-root-ca-file and so on.
    Raises ValueError."""
    if bool(cert) != bool(key):
        raise ValueError(f"--{server}-tls-cert and --{server}-tls-key go together")
    for name, value in (("cert", cert), ("server-name", server_name)):
        if value and root_ca == PLAIN_TEXT:
            raise ValueError(
                f"--{server}-tls-{name} has no effect with --{server}-tls-root-ca-file={PLAIN_TEXT}"
            )
        if value and not root_ca:
            raise ValueError(
                f"--{server}-tls-{name} has no effect: give --{server}-tls-root-ca-file, by which "
                f"{'' if server == 'nsqd' else 'the '}{server} is verified"
            )
