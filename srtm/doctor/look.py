"""Looks at this host, changes nothing."""

import os
import resource
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kernel.cgroup import own_cgroup
from kernel.errors import SourceUnavailable
from kernel.sources import choose_source
from srtm.deploy.certificates import NamedCertificate, certificates_of, judged
from srtm.deploy.file import Plan
from srtm.deploy.programs import find_program, said_version
from srtm.deployment.document import find
from srtm.doctor import findings
from srtm.doctor.findings import Finding
from srtm.host.clock import NS, WallClock, wall_clock_error_ns
from srtm.host.processes import child_listens
from srtm.testbed.certificates import named
from srtm.testbed.inventory import certificates_folder
from srtm.text.address import Address, require_free
from srtm.text.errors import SrtmError

_TIMEOUT_SECONDS = 10.0


def examine(plan: Plan | None, data_path: Path, *, java: bool) -> Iterator[Finding]:
    """plan: what is to be started; without it an nsqd and its gateway."""
    for program in _programs(plan):
        yield _program(program)
    if plan is not None:
        held = _held(plan)
        for key, address in _ports(plan):
            yield _port(key, address, held.get(address.reachable, []))
        for each in _certificates(plan):
            yield findings.certificate(judged(each, time.time()))
    yield findings.open_files(*resource.getrlimit(resource.RLIMIT_NOFILE))
    source = choose_source(WallClock())
    yield findings.timestamps(source.name, source.reason)
    source.close()
    yield _cgroup2()
    yield _disk(data_path)
    yield findings.clock(wall_clock_error_ns() / NS)
    if java:
        yield findings.java(_java())


def _programs(plan: Plan | None) -> Iterable[str]:
    yield "nsqd"
    if plan and plan.lookupd:
        yield "nsqlookupd"
    if plan and plan.nsqadmin:
        yield "nsqadmin"
    kinds = {each.kind for each in plan.hosts} if plan else set()
    if "netns" in kinds:
        yield from ("ip", "tc", "nft", "nsenter")
    if "ssh" in kinds:
        yield "ssh"


_PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "nft": "nftables",
    "nsenter": "util-linux",
    "ssh": "openssh-client",
}


def _program(name: str) -> Finding:
    if name in _PACKAGES:
        if name != "ssh" and os.geteuid() != 0:
            return findings.missing(name, "netns hosts need root: use sudo, or kind = 'local'")
        path = shutil.which(name)
        if path:
            return Finding(name, findings.Verdict.OK, path)
        return findings.missing(name, f"not on PATH: install {_PACKAGES[name]}")
    try:
        return findings.nsq(name, said_version(find_program(name)))
    except SrtmError as error:
        return findings.missing(name, str(error))


def _ports(plan: Plan) -> Iterable[tuple[str, Address]]:
    """A network namespace has its own ports, and so has another machine."""
    away = {each.name for each in plan.hosts if each.kind != "local"}
    for host, key, address in plan.hosted_addresses():
        if host in away:
            continue
        if host and address.host == "127.0.0.1":
            address = Address(_host_address(plan, host), address.port)
        yield key, address


def _host_address(plan: Plan, name: str) -> str:
    """Where the others reach a host; "" for a network namespace, which gets its address later."""
    host = next(each for each in plan.hosts if each.name == name)
    if host.address or host.kind != "local":
        return host.address
    local = [each.name for each in plan.hosts if each.kind == "local"]
    return f"127.0.0.{local.index(name) + 1}"


class _Holder(NamedTuple):
    """A part of a deployment that runs, and the pid of that."""

    name: str
    deployment: int


def _held(plan: Plan) -> dict[Address, list[_Holder]]:
    """Who may hold an address, if the deployment runs: each of its hosts knows the distributor."""
    found: dict[Address, list[_Holder]] = {}
    local = [Path(each.data_path) for each in plan.hosts if each.kind == "local"]
    for path in local if plan.hosts else [plan.deployment.data_path]:
        with suppress(SrtmError):
            running = find(path)
            for name, address in running.listening():
                found.setdefault(address, []).append(_Holder(name, running.pid))
    return found


def _port(key: str, address: Address, holders: list[_Holder]) -> Finding:
    try:
        require_free(address, key)
    except SrtmError as error:
        for each in holders:
            if child_listens(each.deployment, address.port):
                return findings.held_port(str(address), each.name)
        return findings.port(key, str(address), str(error))
    return findings.port(key, str(address), "")


def _certificates(plan: Plan) -> Iterator[NamedCertificate]:
    """By the names at which their hosts are reached."""
    made = named(certificates_folder(plan.deployment.data_path), plan.hosts)
    for each in (*certificates_of(plan), *(made if plan.deployment.secure else ())):
        is_reached = each.host and not each.is_client
        yield each._replace(name=_host_address(plan, each.host)) if is_reached else each


def _cgroup2() -> Finding:
    try:
        return findings.cgroup2(own_cgroup(), "")
    except SourceUnavailable as error:
        return findings.cgroup2("", str(error))


def _disk(path: Path) -> Finding:
    there = next(each for each in (path, *path.parents) if each.exists())
    return findings.disk(str(there), shutil.disk_usage(there).free)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    program = f"{home}/bin/java" if home else "java"
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, timeout=_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr.decode(errors="replace")
