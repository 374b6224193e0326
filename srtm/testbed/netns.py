"""A network namespace of this machine as a host."""

from collections.abc import Sequence

from srtm.deploy.host_tables import HostTable
from srtm.testbed.local import LocalHost
from srtm.testbed.network import Names, inside, namespaces, require_network_tools, tc

LATENCY, BURST = "200ms", "64kb"
"""of a limited link: what waits for longer is dropped; a burst holds one segment of 64 kB"""


class NetnsHost(LocalHost):
    """As a local host, in a network of its own. `make_network` makes that, for all hosts at
    once."""

    def __init__(self, table: HostTable, names: Names, cores: Sequence[int] = ()) -> None:
        self.namespace = names.host(table.name)
        super().__init__(table, cores, inside(self.namespace))

    def open(self) -> None:
        require_network_tools()
        if self.namespace in namespaces() and self.table.bandwidth:
            limit(self.namespace, self.table.bandwidth)


def limit(namespace: str, bandwidth: str) -> None:
    """Of all that the host sends."""
    words = ("qdisc", "replace", "dev", "eth0", "root", "handle", "1:", "tbf", "rate", bandwidth)
    tc(namespace, *words, "burst", BURST, "latency", LATENCY)


def unlimit(namespace: str) -> None:
    tc(namespace, "qdisc", "replace", "dev", "eth0", "root", "handle", "1:", "pfifo_fast")
