"""Where the program cannot be used: one line that says why, and nothing left behind."""

import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernel import ebpf, libbpf
from kernel.cgroup import cgroup_folder, own_cgroup
from kernel.ebpf import OBJECT, SegmentProgram
from kernel.errors import SourceUnavailable
from kernel.refusal import Circumstances, circumstances, why
from srtm.text.errors import Exit
from tests.support.bpf import loaded

ROOT = Path(__file__).parents[2]

# --- which cgroup ----------------------------------------------------------------------------

UNIFIED = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
BESIDE_V1 = (
    "31 24 0:27 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"
    "32 31 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    "33 31 0:29 / /sys/fs/cgroup/unified rw shared:9 master:1 - cgroup2 cgroup2 rw\n"
)
PART = "30 24 0:26 /docker/a1 /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
BLANK = "30 24 0:26 / /mnt/two\\040words rw - cgroup2 none rw\n"
OTHER = "30 24 0:26 /docker/b2 /sys/fs/cgroup ro - cgroup2 cgroup rw\n"


@pytest.mark.parametrize(
    ("mountinfo", "membership", "folder"),
    [
        pytest.param(UNIFIED, "0::/\n", "/sys/fs/cgroup", id="the-root"),
        pytest.param(UNIFIED, "0::/a.slice/b\n", "/sys/fs/cgroup/a.slice/b", id="a-service"),
        pytest.param(
            BESIDE_V1, "4:memory:/x\n0::/y\n", "/sys/fs/cgroup/unified/y", id="beside-version-1"
        ),
        pytest.param(PART, "0::/docker/a1\n", "/sys/fs/cgroup", id="its-part-is-mounted"),
        pytest.param(PART, "0::/docker/a1/b\n", "/sys/fs/cgroup/b", id="below-what-is-mounted"),
        pytest.param(BLANK, "0::/a b\n", "/mnt/two words/a b", id="blanks"),
        pytest.param(
            OTHER + UNIFIED, "0::/c\n", "/sys/fs/cgroup/c", id="the-second-mount-shows-it"
        ),
    ],
)
def test_the_cgroup_is_found(mountinfo: str, membership: str, folder: str) -> None:
    assert cgroup_folder(mountinfo, membership) == folder


@pytest.mark.parametrize(
    ("mountinfo", "membership", "reason"),
    [
        pytest.param(UNIFIED, "4:memory:/x\n", "the kernel has none", id="version-1-only"),
        pytest.param("", "0::/\n", "no cgroup2 is mounted", id="nothing-mounted"),
        pytest.param(
            UNIFIED.replace("cgroup2", "cgroup"), "0::/\n", "no cgroup2 is mounted", id="v1-mounted"
        ),
        pytest.param(PART, "0::/docker/a10\n", "/docker/a10, is not in", id="another-part"),
        pytest.param(PART, "0::/../b\n", "/../b, is not in", id="outside-the-namespace"),
    ],
)
def test_no_cgroup_is_told(mountinfo: str, membership: str, reason: str) -> None:
    with pytest.raises(SourceUnavailable, match=reason):
        cgroup_folder(mountinfo, membership)


def test_the_cgroup_of_this_process_lists_it() -> None:
    try:
        folder = own_cgroup()
    except SourceUnavailable as error:
        pytest.skip(str(error))
    assert str(os.getpid()) in Path(folder, "cgroup.procs").read_text().split()


# --- what an errno means ---------------------------------------------------------------------

ROOT_OF_HOST = Circumstances(
    capabilities=(1 << 41) - 1,
    seccomp=False,
    user_namespace=False,
    release="6.1.0-18-amd64",
    memlock_bytes=8 << 20,
)
BPF, NET_ADMIN, SYS_ADMIN = 1 << 39, 1 << 12, 1 << 21
NEITHER = replace(ROOT_OF_HOST, capabilities=0)

