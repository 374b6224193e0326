"""Files that are either the old or the new one, whatever happens in between."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from srtm.host.files import json_of, read_file
from srtm.text.errors import SrtmError


@contextmanager
def replacing(path: Path, partial: Path | None = None, mode: int = 0o644) -> Iterator[IO[bytes]]:
    """What the block writes takes the place of `path` when it ends, and is on disk then. Where it
    fails everything is as it was. Raises OSError.

    partial: the file meanwhile; None: one beside `path` that only this process writes
    """
    if partial is None:
        partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(partial, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            to_disk(file)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def to_disk(file: IO[bytes]) -> None:
    """What has been written survives a crash of the machine. Raises OSError."""
    file.flush()
    os.fsync(file.fileno())


def write_json(path: Path, document: object) -> None:
    """Replace `path`, for this user alone. Raises OSError."""
    with replacing(path, mode=0o600) as file:
        file.write(json.dumps(document, indent=2).encode() + b"\n")


def read_json(path: Path) -> Any | None:
    """The content of a JSON file; None if there is no such file. Raises SrtmError for one that
    cannot be read."""
    try:
        return json_of(read_file(path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise SrtmError(f"{path} is no JSON ({error}); mend it or remove it") from None
    except OSError as error:
        raise SrtmError(f"{path}: {error.strerror}") from None
