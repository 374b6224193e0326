"""What a host of a testbed is, and why it is not up.

down ──up──▶ starting ──deployment.json──▶ up ──a broker does not answer──▶ degraded
  ▲              │                          │                                  │
  │              └────── srtm up ended ─────┴──▶ ended ◀───────────────────────┘
  └───────────────────────── down ──────────────────┘        (unreachable: not asked)
"""

from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from srtm.deploy.host_tables import HostTable
from srtm.deploy.process import telling_line
from srtm.deployment.document import Deployment
from srtm.http.client import request
from srtm.testbed.host import Facts, Host
from srtm.testbed.inventory import Part
from srtm.testbed.state import owner_file
from srtm.text.errors import SrtmError, UnavailableError
from srtm.units import Running

UP = "up"
"""the unit that every host has: `srtm up` on its part"""


@dataclass(frozen=True, slots=True)
class HostStatus:
    """state: up, starting, down, ended, unreachable, or degraded: some of it does not answer.
    why: where it is not up."""

    host: HostTable
    runs: tuple[str, ...]
    state: str
    why: str = ""
    facts: Facts | None = None
    pid: int | None = None

    def document(self) -> dict[str, Any]:
        facts = self.facts
        return {
            "host": self.host.name,
            "kind": self.host.kind,
            "address": self.host.address,
            "runs": list(self.runs),
            "state": self.state,
            "why": self.why,
            "pid": self.pid,
            "cores": facts.cores if facts else None,
            "srtm": facts.srtm if facts else None,
            "nsqd": facts.nsqd if facts else None,
            "clock_offset_seconds": facts.clock.offset if facts else None,
            "clock_error_seconds": facts.clock.error if facts else None,
        }


def status_of(host: Host, part: Part, was_put: bool) -> HostStatus:
    """A host that is not reached is said to be so. was_put: `srtm testbed up` was carried out, and
    `down` was not since."""
    found = HostStatus(host.table, part.runs, "down")
    try:
        host.open()
        found = replace(found, facts=host.facts())
        unit = host.status(UP)
    except SrtmError as error:
        return replace(found, state="unreachable", why=str(error))
    if unit is None:
        is_ready = was_put and not part.runs and host.read(owner_file(host)) is not None
        return replace(found, state="up" if is_ready else "down")
    if not unit.alive:
        said = telling_line(host.log(UP, 50))
        return replace(found, state="ended", why=f"srtm up ended: {said}")
    deployment = deployment_of(host, unit)
    if deployment is None:
        return replace(found, state="starting", pid=unit.pid)
    silent = [
        broker.name for broker in deployment.brokers if not _answers(str(broker.http_address))
    ]
    why = f"{', '.join(silent)}: no answer" if silent else ""
    return replace(found, state="degraded" if silent else "up", why=why, pid=unit.pid)


def deployment_of(host: Host, unit: Running | None) -> Deployment | None:
    """The deployment of a host whose unit `up` is this; None until `srtm up` says that it is up,
    and once it has ended."""
    if unit is None or not unit.alive:
        return None
    document = host.read(f"{host.table.data_path}/deployment.json")
    if document is None:
        return None
    try:
        deployment = Deployment.model_validate_json(document)
    except ValidationError:
        return None
    return deployment if deployment.pid == unit.pid else None


def _answers(address: str) -> bool:
    try:
        # 403 of a gateway that serves HTTP by TLS alone
        return request(address, "GET", "/ping", timeout_seconds=2.0).status in (200, 403)
    except UnavailableError:
        return False
