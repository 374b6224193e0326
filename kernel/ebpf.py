"""The program of segments.bpf.c, loaded and attached to the cgroup that this process is in.

Nothing is pinned: the kernel keeps the program while the link's file descriptor is open, and that
closes with the process, however it ends. kernel/README.md shows how to look at it from outside.
"""

import contextlib
import ctypes
import errno
import mmap
import os
import re
import socket
from pathlib import Path
from typing import Self

from kernel.cgroup import opened, own_cgroup
from kernel.errors import SourceUnavailable
from kernel.libbpf import checked, library
from kernel.records import Record
from kernel.refusal import circumstances, why
from kernel.ring import MappedRing

OBJECT = Path(__file__).with_name("segments.bpf.o")

RING_BYTES = 4 << 20
"""65,535 records of 64 bytes: 0.6 s of standstill at 100,000 segments/s, the most that one gateway
process takes."""

_SO_NETNS_COOKIE = 71  # asm-generic/socket.h; not in socket.py
_PORTS = 8  # in `control` of segments.bpf.c, behind the count of what was lost


class SegmentProgram:
    """Records every TCP segment for the ports that `add_port` was told, from that call on."""

    def __init__(self, ring_bytes: int = RING_BYTES, object_file: Path = OBJECT) -> None:
        """Load and attach. `ring_bytes` is a power of two and a multiple of the page's size.

        Raises SourceUnavailable, with the reason, where that cannot be done."""
        if ring_bytes < mmap.PAGESIZE or ring_bytes & (ring_bytes - 1):
            raise ValueError(f"ring_bytes: {ring_bytes}; want a power of two, a page or more")
        if not object_file.exists():
            raise SourceUnavailable(
                f"{object_file.name} is not built: install clang and run make setup, or install a"
                " wheel that has it"
            )
        _check_clock(Path("/proc/self/timens_offsets"))
        folder = own_cgroup()
        self._libbpf = library()
        cookie = _netns_cookie()
        try:
            try:
                self._start(object_file, ring_bytes, folder, cookie)
            except OSError as error:
                if error.errno != errno.EINVAL or not cookie:
                    raise
                cookie = 0  # before Linux 6.16 such a program cannot ask for it
                self._start(object_file, ring_bytes, folder, cookie)
        except OSError as error:
            step = error.filename or "mapping the ring"  # checked() names its step
            reason = why(step, error.errno or 0, circumstances())
            raise SourceUnavailable(reason) from None
        self.own_namespace_only = cookie != 0
        """Are segments of other network namespaces, which may have the same addresses, left out?"""

    def add_port(self, port: int) -> None:
        """Record segments for this local TCP port, over IPv4 and IPv6."""
        if not 0 < port < 1 << 16:
            raise ValueError(f"not a TCP port: {port}; want 1 to 65535")
        self._control[_PORTS + port // 8] |= 1 << port % 8

    def drain(self) -> list[Record]:
        """All records since the last call: (time_ns, seq, length, key, flags), see records.py.

        Almost in order of time: two processors may swap segments of the same microsecond."""
        return self._ring.drain()

    @property
    def lost(self) -> int:
        """Segments that found no room in the ring since the program was loaded."""
        lost: int = self._lost[0]
        return lost

    @property
    def program_fd(self) -> int:
        return checked(self._libbpf.bpf_program__fd(self._program), "the program's descriptor")

    @property
    def link_fd(self) -> int:
        return checked(self._libbpf.bpf_link__fd(self._link), "the link's descriptor")

    def close(self) -> None:
        """Detach and forget. What was not drained is gone. May be called again."""
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, object_file: Path, ring_bytes: int, folder: str, cookie: int) -> None:
        with contextlib.ExitStack() as undo:
            self._load(object_file, ring_bytes, cookie, undo)
            self._attach(folder, undo)
            self._closing = undo.pop_all()

    def _load(self, file: Path, ring_bytes: int, cookie: int, undo: contextlib.ExitStack) -> None:
        libbpf, step = self._libbpf, f"loading {file.name}"
        self._object = libbpf.bpf_object__open_file(bytes(file), None)
        if self._object is None:
            raise SourceUnavailable(f"{file} is damaged: build it again, by make setup")
        undo.callback(libbpf.bpf_object__close, self._object)
        ring, rodata, control = (self._map(name) for name in (b"ring", b".rodata", b".bss"))
        checked(libbpf.bpf_map__set_max_entries(ring, ring_bytes), step)
        value = ctypes.c_uint64(cookie)
        length = ctypes.sizeof(value)
        checked(libbpf.bpf_map__set_initial_value(rodata, ctypes.byref(value), length), step)
        checked(libbpf.bpf_object__load(self._object), step)
        self._ring = MappedRing(checked(libbpf.bpf_map__fd(ring), step), ring_bytes)
        undo.callback(self._ring.close)
        length = checked(libbpf.bpf_map__value_size(control), step)
        pages = mmap.mmap(checked(libbpf.bpf_map__fd(control), step), length)
        undo.callback(pages.close)
        self._control = memoryview(pages)
        undo.callback(self._control.release)
        self._lost = self._control[:_PORTS].cast("Q")
        undo.callback(self._lost.release)

    def _attach(self, folder: str, undo: contextlib.ExitStack) -> None:
        name = b"segments"
        program = self._libbpf.bpf_object__find_program_by_name(self._object, name)
        self._program = checked(program, "the object's program")
        cgroup = opened(folder)
        try:
            link = self._libbpf.bpf_program__attach_cgroup(self._program, cgroup)
            self._link = checked(link, f"attaching to {folder}")
        finally:
            os.close(cgroup)  # the link holds the cgroup
        undo.callback(self._libbpf.bpf_link__destroy, self._link)

    def _map(self, name: bytes) -> int:
        found = self._libbpf.bpf_object__find_map_by_name(self._object, name)
        return checked(found, f"the object's map {name.decode()}")


def _netns_cookie() -> int:
    """The number of this process's network namespace, or 0 where the kernel has none."""
    with socket.socket() as probe, contextlib.suppress(OSError):
        return int.from_bytes(probe.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8), "little")
    return 0


def _check_clock(offsets: Path) -> None:
    """A program reads the host's monotonic clock; a time namespace may have set ours off."""
    try:
        text = offsets.read_text()
    except OSError:
        return  # before Linux 5.6, or without time namespaces
    found = re.search(r"^monotonic\s+(-?\d+)\s+(-?\d+)", text, re.M)
    if found and (int(found[1]), int(found[2])) != (0, 0):
        raise SourceUnavailable(
            "this process is in a time namespace, whose monotonic clock is not the kernel's"
        )
