"""The TOML file of a deployment: what `srtm up FILE` starts."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from srtm.bridge.file import read_bridge_file
from srtm.deploy.host_tables import (
    ElsewhereTable,
    HostTable,
    LoadTable,
    SubscriberTable,
    check_hosts,
)
from srtm.deploy.nsqadmin import NSQADMIN_PATHS, OptionalNsqadmin
from srtm.deploy.tables import (
    DISTRIBUTOR_PATHS,
    GATEWAY_PATHS,
    REACH_PATHS,
    BridgeTable,
    BrokerTable,
    DeploymentTable,
    DistributorTable,
    MeasuredTable,
    OptionalDistributor,
    OptionalLookupd,
    Table,
    TopicTable,
)
from srtm.deployment.layout import Layout
from srtm.gateway.options import GatewayOptions
from srtm.host.certificates import PLAIN_TEXT
from srtm.http.service import ClientFiles, distributor_files
from srtm.journey.file import read_journeys
from srtm.options.model import read_toml
from srtm.text.address import Address
from srtm.text.errors import SrtmError, UsageError, one_line

T = TypeVar("T")

MAX_BROKERS = 256
"""a slip of the keyboard beyond it; nsqd's node ids (0 to 1023) would take four times as many"""


class DistributorCaller(NamedTuple):
    """table: the words that find it in the file; broker, host: of a gateway; files: that it is
    given to reach the distributor"""

    table: str
    broker: str
    host: str
    files: ClientFiles