REASONS = [
    pytest.param(
        errno.EPERM, NEITHER, "CAP_BPF and CAP_NET_ADMIN missing", id="neither-capability"
    ),
    pytest.param(
        errno.EPERM,
        replace(NEITHER, capabilities=NET_ADMIN),
        "step: CAP_BPF missing",
        id="no-bpf",
    ),
    pytest.param(
        errno.EPERM,
        replace(NEITHER, capabilities=BPF),
        "step: CAP_NET_ADMIN missing",
        id="no-net-admin",
    ),
    pytest.param(
        errno.EPERM,
        replace(NEITHER, capabilities=SYS_ADMIN),
        "step: CAP_NET_ADMIN missing",
        id="sys-admin-stands-for-bpf",
    ),
    pytest.param(
        errno.EPERM,
        replace(NEITHER, seccomp=True, user_namespace=True),
        "CAP_BPF and CAP_NET_ADMIN missing",
        id="capabilities-come-first",
    ),
    pytest.param(
        errno.EPERM,
        replace(ROOT_OF_HOST, seccomp=True, user_namespace=True),
        "user namespace",
        id="root-in-a-user-namespace",
    ),
    pytest.param(
        errno.EPERM, replace(ROOT_OF_HOST, seccomp=True), "a seccomp filter", id="seccomp"
    ),
    pytest.param(
        errno.EPERM,
        replace(ROOT_OF_HOST, release="5.10.0-28-amd64", memlock_bytes=65536),
        "locked-memory limit of 65536 bytes",
        id="locked-memory-limit-of-an-old-kernel",
    ),
    pytest.param(
        errno.EPERM,
        replace(ROOT_OF_HOST, release="5.10.0", memlock_bytes=None),
        "security module",
        id="old-kernel-without-a-limit",
    ),
    pytest.param(
        errno.EPERM,
        replace(ROOT_OF_HOST, release="5.11.0", memlock_bytes=0),
        "security module",
        id="the-limit-does-not-count-from-5.11-on",
    ),
    pytest.param(errno.EACCES, ROOT_OF_HOST, "security module", id="all-is-there"),
    pytest.param(errno.ENOSYS, ROOT_OF_HOST, "built without", id="no-bpf-call"),
    pytest.param(errno.EINVAL, ROOT_OF_HOST, "6.1.0-18-amd64.*5.8 or newer", id="old-kernel"),
    pytest.param(errno.EOPNOTSUPP, ROOT_OF_HOST, "5.8 or newer", id="not-supported"),
    pytest.param(524, ROOT_OF_HOST, "5.8 or newer", id="the-kernels-own-not-supported"),
    pytest.param(errno.ENOMEM, ROOT_OF_HOST, "Cannot allocate memory", id="anything-else"),
]


@pytest.mark.parametrize(("code", "here", "reason"), REASONS)
def test_reason(code: int, here: Circumstances, reason: str) -> None:
    line = why("step", code, here)
    with pytest.raises(SourceUnavailable, match=reason) as raised:
        raise SourceUnavailable(line)
    assert line.startswith("step: ")
    assert "\n" not in line
    assert raised.value.exit_code == Exit.UNAVAILABLE


def test_circumstances_are_those_of_this_process() -> None:
    here = circumstances()
    assert here.release == os.uname().release
    assert here.user_namespace == ("4294967295" not in Path("/proc/self/uid_map").read_text())
    status = dict(line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines())
    assert here.capabilities == int(status["CapEff"], 16)
    assert here.seccomp == (status["Seccomp"].strip() == "2")


# --- in this kernel --------------------------------------------------------------------------


