"""deployment.json: how other commands find a deployment that runs."""

import os
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from srtm.address import ListenAddress
from srtm.deploy.atomic import read_json, write_json
from srtm.deploy.file import Plan, read_plan
from srtm.deploy.layout import Layout
from srtm.deploy.lock import is_alive
from srtm.errors import UnavailableError, one_line


class _Document(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
    )


class DeployedBroker(_Document):
    """One broker: the gateway's addresses, its admin door, and nsqd's sockets behind it."""

    name: str
    tcp_address: ListenAddress
    http_address: ListenAddress
    admin_socket: str
    nsqd_tcp_socket: str
    nsqd_http_socket: str


class Distributor(_Document):
    """The Load Distributor; `token_file` is the path of its secret, "" where it has none."""

    http_address: ListenAddress
    token_file: str = ""


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

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """What `plan` becomes once this process has started it."""
        layout = plan.layout
        distributor, lookupd, nsqadmin = plan.distributor_at, plan.lookupd_at, plan.nsqadmin
        return cls(
            name=plan.deployment.name,
            pid=os.getpid(),
            data_path=layout.data_path,
            brokers=tuple(
                DeployedBroker(
                    name=broker.name,
                    tcp_address=broker.tcp_address.reachable,
                    http_address=broker.http_address.reachable,
                    admin_socket=str(layout.broker(broker.name).admin),
                    nsqd_tcp_socket=str(layout.broker(broker.name).nsqd_tcp),
                    nsqd_http_socket=str(layout.broker(broker.name).nsqd_http),
                )
                for broker in plan.brokers
            ),
            distributor=Distributor(http_address=distributor[0], token_file=distributor[1])
            if distributor
            else None,
            lookupd=Lookupd(tcp_address=lookupd[0], http_address=lookupd[1]) if lookupd else None,
            all_brokers=plan.elsewhere.brokers if plan.elsewhere else (),
            nsqadmin=Nsqadmin(http_address=nsqadmin.http_address.reachable) if nsqadmin else None,
        )

    def save(self) -> None:
        write_json(self.layout.deployment, self.model_dump(mode="json", by_alias=True))

    def remove(self) -> None:
        self.layout.deployment.unlink(missing_ok=True)


def find(where: Path) -> Deployment:
    """The running deployment of a data path or of a TOML file. Raises UnavailableError."""
    data_path = read_plan(where).deployment.data_path if where.is_file() else where
    layout = Layout(data_path.absolute())
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
