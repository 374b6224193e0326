"""Processes of this host that are not our children, and what they listen on."""

import os
from contextlib import suppress
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Does it run? A pid that is not written yet (0) belongs to someone living."""
    if pid == 0:
        return True
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except ProcessLookupError:
        return False
    except OSError:  # someone else's, or no /proc
        return True
    return stat.rpartition(")")[2].split()[0] != "Z"  # a zombie has ended, unread by its parent


_LISTENING = "0A"  # TCP_LISTEN of net/tcp_states.h


def child_listens(parent: int, port: int) -> bool:
    """Does a child of `parent` listen on a TCP port of this host? True also where that may not be
    looked at: the process is another user's."""
    sockets = _listening(port)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name in parentheses may hold anything; behind it are the state and the parent.
            stat = folder.joinpath("stat").read_text(errors="replace").rpartition(")")[2]
            if int(stat.split()[1]) != parent:
                continue
            for each in folder.joinpath("fd").iterdir():
                with suppress(FileNotFoundError):  # it was closed meanwhile
                    if os.readlink(each) in sockets:
                        return True
        except PermissionError:
            return True
        except OSError:  # it has ended meanwhile
            continue
    return False


def _listening(port: int) -> set[str]:
    """The sockets that listen on a port, as links in /proc/PID/fd name them."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for row in Path(table).read_text().splitlines()[1:]:
                fields = row.split()
                if fields[3] == _LISTENING and fields[1].endswith(f":{port:04X}"):
                    found.add(f"socket:[{fields[9]}]")
    return found
