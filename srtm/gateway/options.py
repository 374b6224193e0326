"""The gateway's settings: flags, file keys, environment and help in one table."""

import re
import socket
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from srtm.gateway.auth_server import AuthServer
from srtm.host.certificates import TlsFiles
from srtm.http.nsqd import HTTPS
from srtm.limits.contract import Contract, Limit, Mode
from srtm.options.tls import (
    DISTRIBUTOR_CERT,
    DISTRIBUTOR_KEY,
    DISTRIBUTOR_ROOT_CA,
    MIN_VERSION,
    POLICY,
    ROOT_CA,
    MinVersion,
    Policy,
    check_client,
    check_distributor,
    check_door,
    door_files,
)
from srtm.text.address import Address
from srtm.text.errors import UsageError
from srtm.text.fields import YES_NO, Duration, ServerAddresses, YesNo

_MIB = 1024 * 1024
_BROKER_NAME = re.compile(r"[A-Za-z0-9_.:\[\]-]{1,128}")


def _endpoint(text: str) -> str:
    """host:port, as nsqd's flags take it: no host stands for all addresses."""
    host, port = Address.parse(text, lowest=0)
    return str(Address(host or "0.0.0.0", port))


def _endpoint_or_path(text: str) -> str:
    if "://" in text or (":" in text and "/" not in text):
        return _endpoint(text)
    if "/" not in text:
        raise ValueError(
            f"{text!r} is neither HOST:PORT nor the path of a unix socket, which has a slash: "
            f"write 127.0.0.1:4150, or ./{text}"
        )
    return _path(text)


def _path(text: str) -> str:
    """The path of a unix socket."""
    if len(text.encode()) > 107:
        raise ValueError(
            f"{text!r} is longer than the 107 bytes that a unix socket's path may have"
        )
    return text


