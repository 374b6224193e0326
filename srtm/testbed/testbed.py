"""Brings a testbed up and down: every host at the same time, each step one that may be repeated.

Nothing runs for `srtm testbed` itself: each command looks at the hosts anew, does what is left to
do, and ends. On each host one unit, `up`, runs `srtm up` on that host's part of the file, and
outlives the command that started it.

    srtm testbed up FILE                            each host
      read_inventory ── parts ──┐
      state.json (here)         ├─ check ──▶ is it ours? cores, clock    nothing is changed yet
      one command at a time     ├─ put ────▶ owner.json, files, token, srtm.toml
                                ├─ start ──▶ unit `up` = srtm up srtm.toml ─▶ brokers, ...
                                └─ wait ◀─── deployment.json of that process
"""

import datetime
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from srtm import __version__
from srtm.deploy.host_tables import HostTable
from srtm.deploy.process import telling_line
from srtm.deploy.programs import TESTED_NSQ, is_tested
from srtm.host.clock import NS, monotonic_ns
from srtm.host.files import read_file
from srtm.host.stop import Stop
from srtm.testbed import certificates
from srtm.testbed import state as states
from srtm.testbed.host import Host
from srtm.testbed.inventory import OWN_FOLDER, Inventory, Part, read_inventory
from srtm.testbed.local import LocalHost, tail
from srtm.testbed.netns import NetnsHost
from srtm.testbed.network import (
    SUBNETS,
    Names,
    free_subnet,
    make_network,
    namespaces_of,
    processes_in,
    remove_network,
    require_network_tools,
)
from srtm.testbed.ssh import SshHost
from srtm.testbed.state import Owner, SavedTestbed
from srtm.testbed.status import UP, HostStatus, deployment_of, status_of
from srtm.text.errors import SrtmError, UnavailableError, UsageError
from srtm.units import Unit

READY_SECONDS = 180.0
"""`srtm up` gives each child 60 s, and the brokers of other hosts 60 s to report"""
GRACE_SECONDS = 150.0
"""`srtm up` ends bridge, gateways, nsqds and distributor one after the other, each within its own
grace period"""
MAX_CLOCK_OFFSET_SECONDS = 0.1
"""beyond it admission logs of two hosts cannot be merged with any use (srtm audit)"""
_POLL_SECONDS = 0.1
_AT_ONCE = 16
"""hosts that are worked on at the same time"""

Say = Callable[[str, str], None]
"""of a host: what it has come to"""


class Failed(SrtmError):
    """Some hosts failed: a line for each."""

    def __init__(self, what: str, failures: dict[str, SrtmError]) -> None:
        codes = {error.exit_code for error in failures.values()}
        self.exit_code = codes.pop() if len(codes) == 1 else SrtmError.exit_code
        self.failures = failures
        lines = "".join(f"\n  {host}: {error}" for host, error in failures.items())
        super().__init__(f"{what}: {len(failures)} of its hosts failed:{lines}")


