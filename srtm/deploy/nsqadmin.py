"""`[nsqadmin]` of a deployment's file, and what nsqadmin cannot do at the brokers of the file."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from srtm.deploy.tables import Placed, on_or_off
from srtm.gateway.options import GatewayOptions
from srtm.host.certificates import TlsFiles
from srtm.text.address import Address
from srtm.text.fields import ListenAddress
from srtm.text.words import some


class NsqadminTable(Placed):
    """`[nsqadmin]`: the nsqadmin to start. It reads a broker whose HTTP address is closed
    (`tls-required`) by HTTPS."""

    http_address: ListenAddress = Field(
        default=Address("127.0.0.1", 4171),
        alias="http-address",
        description="HTTP address, for browsers",
    )
    http_client_tls_root_ca_file: str = Field(
        default="",
        alias="http-client-tls-root-ca-file",
        description="file of PEM with the authority of the brokers' certificates; default: this "
        "host's",
    )
    http_client_tls_cert: str = Field(
        default="",
        alias="http-client-tls-cert",
        description="file of PEM with nsqadmin's certificate at the brokers",
    )
    http_client_tls_key: str = Field(
        default="",
        alias="http-client-tls-key",
        description="file of PEM with the key of http-client-tls-cert",
    )

    @model_validator(mode="after")
    def _together(self) -> Self:
        if bool(self.http_client_tls_cert) != bool(self.http_client_tls_key):
            raise ValueError("http-client-tls-cert and http-client-tls-key go together")
        return self

    @property
    def tls_files(self) -> TlsFiles:
        cert, key = self.http_client_tls_cert, self.http_client_tls_key
        return TlsFiles(cert, key, self.http_client_tls_root_ca_file)


NSQADMIN_PATHS = tuple(
    name for name in NsqadminTable.model_fields if name.startswith("http_client_")
)
"""its keys that are paths of files, and flags of nsqadmin"""
OptionalNsqadmin = Annotated[NsqadminTable | None, BeforeValidator(on_or_off)]


def shortcomings(table: NsqadminTable, brokers: Mapping[str, GatewayOptions]) -> Iterator[str]:
    """Lines about what nsqadmin cannot do at which brokers. brokers: by name"""
    found: dict[str, list[str]] = {}
    for name, options in brokers.items():
        for why in _of_broker(table, options):
            found.setdefault(why, []).append(name)
    for why, names in found.items():
        yield why.format(some(names))


def _of_broker(table: NsqadminTable, options: GatewayOptions) -> Iterator[str]:
    if options.http_requires_tls:
        if not options.https_address:
            yield (
                "nsqadmin cannot read {}: its HTTP address is closed and it has no HTTPS address; "
                'leave out https-address, or write tls-required = "tcp-https"'
            )
        elif options.tls_client_auth_policy and not table.http_client_tls_cert:
            yield (
                "nsqadmin cannot read {}, which takes only clients with a certificate: write "
                "http-client-tls-cert and http-client-tls-key in [nsqadmin]"
            )
        elif not table.http_client_tls_root_ca_file:
            yield (
                "nsqadmin verifies {} by the authorities of this host: write "
                "http-client-tls-root-ca-file in [nsqadmin] if another one issued its certificate"
            )
    if options.http_admin and options.auth_http_address:
        yield "nsqadmin cannot change {}, which wants AUTH: nsqadmin sends no secret"
