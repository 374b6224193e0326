"""The whole gateway as its outer parts see it: a protocol, so that imports run one way."""

from typing import Any, Protocol

from srtm.gateway.agent import Agent
from srtm.gateway.auth import AuthServers
from srtm.gateway.backlog import Bounds
from srtm.gateway.client import ClientHost
from srtm.gateway.descriptors import Descriptors
from srtm.gateway.measure.admissions import AdmissionLog
from srtm.gateway.measure.log_files import LogFiles
from srtm.gateway.measure.trace_process import TraceProcess
from srtm.gateway.nsqd import NsqdHttp
from srtm.gateway.options import GatewayOptions
from srtm.gateway.tunnel import Room
from srtm.gateway.watch import NsqdWatch
from srtm.host.audit_log import AuditLog
from srtm.host.clock import WallClock


class Listener(Protocol):
    """A door: where it listens, as host:port."""

    address: str


class HttpListener(Listener, Protocol):
    https_address: str
    """empty where there is no HTTPS door"""

    @property
    def connections(self) -> int: ...


class TcpListener(Listener, Room, Protocol):
    refused: int
    """Connections over the limit."""


class Sender(Protocol):
    """Who sends a command or an HTTP body."""

    @property
    def partial_bytes(self) -> int:
        """The bytes of what it sends that are held while that has not come whole."""

    def close(self) -> None: ...


class Host(ClientHost, Protocol):
    """What doors, statistics and metrics see of the gateway."""

    options: GatewayOptions
    descriptors: Descriptors
    wall: WallClock
    bounds: Bounds
    info: dict[str, Any]
    nsqd_http: NsqdHttp
    watch: NsqdWatch
    auth: AuthServers | None
    """Only with --auth-http-address."""
    agent: Agent | None
    """Where there is a Load Distributor."""
    audit: AuditLog | None
    """Only with --audit-log."""
    admissions: AdmissionLog | None
    log_files: LogFiles | None
    """The files of `admissions`; both are there only with --admission-log."""
    trace_process: TraceProcess | None
    """The process that writes the trace, only with --trace-dir."""
    draining: bool
    http_requests: int
    uploads: set[Sender]
    """HTTP requests whose bodies are under way."""

    @property
    def tcp(self) -> TcpListener: ...

    @property
    def http(self) -> HttpListener: ...