class Testbed:
    """One inventory, and its hosts. Files, processes and namespaces are the state: each call looks
    at them anew."""

    def __init__(self, inventory: Inventory, state: SavedTestbed | None) -> None:
        self.inventory = inventory
        self._state = state
        self.id = states.identity(inventory)
        self.names = Names(self.id[:6])
        self._stop = Stop()
        cores = _pins(self.inventory.hosts)
        self.hosts: dict[str, Host] = {
            table.name: self._host(table, cores.get(table.name, ()))
            for table in self.inventory.hosts
        }
        asking = (each for each in self.inventory.hosts if each.cores and each.kind != "ssh")
        self.lacks_cores = not cores and any(asking)
        """hosts of this machine are not pinned: it has too few for all of them"""

    def _host(self, table: HostTable, cores: Sequence[int]) -> Host:
        if table.kind == "netns":
            return NetnsHost(table, self.names, cores)
        if table.kind == "ssh":
            return SshHost(table, self.inventory.name, self.inventory.folder)
        return LocalHost(table, cores)

    @property
    def is_up(self) -> bool:
        """`up` was carried out here, and `down` was not since; each host may have ended."""
        return self._state is not None

    def ask_stop(self) -> None:
        """Let `up` end before its next step; called from a signal handler."""
        self._stop.ask()

    # --- up -------------------------------------------------------------------------------------

    def up(self, say: Say) -> None:
        """Bring every host up that is not. Raises UsageError before anything is put where the file
        was edited, Failed with a line for each host that did not come up."""
        self._refuse_edited()
        with states.alone(self.inventory.folder):
            # All are looked at before the first is given anything.
            self._each("check", self._check)
            token = states.token(self.inventory)
            if self.inventory.plan.deployment.secure:
                now = datetime.datetime.now(datetime.UTC)
                certificates.make(self.inventory.certificates, self.inventory.hosts, now)
            states.save(
                self.inventory.folder,
                SavedTestbed(
                    id=self.id,
                    file=str(self.inventory.file),
                    digest=states.digest(self.inventory),
                    subnet=self.inventory.subnet_number,
                    hosts=self.inventory.hosts,
                ),
            )
            self.make_network()
            self._each("up", lambda host: self._bring_up(host, token, say))

    def _refuse_edited(self) -> None:
        state, file = self._state, self.inventory.file
        if state is not None and state.digest != states.digest(self.inventory):
            raise UsageError(
                f"{file}, or a file that it names, was edited since its testbed was brought up: "
                f"srtm testbed down {file}, then up; what brokers hold is kept"
            )

    def make_network(self) -> None:
        """Make the network of the netns hosts, which are all there then; nothing runs on them
        yet."""
        netns = [(each.name, each.address) for each in self.inventory.hosts if each.kind == "netns"]
        if netns:
            require_network_tools()
            if self._state is None and not any(map(processes_in, namespaces_of(self.names))):
                remove_network(self.names)  # a crash left it
            make_network(self.names, self.inventory.subnet, netns)
            for host in self.hosts.values():
                if isinstance(host, NetnsHost):
                    host.prepare()

    def _check(self, host: Host) -> None:
        """May it run its part? Nothing is changed there. Raises SrtmError."""
        host.open()
        self._refuse_others_data(host)
        table = host.table
        facts = host.facts()
        if table.cores > facts.cores:
            raise UsageError(
                f"needs {table.cores} cores and has {facts.cores}: lower its cores, or choose "
                "another host"
            )
        clock = facts.clock
        if abs(clock.offset) - clock.error > MAX_CLOCK_OFFSET_SECONDS:
            raise UnavailableError(
                f"its clock is off by {clock}: set it (chronyc makestep, or timedatectl set-ntp "
                "true)"
            )

    def _refuse_others_data(self, host: Host) -> None:
        owner, path = states.owner_of(host), host.table.data_path
        if owner is None and host.list(path):
            raise UsageError(
                f"{path} is not empty, and no testbed's: choose another data-path, or empty it"
            )
        if owner is not None and owner.id != self.id:
            raise UsageError(
                f"{path} has the data of the testbed of {owner.file} "
                f"({owner.machine}): choose another data-path, or srtm testbed down --purge that"
            )

    def _bring_up(self, host: Host, token: bytes, say: Say) -> None:
        began_ns = monotonic_ns()
        if deployment_of(host, host.status(UP)) is not None:
            self._put_certificates(host)
            say(host.table.name, "runs already")
            return
        self._go_on()
        command = host.install()
        srtm, nsqd = host.versions()
        if srtm != __version__:
            has = f"has srtm {srtm}" if srtm else "has no srtm"
            python = host.table.python
            raise UnavailableError(
                f"{python or 'python'} there {has}; {__version__} is needed: install that there"
                + (", or leave out python, and it is brought there" if python else "")
            )
        part = self.inventory.part(host.table)
        if not is_tested(nsqd):
            say(host.table.name, f"warning: nsqd says {nsqd!r}, not v{TESTED_NSQ}.x")
        self._go_on()
        self._put(host, part, token)
        if not part.runs:
            say(host.table.name, "ready; nothing runs on it yet")
            return
        self._go_on()
        host.start(Unit(UP, (*command, "up", f"{part.folder}/srtm.toml")))
        self._await_up(host)
        seconds = (monotonic_ns() - began_ns) / NS
        say(host.table.name, f"up after {seconds:.1f} s: {', '.join(part.runs)}")

    def _put(self, host: Host, part: Part, token: bytes) -> None:
        """The owner first: what follows belongs to it."""
        owner = Owner(id=self.id, file=str(self.inventory.file), machine=os.uname().nodename)
        host.put(states.owner_file(host), owner.model_dump_json().encode())
        for name, file in part.files.items():
            host.put(f"{part.folder}/{name}", read_file(file))
        if part.needs_token:
            host.put(f"{part.folder}/token", token, 0o600)
        self._put_certificates(host)
        host.put(f"{part.folder}/srtm.toml", part.text.encode())

    def _put_certificates(self, host: Host) -> None:
        if self.inventory.plan.deployment.secure:
            own = f"{host.table.data_path}/{OWN_FOLDER}"
            certificates.put(self.inventory.certificates, host, own)

    def _await_up(self, host: Host) -> None:
        deadline_ns = monotonic_ns() + int(READY_SECONDS * NS)
        while deployment_of(host, found := host.status(UP)) is None:
            if found is None or not found.alive:
                raise SrtmError(f"srtm up ended: {telling_line(host.log(UP, 50))}")
            if monotonic_ns() > deadline_ns:
                said = telling_line(host.log(UP, 50))
                raise SrtmError(f"is not up after {READY_SECONDS:g} s; it said last: {said}")
            self._go_on(_POLL_SECONDS)

    def _go_on(self, seconds: float = 0.0) -> None:
        """Raises UnavailableError once a stop was asked for."""
        if self._stop.wait(seconds):
            raise UnavailableError("interrupted; the same command goes on from here")

    # --- status, logs ---------------------------------------------------------------------------

    def status(self) -> list[HostStatus]:
        """The status of every host, in the file's order. It raises nothing: each says why it is not
        up."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(self._status, self.hosts.values()))

    def _status(self, host: Host) -> HostStatus:
        return status_of(host, self.inventory.part(host.table), was_put=self.is_up)

    def calling(self, host: str, command: Sequence[str]) -> tuple[str, ...]:
        """What runs a command on a host from here. Raises UsageError, UnavailableError."""
        self.inventory.host(host)
        found = self.hosts[host]
        found.open()
        return found.calling(command)

    def logs(self, host: str, program: str, lines: int) -> str:
        """What `srtm up` said there, or one of its programs. Raises SrtmError."""
        found = self.hosts[host]
        found.open()
        if not program:
            return found.log(UP, lines)
        folder = f"{found.table.data_path}/logs"
        known = [name.removesuffix(".log") for name in found.list(folder) if name.endswith(".log")]
        if program not in known:
            raise UsageError(f"no log of {program}; there are {', '.join(known) or 'none'}")
        return tail(found.read(f"{folder}/{program}.log") or b"", lines)

    # --- down -----------------------------------------------------------------------------------

    def down(self, say: Say, *, purge: bool = False) -> None:
        """End everything that `up` started, on the hosts as they were then. purge: remove what they
        kept too. Raises Failed."""
        with states.alone(self.inventory.folder):
            hosts = self._hosts_to_end()
            if any(each.kind == "netns" for each in [host.table for host in hosts.values()]):
                require_network_tools()
            self._each("down", lambda host: self._take_down(host, purge, say), hosts)
            if any(host.table.kind == "netns" for host in hosts.values()):
                remove_network(self.names)
            states.forget(self.inventory.folder)
            if purge:
                self._purge_here()

    def _hosts_to_end(self) -> dict[str, Host]:
        """The hosts to end: those that were brought up, and those of the file."""
        hosts = dict(self.hosts)
        for table in self._state.hosts if self._state else ():
            if table.name not in hosts or hosts[table.name].table != table:
                hosts[table.name] = self._host(table, ())
        return hosts

    def _take_down(self, host: Host, purge: bool, say: Say) -> None:
        host.open()
        owner = states.owner_of(host)
        if owner is not None and owner.id != self.id:
            say(host.table.name, f"left alone: it has the data of {owner.file}")
            return
        ran = False
        for unit in self._units(host):
            ran |= host.stop(unit, GRACE_SECONDS)
        if owner is not None or host.table.kind == "netns":  # else it may be somebody else's
            ran |= host.end_left(GRACE_SECONDS)
        if owner is not None and purge:
            if host.table.disk:
                host.release()  # first: what is mounted cannot be removed
            host.remove(host.table.data_path)
        elif owner is not None:
            folder = f"{host.table.data_path}/{OWN_FOLDER}"
            for name in host.list(folder):
                if name != "owner.json":  # it stays with the data
                    host.remove(f"{folder}/{name}")
        host.release()
        kept = "its data are kept"
        if purge:
            kept = "its data are removed"
        elif host.table.disk:
            kept = "its data went with its disk"
        say(host.table.name, f"down; {kept}" if ran else "nothing ran")

    def _units(self, host: Host) -> Iterator[str]:
        """`srtm up` first, then what else was started there: relays, load."""
        yield UP
        for name in host.list(f"{host.table.data_path}/{OWN_FOLDER}/units"):
            if name.endswith(".pid") and name != f"{UP}.pid":
                yield name.removesuffix(".pid")

    def _purge_here(self) -> None:
        folder = self.inventory.folder
        for name in ("token", "lock"):
            (folder / name).unlink(missing_ok=True)
        shutil.rmtree(self.inventory.certificates, ignore_errors=True)
        for each in (folder, folder.parent):
            if each.is_dir() and not any(each.iterdir()):
                each.rmdir()

    # --- inside ---------------------------------------------------------------------------------

    def _each(
        self, what: str, work: Callable[[Host], None], hosts: dict[str, Host] | None = None
    ) -> None:
        """Do `work` on all hosts at once; one that fails holds up no other. Raises Failed."""
        hosts = self.hosts if hosts is None else hosts
        failures: dict[str, SrtmError] = {}

        def one(host: Host) -> None:
            try:
                work(host)
            except SrtmError as error:
                failures[host.table.name] = error

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(one, hosts.values()))
        if failures:
            in_order = {name: failures[name] for name in hosts if name in failures}
            raise Failed(f"srtm testbed {what}", in_order)


def open_testbed(file: Path) -> Testbed:
    """The testbed of a file: its hosts are where they were brought up, or where they will be.
    Raises UsageError, also where the data path is that of another file's testbed."""
    inventory = read_inventory(file)
    state = states.load(inventory.folder)
    if state is not None and state.id != states.identity(inventory):
        raise UsageError(
            f"{inventory.file}: data-path {inventory.data_path} is used by the testbed of "
            f"{state.file}: give that file, or choose another data-path in [deployment]"
        )
    if any(each.kind == "netns" for each in inventory.hosts):
        identity = states.identity(inventory)
        if state is not None:
            number = state.subnet
        else:
            number = free_subnet(Names(identity[:6]), int(identity, 16) % SUBNETS)
        inventory = read_inventory(file, number)
    return Testbed(inventory, state)


def _pins(hosts: Sequence[HostTable]) -> dict[str, list[int]]:
    """Cores of this machine for each of its hosts that asks for some; none for anybody where there
    are not enough for all."""
    here = sorted(os.sched_getaffinity(0))
    asking = [each for each in hosts if each.kind != "ssh" and each.cores]
    if sum(each.cores for each in asking) > len(here):
        return {}
    found = {}
    for each in asking:
        found[each.name], here = here[: each.cores], here[each.cores :]
    return found
