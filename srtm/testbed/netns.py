"""A network namespace of this machine as a host."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from srtm.deploy.host_tables import RATE, HostTable
from srtm.testbed.local import LocalHost
from srtm.testbed.network import (
    Names,
    inside,
    namespaces,
    processes_in,
    require_network_tools,
    run_tool,
    tc,
)
from srtm.text.errors import SrtmError, UnavailableError, UsageError

LATENCY, BURST = "200ms", "64kb"
"""of a limited link: what waits for longer is dropped; a burst holds one segment of 64 kB"""


class NetnsHost(LocalHost):
    """A local host in a network of its own. `make_network` makes that, for all hosts at once."""

    def __init__(self, table: HostTable, names: Names, cores: Sequence[int] = ()) -> None:
        self.namespace = names.host(table.name)
        super().__init__(table, cores, inside(self.namespace))

    @property
    def exists(self) -> bool:
        return self.namespace in namespaces()

    def open(self) -> None:
        require_network_tools()

    def prepare(self) -> None:
        """Set the bandwidth and the disk of a host whose network has just been made."""
        if self.table.bandwidth:
            limit(self.namespace, self.table.bandwidth)
        path = Path(self.table.data_path)
        if self.table.disk and not path.is_mount():
            path.mkdir(parents=True, exist_ok=True)
            options = f"size={self.table.disk},mode=755"  # else everybody may write there
            run_tool(["mount", "-t", "tmpfs", "-o", options, "srtm", str(path)])

    def calling(self, command: Sequence[str]) -> tuple[str, ...]:
        if not self.exists:
            raise UnavailableError(f"host {self.table.name} is not up")
        return super().calling(command)

    def _left(self) -> set[int]:
        return super()._left() & set(processes_in(self.namespace))

    def release(self) -> None:
        path = Path(self.table.data_path)
        if self.table.disk and path.is_mount():
            run_tool(["umount", str(path)])
            path.rmdir()  # the data are gone with the file system


def limit(namespace: str, bandwidth: str) -> None:
    """Limit all that the host sends to `bandwidth`. Raises UsageError."""
    if not RATE.fullmatch(bandwidth):
        raise UsageError(f"bandwidth {bandwidth!r}: write 10mbit (kbit, mbit or gbit)")
    unlimit(namespace)
    words = ("qdisc", "add", "dev", "eth0", "root", "handle", "1:", "tbf", "rate", bandwidth)
    tc(namespace, *words, "burst", BURST, "latency", LATENCY)


def unlimit(namespace: str, interface: str = "eth0") -> None:
    with contextlib.suppress(SrtmError):  # it is not limited
        tc(namespace, "qdisc", "delete", "dev", interface, "root")
