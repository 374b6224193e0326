"""The tables of a deployment's TOML file, each checked by itself."""

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    field_validator,
    model_validator,
)

from distributor.api_fields import Id
from distributor.options import DistributorOptions
from srtm.deployment.layout import DATA_PATH, RESERVED_NAMES
from srtm.gateway.options import GatewayOptions
from srtm.host.certificates import PLAIN_TEXT
from srtm.limits.contract import MAX_RATE, Contract
from srtm.options.known_keys import refuse_unknown
from srtm.options.tls import (
    DISTRIBUTOR_CERT,
    DISTRIBUTOR_KEY,
    DISTRIBUTOR_ROOT_CA,
    check_distributor,
)
from srtm.text.address import Address
from srtm.text.fields import ListenAddress

OWN_NSQD_FLAGS = {
    "tcp-address": "the gateway listens there: set the broker's tcp-address",
    "http-address": "the gateway listens there: set the broker's http-address",
    "https-address": "publishers could bypass the gateway: set the broker's https-address",
    "data-path": "set data-path of [deployment]",
    "broadcast-address": "set broadcast-address of [deployment]",
    "broadcast-tcp-port": "it is the port of the broker's tcp-address",
    "broadcast-http-port": "it is the port of the broker's http-address",
    "node-id": "each broker gets its own",
    "worker-id": "each broker gets its own node id",
    "lookupd-tcp-address": "the gateway announces the broker once it is ready",
    "tls-cert": "clients speak TLS with the gateway: set the broker's tls-cert",
    "tls-key": "clients speak TLS with the gateway: set the broker's tls-key",
    "tls-root-ca-file": "the gateway verifies clients: set the broker's tls-root-ca-file",
    "tls-client-auth-policy": "the gateway verifies clients: set the broker's "
    "tls-client-auth-policy",
    "tls-min-version": "clients speak TLS with the gateway: set the broker's tls-min-version",
    "tls-required": "clients speak TLS with the gateway: set the broker's tls-required",
    "auth-http-address": "the gateway asks auth servers: set the broker's auth-http-address",
    "auth-http-request-method": "the gateway asks auth servers: set the broker's "
    "auth-http-request-method",
    "config": "write the flags of that file here",
    "version": "nsqd would only print its version",
}
"""nsqd's flags that `srtm up` sets, or that would open a way round the gateway: flag -> why"""
OWN_GATEWAY_OPTIONS = {
    "nsqd_tcp_address": "nsqd listens on a socket of the data path",
    "nsqd_http_address": "nsqd listens on a socket of the data path",
    "nsqd_tls_root_ca_file": "nsqd listens on a socket of the data path, without TLS",
    "nsqd_tls_cert": "nsqd listens on a socket of the data path, without TLS",
    "nsqd_tls_key": "nsqd listens on a socket of the data path, without TLS",
    "nsqd_tls_server_name": "nsqd listens on a socket of the data path, without TLS",
    "nsqd_auth_secret_file": "nsqd asks nobody for AUTH: its gateway does",
    "broadcast_address": "set broadcast-address of [deployment]",
    "topic": "write [[topic]] tables, which are split over the brokers",
    "distributor_address": "the gateway reports to the distributor of [distributor]",
    "broker_name": "set name",
    "broker_capacity": "set capacity",
    "admin_socket": "it is a file of the data path",
    "state_file": "it is a file of the data path",
}
"""the gateway's options that `srtm up` sets by itself: option -> why they are no keys"""
GATEWAY_PATHS = (
    "audit_log",
    "admission_log",
    "trace_dir",
    "tls_cert",
    "tls_key",
    "tls_root_ca_file",
    "distributor_token_file",
    "distributor_tls_root_ca_file",
    "distributor_tls_cert",
    "distributor_tls_key",
)
"""the others that are paths, and in a file relative to it"""
_NSQD_BODY_BYTES = 5 * 1024 * 1024  # nsqd's default of --max-body-size
_MOST_GOGC = 10_000
_GO_BYTES = re.compile(r"[1-9][0-9]{0,5}(KiB|MiB|GiB)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


HttpsAddress = Annotated[
    Address | Literal[""] | None,
    BeforeValidator(lambda value: Address.parse(value) if value else value),
    PlainSerializer(lambda value: value if value is None else str(value)),
]
"""The field `https_address`: text, or nothing."""


class Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, values: object) -> object:
        return refuse_unknown(
            values, (field.alias or name for name, field in cls.model_fields.items())
        )


def plain_name(name: str) -> str:
    if not _NAME.fullmatch(name) or name in RESERVED_NAMES:
        raise ValueError(
            f"{name!r} is not a name: 1 to 32 of [a-zA-Z0-9_-], the first a letter or a digit"
            + (f", and not {' or '.join(sorted(RESERVED_NAMES))}" if name in RESERVED_NAMES else "")
        )
    return name


