"""Why the kernel refused a program: what is missing, and how to get it, from an errno."""

import errno
import os
import re
import resource
from dataclasses import dataclass

_ENOTSUPP = 524  # the kernel's own, not in errno.h: not supported by this build
_CAPABILITIES = {"CAP_NET_ADMIN": 1 << 12, "CAP_BPF": 1 << 39}  # linux/capability.h
_SYS_ADMIN = 1 << 21  # stands for CAP_BPF, which was a part of it until Linux 5.8
_WHOLE_HOST = "0 0 4294967295"  # /proc/self/uid_map outside of user namespaces
_MEMCG = (5, 11)
"""The first kernel on which BPF memory counts in its memory cgroup, not against RLIMIT_MEMLOCK."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a process may do, as /proc tells it."""

    capabilities: int
    """The effective set, as a mask."""
    seccomp: bool
    """Is a seccomp filter on the process?"""
    user_namespace: bool
    """Do its capabilities count in a user namespace only?"""
    release: str
    """The kernel's release, like 6.1.0-18-amd64."""
    memlock_bytes: int | None
    """RLIMIT_MEMLOCK; None: no limit."""


def circumstances() -> Circumstances:
    """The circumstances of the calling thread."""
    with open("/proc/thread-self/status") as status, open("/proc/self/uid_map") as uid_map:
        fields = dict(line.split(":", 1) for line in status)
        mapped = " ".join(uid_map.read().split())
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return Circumstances(
        capabilities=int(fields["CapEff"], 16),
        seccomp=fields.get("Seccomp", "0").strip() == "2",
        user_namespace=mapped != _WHOLE_HOST,
        release=os.uname().release,
        memlock_bytes=None if soft == resource.RLIM_INFINITY else soft,
    )


def why(step: str, code: int, here: Circumstances) -> str:
    """One line for errno `code` of `step` ("loading ..."), likeliest reason first."""
    if code in (errno.EPERM, errno.EACCES):
        reason = _not_permitted(here)
    elif code == errno.ENOSYS:
        reason = "this kernel is built without bpf(), or a seccomp filter hides it"
    elif code in (errno.EINVAL, errno.EOPNOTSUPP, _ENOTSUPP):
        reason = (
            f"this kernel ({here.release}) lacks BPF ring buffers, links or cgroup programs:"
            " Linux 5.8 or newer is needed, with CONFIG_CGROUP_BPF"
        )
    else:
        reason = f"{os.strerror(code)} (errno {code})"
    return f"{step}: {reason}"


def _not_permitted(here: Circumstances) -> str:
    missing = [name for name, bit in _CAPABILITIES.items() if not here.capabilities & bit]
    if "CAP_BPF" in missing and here.capabilities & _SYS_ADMIN:
        missing.remove("CAP_BPF")
    if missing:
        return (
            f"{' and '.join(sorted(missing))} missing: CAP_BPF and CAP_NET_ADMIN are needed, not"
            " all of root; systemd gives them by AmbientCapabilities=, docker by --cap-add"
        )
    if here.user_namespace:
        return "the capabilities of this process count in its user namespace only, not on the host"
    if here.memlock_bytes is not None and _version(here.release) < _MEMCG:
        return (
            f"the locked-memory limit of {here.memlock_bytes} bytes is too small on this kernel"
            f" ({here.release}): raise it, ulimit -l unlimited or systemd's LimitMEMLOCK=infinity"
        )
    if here.seccomp:
        return "a seccomp filter on this process forbids bpf(): allow it in the filter's profile"
    return (
        "forbidden although CAP_BPF and CAP_NET_ADMIN are there: by a security module, by kernel"
        " lockdown, or by a program that is attached to a parent cgroup for itself alone"
    )


def _version(release: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found[1]), int(found[2])) if found else (0, 0)
