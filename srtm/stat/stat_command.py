"""`srtm stat`: the table that users of nsq_stat know, and under it contract and latency."""

import json
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from distributor.remote import Remote, remote_or_none
from srtm.cli.looks import Looks, looks_options
from srtm.deployment.document import Deployment, find
from srtm.host.certificates import client_context
from srtm.http.client import Endpoint, get_json
from srtm.http.nsqd import HTTPS, NsqdDoor
from srtm.http.service import ClientFiles, service_at
from srtm.options.client_files import client_files
from srtm.stat.rows import Row, StatSource, read_rows, with_rates
from srtm.stat.tables import (
    bridge_table,
    contract_table,
    distributor_table,
    penalties_table,
    queue_table,
    throttled_table,
    timestamps_table,
    trace_table,
)
from srtm.text.errors import SrtmError, UsageError
from srtm.text.terminal import show

_ASKED_SECONDS = 3.0
_TABLES = (
    queue_table,
    contract_table,
    throttled_table,
    timestamps_table,
    distributor_table,
    trace_table,
)


@click.command("stat")
@click.option(
    "--nsqd-http-address",
    "addresses",
    multiple=True,
    metavar="HOST:PORT",
    help="HTTP address of a gateway (or a plain nsqd), https://HOST:PORT for its HTTPS address; "
    "may be given several times",
)
@click.option(
    "--bridge-http-address",
    "bridges",
    multiple=True,
    metavar="HOST:PORT",
    help="HTTP address of an `srtm bridge`, to show its routes; may be given several times",
)
@client_files("bridge", "a bridge")
@client_files("nsqd", "a gateway or nsqd", with_token=False)
@click.option(
    "--nsqd-tls-server-name",
    "server_name",
    default="",
    help="Name in the certificates of gateways and nsqds; default: the host of the address.",
)
@click.option(
    "--deployment",
    envvar="SRTM_DEPLOYMENT",
    default="./srtm-data",
    help="data path or file of `srtm up`, when no address is given [default: ./srtm-data]",
)
@remote_or_none
@click.option("--topic", default="", help="only this topic")
@looks_options
@click.option("--json", "as_json", is_flag=True, help="one JSON list for each look")
def stat(
    addresses: tuple[str, ...],
    bridges: tuple[str, ...],
    bridge_files: ClientFiles,
    nsqd_files: ClientFiles,
    server_name: str,
    deployment: str,
    remote: Remote | None,
    topic: str,
    looks: Looks,
    as_json: bool,
) -> None:
    """Watch topics: depth and messages (as in nsq_stat), contract, tokens, throttling, latency.

    \b
      srtm stat --nsqd-http-address 127.0.0.1:4151
      srtm stat --nsqd-http-address https://b1:4152 --nsqd-tls-root-ca-file ca.pem
      srtm stat --deployment ./srtm-data --topic sensors --count 1 --json
      srtm stat --bridge-http-address 127.0.0.1:4190

    p50, p95 and p99 are the broker latency of the last minute: from arrival to delivery to a
    consumer that is always ready. "wait" is the delay in the token bucket alone. For a topic that
    several brokers share, the Load Distributor shows what the split costs: the wait compared with
    that of the same messages in one bucket, and the error of this that clocks may cause.
    """
    door = _door(addresses, nsqd_files, server_name)
    if addresses or bridges:
        named = [(address, address) for address in addresses]
    elif remote is not None:
        known = remote.call("GET", "brokers")["brokers"]
        named = [(each["name"], each["http_address"]) for each in known]
    else:
        found = find(Path(deployment))
        named = [(broker.name, str(broker.http_address)) for broker in found.brokers]
        remote = _distributor_of(found)
    brokers = [StatSource(name, replace(door, address=address)) for name, address in named]
    watch = _Watch(brokers, _reached(bridges, bridge_files), remote, topic)
    for _ in looks:
        watch.look()
        if as_json:
            click.echo(watch.as_json())
        else:
            watch.show()
        for name, why in watch.away.items():
            click.echo(f"{name}: {why}", err=True)