class DeploymentTable(Table):
    """`[deployment]`: where the deployment keeps its files, and how clients reach it."""

    name: str = Field(default="local", description="name that logs and `srtm stat` show")
    data_path: Path = Field(
        default=DATA_PATH,
        alias="data-path",
        description="folder of the deployment's files, relative to this file",
    )
    broadcast_address: str = Field(
        default="127.0.0.1",
        alias="broadcast-address",
        min_length=1,
        description="address of the host that clients are told",
    )
    secure: bool = Field(
        default=False,
        description="with [[host]] tables: brokers and distributor speak TLS, with certificates "
        "that srtm testbed up makes",
    )

    _check_name = field_validator("name")(plain_name)


class Placed(Table):
    """A table whose program runs on one of the hosts, where the file has `[[host]]` tables."""

    host: str = Field(default="", description="name of its host; default: the first `[[host]]`")


class LookupdTable(Placed):
    """`[lookupd]`: the nsqlookupd to start."""

    tcp_address: ListenAddress = Field(
        default=Address("127.0.0.1", 4160),
        alias="tcp-address",
        description="TCP address, for nsqds",
    )
    http_address: ListenAddress = Field(
        default=Address("127.0.0.1", 4161),
        alias="http-address",
        description="HTTP address, for consumers",
    )


class BridgeTable(Placed):
    """`[bridge]`: the Kafka bridge to start, by the file of its routes."""

    file: Path = Field(description="file of `srtm bridge run`, relative to this file")


class MeasuredTable(Table):
    """`[journeys]`: the `srtm journey run` to start, by the file of its journeys. On one host."""

    file: Path = Field(description="file of `srtm journey run`, relative to this file")


class ReachTable(Table):
    """How the programs of a file reach the Load Distributor."""

    distributor_token_file: str = Field(
        default="",
        alias="distributor-token-file",
        description="file of mode 0600 with the token that the programs of this file show the "
        "distributor",
    )
    distributor_tls_root_ca_file: str = Field(
        default="", alias="distributor-tls-root-ca-file", description=DISTRIBUTOR_ROOT_CA
    )
    distributor_tls_cert: str = Field(
        default="", alias="distributor-tls-cert", description=DISTRIBUTOR_CERT
    )
    distributor_tls_key: str = Field(
        default="", alias="distributor-tls-key", description=DISTRIBUTOR_KEY
    )

    @model_validator(mode="after")
    def _reached(self) -> Self:
        check_distributor(self)
        return self


REACH_PATHS = tuple(ReachTable.model_fields)
DISTRIBUTOR_PATHS = (
    "token_file",
    "audit_log",
    "tls_cert",
    "tls_key",
    "tls_root_ca_file",
    *REACH_PATHS,
)
"""keys of `[distributor]` that are paths of files, and in a file relative to it"""


class DistributorTable(Placed, ReachTable, DistributorOptions):
    """`[distributor]`: the Load Distributor to start; its flags are the keys. The default of
    `store` is a file in the data path."""

    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "-"))

    store: str = Field(default="", description="a file of the data path, or postgresql://HOST/NAME")

    @model_validator(mode="after")
    def _is_reached(self) -> Self:
        if self.tls_cert and self.distributor_tls_root_ca_file in ("", PLAIN_TEXT):
            raise ValueError(
                "tls-cert needs distributor-tls-root-ca-file, by which the programs of this file "
                "verify the distributor"
            )
        if self.requires_certificates and not self.distributor_tls_cert:
            raise ValueError(
                "tls-client-auth-policy needs distributor-tls-cert and distributor-tls-key, which "
                "the programs of this file show"
            )
        return self


