"""Who may call a server, and as what: a file with a line `name:role:sha256` for each token.

The server knows no token, only its digest. A name may have several lines, so that a new token is
valid before the old one is taken out. Blank lines and lines that begin with `#` count for nothing.

A file of the older form holds one token itself, has mode 0600, and makes an operator.
"""

import hashlib
import hmac
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from srtm.host.files import open_file
from srtm.http.bearer import check_token
from srtm.text.errors import UsageError

MOST_BYTES = 64 * 1024
"""of a file: 600 lines, and each is compared at each request"""
_NAME = re.compile(r"[A-Za-z0-9_.:\[\]-]{1,128}")
"""as brokers are called"""
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_SCHEME = "Bearer "


class Role(IntEnum):
    """What a caller may do. Each role includes those before it."""

    READ = 1
    AGENT = 2
    OPERATOR = 3

    def __str__(self) -> str:
        return self.name.lower()


_ROLES = {str(each): each for each in Role}


@dataclass(frozen=True, slots=True)
class Caller:
    name: str
    role: Role


ANYBODY = Caller("anybody", Role.OPERATOR)
"""Whoever calls a server that asks for nothing: it listens on loopback."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The digests of the tokens that a server takes, and whose they are."""

    known: tuple[tuple[bytes, Caller], ...]

    @property
    def is_one(self) -> bool:
        """Is the file of the older form, with one token itself?"""
        return self.known[0][1] is _TOKEN

    @property
    def has_operator(self) -> bool:
        return any(caller.role is Role.OPERATOR for _, caller in self.known)

    def caller(self, token: str) -> Caller | None:
        """Whose token it is; None: nobody's. How long that takes tells nothing of the digests."""
        digest = _digest(token)
        found = None
        for each, caller in self.known:
            if hmac.compare_digest(each, digest):
                found = caller
        return found


def read_tokens(path: str, where: str) -> Tokens:
    """The tokens of a file. Raises UsageError that begins with `where` and the path, and quotes
    nothing that may be a token."""
    try:
        with open_file(Path(path), MOST_BYTES) as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            rows = file.read(MOST_BYTES).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not text"
        raise UsageError(f"{where} {path}: {why}") from None
    lines = [(number, each.strip()) for number, each in enumerate(rows, 1)]
    lines = [(number, each) for number, each in lines if each and not each.startswith("#")]
    if len(lines) == 1 and lines[0][1].count(":") < 2:
        token = check_token(lines[0][1], mode, where, path)
        return Tokens(((_digest(token), _TOKEN),))
    if not lines:
        raise UsageError(f"{where} {path}: no line names a caller; write name:role:sha256")
    if mode & 0o022:
        raise UsageError(
            f"{where} {path}: mode {mode:04o}: others could add callers: chmod go-w {path}"
        )
    known: dict[bytes, Caller] = {}
    roles: dict[str, Role] = {}
    for number, line in lines:
        at = f"{where} {path}: line {number}"
        digest, caller = _caller(line, at)
        if digest in known:
            raise UsageError(f"{at}: a line above has the same sha256")
        if roles.setdefault(caller.name, caller.role) is not caller.role:
            raise UsageError(f"{at}: a line above gives {caller.name} another role")
        known[digest] = caller
    return Tokens(tuple(known.items()))


_TOKEN = Caller("token", Role.OPERATOR)
"""whoever shows the token of a file of the older form"""


def _caller(line: str, at: str) -> tuple[bytes, Caller]:
    name, role, digest = ["", "", *line.rsplit(":", 2)][-3:]
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{at}: write name:role:sha256, the name with 1 to 128 of [A-Za-z0-9_.:-] and []"
        )
    if role not in _ROLES:
        raise UsageError(f"{at}: no role that there is; write {', '.join(_ROLES)} behind {name}")
    if not _DIGEST.fullmatch(digest):
        raise UsageError(
            f"{at}: the sha256 of {name} must have 64 hexadecimal digits, as sha256sum prints them "
            "for the token without a line end"
        )
    return bytes.fromhex(digest), Caller(name, _ROLES[role])


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def bearer_of(header: str | None) -> str | None:
    """The token of an Authorization header; "" for another scheme, None without a header."""
    if header is None:
        return None
    return header.removeprefix(_SCHEME) if header.startswith(_SCHEME) else ""


def holder_of(certificate: Mapping[str, Any] | None) -> Caller | None:
    """The caller that a verified certificate names: its common name, with the role of an agent.
    None where it names nobody, or several. certificate: as SSLSocket.getpeercert tells it."""
    fields = [field for group in (certificate or {}).get("subject", ()) for field in group]
    names = [value for key, value in fields if key == "commonName"]
    if len(names) != 1 or not _NAME.fullmatch(names[0]):
        return None
    return Caller(names[0], Role.AGENT)
