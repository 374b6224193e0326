"""Processes of this host that are not our children."""

import os
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
