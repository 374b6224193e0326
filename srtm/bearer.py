"""The bearer token of the Load Distributor: read from a file, never from argv, never logged."""

import os
import stat
from pathlib import Path

from srtm.errors import UsageError


def read_token(path: str, where: str) -> str:
    """The token in a file that only its owner may read; "" where no file is named.

    Raises UsageError that begins with `where`, the flag or the argument that named the file.
    """
    if not path:
        return ""
    try:
        with Path(path).open(encoding="utf-8") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read(4096).strip()
    except OSError as error:
        raise UsageError(f"{where} {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{where} {path}: not text; write one line with the token") from None
    if mode & 0o077:
        raise UsageError(f"{where} {path}: others may read it (mode {mode:04o}); chmod 600 {path}")
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise UsageError(f"{where} {path}: write one line with the token, of printable characters")
    return text
