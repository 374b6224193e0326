"""A deployment over several hosts: the file, checked, and the part of each host. Nothing is started
here."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError

from srtm.bridge.file import read_bridge_file
from srtm.deploy.file import Plan, file_of, plan_of
from srtm.deploy.host_tables import HostTable
from srtm.deploy.nsqadmin import NSQADMIN_PATHS
from srtm.deploy.placed_topics import read_placed
from srtm.deploy.tables import GATEWAY_PATHS, REACH_PATHS, BrokerTable
from srtm.host.certificates import PLAIN_TEXT
from srtm.options.model import read_toml
from srtm.testbed.certificates import names_of, refuse_near_files, secured
from srtm.text.address import Address
from srtm.text.errors import UsageError, one_line
from srtm.text.toml_text import toml_text

NETWORK = IPv4Network("198.18.0.0/15")
"""for benchmarks of networks (RFC 2544): nobody routes it"""
OWN_FOLDER = "testbed"
"""of a host's data path: what `srtm testbed` puts there"""
_FIRST_HOST = 11
"""last part of the address of the first netns host; .1 is this machine"""
_LOOPBACK = ("", "127.0.0.1", "localhost", "::1")


def certificates_folder(data_path: Path) -> Path:
    """The folder on this machine of a testbed's authority. data_path: of its deployment"""
    return data_path / OWN_FOLDER / "pki"


@dataclass(frozen=True)
class Part:
    """What one host runs.

    host:  with its address and data path; of an ssh host that may be relative to the user's home
    text:  the deployment file for `srtm up`
    files: name in the host's own folder -> file of this machine that is copied there
    needs_token: the token of the distributor belongs into its own folder as `token`
    """

    host: HostTable
    text: str
    files: Mapping[str, Path]
    brokers: tuple[str, ...]
    runs: tuple[str, ...]
    needs_token: bool

    @property
    def folder(self) -> str:
        return f"{self.host.data_path}/{OWN_FOLDER}"


