"""The bearer token that a program shows: read from a file, never from argv, never logged."""

import os
import stat
from pathlib import Path

from srtm.host.files import MOST_SETTINGS_BYTES, open_file
from srtm.text.errors import UsageError

_SHORTEST, _LONGEST = 16, 4096


def read_token(path: str, where: str, shortest: int = _SHORTEST) -> str:
    """The token in a file that only its owner may read; "" where no file is named.

    shortest: characters; a secret that another program chose may be shorter than ours.
    Raises UsageError that begins with `where`, the flag or the argument that named the file.
    """
    if not path:
        return ""
    try:
        with open_file(Path(path), MOST_SETTINGS_BYTES) as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read(_LONGEST + 1).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not text"
        raise UsageError(f"{where} {path}: {why}") from None
    return check_token(text, mode, where, path, shortest)


def check_token(text: str, mode: int, where: str, path: str, shortest: int = _SHORTEST) -> str:
    """The token, if it is one and the mode of its file hides it. Raises UsageError."""
    if mode & 0o077:
        raise UsageError(
            f"{where} {path}: mode {mode:04o}, and it holds a secret: chmod 600 {path}"
        )
    fits = shortest <= len(text) <= _LONGEST
    if not fits or not text.isascii() or not text.isprintable() or " " in text:
        raise UsageError(
            f"{where} {path}: write one line of {shortest} to {_LONGEST} letters and digits, such "
            "as the output of: openssl rand -hex 32"
        )
    return text
