"""One stream for each result, and for each trace that it makes."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from srtm.text.errors import UnavailableError, UsageError

STATE = "_stream"
"""in the folder of a trace that a stream makes: what it has to know"""


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Raises UnavailableError where another stream has `folder`, UsageError where nothing can be
    written beside it."""
    path = folder.parent / f".{folder.name}.stream"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UnavailableError(f"{folder}: another srtm correlate stream has it") from None
    try:
        yield
    finally:
        os.close(descriptor)
