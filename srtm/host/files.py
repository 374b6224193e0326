"""Files that a user names, read within bounds: whatever stands there, reading it ends soon, takes
little memory, and fails with a reason. Files of ours are written whole or not at all."""

import contextlib
import errno
import fcntl
import io
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TextIO

MIB = 1024 * 1024
MOST_SETTINGS_BYTES = 4 * MIB
"""of TOML and the like: 30,000 topics, which take four seconds"""
MOST_DOCUMENT_BYTES = 64 * MIB
"""of JSON: a million publishers"""
MOST_ROWS_BYTES = 512 * MIB
"""of CSV and JSON lines, which are read row by row"""
MOST_DEPTH = 64
"""of tables in tables; nothing of ours is deeper than five"""

_TOML_TOKEN = re.compile(
    r"\"\"\"(?:[^\"\\]++|\\.|\"(?!\"\"))*+(?:\"{3,5})?|'''(?:[^']++|'(?!''))*+(?:'{3,5})?"
    r"|\"(?:[^\"\\\n]++|\\.)*+\"?|'[^'\n]*+'?|#[^\n]*+|[\[{\]}.=,\n]",
    re.S,
)
"""a text, whether it ends or not, a comment, or what nests and separates"""


def open_file(path: Path, most_bytes: int) -> BinaryIO:
    """A regular file: a pipe might never say a word, and a device never end. Raises OSError."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb")
    found = os.fstat(file.fileno())
    why = ""
    if not stat.S_ISREG(found.st_mode):
        why = "it is a pipe or a device, and no file"
    elif found.st_size > most_bytes:
        why = f"it is bigger than the {most_bytes / MIB:g} MiB that are read"
    if why:
        file.close()
        raise OSError(errno.EINVAL, why)
    return file


def read_file(path: Path, most_bytes: int = MOST_DOCUMENT_BYTES) -> bytes:
    """Raises OSError."""
    with open_file(path, most_bytes) as file:
        return file.read(most_bytes)


def open_rows(path: Path) -> TextIO:
    """Open a file to be read by the csv module, or line by line. Raises OSError; reading it,
    UnicodeDecodeError."""
    return io.TextIOWrapper(open_file(path, MOST_ROWS_BYTES), "utf-8-sig", newline="")


def json_of(text: str | bytes) -> Any:
    """Raises ValueError, also for what Python could not go on with: a number of thousands of
    digits, half a character, and JSON too deep for it."""
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig")
    try:
        found = json.loads(text, parse_int=_integer)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except UnicodeEncodeError:
        raise ValueError("a text has half a character, such as \\ud800") from None
    return found


def write_whole(path: Path, content: bytes) -> None:
    """Put the content in place of the file's, whole or not at all. Raises OSError."""
    under_way = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with under_way.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        under_way.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            under_way.unlink()
        raise


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is made where there is none. Raises BlockingIOError where
    another process holds it, another OSError where nothing can be written there."""
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def json_in(path: Path) -> Any:
    """Raises OSError and ValueError."""
    return json_of(read_file(path))


def check_toml(text: str) -> None:
    """Check the text before it is parsed, as a parser takes ages for a key of a million parts.
    Raises ValueError where it is too deep."""
    depth = dots = 0
    for token in _TOML_TOKEN.finditer(text):
        first = token[0][0]
        if first == ".":
            dots += 1
        elif first in "=,\n":
            dots = 0
        elif first in "[{":
            depth += 1
        elif first in "]}":
            depth -= 1
        if max(depth, dots) > MOST_DEPTH:
            line = text.count("\n", 0, token.start()) + 1
            raise ValueError(f"it is nested deeper than {MOST_DEPTH} (at line {line})")


def check_toml_values(value: object) -> None:
    """Check the values once the text is parsed. Raises ValueError for what no path, command or
    number of 64 bits may have."""
    if isinstance(value, dict):
        for key, each in value.items():
            check_toml_values(key)
            check_toml_values(each)
    elif isinstance(value, list):
        for each in value:
            check_toml_values(each)
    elif isinstance(value, str) and "\0" in value:
        raise ValueError("a text has a character that is none: \\u0000")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("an integer is beyond 64 bits")


def _integer(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError(f"an integer has {len(digits)} digits")
    return int(digits)
