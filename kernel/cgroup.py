"""Which cgroup of version 2 this process is in, and where that is mounted."""

import os
import posixpath
import re

from kernel.errors import SourceUnavailable


def own_cgroup() -> str:
    """The folder of this process's cgroup. Raises SourceUnavailable when there is none to see."""
    try:
        with open("/proc/self/mountinfo") as mounts, open("/proc/self/cgroup") as membership:
            return cgroup_folder(mounts.read(), membership.read())
    except OSError as error:
        raise SourceUnavailable(f"no cgroup2: {error.filename}: {error.strerror}") from None


def cgroup_folder(mountinfo: str, membership: str) -> str:
    """The folder of this process's cgroup, by the text of /proc/self/mountinfo and
    /proc/self/cgroup (proc(5), cgroups(7)).

    Both name paths from the root of the cgroup namespace; a mount may show only a part of it, and
    lie anywhere: beside the hierarchies of version 1 it is often /sys/fs/cgroup/unified.
    """
    found = re.search(r"^0::(/.*)$", membership, re.M)
    if found is None:
        raise SourceUnavailable(
            "no cgroup2: the kernel has none, or this process is in none (/proc/self/cgroup has no"
            " line 0::)"
        )
    own, shown = found[1], []
    for line in mountinfo.splitlines():
        mount, _, filesystem = line.partition(" - ")
        if filesystem.startswith("cgroup2 "):
            root, folder = (_unescaped(word) for word in mount.split(" ")[3:5])
            if own == root or own.startswith(root.rstrip("/") + "/"):
                return posixpath.join(folder, posixpath.relpath(own, root)).removesuffix("/.")
            shown.append(folder)
    if shown:
        raise SourceUnavailable(
            f"the cgroup of this process, {own}, is not in what is mounted at {', '.join(shown)}"
        )
    raise SourceUnavailable(
        "no cgroup2 is mounted: mount -t cgroup2 none FOLDER, anywhere that this process can see"
    )


def _unescaped(word: str) -> str:
    """A path of mountinfo, whose blanks and backslashes are octal."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), word)


def opened(folder: str) -> int:
    """A file descriptor of a cgroup's folder, for attaching."""
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise SourceUnavailable(f"the cgroup's folder cannot be opened: {error}") from None
