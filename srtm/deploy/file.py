"""The TOML file of a deployment: what `srtm up FILE` starts."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from srtm.address import Address
from srtm.bridge.file import read_bridge_file
from srtm.deploy.layout import Layout
from srtm.deploy.tables import (
    BridgeTable,
    BrokerTable,
    DeploymentTable,
    DistributorTable,
    OptionalDistributor,
    OptionalLookupd,
    OptionalNsqadmin,
    Table,
    TopicTable,
)
from srtm.errors import SrtmError, UsageError, one_line
from srtm.options import read_toml

MAX_BROKERS = 256
"""a slip of the keyboard beyond it; nsqd's node ids (0 to 1023) would take four times as many"""


class Plan(Table):
    """A whole deployment, checked: what to start, where, and the topics it starts with."""

    deployment: DeploymentTable = DeploymentTable()
    distributor: OptionalDistributor = DistributorTable.model_validate({})
    lookupd: OptionalLookupd = None
    nsqadmin: OptionalNsqadmin = None
    bridge: BridgeTable | None = None
    brokers: tuple[BrokerTable, ...] = Field(alias="broker", default=(), max_length=MAX_BROKERS)
    topics: tuple[TopicTable, ...] = Field(alias="topic", default=())

    @field_validator("brokers", mode="before")
    @classmethod
    def _default_names(cls, tables: object) -> object:
        if not isinstance(tables, list):
            return tables
        return [
            {"name": f"broker-{number}", **table} if isinstance(table, dict) else table
            for number, table in enumerate(tables, 1)
        ]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.brokers:
            raise ValueError("there is no [[broker]]; one table [[broker]] is enough")
        _refuse_twice("broker name", (each.name for each in self.brokers))
        _refuse_twice("topic name", (each.topic for each in self.topics))
        used: list[tuple[str, Address]] = []
        for key, address in self.addresses():
            for other_key, other in used:
                if address.clashes_with(other):
                    raise ValueError(f"{key} {address} is taken by {other_key}")
            used.append((key, address))
        if self.distributor is None:
            self._refuse_what_only_a_distributor_does()
        for contract in self.topics:
            if contract.publishers:
                continue  # placed on as few brokers as will do
            try:
                contract.limit().share(len(self.brokers))
            except UsageError as error:
                raise ValueError(f"topic {contract.topic}: {error}") from None
        return self

    def _refuse_what_only_a_distributor_does(self) -> None:
        remedy = "is for the distributor; leave out distributor = false"
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

    def addresses(self) -> Iterator[tuple[str, Address]]:
        """Every TCP address that is listened on, with the words that find it in the file."""
        for broker in self.brokers:
            yield f"tcp-address of broker {broker.name}", broker.tcp_address
            yield f"http-address of broker {broker.name}", broker.http_address
        if self.distributor:
            yield "http-address of distributor", self.distributor.http_address
        if self.lookupd:
            yield "tcp-address of lookupd", self.lookupd.tcp_address
            yield "http-address of lookupd", self.lookupd.http_address
        if self.nsqadmin:
            yield "http-address of nsqadmin", self.nsqadmin.http_address


def _refuse_twice(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what} {name} is given twice")
        seen.add(name)


def read_plan(file: Path) -> Plan:
    """Read and check a TOML file; paths in it are relative to it. Raises UsageError."""
    return plan_of(read_toml(file), str(file), file.parent)


def plan_of(values: dict[str, Any], where: str, base: Path) -> Plan:
    """Check a file's mapping; `where` names it in errors. Raises UsageError."""
    try:
        plan = Plan.model_validate(values)
    except ValidationError as error:
        raise one_line(error, where) from None
    plan = _with_absolute_paths(plan, base)
    if plan.bridge:
        _check_bridge(plan, plan.bridge.file, where)
    try:
        plan.layout.check_sockets(plan.broker_names)
    except SrtmError as error:
        raise UsageError(f"{where}: {error}") from None
    return plan


def _check_bridge(plan: Plan, file: Path, where: str) -> None:
    """Raises UsageError."""
    address = read_bridge_file(file).bridge.http_address
    for key, other in plan.addresses():
        if address.clashes_with(other):
            raise UsageError(f"{file}: http-address {address} is taken by {key} of {where}")


def _with_absolute_paths(plan: Plan, base: Path) -> Plan:
    def absolute(path: str | Path) -> Path:
        return (base / Path(path).expanduser()).absolute()

    data_path = absolute(plan.deployment.data_path)
    changes: dict[str, Any] = {
        "deployment": plan.deployment.model_copy(update={"data_path": data_path}),
        "brokers": tuple(
            each.model_copy(
                update={
                    key: absolute(getattr(each, key))
                    for key in ("admission_log", "trace_dir")
                    if getattr(each, key)
                }
            )
            for each in plan.brokers
        ),
        "topics": tuple(
            each.model_copy(update={"publishers": absolute(each.publishers)})
            if each.publishers
            else each
            for each in plan.topics
        ),
    }
    if plan.bridge:
        changes["bridge"] = BridgeTable(file=absolute(plan.bridge.file))
    if plan.distributor:
        store, token_file = plan.distributor.store, plan.distributor.token_file
        if not store:
            store = str(Layout(data_path).distributor_store)
        elif "://" not in store:
            store = str(absolute(store))
        token_file = str(absolute(token_file)) if token_file else ""
        changes["distributor"] = plan.distributor.model_copy(
            update={"store": store, "token_file": token_file}
        )
    return plan.model_copy(update=changes)