@dataclass(frozen=True)
class Inventory:
    """The whole file. hosts: in its order, with addresses and data paths; subnet_number: which /24
    of NETWORK netns hosts are in."""

    file: Path
    plan: Plan
    hosts: tuple[HostTable, ...]
    subnet_number: int = 0

    @property
    def name(self) -> str:
        return self.plan.deployment.name

    @property
    def subnet(self) -> IPv4Network:
        return subnet_of(self.subnet_number)

    @property
    def folder(self) -> Path:
        """The folder on this machine where `srtm testbed` keeps what it remembers."""
        return self.data_path / OWN_FOLDER

    @property
    def certificates(self) -> Path:
        """The folder on this machine of the testbed's authority."""
        return certificates_folder(self.data_path)

    @property
    def data_path(self) -> Path:
        base = self.file.parent
        return (base / self.plan.deployment.data_path.expanduser()).absolute()

    def host(self, name: str) -> HostTable:
        """Raises UsageError."""
        for each in self.hosts:
            if each.name == name:
                return each
        known = ", ".join(each.name for each in self.hosts)
        raise UsageError(f"{self.file}: no host {name}; known: {known}")

    def host_of(self, table: Any) -> HostTable:
        """The host of a table of the plan that runs somewhere."""
        return self.host(table.host or self.hosts[0].name)

    def broker_address(self, broker: BrokerTable) -> Address:
        """TCP, as all hosts reach it."""
        return at_host(broker.tcp_address, self.host_of(broker).address).reached

    def broker_http_address(self, broker: BrokerTable) -> Address:
        return at_host(broker.http_address, self.host_of(broker).address).reached

    @property
    def distributor_address(self) -> Address | None:
        found = self.plan.distributor
        if found is None:
            return None
        return at_host(found.http_address, self.host_of(found).address).reached

    @property
    def lookupd_addresses(self) -> tuple[Address, Address] | None:
        """TCP and HTTP."""
        found = self.plan.lookupd
        if found is None:
            return None
        host = self.host_of(found).address
        return at_host(found.tcp_address, host).reached, at_host(found.http_address, host).reached

    @property
    def needs_token(self) -> bool:
        """A distributor that other machines reach has one; without a file, one is made."""
        found = self.plan.distributor
        if found is None or found.token_file:
            return found is not None
        return not (self.distributor_address or Address("", 1)).is_local

    @property
    def token_file(self) -> Path | None:
        """The file with the distributor's token on this machine; None where no token is needed."""
        if not self.needs_token or self.plan.distributor is None:
            return None
        given = self.plan.distributor.token_file
        return self._near(given) if given else self.folder / "token"

    def parts(self) -> list[Part]:
        return [self.part(host) for host in self.hosts]

    def part(self, host: HostTable) -> Part:
        """What runs on a host, as a file for `srtm up`."""
        tables, files, runs = self._tables(host)
        text = toml_text(tables)
        brokers = tuple(each.name for each in self.plan.brokers if each.host == host.name)
        return Part(host, text, files, brokers, tuple(runs), self.needs_token)

    # --- inside ---------------------------------------------------------------------------------

    def _near(self, path: str | Path) -> Path:
        """A path of the file is relative to it."""
        return (self.file.parent / Path(path).expanduser()).absolute()

    def _tables(self, host: HostTable) -> tuple[dict[str, Any], dict[str, Path], list[str]]:
        plan, root = self.plan, PurePosixPath("/", host.data_path)
        own = root / OWN_FOLDER
        files: dict[str, Path] = {}
        runs: list[str] = []
        made: dict[str, Any] = {
            "deployment": {
                "name": plan.deployment.name,
                "data-path": str(root),
                "broadcast-address": host.address,
            }
        }
        elsewhere: dict[str, Any] = {"brokers": list(plan.broker_names)}

        def here(table: Any) -> bool:
            return self.host_of(table).name == host.name

        made["distributor"] = False
        if plan.distributor and here(plan.distributor):
            made["distributor"] = self._distributor(plan, host, root)
            runs.append("distributor")
        elif plan.distributor and self.distributor_address:
            elsewhere["distributor-address"] = str(self.distributor_address)
            reached = plan.distributor.model_dump(include=set(REACH_PATHS), by_alias=True)
            elsewhere |= self._reach() | {key: value for key, value in reached.items() if value}
            if self.needs_token:
                elsewhere["distributor-token-file"] = str(own / "token")
        if plan.lookupd and here(plan.lookupd):
            made["lookupd"] = _listening(plan.lookupd, host)
            runs.append("lookupd")
        elif self.lookupd_addresses:
            tcp, http = self.lookupd_addresses
            elsewhere |= {"lookupd-tcp-address": str(tcp), "lookupd-http-address": str(http)}
        if plan.nsqadmin and here(plan.nsqadmin):
            made["nsqadmin"] = _listening(plan.nsqadmin, host) | plan.nsqadmin.model_dump(
                by_alias=True, include=set(NSQADMIN_PATHS), exclude_defaults=True
            )
            runs.append("nsqadmin")
        if plan.bridge and here(plan.bridge):
            files["bridge.toml"] = self._near(plan.bridge.file)
            made["bridge"] = {"file": str(own / "bridge.toml")}
            runs.append("bridge")
        made["elsewhere"] = elsewhere
        made["broker"] = [_broker(each, host, root) for each in plan.brokers if here(each)]
        runs += [each.name for each in plan.brokers if here(each)]
        made["topic"] = self._topics(made["distributor"] is not False, files, own)
        refuse_near_files(made)
        return secured(made, own) if plan.deployment.secure else made, files, runs

    def _distributor(self, plan: Plan, host: HostTable, root: PurePosixPath) -> dict[str, Any]:
        assert plan.distributor is not None
        table = plan.distributor.model_dump(
            mode="json", by_alias=True, exclude={"host", "store", "token_file"}
        )
        table["http-address"] = str(at_host(plan.distributor.http_address, host.address))
        if plan.distributor.store:
            store = plan.distributor.store
            table["store"] = store if "://" in store else str(root / store)
        if self.needs_token:
            table["token-file"] = str(root / OWN_FOLDER / "token")
        return table | {key: value for key, value in self._reach().items() if not table[key]}

    def _reach(self) -> dict[str, str]:
        """How the testbed's programs show their token, where the file does not say it."""
        address = self.distributor_address
        if address is None or address.is_local or self.plan.deployment.secure:
            return {}
        return {"distributor-tls-root-ca-file": PLAIN_TEXT}

    def _topics(
        self, holds_placed: bool, files: dict[str, Path], own: PurePosixPath
    ) -> list[dict[str, Any]]:
        """One without publishers is split evenly, so each host has it; the others are for the host
        of the distributor."""
        rows = []
        for topic in self.plan.topics:
            if topic.publishers and not holds_placed:
                continue
            document = topic.document()
            row = {"name": document.pop("topic"), **document}
            if topic.publishers:
                name = f"publishers-{topic.topic}{topic.publishers.suffix}"
                files[name] = self._near(topic.publishers)
                row["publishers"] = str(own / name)
                if topic.keys is not None:
                    row["keys"] = list(topic.keys)
            rows.append(row)
        return rows


@dataclass(frozen=True, slots=True)
class At:
    """listens: as its program is told; reached: as every host reaches it."""

    listens: Address
    reached: Address

    def __str__(self) -> str:
        return str(self.listens)


def at_host(address: Address, host: str) -> At:
    """127.0.0.1 of a table is the address of its host; 0.0.0.0 stays every address of it."""
    if address.host in _LOOPBACK:
        found = Address(host, address.port)
        return At(found, found)
    reached = Address(host, address.port) if address.host in ("0.0.0.0", "::") else address
    return At(address, reached)


def subnet_of(number: int) -> IPv4Network:
    """The /24 of NETWORK with this number."""
    return IPv4Network((int(NETWORK.network_address) + 256 * number, 24))


