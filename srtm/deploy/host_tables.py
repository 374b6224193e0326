"""The tables of a file that names hosts: `srtm testbed up` brings up the part of each."""

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import Field, field_validator, model_validator

from srtm.deploy.tables import ReachTable, Table, plain_name
from srtm.text.fields import ListenAddress, ServerAddresses

RATE = re.compile(r"[1-9][0-9]{0,5}(kbit|mbit|gbit)")
_SIZE = re.compile(r"[1-9][0-9]{0,5}[kmg]")
_LOGIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:%-]{0,254}")
"""what ssh takes; it never begins with a dash, so it is never read as an option"""

_ADDRESS = re.compile(r"[A-Za-z0-9:][A-Za-z0-9.:%_-]{0,254}")
"""a name or an IP address; without a login ssh takes it, so it never begins with a dash either"""


class HostTable(Table):
    """`[[host]]`: a host, and how it is reached."""

    name: str = Field(description="its name, unique")
    kind: Literal["local", "netns", "ssh"] = Field(
        default="local",
        description="local: processes of this machine; netns: a network namespace of this machine; "
        "ssh: another machine",
    )
    address: str = Field(
        default="",
        description="address at which the other hosts reach it; local: default 127.0.0.1, "
        "127.0.0.2, "
        "...; netns: default one of 198.18.0.0/15; ssh: needed",
    )
    login: str = Field(
        default="",
        description="ssh: an alias of ~/.ssh/config, HOST or USER@HOST; default: the address",
    )
    cores: int = Field(
        default=0,
        ge=0,
        le=4096,
        description="cores that it needs; local and netns hosts are each pinned to this "
        "number of cores "
        "if the machine has enough for all; 0: any",
    )
    data_path: str = Field(
        default="",
        alias="data-path",
        description="folder of its files; default: a folder with its name in the "
        "deployment's data-path "
        "(ssh: srtm-testbed/DEPLOYMENT in the user's home, or in /var/lib for root)",
    )
    python: str = Field(
        default="",
        description="ssh: path of an interpreter there that has srtm of this version; without it a "
        "wheel is installed",
    )
    bandwidth: str = Field(
        default="", description="netns: limit on what it sends, such as 10mbit (kbit, mbit or gbit)"
    )

    disk: str = Field(
        default="",
        description="netns: size of the file system in memory that has its data path, such "
        "as 64m; it "
        "is removed with the host",
    )

    _check_name = field_validator("name")(plain_name)

    @model_validator(mode="after")
    def _of_its_kind(self) -> "HostTable":
        if self.address and not _ADDRESS.fullmatch(self.address):
            raise ValueError(
                f"host {self.name}: address {self.address!r} is neither a name nor an IP address"
            )
        if self.kind == "ssh" and not self.address:
            raise ValueError(
                f"host {self.name}: address is missing; write where the other hosts reach it"
            )
        if self.login and self.kind != "ssh":
            raise ValueError(f"host {self.name}: login needs kind = 'ssh'")
        if self.login and not _LOGIN.fullmatch(self.login):
            raise ValueError(
                f"host {self.name}: login {self.login!r} is neither HOST nor USER@HOST"
            )
        if self.python and (self.kind != "ssh" or not self.python.startswith("/")):
            raise ValueError(
                f"host {self.name}: python must be an absolute path, and needs kind = 'ssh'"
            )
        if self.bandwidth and self.kind != "netns":
            raise ValueError(f"host {self.name}: bandwidth needs kind = 'netns'")
        if self.bandwidth and not RATE.fullmatch(self.bandwidth):
            raise ValueError(f"host {self.name}: bandwidth {self.bandwidth!r} must be like 10mbit")
        if self.disk and self.kind != "netns":
            raise ValueError(f"host {self.name}: disk needs kind = 'netns'")
        if self.disk and not _SIZE.fullmatch(self.disk):
            raise ValueError(f"host {self.name}: disk {self.disk!r} must be like 64m")
        return self


class LoadTable(Table):
    """`[[load]]`: a load generator: benchmarks send from its host."""

    name: str = Field(description="its name, unique; load-1, load-2, ... by default")
    host: str = Field(description="name of its host")

    _check_name = field_validator("name")(plain_name)


class SubscriberTable(Table):
    """`[[subscriber]]`: benchmarks receive on its host."""

    name: str = Field(description="its name, unique; subscriber-1, ... by default")
    host: str = Field(description="name of its host")

    _check_name = field_validator("name")(plain_name)


class ElsewhereTable(ReachTable):
    """`[elsewhere]`: what other hosts of the same deployment run. `srtm testbed` writes it."""

    brokers: tuple[str, ...] = Field(description="names of all brokers of all hosts, in one order")
    lookupd_tcp_address: ListenAddress | None = Field(
        default=None,
        alias="lookupd-tcp-address",
        description="TCP address of the nsqlookupd, for nsqds",
    )
    lookupd_http_address: ListenAddress | None = Field(
        default=None,
        alias="lookupd-http-address",
        description="HTTP address of the nsqlookupd, for nsqadmin",
    )
    distributor_address: ServerAddresses = Field(
        default="",
        alias="distributor-address",
        description="address of the Load Distributor, or several of those that stand by for each "
        "other",
    )


def check_hosts(hosts: Iterable[str], placed: Mapping[str, str]) -> None:
    """placed: words for a table -> the host that it names, "" for the first one. Raises
    ValueError."""
    known = list(hosts)
    for what, host in placed.items():
        if host and not known:
            raise ValueError(f"{what}: host = {host!r} is set, but there is no [[host]] table")
        if host and host not in known:
            raise ValueError(f"{what}: no [[host]] is called {host!r}; known: {', '.join(known)}")
        if known and not host and what.startswith("broker "):
            raise ValueError(f"{what}: host is missing; write one of {', '.join(known)}")
