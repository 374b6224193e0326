"""A folder that is written whole or not at all, whenever its writer is killed.

It is filled beside its place under a hidden name and moved there at the end. One writer at a time
has the hidden folder, by a lock that ends with its process; it begins with what a killed one left.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from srtm.text.errors import SrtmError, UsageError


@contextmanager
def whole_folder(place: Path, ours: Collection[str]) -> Iterator[Path]:
    """Yields an empty folder, which replaces `place` if the block ends well.

    ours: the names that a folder of this kind has; one with others is never replaced.
    Raises UsageError, and SrtmError where the disk is full or cannot be written.
    """
    new = place.parent / f".{place.name}.new"
    old = place.parent / f".{place.name}.old"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _locked(new, place)
    except OSError as error:
        raise UsageError(f"--out {place}: {error.strerror}") from None
    try:
        if old.exists() and not place.exists():  # killed between the two moves
            old.rename(place)
        _check(place, ours)
        _empty(new)
        yield new
        shutil.rmtree(old, ignore_errors=True)
        if place.exists():
            place.rename(old)
        new.rename(place)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        raise SrtmError(_said(place, error)) from None
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    finally:
        os.close(descriptor)


def _locked(new: Path, place: Path) -> int:
    """A descriptor that holds the lock of the hidden folder."""
    while True:
        new.mkdir(exist_ok=True)
        descriptor = os.open(new, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise UsageError(f"--out {place}: another job writes there; wait for it") from None
        if new.exists() and os.path.samestat(os.fstat(descriptor), new.stat()):
            return descriptor
        os.close(descriptor)  # whoever had it has moved it


def _check(place: Path, ours: Collection[str]) -> None:
    if not place.exists():
        return
    if not place.is_dir():
        raise UsageError(f"--out {place}: a file; name a folder")
    others = sorted(each.name for each in place.iterdir() if each.name not in ours)
    if others:
        raise UsageError(
            f"--out {place}: holds {others[0]!r}, which no result has; name an empty or new folder"
        )


def _empty(folder: Path) -> None:
    for each in folder.iterdir():
        if each.is_dir():
            shutil.rmtree(each)
        else:
            each.unlink()


def _said(place: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"--out {place}: the disk is full; nothing was written there"
    return f"--out {place}: {error.strerror or error}; nothing was written there"