@dataclass
class _Watch:
    """What brokers, bridges and the distributor said last; rates come from the look before."""

    brokers: list[StatSource]
    bridges: tuple[Endpoint, ...]
    remote: Remote | None
    topic: str
    rated: list[Row] = field(default_factory=list)
    penalties: list[dict[str, Any]] = field(default_factory=list)
    away: dict[str, str] = field(default_factory=dict)
    _before: list[Row] = field(default_factory=list)
    _then: float = 0.0

    def look(self) -> None:
        """Raises UsageError for a topic that nobody knows."""
        rows, self.away = read_rows(self.brokers, self.topic) if self.brokers else ([], {})
        if self.topic and not rows and not self.away:
            raise UsageError(
                f"no broker knows topic {self.topic}; without --topic all that they know are shown"
            )
        now = time.monotonic()
        self.rated = with_rates(rows, self._before, now - self._then) if self._before else rows
        self._before, self._then = rows, now
        try:
            self.penalties = penalties_of(self.remote, rows, self.topic)
        except SrtmError as error:
            self.penalties, self.away["distributor"] = [], str(error)

    def as_json(self) -> str:
        rows = [row.document() for row in self.rated]
        costs = [{"topic": each["topic"], "penalty": each} for each in self.penalties]
        routes = [
            {"bridge": each.address, **route} for each in self.bridges for route in routes_of(each)
        ]
        return json.dumps(rows + costs + routes)

    def show(self) -> None:
        """Show the tables that have rows."""
        tables = [each(self.rated) for each in _TABLES if self.brokers]
        tables.append(penalties_table(self.penalties))
        tables += [bridge_table(each.address, routes_of(each)) for each in self.bridges]
        for table in tables:
            if len(table):
                show(table, "")


def penalties_of(remote: Remote | None, rows: list[Row], topic: str) -> list[dict[str, Any]]:
    """The penalties of the topics that several brokers share, from the distributor that is named,
    or from those that gateways tell, as far as these answer. Raises SrtmError for the one that is
    named."""
    if remote is not None:
        found = remote.call("GET", "penalties", timeout_seconds=_ASKED_SECONDS)["penalties"]
    else:
        found = []
        for address in sorted({row.distributor["address"] for row in rows if row.distributor}):
            with suppress(SrtmError):
                told = Remote(service_at(address, ClientFiles(), ""))
                answer = told.call("GET", "penalties", timeout_seconds=_ASKED_SECONDS)
                found += answer["penalties"]
    return [each for each in found if not topic or each["topic"] == topic]


def _door(addresses: tuple[str, ...], files: ClientFiles, server_name: str) -> NsqdDoor:
    """How the doors of gateways and nsqds are read, wherever they are. Raises UsageError."""
    if files.tls is None:
        for each in (each for each in addresses if each.startswith(HTTPS)):
            raise UsageError(
                f"--nsqd-http-address {each} needs --nsqd-tls-root-ca-file, by which it is verified"
            )
        if server_name:
            raise UsageError("--nsqd-tls-server-name goes with --nsqd-tls-root-ca-file")
    tls = None if files.tls is None else client_context(files.tls)
    return NsqdDoor("", tls, server_name, "give --nsqd-tls-root-ca-file, by which it is verified")


def _reached(bridges: tuple[str, ...], files: ClientFiles) -> tuple[Endpoint, ...]:
    """Raises UsageError."""
    if files != ClientFiles() and not bridges:
        raise UsageError("--bridge-token-file and --bridge-tls-... go with --bridge-http-address")
    return tuple(service_at(each, files, "--bridge-token-file") for each in bridges)


def routes_of(bridge: Endpoint) -> list[dict[str, Any]]:
    """Raises UnavailableError."""
    found: list[dict[str, Any]] = get_json(bridge, "/stats")["routes"]
    return found


def _distributor_of(deployment: Deployment) -> Remote | None:
    """Raises UsageError for a file that is wrong."""
    found = deployment.distributor
    return None if found is None else Remote(found.endpoint())
