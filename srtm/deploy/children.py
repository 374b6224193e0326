"""The command line of every child, from the plan alone."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from distributor.options import DistributorOptions
from srtm.bridge.file import read_bridge_file
from srtm.deploy.file import Plan
from srtm.deploy.nsqadmin import NSQADMIN_PATHS, NsqadminTable
from srtm.deploy.process import ChildSpec, Stage
from srtm.deploy.programs import Programs
from srtm.deploy.tables import (
    BrokerTable,
    DistributorTable,
    LookupdTable,
)
from srtm.host.certificates import TlsFiles, client_context
from srtm.http.client import Answer, Endpoint
from srtm.http.service import service_at
from srtm.journey.file import read_journeys
from srtm.limits.contract import Contract
from srtm.options.door import HttpDoor
from srtm.options.model import as_flags
from srtm.text.address import Address

_NODE_IDS = 1024  # nsqd: node-id in [0,1024)


def children(
    plan: Plan, programs: Programs, topics: Callable[[], Sequence[Contract]]
) -> list[ChildSpec]:
    """All children in order of starting. `topics` is asked whenever a gateway starts."""
    specs = []
    if plan.lookupd:
        command = partial(lookupd_command, plan, plan.lookupd, programs)
        specs.append(_child(plan, "nsqlookupd", Stage.LOOKUPD, command, plan.lookupd.http_address))
    if plan.distributor:
        specs.append(_distributor(plan, plan.distributor, programs))
    for broker in plan.brokers:
        specs += _broker(plan, broker, programs, topics)
    if plan.nsqadmin:
        command = partial(nsqadmin_command, plan, plan.nsqadmin, programs)
        specs.append(_child(plan, "nsqadmin", Stage.NSQADMIN, command, plan.nsqadmin.http_address))
    if plan.bridge:
        file = plan.bridge.file
        door: HttpDoor = read_bridge_file(file).bridge
        specs.append(_of_file(plan, "bridge", programs.bridge, file, door))
    if plan.journeys:
        file = plan.journeys.file
        door = read_journeys(file).table
        program = (*programs.journeys, f"--deployment={plan.layout.data_path}")
        specs.append(_of_file(plan, "journeys", program, file, door))
    return specs


def _child(
    plan: Plan, name: str, stage: Stage, command: Callable[[], Sequence[str]], http: Address
) -> ChildSpec:
    log = plan.layout.logs / f"{name}.log"
    return ChildSpec(name, stage, command, str(http.reachable), log)


def _distributor(plan: Plan, distributor: DistributorTable, programs: Programs) -> ChildSpec:
    command = partial(distributor_command, distributor, programs)
    child = _child(plan, "distributor", Stage.DISTRIBUTOR, command, distributor.http_address)
    if plan.distributor_at and distributor.tls_cert:
        address, files = plan.distributor_at
        child = replace(child, reach=partial(service_at, address, files, "token-file"))
    return replace(child, path="/v1/health", agrees=_leads)


def _broker(
    plan: Plan, broker: BrokerTable, programs: Programs, topics: Callable[[], Sequence[Contract]]
) -> tuple[ChildSpec, ChildSpec]:
    """nsqd, and the gateway in front of it."""
    layout = plan.layout.broker(broker.name)
    options = plan.gateway_options(broker)
    nsqd = f"{broker.name}-nsqd"
    gateway = _child(
        plan,
        f"{broker.name}-gateway",
        Stage.GATEWAY,
        lambda: gateway_command(plan, broker, programs, topics()),
        broker.http_address,
    )
    if options.http_requires_tls:  # also for /ping, as at nsqd
        gateway = replace(gateway, ping=str(layout.admin), path="/topics")
    return (
        ChildSpec(
            name=nsqd,
            stage=Stage.NSQD,
            command=partial(nsqd_command, plan, broker, programs),
            ping=str(layout.nsqd_http),
            log=plan.layout.logs / f"{nsqd}.log",
            sockets=(layout.nsqd_tcp, layout.nsqd_http),
            environment=broker.nsqd_environment,
        ),
        replace(
            gateway,
            sockets=(layout.admin,),
            drain_seconds=options.drain_timeout,
            needs=nsqd,
        ),
    )


def _of_file(
    plan: Plan, name: str, program: tuple[str, ...], file: Path, door: HttpDoor
) -> ChildSpec:
    """A bridge, or what measures journeys: a program that a file of its own tells what to do."""
    assert door.http_address is not None
    child = _child(plan, name, Stage.BRIDGE, lambda: [*program, str(file)], door.http_address)
    if door.tls_cert:
        child = replace(child, reach=partial(_own_door, child.ping))
    # /ping says no while Kafka is away or nobody tells, and brokers go on without it
    return replace(child, statuses=(200, 500, 0))


def _own_door(address: str) -> Endpoint:
    """The door of a child, which is not verified, as it is asked for nothing but whether it is
    ready."""
    return Endpoint(address, tls=client_context(TlsFiles(), verify=False))


def _leads(health: Answer) -> bool:
    """One that waits for another to leave its store serves nobody yet."""
    document = health.json()
    return isinstance(document, dict) and bool(document.get("leading"))


def lookupd_command(plan: Plan, lookupd: LookupdTable, programs: Programs) -> list[str]:
    return [
        programs.nsqlookupd,
        f"--tcp-address={lookupd.tcp_address}",
        f"--http-address={lookupd.http_address}",
        f"--broadcast-address={plan.deployment.broadcast_address}",
    ]


def distributor_command(distributor: DistributorTable, programs: Programs) -> list[str]:
    """Every setting as its flag, so that no variable of the environment has a say."""
    settings = distributor.model_dump(mode="json", include=set(DistributorOptions.model_fields))
    return [*programs.distributor, *as_flags(settings)]


def nsqd_command(plan: Plan, broker: BrokerTable, programs: Programs) -> list[str]:
    """nsqd behind unix sockets, telling everybody the gateway's ports; announced by the gateway."""
    layout = plan.layout.broker(broker.name)
    return [
        programs.nsqd,
        f"--tcp-address={layout.nsqd_tcp}",
        f"--http-address={layout.nsqd_http}",
        "--https-address=",  # off: with a certificate nsqd would listen on 0.0.0.0:4152
        "--tls-required=0",
        f"--data-path={layout.nsqd_data}",
        f"--broadcast-address={plan.deployment.broadcast_address}",
        f"--broadcast-tcp-port={broker.tcp_address.port}",
        f"--broadcast-http-port={broker.http_address.port}",
        f"--node-id={node_id(plan, broker)}",
        *broker.nsqd_flags,  # last: Go stops reading flags at a word that is none
    ]