def outcome(confine: str) -> str:
    """What loading comes to in a child that has confined itself."""
    if os.geteuid() != 0:
        pytest.skip("only root has rights to give up")
    with loaded():
        pass  # with all rights it works here, or this is a skip
    code = (
        f"import errno, resource\nfrom tests.support.confined import *\n{confine}\nprint(attempt())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "libbpf is silent"
    return done.stdout.removesuffix("\n")


@pytest.mark.parametrize(
    "confine",
    [
        pytest.param("keep_capabilities(CAP_BPF, CAP_NET_ADMIN)", id="two-capabilities"),
        pytest.param("hide('/sys/kernel')", id="no-btf"),
        pytest.param(
            "resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))\n"
            "keep_capabilities(CAP_BPF, CAP_NET_ADMIN)",
            id="no-locked-memory",
            marks=pytest.mark.skipif(
                tuple(int(n) for n in os.uname().release.split(".")[:2]) < (5, 11),
                reason="BPF memory counts as locked before Linux 5.11",
            ),
        ),
    ],
)
def test_loads_with_less_than_root(confine: str) -> None:
    assert outcome(confine) == "loaded"


LOADING = "loading segments.bpf.o: "
REFUSED = [
    pytest.param(
        "keep_capabilities()", LOADING + "CAP_BPF and CAP_NET_ADMIN missing", id="no-capability"
    ),
    pytest.param("keep_capabilities(CAP_NET_ADMIN)", LOADING + "CAP_BPF missing", id="without-bpf"),
    pytest.param("keep_capabilities(CAP_BPF)", "CAP_NET_ADMIN missing", id="without-net-admin"),
    pytest.param("forbid_bpf()", LOADING + "a seccomp filter on this process", id="seccomp"),
    pytest.param("forbid_bpf(errno.ENOSYS)", "or a seccomp filter hides it", id="seccomp-hides-it"),
    pytest.param(
        "forbid_bpf(errno.EINVAL, MAP_CREATE)", "5.8 or newer is needed", id="no-ring-buffers"
    ),
    pytest.param("forbid_bpf(errno.EINVAL, LINK_CREATE)", "5.8 or newer", id="no-links"),
    pytest.param("forbid_bpf(524, PROG_LOAD)", "5.8 or newer", id="no-cgroup-programs"),
    pytest.param("unshare(NEWUSER)", "in its user namespace only", id="user-namespace"),
    pytest.param(
        "from kernel.cgroup import own_cgroup\n"
        "private_mounts()\n"
        "for line in open('/proc/mounts').readlines():\n"
        "    if line.split()[2] == 'cgroup2':\n"
        "        unmount(line.split()[1])",
        "no cgroup2 is mounted",
        id="no-cgroup2",
    ),
]


@pytest.mark.parametrize(("confine", "reason"), REFUSED)
def test_refused_with_the_reason(confine: str, reason: str) -> None:
    said = outcome(confine)
    assert reason in said
    assert "\n" not in said


# --- what is not installed -------------------------------------------------------------------


def test_an_object_that_was_not_built(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailable, match=r"segments\.bpf\.o is not built: install clang"):
        SegmentProgram(object_file=tmp_path / OBJECT.name)


def test_libbpf_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    with loaded():
        monkeypatch.setattr(libbpf, "LIBRARY", "libbpf.so.0.0")
        with pytest.raises(SourceUnavailable, match=r"libbpf\.so\.0\.0 .* install libbpf1"):
            SegmentProgram()


def test_a_libbpf_without_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    with loaded():
        monkeypatch.setitem(libbpf._SIGNATURES, "bpf_link__no_such", (None, []))
        with pytest.raises(SourceUnavailable, match="bpf_link__no_such"):
            SegmentProgram()


@pytest.mark.parametrize("kept", [0, 100, 8000], ids=lambda kept: f"{kept}-bytes")
def test_a_damaged_object(tmp_path: Path, kept: int) -> None:
    with loaded():
        damaged = tmp_path / OBJECT.name
        damaged.write_bytes(OBJECT.read_bytes()[:kept])
        with pytest.raises(SourceUnavailable, match="damaged"):
            SegmentProgram(object_file=damaged)


def test_a_kernel_that_cannot_tell_namespaces_watches_them_all(tmp_path: Path) -> None:
    """Made by an object that asks for a function which no kernel has."""
    with loaded() as program:
        if not program.own_namespace_only:
            pytest.skip("this kernel (before 6.16) is such a one")
        call, unknown = b"\x85\0\0\0" + bytes([122, 0, 0, 0]), b"\x85\0\0\0\xff\x7f\0\0"
        compiled = OBJECT.read_bytes()
        assert compiled.count(call) == 1
        older = tmp_path / OBJECT.name
        older.write_bytes(compiled.replace(call, unknown))
        with SegmentProgram(object_file=older) as fallen_back:
            assert not fallen_back.own_namespace_only


@pytest.mark.parametrize(
    ("offsets", "refused"),
    [
        pytest.param("monotonic           0         0\nboottime 5 0\n", False, id="the-hosts"),
        pytest.param("monotonic       86400         0\nboottime 0 0\n", True, id="seconds"),
        pytest.param("monotonic           0        -7\nboottime 0 0\n", True, id="nanoseconds"),
        pytest.param(None, False, id="a-kernel-without-time-namespaces"),
    ],
)
def test_a_time_namespace(tmp_path: Path, offsets: str | None, refused: bool) -> None:
    file = tmp_path / "timens_offsets"
    if offsets is not None:
        file.write_text(offsets)
    if refused:
        with pytest.raises(SourceUnavailable, match="time namespace"):
            ebpf._check_clock(file)
    else:
        ebpf._check_clock(file)


def test_the_object_is_not_older_than_its_source() -> None:
    if not OBJECT.exists():
        pytest.skip("no object: make setup builds it where clang is")
    source = OBJECT.with_name("segments.bpf.c")
    assert OBJECT.stat().st_mtime >= source.stat().st_mtime, "stale: run make setup"
