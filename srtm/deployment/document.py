"""deployment.json: how other commands find a deployment that runs."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from srtm.deployment.layout import DATA_PATH, Layout
from srtm.host.atomic import read_json, write_json
from srtm.host.processes import is_alive
from srtm.http.client import Endpoint
from srtm.http.service import ClientFiles, service_at
from srtm.options.model import read_toml
from srtm.text.address import Address, addresses_of
from srtm.text.errors import UnavailableError, UsageError, one_line
from srtm.text.fields import ListenAddress, ServerAddresses


class _Document(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
        defer_build=True,
    )


class DeployedBroker(_Document):
    """One broker: the gateway's addresses, its admin door, and nsqd's sockets behind it."""

    name: str
    tcp_address: ListenAddress
    http_address: ListenAddress
    https_address: ListenAddress | None = None
    admin_socket: str
    nsqd_tcp_socket: str
    nsqd_http_socket: str


class Distributor(_Document):
    """The Load Distributor, and the files that it is reached with; "" where there is none."""

    http_address: ServerAddresses
    token_file: str = ""
    tls_root_ca_file: str = ""
    tls_cert: str = ""
    tls_key: str = ""

    @property
    def speaks_tls(self) -> bool:
        return bool(self.tls_root_ca_file)

    def endpoint(self) -> Endpoint:
        """Raises UsageError for a file that is wrong."""
        files = ClientFiles(self.token_file, self.tls_root_ca_file, self.tls_cert, self.tls_key)
        return service_at(self.http_address, files, "token-file")


class Lookupd(_Document):
    tcp_address: ListenAddress
    http_address: ListenAddress


class Nsqadmin(_Document):
    http_address: ListenAddress


class Deployment(_Document):
    """A deployment that runs. Addresses are where a client on this host connects."""

    name: str
    pid: int
    data_path: Path
    brokers: tuple[DeployedBroker, ...]
    distributor: Distributor | None = None
    lookupd: Lookupd | None = None
    nsqadmin: Nsqadmin | None = None
    all_brokers: tuple[str, ...] = ()
    """names, with those of the deployment's other hosts; none where it has one host"""

    @property
    def layout(self) -> Layout:
        return Layout(self.data_path)

    def listening(self) -> Iterator[tuple[str, Address]]:
        """Each part's name with an address that it listens on, as it is reached on this host."""
        for broker in self.brokers:
            for address in (broker.tcp_address, broker.http_address, broker.https_address):
                if address:
                    yield broker.name, address
        if self.distributor:
            for address in addresses_of(self.distributor.http_address):
                yield "distributor", address
        if self.lookupd:
            yield "nsqlookupd", self.lookupd.tcp_address
            yield "nsqlookupd", self.lookupd.http_address
        if self.nsqadmin:
            yield "nsqadmin", self.nsqadmin.http_address

    def save(self) -> None:
        write_json(self.layout.deployment, self.model_dump(mode="json", by_alias=True))

    def remove(self) -> None:
        self.layout.deployment.unlink(missing_ok=True)


def find(where: Path) -> Deployment:
    """The running deployment of a data path or of a TOML file. Raises UnavailableError."""
    layout = Layout(_data_path_of(where) if where.is_file() else where.absolute())
    document = read_json(layout.deployment)
    remedy = "start one with srtm up FILE, or name its data-path or file with --deployment"
    if document is None:
        raise UnavailableError(f"no deployment runs in {layout.data_path}; {remedy}")
    try:
        deployment = Deployment.model_validate(document)
    except ValidationError as error:
        raise one_line(error, str(layout.deployment)) from None
    if not is_alive(deployment.pid):
        raise UnavailableError(
            f"the deployment in {layout.data_path} has ended (pid {deployment.pid}); {remedy}"
        )
    return deployment


def _data_path_of(file: Path) -> Path:
    """The data path that a TOML file names. What else stands there, `srtm up` has checked."""
    table = read_toml(file).get("deployment", {})
    path = table.get("data-path", str(DATA_PATH)) if isinstance(table, dict) else None
    if not isinstance(path, str):
        raise UsageError(f"{file}: data-path of [deployment] is no path: write it in quotes")
    return (file.parent / Path(path).expanduser()).absolute()
