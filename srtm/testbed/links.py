"""Links between netns hosts, cut, silenced, led astray and slowed down.

Each host is a network namespace, and a bridge in a namespace of its own connects them. Filters lie
in the namespaces of the hosts that receive: a sender does not notice that its packets are dropped,
as on a real network. What is done to a host's links lies in its namespace and at its port of the
bridge, so each command finds it there, and `heal` takes all of it away.

    host h1                                 switch                      host h2
    ┌─────────────────────────────┐   ┌───────────────────┐   ┌─────────────────────────────┐
    │ programs                    │   │      br0          │   │                    programs │
    │   │  nft srtm_nat (astray)  │   │  v0 ───┴─── v1    │   │  nft srtm: from, silent     │
    │   └─ eth0: tbf (bandwidth) ─┼───┼─ netem, or a relay┼───┼─ eth0 ────────────┘ drop    │
    └─────────────────────────────┘   └───────────────────┘   └─────────────────────────────┘

`cut` fills the sets `from` (whom the host does not hear) and, towards this machine, which has no
filter of ours, `to`; `silence` fills `silent` with the connections of the moment.
"""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from srtm.host.clock import NS, monotonic_ns
from srtm.host.python import module
from srtm.testbed.netns import NetnsHost, limit, unlimit
from srtm.testbed.network import inside, run_tool, tc
from srtm.testbed.reports import MARK
from srtm.testbed.testbed import Testbed
from srtm.text.address import Address
from srtm.text.errors import SrtmError, UnavailableError, UsageError
from srtm.units import Unit, Units

_DELAY = "delay"
_READY_SECONDS, _POLL_SECONDS = 30.0, 0.05
_TABLE = """
table inet srtm {
  set from { type ipv4_addr; }
  set to { type ipv4_addr; }
  set silent { type ipv4_addr . inet_service . ipv4_addr . inet_service; }
  chain input {
    type filter hook input priority -10;
    ip saddr @from drop
    ip saddr . tcp sport . ip daddr . tcp dport @silent drop
  }
  chain output {
    type filter hook output priority -10;
    ip daddr @to drop
    ip daddr . tcp dport . ip saddr . tcp sport @silent drop
  }
}
"""


def address_of(testbed: Testbed, host: str) -> str:
    """The address of a netns host that is up. Raises UsageError, UnavailableError."""
    return _namespaced(testbed, host).table.address


def cut(testbed: Testbed, host: str, other: str = "", *, one_way: bool = False) -> None:
    """Cut the links between a host and another, or all others and this machine, so that nothing
    passes any more; one_way: only what `host` sends is lost. Raises UsageError,
    UnavailableError."""
    near = _namespaced(testbed, host)
    others = [other] if other else [each for each in testbed.hosts if each != host]
    for name in others:
        far = _namespaced(testbed, name)
        if far is near:
            raise UsageError(f"host {host} cannot be cut off from itself")
        _add(far, "from", near.table.address)
        if not one_way:
            _add(near, "from", far.table.address)
    if not other:  # this machine, which has no filter of ours
        here = str(testbed.inventory.subnet[1])
        _add(near, "to", here)
        if not one_way:
            _add(near, "from", here)


def heal(testbed: Testbed, host: str = "") -> None:
    """Make all links, or those of one host, what they were at first."""
    healed = [_namespaced(testbed, host)] if host else list(_all(testbed))
    for each in healed:
        _nft(each, "flush ruleset")
        _undelay(testbed, each)
        unlimit(each.namespace)
        if each.table.bandwidth:
            limit(each.namespace, each.table.bandwidth)
    for each in _all(testbed):
        for gone in healed if host else ():
            with contextlib.suppress(SrtmError):  # it was not cut off
                _nft(each, f"delete element inet srtm from {{ {gone.table.address} }}")


def condition(testbed: Testbed, host: str) -> list[str]:
    """What `cut`, `slow` and faults have done to the links of a host, in words; empty where they
    are whole, or where it has none that can be cut."""
    near = testbed.hosts[host]
    if not isinstance(near, NetnsHost) or not near.exists:
        return []
    names = {each.table.address: name for name, each in testbed.hosts.items()}
    names[str(testbed.inventory.subnet[1])] = "this machine"
    sets = _sets(near)
    found = [f"hears nothing of {_named(sets['from'], names)}"] if sets["from"] else []
    if sets["to"]:
        found.append(f"is not heard by {_named(sets['to'], names)}")
    if sets["silent"]:
        found.append(f"half-open: {len(sets['silent'])}")
    if near.run(["nft", "list", "table", "ip", "srtm_nat"]).code == 0:
        found.append("is led astray")
    relay = _switch_units(testbed, near).status(_DELAY)
    qdiscs = json.loads(near.run(["tc", "-json", "qdisc", "show", "dev", "eth0"]).output or "[]")
    kinds = {each["kind"] for each in qdiscs}
    if (relay and relay.alive) or "netem" in kinds:
        found.append("is delayed")
    if "tbf" in kinds and not near.table.bandwidth:
        found.append("is limited")
    return found


def _sets(host: NetnsHost) -> dict[str, list[Any]]:
    """Elements of our filter, by set."""
    found: dict[str, list[Any]] = {"from": [], "to": [], "silent": []}
    done = host.run(["nft", "--json", "list", "table", "inet", "srtm"])
    if done.code:  # there is none
        return found
    for each in json.loads(done.output)["nftables"]:
        if "set" in each:
            found[each["set"]["name"]] = each["set"].get("elem", [])
    return found


def _named(addresses: Sequence[str], names: Mapping[str, str]) -> str:
    return ", ".join(sorted(names.get(each, each) for each in addresses))


