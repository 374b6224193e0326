"""Who may call: a bearer token from a file that only its owner reads."""

import hmac
import os
import stat
from pathlib import Path

from srtm.errors import UsageError


def read_token(path: Path) -> str:
    """The file's one line. Raises UsageError for a file that others may read or change, or that
    holds no token."""
    try:
        with path.open(encoding="utf-8") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read(4097).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not text"
        raise UsageError(f"--token-file {path}: {why}") from None
    if mode & 0o077:
        raise UsageError(
            f"--token-file {path} has mode {mode:04o} and holds a secret: chmod 600 {path}"
        )
    if not 16 <= len(text) <= 4096 or not text.isascii() or not text.isprintable() or " " in text:
        raise UsageError(
            f"--token-file {path}: write one line of 16 to 4096 letters and digits, such as the "
            "output of: openssl rand -hex 32"
        )
    return text


def allowed(header: str | None, token: str | None) -> bool:
    """Does an Authorization header carry `token`? Without a token everybody may call."""
    if token is None:
        return True
    expected = f"Bearer {token}".encode()
    return hmac.compare_digest((header or "").encode("utf-8", "replace"), expected)