class Plan(Table):
    """A whole deployment, checked: what to start, where, and the topics it starts with."""

    deployment: DeploymentTable = DeploymentTable()
    distributor: OptionalDistributor = DistributorTable.model_validate({})
    lookupd: OptionalLookupd = None
    nsqadmin: OptionalNsqadmin = None
    bridge: BridgeTable | None = None
    journeys: MeasuredTable | None = None
    brokers: tuple[BrokerTable, ...] = Field(alias="broker", default=(), max_length=MAX_BROKERS)
    topics: tuple[TopicTable, ...] = Field(alias="topic", default=())
    hosts: tuple[HostTable, ...] = Field(alias="host", default=(), max_length=MAX_BROKERS)
    loads: tuple[LoadTable, ...] = Field(alias="load", default=())
    subscribers: tuple[SubscriberTable, ...] = Field(alias="subscriber", default=())
    elsewhere: ElsewhereTable | None = None

    @field_validator("brokers", "loads", "subscribers", mode="before")
    @classmethod
    def _default_names(cls, tables: object, info: ValidationInfo) -> object:
        if not isinstance(tables, list):
            return tables
        kind = (info.field_name or "").removesuffix("s")
        return [
            {"name": f"{kind}-{number}", **table} if isinstance(table, dict) else table
            for number, table in enumerate(tables, 1)
        ]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.brokers and not self.elsewhere:
            raise ValueError("there is no [[broker]] table; write at least one")
        _refuse_twice("broker name", (each.name for each in self.brokers))
        _refuse_twice("topic name", (each.topic for each in self.topics))
        _refuse_twice("host name", (each.name for each in self.hosts))
        _refuse_twice("load name", (each.name for each in self.loads))
        _refuse_twice("subscriber name", (each.name for each in self.subscribers))
        check_hosts((each.name for each in self.hosts), self.placed())
        if self.deployment.secure and not self.hosts:
            raise ValueError(
                "secure of [deployment] is for a file with [[host]] tables; set tls-cert and "
                "tls-key of each broker"
            )
        self._refuse_shared_addresses()
        if not self.has_distributor:
            self._refuse_what_only_a_distributor_does()
        for contract in self.topics:
            if contract.publishers:
                continue  # placed on as few brokers as will do
            if contract.needs_keys:
                raise ValueError(
                    f'topic {contract.topic}: fair = "key" needs publishers: write the file of the '
                    'publishers, with their keys, or fair = "publisher"'
                )
            if contract.needs_distributor:
                raise ValueError(
                    f"topic {contract.topic}: lease-grace needs publishers: write the file of the "
                    "publishers, so that the topic is placed, or leave lease-grace out"
                )
            try:
                contract.limit().share(self.broker_count)
            except UsageError as error:
                raise ValueError(f"topic {contract.topic}: {error}") from None
        return self

    def _refuse_shared_addresses(self) -> None:
        """Refuse an address that is taken on its own host: each host has its own ports."""
        used: dict[str, list[tuple[str, Address]]] = {}
        for host, key, address in self.hosted_addresses():
            for other_key, other in used.setdefault(host, []):
                if address.clashes_with(other):
                    on = f" on host {host}" if host else ""
                    raise ValueError(f"{key} {address} is taken by {other_key}{on}")
            used[host].append((key, address))

    def _refuse_what_only_a_distributor_does(self) -> None:
        remedy = "needs the distributor; leave out distributor = false"
        for broker in self.brokers:
            if broker.capacity:
                raise ValueError(f"broker {broker.name}: capacity {remedy}")
        for topic in self.topics:
            if topic.publishers:
                raise ValueError(f"topic {topic.topic}: publishers {remedy}")

    @property
    def layout(self) -> Layout:
        return Layout(self.deployment.data_path)

    @property
    def broker_names(self) -> list[str]:
        return [broker.name for broker in self.brokers]

    @property
    def all_broker_names(self) -> list[str]:
        """The names of the brokers of this host and of the others."""
        return list(self.elsewhere.brokers) if self.elsewhere else self.broker_names

    @property
    def broker_count(self) -> int:
        """A topic without publishers is split evenly over so many, wherever they are."""
        return len(self.all_broker_names)

    @property
    def has_distributor(self) -> bool:
        return self.distributor_at is not None

    @property
    def distributor_at(self) -> tuple[str, ClientFiles] | None:
        """The addresses at which the Load Distributor is reached, here or elsewhere, and with which
        files."""
        if self.distributor:
            files = distributor_files(self.distributor)
            if not files.token:  # its file of the older form is both sides'
                files = replace(files, token=self.distributor.token_file)
            return str(self.distributor.http_address.reachable), files
        if self.elsewhere and self.elsewhere.distributor_address:
            return self.elsewhere.distributor_address, distributor_files(self.elsewhere)
        return None

    def callers(self) -> Iterator[DistributorCaller]:
        """Who calls the Load Distributor: `srtm up` itself, and each gateway."""
        if self.distributor_at:
            table = "distributor" if self.distributor else "elsewhere"
            yield DistributorCaller(table, "", "", self.distributor_at[1])
            for broker in self.brokers:
                files = distributor_files(self.gateway_options(broker))
                yield DistributorCaller(f"broker {broker.name}", broker.name, broker.host, files)

    @property
    def lookupd_at(self) -> tuple[Address, Address] | None:
        """Where nsqlookupd is reached, here or elsewhere: TCP and HTTP."""
        if self.lookupd:
            return self.lookupd.tcp_address.reachable, self.lookupd.http_address.reachable
        if self.elsewhere and self.elsewhere.lookupd_tcp_address:
            tcp, http = self.elsewhere.lookupd_tcp_address, self.elsewhere.lookupd_http_address
            return (tcp, http) if http else None
        return None

    def gateway_options(self, broker: BrokerTable) -> GatewayOptions:
        """What its gateway starts with, but for the topics of the moment. Raises ValidationError,
        or UsageError where nsqd's flags do not fit."""
        layout = self.layout.broker(broker.name)
        values: dict[str, Any] = {
            **broker.gateway,
            "tcp_address": str(broker.tcp_address),
            "http_address": str(broker.http_address),
            "nsqd_tcp_address": str(layout.nsqd_tcp),
            "nsqd_http_address": str(layout.nsqd_http),
            "broadcast_address": self.deployment.broadcast_address,
            "admin_socket": str(layout.admin),
            "state_file": str(layout.gateway_state),
        }
        if broker.gateway.get("tls_cert"):
            values["https_address"] = str(broker.https_at or "")
        backlog = "max_connection_backlog_bytes"
        if broker.nsqd_body_bytes > GatewayOptions.model_fields[backlog].default:
            values.setdefault(backlog, broker.nsqd_body_bytes)
        if self.lookupd_at:
            more = broker.gateway.get("lookupd_tcp_address", [])
            own = str(self.lookupd_at[0])
            values["lookupd_tcp_address"] = [own, *more] if isinstance(more, list) else more
        if self.distributor_at:
            address, files = self.distributor_at
            values |= {"distributor_address": address, "broker_name": broker.name}
            if broker.capacity:
                values["broker_capacity"] = broker.capacity
            for name, value in (
                ("token_file", files.token),
                ("tls_root_ca_file", files.root_ca),
                ("tls_cert", files.cert),
                ("tls_key", files.key),
            ):
                if value:
                    values.setdefault(f"distributor_{name}", value)
        options = GatewayOptions.model_validate(values)
        options.check_body_size(broker.nsqd_body_bytes)
        return options

    def placed(self) -> dict[str, str]:
        """Words for each table that runs somewhere -> the host that it names, "" for none."""
        single = {
            "distributor": self.distributor,
            "lookupd": self.lookupd,
            "nsqadmin": self.nsqadmin,
            "bridge": self.bridge,
        }
        return {
            **{what: table.host for what, table in single.items() if table},
            **{f"broker {each.name}": each.host for each in self.brokers},
            **{f"load {each.name}": each.host for each in self.loads},
            **{f"subscriber {each.name}": each.host for each in self.subscribers},
        }

    def addresses(self) -> Iterator[tuple[str, Address]]:
        """Every TCP address that is listened on, with the words that find it in the file."""
        return ((key, address) for _, key, address in self.hosted_addresses())

    def hosted_addresses(self) -> Iterator[tuple[str, str, Address]]:
        """The name of the host, the words that find it in the file, and the address, for every TCP
        address that is listened on; "" for the host where there are no hosts."""
        first = self.hosts[0].name if self.hosts else ""
        for broker in self.brokers:
            yield broker.host, f"tcp-address of broker {broker.name}", broker.tcp_address
            yield broker.host, f"http-address of broker {broker.name}", broker.http_address
            if broker.https_at:
                yield broker.host, f"https-address of broker {broker.name}", broker.https_at
        if self.distributor:
            host, address = self.distributor.host or first, self.distributor.http_address
            yield host, "http-address of distributor", address
        if self.lookupd:
            host = self.lookupd.host or first
            yield host, "tcp-address of lookupd", self.lookupd.tcp_address
            yield host, "http-address of lookupd", self.lookupd.http_address
        if self.nsqadmin:
            host = self.nsqadmin.host or first
            yield host, "http-address of nsqadmin", self.nsqadmin.http_address