def read_inventory(file: Path, subnet_number: int = 0) -> Inventory:
    """Read and check the file, and all that it names. Raises UsageError."""
    whole = file.parent.resolve() / file.name  # however it is written: a testbed's id is made of it
    try:
        plan = Plan.model_validate(read_toml(file))
    except ValidationError as error:
        raise one_line(error, str(file)) from None
    if not plan.hosts:
        raise UsageError(f"{file} has no [[host]]: srtm up {file} runs it on this one")
    for name in ("elsewhere", "journeys"):
        if getattr(plan, name):
            raise UsageError(f"{file}: [{name}] is for the file of one host")
    try:
        hosts = tuple(_resolved(plan, subnet_of(subnet_number), whole.parent))
        _check_addresses(hosts)
        inventory = Inventory(whole, plan, hosts, subnet_number)
        _check_reach(inventory)
        if plan.bridge:
            file_of(str(file), "bridge", read_bridge_file, inventory._near(plan.bridge.file))
        if plan.deployment.secure:
            for host in hosts:
                names_of(host)
        for part in inventory.parts():
            _check_part(inventory, part)
    except ValueError as error:
        raise UsageError(f"{file}: {error}") from None
    except RuntimeError:  # pathlib knows no home of that user
        raise UsageError(
            f"{file}: a path begins with ~ and a user that this machine lacks"
        ) from None
    near = [
        each.model_copy(update={"publishers": each.publishers and inventory._near(each.publishers)})
        for each in plan.topics
    ]
    read_placed(near, {each.topic: each for each in near})
    return inventory


def _resolved(plan: Plan, network: IPv4Network, base: Path) -> Iterator[HostTable]:
    data_path = (base / plan.deployment.data_path.expanduser()).absolute()
    local = netns = 0
    for host in plan.hosts:
        address = host.address
        if host.kind == "local":
            local += 1
            address = address or f"127.0.0.{local}"
            if not Address(address, 1).is_local:
                raise ValueError(
                    f"host {host.name}: address {address}: kind = 'local' is 127.x.x.x"
                )
        elif host.kind == "netns":
            if address:
                raise ValueError(f"host {host.name}: a netns host gets its address by itself")
            address = str(network[_FIRST_HOST + netns])
            netns += 1
        if host.data_path and host.kind != "ssh":
            path = str((base / Path(host.data_path).expanduser()).absolute())
        elif host.kind == "ssh":
            path = host.data_path or f"srtm-testbed/{plan.deployment.name}"
        else:
            path = str(data_path / host.name)
        yield host.model_copy(update={"address": address, "data_path": path})


def _check_addresses(hosts: tuple[HostTable, ...]) -> None:
    addresses: dict[str, str] = {}
    paths: dict[tuple[str, str], str] = {}
    for host in hosts:
        if host.address in addresses:
            raise ValueError(
                f"hosts {addresses[host.address]} and {host.name} have the address {host.address}"
            )
        addresses[host.address] = host.name
        where = (host.login or host.address if host.kind == "ssh" else "", host.data_path)
        if where in paths:
            raise ValueError(
                f"hosts {paths[where]} and {host.name} have the data-path {host.data_path}"
            )
        paths[where] = host.name


def _check_reach(inventory: Inventory) -> None:
    """Processes that only this machine reaches cannot be one deployment with hosts beyond it."""
    kinds = {host.kind for host in inventory.hosts}
    if "local" in kinds and "ssh" in kinds:
        local = next(host for host in inventory.hosts if host.kind == "local")
        raise ValueError(
            f"host {local.name}: ssh hosts do not reach its {local.address}; make it kind = 'ssh' "
            "too, with an address of this machine"
        )
    if "netns" in kinds and kinds != {"netns"}:
        other = next(host for host in inventory.hosts if host.kind != "netns")
        if other.kind == "local" or not other.address.startswith(("198.18.", "198.19.")):
            raise ValueError(
                f"host {other.name}: netns hosts reach only one another; make all hosts kind = "
                "'netns'"
            )


def _check_part(inventory: Inventory, part: Part) -> None:
    """Check a host's part of the file as the host will read it. Raises UsageError."""
    plan_of(
        tomllib.loads(part.text),
        f"{inventory.file}: host {part.host.name}",
        Path("/", part.folder),
        check_files=False,
    )


def _broker(broker: BrokerTable, host: HostTable, root: PurePosixPath) -> dict[str, Any]:
    table = broker.model_dump(mode="json", by_alias=True, exclude={"host"}, exclude_none=True)
    for key in ("tcp-address", "http-address"):
        table[key] = str(at_host(getattr(broker, key.replace("-", "_")), host.address))
    if broker.https_address:
        table["https-address"] = str(at_host(broker.https_address, host.address))
    for name, value in broker.gateway.items():
        is_made = name in GATEWAY_PATHS and "tls" not in name and value and isinstance(value, str)
        table[name.replace("_", "-")] = str(root / value) if is_made else value
    return table


def _listening(table: Any, host: HostTable) -> dict[str, Any]:
    return {
        name.replace("_", "-"): str(at_host(getattr(table, name), host.address))
        for name in type(table).model_fields
        if name.endswith("_address")
    }
