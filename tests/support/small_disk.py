"""A real disk that is soon full."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str = "128k") -> Iterator[Path]:
    """A file system of `size` at `folder`; a skip where it cannot be mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, left: int = 4096) -> Path:
    """A file that leaves so many bytes of the disk free."""
    file = folder / "filler"
    room = os.statvfs(folder)
    file.write_bytes(bytes(room.f_bavail * room.f_frsize - left))
    return file
