"""What follows from what was seen of a host: each a verdict, a sentence and a remedy. Pure."""

import re
from dataclasses import dataclass
from enum import StrEnum

from srtm.deploy.certificates import Effect, Judgement
from srtm.deploy.programs import TESTED_NSQ, is_tested


class Verdict(StrEnum):
    """warning: it works, worse than it could; failed: brokers will not start or not keep on."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check. remedy: "" where it is ok."""

    check: str
    verdict: Verdict
    says: str
    remedy: str = ""


FEW_FILES = 4096
"""a gateway keeps some hundred descriptors for itself and takes two for a consumer"""
LITTLE_DISK_BYTES = 1 << 30
"""nsqd keeps what does not fit into memory, a gateway's admission log alone takes half of it"""
NO_DISK_BYTES = 100 << 20
CLOCK_ERROR_SECONDS = 0.1
"""beyond it `srtm audit` tells little about a contract that two hosts share"""
_JAVAS = (17, 21)


def nsq(program: str, said: str) -> Finding:
    """said: by PROGRAM --version, such as `nsqd v1.3.0 (built w/go1.21)`."""
    if is_tested(said.replace(program, "nsqd", 1)):
        return Finding(program, Verdict.OK, said.split(" (")[0])
    remedy = f"install NSQ {TESTED_NSQ}.0 from https://nsq.io/deployment/installing.html"
    says = f"says {said[:80] or 'nothing'!r}; tested is v{TESTED_NSQ}.x"
    return Finding(program, Verdict.WARNING, says, remedy)


def missing(program: str, why: str) -> Finding:
    """why: `what is wrong: how to mend it`, as errors of ours say it."""
    says, _, remedy = why.partition(": ")
    return Finding(program, Verdict.FAILED, says, remedy or "install it")


def open_files(soft: int, hard: int) -> Finding:
    """Limits of this process; a gateway raises its soft one to the hard one."""
    says = f"{hard:,} (soft {soft:,})"
    if hard >= FEW_FILES:
        return Finding("open files", Verdict.OK, says)
    remedy = "raise it: ulimit -Hn 65536 as root, or LimitNOFILE=65536 of a systemd unit"
    return Finding("open files", Verdict.WARNING, f"{says}: so few connections at most", remedy)


def timestamps(source: str, why_not_better: str) -> Finding:
    """source: ebpf, sockopt or clock."""
    if source == "ebpf":
        return Finding("timestamps", Verdict.OK, "ebpf: exact for each TCP segment")
    reason = why_not_better.removeprefix("ebpf: ")
    says = f"{source}, not ebpf: {reason}"
    remedy = "give the gateway CAP_BPF and CAP_NET_ADMIN"
    for word, instead in _STAMP_REMEDIES.items():
        if word in reason:
            remedy = instead
            break
    return Finding("timestamps", Verdict.WARNING, says, remedy)


_STAMP_REMEDIES = {
    "libbpf": "install libbpf1 (Debian), or libbpf",
    "cgroup2": "mount cgroup2: mount -t cgroup2 none /sys/fs/cgroup/unified",
    "CAP_": "AmbientCapabilities=CAP_BPF CAP_NET_ADMIN of a systemd unit, or run as root",
    "seccomp": "let the container's seccomp profile allow bpf(2)",
    "segments.bpf.o": "install clang and run make setup (wheels have the program)",
}


def cgroup2(folder: str, why: str) -> Finding:
    """folder: "" where there is none."""
    if folder:
        return Finding("cgroup2", Verdict.OK, folder)
    says = why.removeprefix("no cgroup2: ")
    return Finding("cgroup2", Verdict.WARNING, f"none: {says}", _STAMP_REMEDIES["cgroup2"])


def disk(path: str, free_bytes: int) -> Finding:
    says = f"{free_bytes / (1 << 30):,.1f} GiB free at {path}"
    if free_bytes >= LITTLE_DISK_BYTES:
        return Finding("disk", Verdict.OK, says)
    verdict = Verdict.FAILED if free_bytes < NO_DISK_BYTES else Verdict.WARNING
    return Finding("disk", verdict, says, "make room, or choose another data-path")


def clock(error_seconds: float) -> Finding:
    """error_seconds: the most that the wall clock is off, as the kernel says."""
    if error_seconds <= CLOCK_ERROR_SECONDS:
        return Finding("clock", Verdict.OK, f"within {error_seconds * 1e3:.3g} ms of UTC")
    says = f"may be off by {error_seconds:.3g} s: nothing keeps it"
    return Finding("clock", Verdict.WARNING, says, "install chrony, or timedatectl set-ntp true")


def java(said: str) -> Finding:
    """said: by java -version; "" where there is none."""
    found = re.search(r'version "(\d+)', said)
    wanted = " or ".join(map(str, _JAVAS))
    remedy = f"install a JRE of version {wanted}, or set JAVA_HOME"
    if found is None:
        return Finding("java", Verdict.FAILED, "none", remedy)
    version = int(found[1])
    if version in _JAVAS:
        return Finding("java", Verdict.OK, f"version {version}")
    says = f"version {version}; Spark runs on {wanted}"
    return Finding("java", Verdict.WARNING, says, remedy)


def certificate(found: Judgement) -> Finding:
    return Finding("certificate", _VERDICTS[found.effect], found.says, found.remedy)


_VERDICTS = {
    Effect.NONE: Verdict.OK,
    Effect.WARNS: Verdict.WARNING,
    Effect.FAILS: Verdict.FAILED,
    Effect.STOPS: Verdict.FAILED,
}


def port(key: str, address: str, why: str) -> Finding:
    """why: "" where it is free."""
    if not why:
        return Finding("port", Verdict.OK, f"{address} is free for {key}")
    says, _, remedy = why.partition("; ")
    return Finding("port", Verdict.FAILED, says, remedy or "choose another address")


def held_port(address: str, name: str) -> Finding:
    """name: of the part of the deployment that has it."""
    return Finding("port", Verdict.OK, f"{address} is held by {name} of this deployment")