class BrokerTable(Table):
    """`[[broker]]`: an nsqd and the gateway in front of it. The addresses are the gateway's. The
    gateway's options are keys too; brokers may share the folders that they name."""

    name: str = Field(description="its name, unique; broker-1, broker-2, ... by default")
    host: str = Field(
        default="", description="name of its host; needed if there are `[[host]]` tables"
    )
    tcp_address: ListenAddress = Field(
        default=Address("127.0.0.1", 4150),
        alias="tcp-address",
        description="TCP address of the gateway",
    )
    http_address: ListenAddress = Field(
        default=Address("127.0.0.1", 4151),
        alias="http-address",
        description="HTTP address of the gateway",
    )
    https_address: HttpsAddress = Field(
        default=None,
        alias="https-address",
        description="HTTPS address of the gateway, with tls-cert; default: the port after that of "
        'http-address; "": none',
    )
    nsqd_flags: tuple[str, ...] = Field(
        default=(), alias="nsqd-flags", description='flags of nsqd, such as ["--mem-queue-size=0"]'
    )
    gogc: int | str = Field(
        default="",
        description="by how many per cent nsqd's heap grows before garbage is collected (Go's "
        'GOGC), or "off", with gomemlimit; "": Go\'s default, 100',
    )
    gomemlimit: str = Field(
        default="",
        description="memory near which nsqd collects garbage whatever gogc says (Go's GOMEMLIMIT), "
        'such as 2GiB; "": none',
    )
    capacity: int = Field(
        default=0,
        ge=0,
        le=int(MAX_RATE),
        description="messages/s that the broker can take within its SLO; 0: not measured",
    )
    gateway: Mapping[str, Any] = Field(
        default={}, exclude=True, description="the gateway's options that the table has as keys"
    )

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, values: object) -> object:
        """Keys of the gateway become `gateway`, by their options' names."""
        if not isinstance(values, dict):
            return values
        for option, why in OWN_GATEWAY_OPTIONS.items():
            if _key(option) in values:
                raise ValueError(f"{_key(option)} cannot be set: {why}")
        own = {field.alias or name for name, field in cls.model_fields.items()} - {"gateway"}
        options = gateway_keys()
        refuse_unknown(values, own | options.keys())
        given = {options[key]: value for key, value in values.items() if key in options}
        return {key: value for key, value in values.items() if key in own} | {"gateway": given}

    _check_name = field_validator("name")(plain_name)

    @field_validator("gogc", mode="before")
    @classmethod
    def _is_share(cls, gogc: object) -> object:
        if gogc in ("off", "") or (type(gogc) is int and 1 <= gogc <= _MOST_GOGC):
            return gogc
        raise ValueError(f"{gogc!r} is neither per cent, 1 to {_MOST_GOGC:,}, nor off")

    @field_validator("gomemlimit")
    @classmethod
    def _is_memory(cls, limit: str) -> str:
        if limit and not _GO_BYTES.fullmatch(limit):
            raise ValueError(f"{limit!r} is no size; write a whole number of KiB, MiB or GiB: 2GiB")
        return limit

    @model_validator(mode="after")
    def _collects(self) -> Self:
        if self.gogc == "off" and not self.gomemlimit:
            raise ValueError("gogc = off needs gomemlimit, or nsqd's memory would grow for ever")
        return self

    @field_validator("nsqd_flags")
    @classmethod
    def _passed_through(cls, flags: tuple[str, ...]) -> tuple[str, ...]:
        for flag in flags:
            name = re.sub("^--?", "", flag).partition("=")[0]
            if not flag.startswith("-") or not name or name.startswith("-"):
                raise ValueError(f"{flag!r} is not a flag; write '--NAME=VALUE' as one string")
            if name in OWN_NSQD_FLAGS:
                raise ValueError(f"--{name} cannot be set: {OWN_NSQD_FLAGS[name]}")
        return flags

    @property
    def nsqd_environment(self) -> dict[str, str]:
        """What Go reads of its environment."""
        given = {"GOGC": str(self.gogc), "GOMEMLIMIT": self.gomemlimit}
        return {name: value for name, value in given.items() if value}

    @property
    def https_at(self) -> Address | None:
        """The address for HTTPS; None where there is none."""
        if not self.gateway.get("tls_cert") or self.https_address == "":
            return None
        # nsqd's default, 0.0.0.0:4152, would be that of every broker of a host.
        return self.https_address or Address(self.http_address.host, self.http_address.port + 1)

    @property
    def nsqd_body_bytes(self) -> int:
        """nsqd's --max-body-size, as Go reads it. What is no number, nsqd itself refuses."""
        size = _NSQD_BODY_BYTES
        for flag in self.nsqd_flags:
            name, _, value = flag.lstrip("-").partition("=")
            if name == "max-body-size":
                with contextlib.suppress(ValueError):
                    size = int(value, 0)
        return size


def gateway_keys() -> dict[str, str]:
    """The keys of a `[[broker]]` that are its gateway's -> the options that they are."""
    own = {*OWN_GATEWAY_OPTIONS, *BrokerTable.model_fields}
    return {_key(name): name for name in GatewayOptions.model_fields if name not in own}


def _key(option: str) -> str:
    return option.replace("_", "-")


class TopicTable(Contract):
    """`[[topic]]`: a contract. With `publishers`, the distributor places them and holds the
    contract; without, the contract is split evenly over the brokers."""

    publishers: Path | None = Field(
        default=None,
        exclude=True,
        description="file of all publishers: CSV `id,key,rate`, or JSON lines",
    )
    keys: tuple[Id, ...] | None = Field(
        default=None,
        exclude=True,
        description="correlation keys that publishers may have; default: any",
    )

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: object) -> object:
        """A `[[topic]]` writes `name` where a contract says `topic`."""
        if not isinstance(values, dict):
            return values
        fields = cls.model_fields.items()
        known = {field.alias or name for name, field in fields}
        known = known - {"topic", "contract-burst"} | {"name"}
        refuse_unknown(values, known)
        if "name" not in values:
            raise ValueError("name is missing")
        if "keys" in values and "publishers" not in values:
            raise ValueError("keys needs publishers: write the file of the publishers too")
        return {("topic" if key == "name" else key): value for key, value in values.items()}


def on_or_off(value: object) -> object:
    """`lookupd = true` is a table of defaults, `false` is none."""
    return {True: {}, False: None}[value] if isinstance(value, bool) else value


OptionalLookupd = Annotated[LookupdTable | None, BeforeValidator(on_or_off)]
OptionalDistributor = Annotated[DistributorTable | None, BeforeValidator(on_or_off)]
