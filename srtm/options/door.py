"""The options of a program's HTTP door: where it listens, its TLS, and who may call."""

from typing import Self

from pydantic import BaseModel, Field, model_validator

from srtm.host.certificates import TlsFiles
from srtm.options.tls import (
    MIN_VERSION,
    POLICY,
    ROOT_CA,
    MinVersion,
    Policy,
    check_door,
    door_files,
)
from srtm.text.fields import ListenAddress


class HttpDoor(BaseModel):
    """Fields of a program's options, or of a table of its file."""

    http_address: ListenAddress | None = None
    token_file: str = Field(
        default="",
        description="file of callers, with a line NAME:ROLE:SHA256 for each token; or, with mode "
        "0600, the one token of an operator",
    )
    tls_cert: str = Field(
        default="", description="file of PEM with the certificate of this program"
    )
    tls_key: str = Field(default="", description="file of PEM with the private key of --tls-cert")
    tls_root_ca_file: str = Field(default="", description=ROOT_CA)
    tls_client_auth_policy: Policy = Field(default="", description=POLICY)
    tls_min_version: MinVersion = Field(default="tls1.2", description=MIN_VERSION)

    @model_validator(mode="after")
    def _tls(self) -> Self:
        check_door(self)
        return self

    @property
    def tls_files(self) -> TlsFiles | None:
        """What the door speaks TLS with; None where it does not."""
        return door_files(self)

    @property
    def requires_certificates(self) -> bool:
        """Does the door take only clients with a certificate?"""
        return bool(self.tls_client_auth_policy)