def _refuse_twice(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what} {name} is given twice")
        seen.add(name)


def read_plan(file: Path) -> Plan:
    """Read and check a TOML file; paths in it are relative to it. Raises UsageError."""
    return plan_of(read_toml(file), str(file), file.parent)


def plan_of(values: dict[str, Any], where: str, base: Path, *, check_files: bool = True) -> Plan:
    """Check a file's mapping; `where` names it in errors. check_files: those that it names are
    there. Raises UsageError."""
    try:
        plan = Plan.model_validate(values)
    except ValidationError as error:
        raise one_line(error, where) from None
    plan = _with_absolute_paths(plan, base)
    if plan.bridge and check_files:
        address = file_of(where, "bridge", read_bridge_file, plan.bridge.file).bridge.http_address
        _check_door(plan, plan.bridge.file, address, where)
    if plan.journeys and check_files:
        address = file_of(where, "journeys", read_journeys, plan.journeys.file).table.http_address
        _check_door(plan, plan.journeys.file, address, where)
    try:
        plan.layout.check_sockets(plan.broker_names)
    except SrtmError as error:
        raise UsageError(f"{where}: {error}") from None
    for broker in plan.brokers:
        _check_gateway(plan, broker, f"{where}: broker {broker.name}")
    return plan


def _check_gateway(plan: Plan, broker: BrokerTable, where: str) -> None:
    """Raises UsageError."""
    try:
        plan.gateway_options(broker)
    except ValidationError as error:
        place = error.errors()[0]["loc"]
        key = f": {str(place[0]).replace('_', '-')}" if place else ""
        raise one_line(error, where + key, 1) from None
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def file_of(where: str, table: str, read: Callable[[Path], T], file: Path) -> T:
    """What `file` of a table names. Raises UsageError that says where it is named."""
    try:
        return read(file)
    except UsageError as error:
        raise UsageError(f"{where}: file of [{table}]: {error}") from None


