"""Network namespaces of this machine: a host each, all on a bridge in a namespace of its own.

```text
this machine ── srtm<ID> ─ up0 ┐
host h1: eth0 ─────────── v0 ──┤ br0   (namespace srtm-<ID>)
host h2: eth0 ─────────── v1 ──┘
```

Nothing of it is in this machine's own network but one interface, and all of it goes with the
namespaces. Names are made from the testbed's id, so what a crash left is found again.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

from srtm.testbed.inventory import NETWORK, subnet_of
from srtm.text.errors import SrtmError, UnavailableError

_TIMEOUT_SECONDS = 30.0
_RUN_NETNS = "/run/netns"
SUBNETS = NETWORK.num_addresses // 256


@dataclass(frozen=True, slots=True)
class Names:
    """id: the first 6 hexadecimal digits of the testbed's."""

    id: str

    @property
    def switch(self) -> str:
        return f"srtm-{self.id}"

    @property
    def here(self) -> str:
        """The interface of this machine; at most 15 bytes."""
        return f"srtm{self.id}"

    def host(self, name: str) -> str:
        return f"srtm-{self.id}-{name}"


def require_network_tools() -> None:
    """Raises UnavailableError."""
    if os.geteuid() != 0:
        raise UnavailableError(
            "netns hosts need root, for network namespaces: run it with sudo, or make the hosts "
            "kind = 'local'"
        )
    for program, package in (("ip", "iproute2"), ("tc", "iproute2"), ("nsenter", "util-linux")):
        if shutil.which(program) is None:
            raise UnavailableError(f"netns hosts need {program}: install {package}")


def inside(namespace: str) -> tuple[str, ...]:
    """Goes before a command that runs in the namespace. Only the network is another: /sys and /run
    stay, for cgroups and sockets."""
    return "nsenter", f"--net={_RUN_NETNS}/{namespace}", "--"


def make_network(names: Names, subnet: IPv4Network, hosts: Sequence[tuple[str, str]]) -> None:
    """hosts: name and address. What is there already stays, and what is half made is made whole.
    Raises SrtmError."""
    existing = namespaces()
    whole = subnet.prefixlen
    if names.switch not in existing:
        _ip(["netns", "add", names.switch])
    for name, _ in hosts:
        if names.host(name) not in existing:
            _ip(["netns", "add", names.host(name)])
    switch = _links(names.switch)
    if "br0" not in switch:
        _ip(["-n", names.switch, "link", "add", "br0", "type", "bridge"])
    if "up0" not in switch:
        _ip(["-n", names.switch, "link", "add", "up0", "type", "veth", "peer", "name", names.here,
             "netns", str(os.getpid())])  # fmt: skip
    lines = ["link set lo up", "link set br0 up", "link set up0 master br0 up"]
    for number, (name, _) in enumerate(hosts):
        if f"v{number}" not in switch:
            lines.append(f"link add v{number} type veth peer name eth0 netns {names.host(name)}")
        # While a relay carries its frames (srtm testbed slow), a port is not on the bridge.
        on_bridge = "" if f"d{number}" in switch else "master br0 "
        lines.append(f"link set v{number} {on_bridge}up")
    _batch(names.switch, lines)
    for name, address in hosts:
        own = [f"address replace {address}/{whole} dev eth0", "link set eth0 up"]
        _batch(names.host(name), ["link set lo up", *own])
    here = names.here
    _batch("", [f"address replace {subnet[1]}/{whole} dev {here}", f"link set {here} up"])


def remove_network(names: Names) -> bool:
    """Remove all of a testbed's namespaces, also of hosts that its file had once. False: there was
    none."""
    found = namespaces_of(names)
    for each in found:
        _ip(["netns", "delete", each])
    return bool(found)


def namespaces_of(names: Names) -> list[str]:
    switch = names.switch
    return [each for each in namespaces() if each == switch or each.startswith(f"{switch}-")]


def namespaces() -> set[str]:
    try:
        return set(os.listdir(_RUN_NETNS))
    except FileNotFoundError:
        return set()


def processes_in(namespace: str) -> list[int]:
    """pids that are left in it; none where it is gone."""
    if namespace not in namespaces():
        return []
    return [int(each) for each in run_tool(["ip", "netns", "pids", namespace]).split()]


def free_subnet(names: Names, wanted: int) -> int:
    """The number of a /24 of NETWORK that no other interface of this machine has, from `wanted`
    on."""
    used = set()
    for link in json.loads(run_tool(["ip", "-json", "-4", "address"]) or "[]"):
        if link.get("ifname") != names.here:
            used |= {each.get("local", "") for each in link.get("addr_info", ())}
    for step in range(SUBNETS):
        number = (wanted + step) % SUBNETS
        if str(subnet_of(number)[1]) not in used:
            return number
    raise UnavailableError(f"all of {NETWORK} is taken by interfaces of this machine")


def tc(namespace: str, *words: str) -> None:
    run_tool(["tc", "-n", namespace, *words])


def _links(namespace: str) -> set[str]:
    found = json.loads(run_tool(["ip", "-n", namespace, "-json", "link"]) or "[]")
    return {each["ifname"] for each in found}


def _ip(words: Sequence[str]) -> None:
    run_tool(["ip", *words])


def _batch(namespace: str, lines: Iterable[str]) -> None:
    where = ["-n", namespace] if namespace else []
    run_tool(["ip", *where, "-batch", "-"], "\n".join(lines) + "\n")


def run_tool(words: Sequence[str], given: str = "") -> str:
    """What it writes. Raises SrtmError where it fails."""
    try:
        done = subprocess.run(
            words,
            input=given,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{words[0]}: {error}") from None
    if done.returncode:
        said = " ".join(done.stderr.split())[:300]
        raise SrtmError(f"{' '.join(words)}: {said or f'exit code {done.returncode}'}")
    return done.stdout
