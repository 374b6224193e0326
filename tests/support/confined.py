"""Ways to take rights from the process that calls them. For children of tests only."""

import ctypes
import errno
import os
import struct

CAP_NET_ADMIN, CAP_SYS_ADMIN, CAP_BPF = 12, 21, 39  # linux/capability.h
NEWNS, NEWUSER, NEWNET = 0x00020000, 0x10000000, 0x40000000  # linux/sched.h
MAP_CREATE, PROG_LOAD, LINK_CREATE = 0, 5, 28  # linux/bpf.h: enum bpf_cmd

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags))


def keep_capabilities(*kept: int) -> None:
    """Give up all the others."""
    mask = sum(1 << number for number in kept)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    header = struct.pack("II", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this thread
    _check(_libc.capset(header, struct.pack("6I", low, low, 0, high, high, 0)))


def drop_capabilities(*dropped: int) -> None:
    with open("/proc/self/status") as status:
        mask = next(int(line.split()[1], 16) for line in status if line.startswith("CapEff"))
    keep_capabilities(*(n for n in range(64) if mask & 1 << n and n not in dropped))


def forbid_bpf(code: int = errno.EPERM, command: int | None = None) -> None:
    """bpf() fails with `code`; `command`: only that one."""
    forbid(321, code, command)


def forbid(call: int, code: int = errno.EPERM, command: int | None = None) -> None:
    """A seccomp filter: system call number `call` fails with `code`; `command`: only where that is
    its first argument."""
    load, equal, give, yes = 0x20, 0x15, 0x06, 0x7FFF0000  # linux/filter.h, linux/seccomp.h
    steps = [(load, 0, 0, 0), (equal, 0, 3, call), (load, 0, 0, 16)]
    steps += [(equal, 0, 1, command)] if command is not None else [(equal, 0, 0, 0)]
    steps += [(give, 0, 0, 0x00050000 | code), (give, 0, 0, yes)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    fprog = struct.pack("H6xQ", len(steps), ctypes.addressof(program))
    _check(_libc.prctl(38, 1, 0, 0, 0))  # PR_SET_NO_NEW_PRIVS
    _check(_libc.prctl(22, 2, fprog, 0, 0))  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


def hide(folder: str) -> None:
    """An empty file system over `folder`, for this process alone."""
    private_mounts()
    _check(_libc.mount(b"none", folder.encode(), b"tmpfs", 0, None))


def unmount(folder: str) -> None:
    private_mounts()
    _check(_libc.umount2(folder.encode(), 2))  # MNT_DETACH


def private_mounts() -> None:
    unshare(NEWNS)
    _check(_libc.mount(b"none", b"/", None, 0x44000, None))  # MS_REC | MS_PRIVATE


def attempt() -> str:
    """What loading the program comes to: `loaded`, or the reason. No descriptor may be left."""
    from kernel.ebpf import SegmentProgram
    from kernel.errors import SourceUnavailable

    before = os.listdir("/proc/self/fd")
    try:
        SegmentProgram().close()
        outcome = "loaded"
    except SourceUnavailable as error:
        outcome = str(error)
    if os.listdir("/proc/self/fd") != before:
        raise AssertionError("a descriptor is left")
    return outcome