def _check_door(plan: Plan, file: Path, address: Address, where: str) -> None:
    """Raises UsageError where a door of the programs has the address."""
    for key, other in plan.addresses():
        if address.clashes_with(other):
            raise UsageError(f"{file}: http-address {address} is taken by {key} of {where}")


def _with_absolute_paths(plan: Plan, base: Path) -> Plan:
    def absolute(path: str | Path) -> str:
        return str((base / Path(path).expanduser()).absolute()) if path else ""

    def paths_of(values: Mapping[str, Any], keys: Iterable[str]) -> dict[str, str]:
        found = {key: values[key] for key in keys if isinstance(values.get(key), str)}
        if found.get("distributor_tls_root_ca_file") == PLAIN_TEXT:
            del found["distributor_tls_root_ca_file"]  # which is no path
        return {key: absolute(value) for key, value in found.items()}

    data_path = Path(absolute(plan.deployment.data_path))
    changes: dict[str, Any] = {
        "deployment": plan.deployment.model_copy(update={"data_path": data_path}),
        "brokers": tuple(
            each.model_copy(
                update={"gateway": {**each.gateway, **paths_of(each.gateway, GATEWAY_PATHS)}}
            )
            for each in plan.brokers
        ),
        "topics": tuple(
            each.model_copy(update={"publishers": Path(absolute(each.publishers))})
            if each.publishers
            else each
            for each in plan.topics
        ),
    }
    changes["hosts"] = tuple(
        each
        if each.kind == "ssh"  # there it is of another machine
        else each.model_copy(
            update={"data_path": absolute(each.data_path or data_path / each.name)}
        )
        for each in plan.hosts
    )
    if plan.bridge:
        file = Path(absolute(plan.bridge.file))
        changes["bridge"] = plan.bridge.model_copy(update={"file": file})
    if plan.journeys:
        file = Path(absolute(plan.journeys.file))
        changes["journeys"] = plan.journeys.model_copy(update={"file": file})
    if plan.nsqadmin:
        found = {name: absolute(getattr(plan.nsqadmin, name)) for name in NSQADMIN_PATHS}
        changes["nsqadmin"] = plan.nsqadmin.model_copy(update=found)
    if plan.distributor:
        store = plan.distributor.store or str(Layout(data_path).distributor_store)
        changes["distributor"] = plan.distributor.model_copy(
            update={
                "store": store if "://" in store else absolute(store),
                **paths_of(dict(plan.distributor), DISTRIBUTOR_PATHS),
            }
        )
    if plan.elsewhere:
        found = paths_of(dict(plan.elsewhere), REACH_PATHS)
        changes["elsewhere"] = plan.elsewhere.model_copy(update=found)
    return plan.model_copy(update=changes)