def node_id(plan: Plan, broker: BrokerTable) -> int:
    """Its part of the message ids: distinct within the deployment, likely so between several.

    nsqd's own default is a hash of the host name, which the brokers of a host would share.
    """
    shared = plan.elsewhere is not None
    where = "" if shared else f"{plan.deployment.broadcast_address}|{plan.layout.data_path}"
    first = zlib.crc32((where or plan.deployment.name).encode())
    return (first + plan.all_broker_names.index(broker.name)) % _NODE_IDS


def gateway_command(
    plan: Plan, broker: BrokerTable, programs: Programs, topics: Sequence[Contract]
) -> list[str]:
    """The gateway with its even share of each topic. Raises UsageError where b/brokers < 1."""
    options = plan.gateway_options(broker)
    given = options.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    shares = (topic_flag(contract, plan.broker_count) for contract in topics)
    return [*programs.gateway, *as_flags(given), *(f"--topic={share}" for share in shares)]


def topic_flag(contract: Contract, brokers: int) -> str:
    """One broker's share as `Contract.parse` reads it: NAME,rate=R,burst=B,..."""
    pairs = contract.limit().share(brokers).document().items()
    return ",".join((contract.topic, *(f"{key}={value}" for key, value in pairs)))


def nsqadmin_command(plan: Plan, nsqadmin: NsqadminTable, programs: Programs) -> list[str]:
    """nsqadmin takes nsqlookupds or nsqds, not both; the gateways stand for the nsqds."""
    if plan.lookupd_at:
        sources = [f"--lookupd-http-address={plan.lookupd_at[1]}"]
    else:
        sources = [f"--nsqd-http-address={each.http_address.reachable}" for each in plan.brokers]
    tls = nsqadmin.model_dump(include=set(NSQADMIN_PATHS), exclude_defaults=True)
    return [programs.nsqadmin, f"--http-address={nsqadmin.http_address}", *sources, *as_flags(tls)]