def silence(testbed: Testbed, host: str) -> int:
    """Every TCP connection that the host has with others now is half open from here on: neither
    data nor its end pass, either way; new ones work. Returns how many."""
    near = _namespaced(testbed, host)
    pairs = [each for each in connections(near) if each[0].host != each[1].host]
    for local, peer in pairs:
        _add(near, "silent", f"{peer.host} . {peer.port} . {local.host} . {local.port}")
    return len(pairs)


def connections(host: NetnsHost) -> Iterator[tuple[Address, Address]]:
    """Established TCP connections: own address and the peer's."""
    done = host.run(["ss", "-Htn4", "state", "established"])
    if done.code:
        raise UnavailableError(f"ss: {done.errors or done.code}")
    for line in done.output.decode().splitlines():
        words = line.split()
        if len(words) >= 4:
            yield Address.parse(words[2]), Address.parse(words[3])


def lead_astray(testbed: Testbed, host: str, to: Address, instead: Address) -> None:
    """What the host sends to `to` goes to another address, but for what is marked."""
    near = _namespaced(testbed, host)
    rule = f"ip daddr {to.host} tcp dport {to.port} meta mark != {MARK} dnat to {instead}"
    chain = "add chain ip srtm_nat output { type nat hook output priority -100; }"
    _nft(near, f"add table ip srtm_nat\n{chain}\nadd rule ip srtm_nat output {rule}")


def straight(testbed: Testbed, host: str) -> None:
    """`lead_astray` ends."""
    _nft(_namespaced(testbed, host), "add table ip srtm_nat\ndelete table ip srtm_nat")


def slow(testbed: Testbed, host: str, bandwidth: str = "", delay_seconds: float = 0.0) -> str:
    """bandwidth: of all that it sends, such as 1mbit; delay_seconds: of each packet, either way.
    Returns how the delay is made: by netem, or by a relay where the kernel has none."""
    near = _namespaced(testbed, host)
    if bandwidth:
        limit(near.namespace, bandwidth)
    if not delay_seconds:
        return ""
    _undelay(testbed, near)
    milliseconds = f"{delay_seconds * 1e3:g}ms"
    port = f"v{_number(testbed, near)}"
    switch = testbed.names.switch
    netem = ("qdisc", "add", "dev")
    try:
        tc(switch, *netem, port, "root", "netem", "delay", milliseconds)
    except SrtmError:
        _relay_frames(testbed, near, port, delay_seconds)
        return "relay"
    parent = ("parent", "1:1") if bandwidth else ("root",)
    tc(near.namespace, *netem, "eth0", *parent, "netem", "delay", milliseconds)
    return "netem"


def _relay_frames(testbed: Testbed, host: NetnsHost, port: str, delay_seconds: float) -> None:
    program = module("srtm.testbed.frames")
    run_tool([*inside(host.namespace), *program, "--plain", "eth0"])
    command = [*program, "--port", port, f"--delay={delay_seconds}"]
    _switch_units(testbed, host).start(Unit(_DELAY, command))
    deadline_ns = monotonic_ns() + int(_READY_SECONDS * NS)
    units = _switch_units(testbed, host)
    while f"d{port[1:]}" not in _ports(testbed):
        found = units.status(_DELAY)
        if not found or not found.alive or monotonic_ns() > deadline_ns:
            said = units.log(_DELAY).read_text()[-300:]
            raise SrtmError(f"the relay that delays {host.table.name} did not start: {said}")
        time.sleep(_POLL_SECONDS)


def _undelay(testbed: Testbed, host: NetnsHost) -> None:
    _switch_units(testbed, host).stop(_DELAY, 5.0)
    port, switch = f"v{_number(testbed, host)}", testbed.names.switch
    run_tool(["ip", "-n", switch, "link", "set", port, "master", "br0", "up"])
    unlimit(switch, port)


def _switch_units(testbed: Testbed, host: NetnsHost) -> Units:
    """Beside the host's own, so that `down` ends it; it runs where the bridge is."""
    return host.units.with_prefix(inside(testbed.names.switch))


def _ports(testbed: Testbed) -> set[str]:
    """Names of the interfaces that are on the bridge."""
    words = ["ip", "-n", testbed.names.switch, "-json", "link", "show", "master", "br0"]
    return {each["ifname"] for each in json.loads(run_tool(words) or "[]") if each}


def _number(testbed: Testbed, host: NetnsHost) -> int:
    """The number of the host's port at the switch."""
    netns = [each.name for each in testbed.inventory.hosts if each.kind == "netns"]
    return netns.index(host.table.name)


def _add(host: NetnsHost, name: str, element: str) -> None:
    table = "" if _has_table(host) else _TABLE
    _nft(host, f"{table}\nadd element inet srtm {name} {{ {element} }}")


def _has_table(host: NetnsHost) -> bool:
    return host.run(["nft", "list", "table", "inet", "srtm"]).code == 0


def _nft(host: NetnsHost, rules: str) -> None:
    done = host.run(["nft", "-f", "-"], given=f"{rules}\n".encode())
    if done.code:
        said = " ".join(done.errors.split())[:300]
        raise UnavailableError(f"host {host.table.name}: nft: {said or done.code}")


def _namespaced(testbed: Testbed, name: str) -> NetnsHost:
    testbed.inventory.host(name)
    host = testbed.hosts[name]
    if not isinstance(host, NetnsHost):
        raise UsageError(
            f"host {name}: links of kind = '{host.table.kind}' cannot be cut or slowed; those of "
            "netns hosts can"
        )
    host.open()
    if not host.exists:
        raise UnavailableError(f"host {name} is not up: srtm testbed up {testbed.inventory.file}")
    return host


def _all(testbed: Testbed) -> Sequence[NetnsHost]:
    return [_namespaced(testbed, name) for name in testbed.hosts]
