"""TLS contexts made of PEM files: those of doors, which follow the files, and those of clients.

A certificate is renewed by writing its files anew, or by moving a symlink as Kubernetes does; so a
door looks at their contents now and then, and a pair that does not work leaves the old one in use.
"""

import hashlib
import logging
import math
import ssl
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from srtm.host.files import MIB, read_file
from srtm.text.certificates import why_tls_failed
from srtm.text.errors import UsageError
from srtm.text.words import counted

LOOK_SECONDS = 10.0
"""how often the files of a door are read again"""
WARN_DAYS = 14.0
"""a certificate that ends sooner is told of"""
MIN_VERSIONS = {"tls1.2": ssl.TLSVersion.TLSv1_2, "tls1.3": ssl.TLSVersion.TLSv1_3}
POLICIES = ("", "require-verify")
PLAIN_TEXT = "plain-text"
"""in place of the authority of a server: its callers show their token without TLS"""
_DAY_SECONDS = 86_400.0

log = logging.getLogger("srtm.tls")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of one side, and what it asks of the other one.

    cert, key:    its certificate with the chain, and the private key
    root_ca:      the authorities by which the other side is verified
    require_peer: the other side must show a certificate of `root_ca`
    min_version:  a key of `MIN_VERSIONS`
    """

    cert: str = ""
    key: str = ""
    root_ca: str = ""
    require_peer: bool = False
    min_version: str = "tls1.2"

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.cert, self.key, self.root_ca)))

    def contents(self) -> bytes:
        """A digest of what the files hold. Raises UsageError."""
        digest = hashlib.sha256()
        for path in self.paths:
            digest.update(hashlib.sha256(read_pem(path)).digest())
        return digest.digest()


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """The context of a door. Raises UsageError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Tickets let a client skip half of a handshake. NSQ's clients keep none, and each costs the
    # handshake a write.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    _load(context, files)
    if files.require_peer:
        context.verify_mode = ssl.CERT_REQUIRED
    elif files.root_ca:
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_context(files: TlsFiles, verify: bool = True) -> ssl.SSLContext:
    """The context of a client; without a `root_ca` the authorities of this host are trusted.
    verify: False takes any certificate of any name. Raises UsageError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif not files.root_ca:
        context.load_default_certs()
    _load(context, files)
    return context


def _load(context: ssl.SSLContext, files: TlsFiles) -> None:
    context.minimum_version = MIN_VERSIONS[files.min_version]
    for path in files.paths:
        read_pem(path)  # it says why one cannot be read; OpenSSL does not
    if files.cert:
        try:
            context.load_cert_chain(files.cert, files.key, password=_refuse_password)
        except (ssl.SSLError, OSError, _PasswordAsked) as error:
            raise UsageError(_why_no_pair(files, error)) from None
    if files.root_ca:
        try:
            context.load_verify_locations(files.root_ca)
        except (ssl.SSLError, OSError):
            raise UsageError(why_no_certificate(files.root_ca)) from None


class _PasswordAsked(Exception):
    """The key is encrypted: there is nobody who could be asked."""


def _refuse_password() -> str:
    raise _PasswordAsked


def _why_no_pair(files: TlsFiles, error: Exception) -> str:
    if isinstance(error, _PasswordAsked):
        remedy = "take one without: openssl pkey -in KEY -out NEW"
        return f"{files.key}: the key has a password; {remedy}"
    reason = getattr(error, "reason", "") or ""
    # OpenSSL has no certificate for a key of another kind: EC and RSA lie in places of their own.
    if "MISMATCH" in reason or reason == "NO_CERTIFICATE_ASSIGNED":
        return f"{files.key}: is not the key of the certificate {files.cert}"
    if reason and reason != "PEM_LIB":
        return f"{files.cert} and {files.key}: cannot be used: {why_tls_failed(error)}"
    try:
        expires_at(files.cert)
    except UsageError as fault:
        return str(fault)
    if b"PRIVATE KEY-----" not in read_pem(files.key):
        return f"{files.key}: holds no private key in PEM"
    return f"{files.key}: the key cannot be read; is the file whole?"


def why_no_certificate(path: str) -> str:
    """The reason why no certificate could be read of it. Raises UsageError."""
    if b"-----BEGIN CERTIFICATE" not in read_pem(path):
        return f"{path}: holds no certificate in PEM"
    return f"{path}: a certificate in it cannot be read; is the file whole?"


def read_pem(path: str) -> bytes:
    """The content of a file of PEM. Raises UsageError."""
    try:
        return read_file(Path(path), MIB)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def key_is_open(path: str) -> str:
    """What is wrong where others than its owner may read a private key, and how to mend it; empty
    where nothing is. nsqd takes such a key, so this is no refusal."""
    try:
        mode = stat.S_IMODE(Path(path).stat().st_mode)
    except OSError:  # it has gone since it was read
        return ""
    if not mode & 0o077:
        return ""
    others = "others than its owner may read the private key"
    return f"{path}: mode {mode:04o}, and {others}: chmod 600 {path}"


def expires_at(path: str) -> float:
    """When the first certificate of a PEM file ends, in Unix seconds. Raises UsageError."""
    from cryptography import x509  # a tenth of a second, and most programs show no certificate

    try:
        return x509.load_pem_x509_certificate(read_pem(path)).not_valid_after_utc.timestamp()
    except (ValueError, x509.InvalidVersion):
        raise UsageError(why_no_certificate(path)) from None


class Renewed:
    """A context that follows its files.

    context:    for the next handshake; those who have had theirs keep what they have
    expires_at: when its certificate ends, in Unix seconds
    failed:     why the files of now are not in use; empty where they are
    """

    def __init__(
        self,
        files: TlsFiles,
        make: Callable[[TlsFiles], ssl.SSLContext] = server_context,
        wall_seconds: Callable[[], float] = time.time,
    ) -> None:
        """Raises UsageError."""
        self.files = files
        self._make = make
        self._wall_seconds = wall_seconds
        self._told_day: float | None = None
        self.expires_at = -math.inf
        self.failed = ""
        self._use(files.contents())
        self._warn_of_end()

    @classmethod
    def of(cls, files: TlsFiles | None) -> Self | None:
        """What a door follows from its start on; None without files. A key that others may read is
        told of. Raises UsageError."""
        if files is None:
            return None
        renewed = cls(files)
        fault = key_is_open(files.key) if files.key else ""
        if fault:
            log.warning("%s", fault)
        return renewed

    def look(self) -> bool:
        """Read the files again: are others in use now? Why they are not is told once, and whether
        the certificate in use ends soon once a day."""
        renewed = False
        try:
            contents = self.files.contents()
            if contents != self._contents:
                self._use(contents)
                renewed = True
        except UsageError as error:
            if str(error) != self.failed:
                log.error("the certificate in use stays: %s", error)
            self.failed = str(error)
        else:
            if renewed or self.failed:
                log.info("%s: in use", ", ".join(self.files.paths))
            self.failed = ""
        self._warn_of_end()
        return renewed

    def _use(self, contents: bytes) -> None:
        """contents: of the files just now. Where they changed since, the next look finds that they
        are others. Raises UsageError, and then all is as it was."""
        context = self._make(self.files)
        ends = expires_at(self.files.cert) if self.files.cert else math.inf
        if ends <= self._wall_seconds() < self.expires_at:
            raise UsageError(f"{self.files.cert}: the certificate has expired")
        self.context, self.expires_at, self._contents = context, ends, contents

    def _warn_of_end(self) -> None:
        left_days = (self.expires_at - self._wall_seconds()) / _DAY_SECONDS
        if left_days > WARN_DAYS:
            self._told_day = None
            return
        day = math.floor(left_days)
        if day == self._told_day:
            return
        self._told_day = day
        if left_days <= 0:
            log.error("%s: the certificate has expired", self.files.cert)
        else:
            left = counted(day, "day") if day else "less than a day"
            log.warning("%s: the certificate ends in %s", self.files.cert, left)
