"""What can be done to a testbed that runs: each fault begins, lasts and ends."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass

from srtm.host.clock import NS, monotonic_ns
from srtm.host.python import module
from srtm.testbed import links
from srtm.testbed.host import Host
from srtm.testbed.inventory import OWN_FOLDER
from srtm.testbed.status import UP
from srtm.testbed.testbed import Testbed
from srtm.text.address import Address
from srtm.text.errors import SrtmError, UnavailableError, UsageError
from srtm.text.words import counted
from srtm.units import Unit

REPORTS_PORT = 4999
SLOW_BANDWIDTH, SLOW_DELAY_SECONDS = "2mbit", 0.02
_READY_SECONDS, _POLL_SECONDS = 30.0, 0.05
_GRACE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Asked:
    """host: where; program: which of its programs; other: another host; topic and channel:
    of a reader."""

    host: str
    program: str = ""
    other: str = ""
    topic: str = ""
    channel: str = "slow-reader#ephemeral"


@dataclass(frozen=True, slots=True)
class Fault:
    """needs: fields of Asked that have to be given, besides the host."""

    summary: str
    carry_out: Callable[[Testbed, Asked], AbstractContextManager[str]]
    needs: tuple[str, ...] = ()


def begin(testbed: Testbed, name: str, asked: Asked) -> AbstractContextManager[str]:
    """A context in which the fault lasts; it gives what was done. Raises UsageError, and in the
    context UnavailableError where the fault cannot be carried out here."""
    fault = FAULTS.get(name)
    if fault is None:
        raise UsageError(f"no fault {name!r}; there are {', '.join(FAULTS)}")
    missing = [each for each in fault.needs if not getattr(asked, each)]
    if missing:
        raise UsageError(f"fault {name} needs --{' and --'.join(missing)}")
    testbed.inventory.host(asked.host)
    return fault.carry_out(testbed, asked)


# --- processes ----------------------------------------------------------------------------------


@contextmanager
def _kill(testbed: Testbed, asked: Asked) -> Iterator[str]:
    host = testbed.hosts[asked.host]
    _signal(host, asked.program, "KILL")
    yield f"kill -9 of {asked.program} on {asked.host}"


@contextmanager
def _freeze(testbed: Testbed, asked: Asked) -> Iterator[str]:
    host = testbed.hosts[asked.host]
    pid = _signal(host, asked.program, "STOP")
    try:
        yield f"SIGSTOP of {asked.program} on {asked.host}"
    finally:
        host.run(["kill", "-CONT", str(pid)])


@contextmanager
def _torn_store(testbed: Testbed, asked: Asked) -> Iterator[str]:
    """`srtm up` stands still meanwhile, or it would start the next one on the whole store."""
    host = testbed.hosts[asked.host]
    store = f"{host.table.data_path}/distributor.db"
    if host.read(store) is None:
        raise UsageError(f"host {asked.host} runs no distributor with a store of its own")
    above = _signal(host, UP, "STOP")
    try:
        _signal(host, "distributor", "KILL")
        lost = len(host.read(f"{store}-wal") or b"")
        host.remove(f"{store}-wal")
        host.remove(f"{store}-shm")
    finally:
        host.run(["kill", "-CONT", str(above)])
    yield f"kill -9 of the distributor, {lost:,} bytes of its store's log are lost"


def processes(host: Host) -> dict[str, int]:
    """pids of what `srtm up` runs there, by name, and its own. Raises UnavailableError."""
    unit = host.status(UP)
    if unit is None or not unit.alive:
        raise UnavailableError(f"host {host.table.name} is not up")
    # -ww: whatever COLUMNS says, the whole command line.
    done = host.run(["ps", "-ww", "-o", "pid=,args=", "--ppid", str(unit.pid)])
    if done.errors:
        raise UnavailableError(f"host {host.table.name}: ps: {done.errors}")
    found = {UP: unit.pid}
    for line in done.output.decode(errors="replace").splitlines():
        pid, _, command = line.strip().partition(" ")
        if pid.isdigit():
            found[_name_of(command, host.table.data_path)] = int(pid)
    return found


def _name_of(command: str, data_path: str) -> str:
    """The name of a process, as `srtm up` calls it."""
    broker = command.partition(f"{data_path}/")[2].partition("/")[0]
    if " srtm gateway " in command:
        return f"{broker}-gateway"
    if " srtm distributor " in command:
        return "distributor"
    if " srtm bridge " in command:
        return "bridge"
    program = command.split(" ")[0].rpartition("/")[2]
    return f"{broker}-nsqd" if program == "nsqd" else program


def _signal(host: Host, program: str, name: str) -> int:
    """Returns its pid."""
    found = processes(host)
    if program not in found:
        raise UsageError(f"host {host.table.name} runs no {program}; it runs {', '.join(found)}")
    pid = found[program]
    done = host.run(["kill", f"-{name}", str(pid)])
    if done.code:
        raise UnavailableError(f"host {host.table.name}: kill: {done.errors}")
    return pid


# --- links --------------------------------------------------------------------------------------


@contextmanager
def _partition(testbed: Testbed, asked: Asked) -> Iterator[str]:
    links.cut(testbed, asked.host, asked.other)
    try:
        yield f"nothing passes between {asked.host} and {asked.other or 'all others'}"
    finally:
        links.heal(testbed, asked.host)


@contextmanager
def _one_way(testbed: Testbed, asked: Asked) -> Iterator[str]:
    links.cut(testbed, asked.host, asked.other, one_way=True)
    try:
        yield f"what {asked.host} sends to {asked.other or 'all others'} is lost"
    finally:
        links.heal(testbed, asked.host)


@contextmanager
def _slow_link(testbed: Testbed, asked: Asked) -> Iterator[str]:
    how = links.slow(testbed, asked.host, SLOW_BANDWIDTH, SLOW_DELAY_SECONDS)
    try:
        yield (
            f"{asked.host} sends {SLOW_BANDWIDTH} at most, and packets are "
            f"{SLOW_DELAY_SECONDS * 1e3:g} ms late either way (by {how})"
        )
    finally:
        links.heal(testbed, asked.host)


@contextmanager
def _half_open(testbed: Testbed, asked: Asked) -> Iterator[str]:
    count = links.silence(testbed, asked.host)
    try:
        yield f"half open on {asked.host}: {counted(count, 'connection')}"
    finally:
        links.heal(testbed, asked.host)


# --- reports ------------------------------------------------------------------------------------


@contextmanager
def _reports(testbed: Testbed, asked: Asked) -> Iterator[str]:
    distributor = _distributor(testbed)
    own = links.address_of(testbed, asked.host)
    command = [
        *module("srtm.testbed.reports"),
        *(f"--listen={REPORTS_PORT}", f"--to={distributor}"),
        *("--lose=0.25", "--deafen=0.25", "--hold=0.25"),
    ]
    with _unit(testbed.hosts[asked.host], Unit("reports", command), "listens"):
        links.lead_astray(testbed, asked.host, distributor, Address(own, REPORTS_PORT))
        try:
            yield f"of the reports of {asked.host} a quarter each is lost, unanswered, late"
        finally:
            links.straight(testbed, asked.host)


@contextmanager
def _second_distributor(testbed: Testbed, asked: Asked) -> Iterator[str]:
    """Run a second distributor with a store of its own, which is empty, and let a host report to
    it."""
    first = _distributor(testbed)
    host = testbed.hosts[asked.other]
    second = Address(links.address_of(testbed, asked.other), first.port + 1)
    folder = f"{host.table.data_path}/{OWN_FOLDER}"
    command = [
        *module("srtm"),
        "distributor",
        *(f"--http-address={second}", f"--store={folder}/second.db"),
        f"--token-file={folder}/token",
    ]
    with _unit(host, Unit("second", command), "lead"):
        links.lead_astray(testbed, asked.host, first, second)
        try:
            yield f"{asked.host} reports to a second distributor on {asked.other}, which is empty"
        finally:
            links.straight(testbed, asked.host)
    for name in ("", "-wal", "-shm"):
        host.remove(f"{folder}/second.db{name}")


def _distributor(testbed: Testbed) -> Address:
    found = testbed.inventory.distributor_address
    if found is None:
        raise UsageError(f"{testbed.inventory.file}: there is no distributor")
    return found


@contextmanager
def _unit(host: Host, unit: Unit, ready: str) -> Iterator[None]:
    """ready: a word that it writes once it works."""
    host.start(unit)
    try:
        deadline_ns = monotonic_ns() + int(_READY_SECONDS * NS)
        while ready not in (said := host.log(unit.name, 100)):
            found = host.status(unit.name)
            if not found or not found.alive or monotonic_ns() > deadline_ns:
                raise SrtmError(f"host {host.table.name}: {unit.name} did not start: {said[-300:]}")
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        host.stop(unit.name, _GRACE_SECONDS)
        host.remove(f"{host.table.data_path}/{OWN_FOLDER}/units/{unit.name}.log")


# --- disk, readers, clock -----------------------------------------------------------------------


@contextmanager
def _disk_full(testbed: Testbed, asked: Asked) -> Iterator[str]:
    host = testbed.hosts[asked.host]
    if not host.table.disk:
        raise UsageError(
            f"host {asked.host}: its disk is this machine's, which is not filled; give it "
            'disk = "64m"'
        )
    filler = f"{host.table.data_path}/{OWN_FOLDER}/filler"
    try:
        host.run(["dd", "if=/dev/zero", f"of={filler}", "bs=64k"])  # until there is no room
        yield f"the disk of {asked.host} ({host.table.disk}) is full"
    finally:
        host.remove(filler)


@contextmanager
def _slow_reader(testbed: Testbed, asked: Asked) -> Iterator[str]:
    """A reader of each broker of the host: it subscribes, asks for many messages, and reads
    none."""
    inventory, reader = testbed.inventory, testbed.hosts[asked.other or asked.host]
    brokers = [each for each in inventory.plan.brokers if each.host == asked.host]
    addresses = [str(inventory.broker_address(each)) for each in brokers]
    command = [
        *module("srtm.testbed.reader"),
        *(f"--topic={asked.topic}", f"--channel={asked.channel}", *addresses),
    ]
    with _unit(reader, Unit("reader", command), "subscribed"):
        yield f"a reader of topic {asked.topic} on {reader.table.name} does not read"


@contextmanager
def _clock_step(testbed: Testbed, asked: Asked) -> Iterator[str]:
    with suppress(StopIteration):
        raise UnavailableError(
            "a clock step cannot be carried out: hosts of one machine share its wall clock, and a "
            "time namespace has none of its own"
        )
    yield ""


FAULTS = {
    "kill": Fault("kill -9 of a program; srtm up starts it again", _kill, ("program",)),
    "freeze": Fault("SIGSTOP of a program, SIGCONT in the end", _freeze, ("program",)),
    "partition": Fault("nothing passes between HOST and --other, or all others", _partition),
    "one-way": Fault("what HOST sends to --other, or to all others, is lost", _one_way),
    "slow-link": Fault("little bandwidth and a long way from and to HOST", _slow_link),
    "half-open": Fault("the connections that HOST has go silent, and are not closed", _half_open),
    "slow-reader": Fault("a subscriber that does not read", _slow_reader, ("topic",)),
    "disk-full": Fault("no room on the disk of HOST", _disk_full),
    "clock-step": Fault("the wall clock of HOST jumps", _clock_step),
    "torn-store": Fault("kill -9 of the distributor, the end of its store lost", _torn_store),
    "second-distributor": Fault(
        "HOST reports to an empty distributor on --other", _second_distributor, ("other",)
    ),
    "reports": Fault("reports of HOST are lost, unanswered and out of order", _reports),
}
"""by name: what `srtm testbed fault` carries out"""