class GatewayOptions(BaseModel):
    """See `srtm gateway --help`."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    tcp_address: str = Field("0.0.0.0:4150", description="address to listen on for TCP clients")
    http_address: str = Field("0.0.0.0:4151", description="address to listen on for HTTP clients")
    nsqd_tcp_address: str = Field(description="nsqd's TCP address, or its unix socket's path")
    nsqd_http_address: str = Field(
        description="nsqd's HTTP address, https://HOST:PORT for its HTTPS address, or its unix "
        "socket's path"
    )
    https_address: str = Field(
        "0.0.0.0:4152",
        description="address to listen on for HTTPS clients, with --tls-cert; empty: none",
    )
    tls_cert: str = Field("", description="file of PEM with the certificate of this gateway")
    tls_key: str = Field("", description="file of PEM with the private key of --tls-cert")
    tls_root_ca_file: str = Field("", description=ROOT_CA)
    tls_client_auth_policy: Policy = Field("", description=POLICY)
    tls_min_version: MinVersion = Field("tls1.2", description=MIN_VERSION)
    tls_required: Annotated[Literal["true", "tcp-https", "false"], YES_NO] = Field(
        "false",
        description="refuse clients without TLS: true: at every door; tcp-https: but for "
        "--http-address",
    )
    snappy: YesNo = Field("true", description="let clients compress with snappy")
    deflate: YesNo = Field("true", description="let clients compress with deflate")
    max_deflate_level: int = Field(
        6, ge=1, le=9, description="highest level of deflate that a client gets"
    )
    auth_http_address: tuple[str, ...] = Field(
        (),
        description="HOST:PORT or URL of an auth server; clients must then send AUTH, and HTTP "
        "clients a bearer token",
    )
    auth_http_request_method: Literal["get", "post"] = Field(
        "get", description="how auth servers are asked"
    )
    nsqd_tls_root_ca_file: str = Field(
        "",
        description="file of PEM with the authority of nsqd's certificate: nsqd is reached by TLS",
    )
    nsqd_tls_cert: str = Field("", description="file of PEM with the gateway's certificate at nsqd")
    nsqd_tls_key: str = Field("", description="file of PEM with the key of --nsqd-tls-cert")
    nsqd_tls_server_name: str = Field(
        "", description="name in nsqd's certificate; default: the host of --nsqd-tcp-address"
    )
    nsqd_auth_secret_file: str = Field(
        "", description="file of mode 0600 with the gateway's secret for an nsqd that requires AUTH"
    )
    lookupd_tcp_address: tuple[str, ...] = Field(
        (), description="nsqlookupd where nsqd registers once the gateway is ready"
    )
    broadcast_address: str = Field(
        default_factory=socket.gethostname,
        description="host name or address at which clients reach the gateway",
    )
    topic: tuple[Contract, ...] = Field(
        (),
        description=f"contract: NAME,rate=R,burst=B[,mode={'|'.join(Mode)}][,max-wait=D]"
        "[,slo=0.99@1ms][,batch=N][,batches=whole|each][,fair=publisher]; a topic without one "
        "passes unlimited",
    )
    default_limit: Limit | None = Field(
        None, description="contract of every other topic: rate=R,burst=B[,...]"
    )
    max_topics: int = Field(
        10_000, ge=1, description="topics in use; a publish to one more is refused"
    )
    max_connections: int = Field(
        0, ge=0, description="TCP client connections; 0: as many as the open-file limit allows"
    )
    max_http_connections: int = Field(
        0,
        ge=0,
        description="HTTP connections, of 16 KiB each; above this the connection that has been "
        "idle the longest is closed; 0: a quarter of the open-file limit, at most 16384",
    )
    max_topic_backlog: int = Field(
        100_000, ge=1, description="messages of one topic in the gateway"
    )
    max_topic_backlog_bytes: int = Field(
        64 * _MIB, ge=1, description="bytes of one topic's messages in the gateway"
    )
    max_backlog_bytes: int = Field(
        512 * _MIB,
        ge=1,
        description="bytes held for all topics; above this the largest topics are not read",
    )
    max_connection_backlog: int = Field(
        20_000, ge=1, description="unanswered messages of one client"
    )
    max_connection_backlog_bytes: int = Field(
        8 * _MIB, ge=1, description="bytes of one client's unanswered messages"
    )
    max_partial_bytes: int = Field(
        256 * _MIB,
        ge=1,
        description="bytes of half-received commands and of HTTP answers that clients have not "
        "read, over all clients",
    )
    http_timeout: Duration = Field(
        60.0,
        gt=0,
        description="longest time for the head of an HTTP request, for each MiB of its body, and "
        "until a client reads more of its answer; between requests a connection may stay idle",
    )
    drain_timeout: Duration = Field(10.0, description="time after SIGTERM for messages in hand")
    nsqd_timeout: Duration = Field(
        10.0, gt=0, description="longest wait for an answer of nsqd; then its connection is closed"
    )
    nsqd_away_timeout: Duration = Field(
        30.0, description="how long messages wait while nsqd is away before they are refused"
    )
    http_admin: bool = Field(
        False, description="let HTTP clients create, pause, empty and delete topics and channels"
    )
    distributor_address: ServerAddresses = Field(
        "",
        description="HTTP address of the Load Distributor that this broker belongs to; several, "
        "with commas between, where others stand by for it",
    )
    distributor_token_file: str = Field(
        "", description="file of mode 0600 with the distributor's bearer token"
    )
    distributor_tls_root_ca_file: str = Field("", description=DISTRIBUTOR_ROOT_CA)
    distributor_tls_cert: str = Field("", description=DISTRIBUTOR_CERT)
    distributor_tls_key: str = Field("", description=DISTRIBUTOR_KEY)
    broker_name: str = Field(
        "", description="name at the distributor; default: broadcast address and TCP port"
    )
    broker_capacity: int = Field(
        0, ge=0, description="messages/s that this broker holds within its SLO; 0: not measured yet"
    )
    admin_socket: str = Field(
        "", description="path of a Unix socket, of mode 0600, for changes of limits"
    )
    state_file: str = Field(
        "", description="file that keeps token levels and limits over a restart"
    )
    audit_log: str = Field(
        "",
        description="file that gets a line of JSON for each change by --admin-socket or "
        "--http-admin: who, when, what, outcome",
    )
    admission_log: str = Field(
        "", description="folder for a log of when messages got their tokens, for `srtm audit`"
    )
    admission_log_bytes: int = Field(
        512 * _MIB,
        ge=_MIB,
        description="bytes of the admission log that are kept; the oldest files are removed first",
    )
    trace_dir: str = Field(
        "",
        description="folder for a trace of arrivals as Parquet files, for `srtm correlate`",
    )
    trace_file_age: Duration = Field(
        60.0, gt=0, description="a file of the trace is finished once its oldest row is this old"
    )
    trace_file_bytes: int = Field(
        64 * _MIB,
        ge=64 * 1024,
        description="a file of the trace is finished once its rows take so many bytes uncompressed",
    )
    trace_age: Duration = Field(
        7 * 86400.0, gt=0, description="files of the trace older than this are removed"
    )
    trace_bytes: int = Field(
        4096 * _MIB,
        ge=_MIB,
        description="bytes of the trace that are kept; the oldest files are removed first",
    )
    timestamps: Literal["auto", "ebpf", "sockopt", "clock"] = Field(
        "auto",
        description="source of arrival times; auto: the first of ebpf, sockopt and clock that "
        "works on this host",
    )
    log_level: Literal["debug", "info", "warn", "error"] = Field(
        "info", description="lowest level that is logged"
    )

    @field_validator("tcp_address", "http_address")
    @classmethod
    def _listen(cls, text: str) -> str:
        return _endpoint(text)

    @field_validator("https_address")
    @classmethod
    def _https(cls, text: str) -> str:
        return _endpoint(text) if text else text

    @field_validator("auth_http_address")
    @classmethod
    def _auth(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        for text in texts:
            AuthServer(text)
        return texts

    @field_validator("nsqd_tcp_address", "nsqd_http_address")
    @classmethod
    def _far(cls, text: str, field: ValidationInfo) -> str:
        is_https = text.startswith(HTTPS) and field.field_name == "nsqd_http_address"
        bare = text.removeprefix(HTTPS) if is_https else text
        return (HTTPS if is_https else "") + _endpoint_or_path(bare) if bare else text

    @field_validator("admin_socket")
    @classmethod
    def _admin(cls, text: str) -> str:
        return _path(text if "/" in text else f"./{text}") if text else text

    @field_validator("broker_name")
    @classmethod
    def _broker_name(cls, name: str) -> str:
        if name and not _BROKER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a broker's name: 1 to 128 of [A-Za-z0-9_.:-] and []")
        return name

    @field_validator("lookupd_tcp_address")
    @classmethod
    def _lookupd(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(_endpoint, texts))

    @field_validator("topic", mode="before")
    @classmethod
    def _contracts(cls, specs: object) -> object:
        if not isinstance(specs, list | tuple):
            raise ValueError("write a list of contracts")
        return tuple(Contract.parse(spec) if isinstance(spec, str) else spec for spec in specs)

    @field_validator("topic")
    @classmethod
    def _once_each(cls, contracts: tuple[Contract, ...]) -> tuple[Contract, ...]:
        names = [contract.topic for contract in contracts]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"topic {name} is given twice")
        for contract in contracts:
            if contract.needs_distributor:
                raise ValueError(f"topic {contract.topic}: {contract.needs_distributor}")
        return contracts

    @field_validator("default_limit", mode="before")
    @classmethod
    def _default(cls, spec: object) -> object:
        if not isinstance(spec, str):
            return spec
        return Contract.parse(f"default,{spec}", f"--default-limit {spec}").limit()

    @field_validator("default_limit")
    @classmethod
    def _without_keys(cls, limit: Limit | None) -> Limit | None:
        if limit is not None and limit.needs_distributor:
            raise ValueError(limit.needs_distributor)
        return limit

    @model_validator(mode="after")
    def _apart(self) -> "GatewayOptions":
        if self.tcp_address == self.http_address and not self.tcp_address.endswith(":0"):
            raise ValueError(f"--tcp-address and --http-address are both {self.tcp_address}")
        if self.distributor_address:
            for flag, address in (("tcp", self.tcp_address), ("http", self.http_address)):
                if address.endswith(":0"):
                    raise ValueError(
                        f"--{flag}-address {address}: with a distributor the gateway needs a fixed "
                        "port, because clients learn it before the port opens"
                    )
        for name in (
            "distributor_token_file",
            "distributor_tls_root_ca_file",
            "broker_name",
            "broker_capacity",
        ):
            if getattr(self, name) and not self.distributor_address:
                flag = name.replace("_", "-")
                raise ValueError(f"--{flag} needs a distributor; give --distributor-address too")
        if self.nsqd_tcp_address == self.tcp_address:
            raise ValueError(
                f"--nsqd-tcp-address {self.tcp_address} is the gateway's own --tcp-address; "
                "nsqd needs an address of its own"
            )
        return self

    @model_validator(mode="after")
    def _tls(self) -> "GatewayOptions":
        check_door(self, *(["--tls-required"] if self.tls_required != "false" else []))
        check_distributor(self)
        check_client(
            "nsqd",
            self.nsqd_tls_root_ca_file,
            self.nsqd_tls_cert,
            self.nsqd_tls_key,
            self.nsqd_tls_server_name,
        )
        if self.nsqd_http_address.startswith(HTTPS) and not self.nsqd_tls_root_ca_file:
            raise ValueError(
                f"--nsqd-http-address {self.nsqd_http_address} needs --nsqd-tls-root-ca-file, by "
                "which nsqd is verified"
            )
        return self

    @property
    def tls_files(self) -> TlsFiles | None:
        """What the doors speak TLS with; None where they do not."""
        return door_files(self)

    @property
    def nsqd_tls_files(self) -> TlsFiles | None:
        """What nsqd is reached with by TLS; None where it is not."""
        if not self.nsqd_tls_root_ca_file:
            return None
        return TlsFiles(self.nsqd_tls_cert, self.nsqd_tls_key, self.nsqd_tls_root_ca_file)

    @property
    def tcp_requires_tls(self) -> bool:
        """Do clients of the TCP door have to speak TLS? Where they must show a certificate, as at
        nsqd."""
        return self.tls_required != "false" or bool(self.tls_client_auth_policy)

    @property
    def http_requires_tls(self) -> bool:
        """Is the HTTP door closed to all but a redirection to HTTPS?"""
        asked = self.tls_required
        return asked == "true" or (asked == "false" and bool(self.tls_client_auth_policy))

    def check_body_size(self, max_body_size: int) -> None:
        """max_body_size: of nsqd. Raises UsageError where a client's backlog holds no such body."""
        if self.max_connection_backlog_bytes < max_body_size:
            raise UsageError(
                f"--max-connection-backlog-bytes {self.max_connection_backlog_bytes} is less "
                f"than nsqd's --max-body-size {max_body_size}: one big MPUB would never be read; "
                "raise it"
            )
