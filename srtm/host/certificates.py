"""TLS contexts made of PEM files: those of doors, which follow the files, and those of clients.

A certificate is renewed by writing its files anew, or by moving a symlink as Kubernetes does; so a
door looks at their contents now and then, and a pair that does not work leaves the old one in use.
"""

import hashlib
import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from srtm.host.files import MIB, read_file
from srtm.text.errors import UsageError

LOOK_SECONDS = 10.0
"""how often the files of a door are read again"""
WARN_DAYS = 14.0
"""a certificate that ends sooner is told of"""
MIN_VERSIONS = {"tls1.2": ssl.TLSVersion.TLSv1_2, "tls1.3": ssl.TLSVersion.TLSv1_3}
POLICIES = ("", "require-verify")
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
            digest.update(hashlib.sha256(_pem(path)).digest())
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


def why_tls_failed(error: Exception) -> str:
    """The reason of an `ssl.SSLError` as a person says it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
            return "it does not answer in TLS; is it a port of plain text?"
        return (error.reason or str(error)).replace("_", " ").lower()
    return str(error)


def _load(context: ssl.SSLContext, files: TlsFiles) -> None:
    context.minimum_version = MIN_VERSIONS[files.min_version]
    for path in files.paths:
        _pem(path)  # it says why one cannot be read; OpenSSL does not
    if files.cert:
        try:
            context.load_cert_chain(files.cert, files.key, password=_refuse_password)
        except (ssl.SSLError, OSError, _PasswordAsked) as error:
            raise UsageError(_why_no_pair(files, error)) from None
    if files.root_ca:
        try:
            context.load_verify_locations(files.root_ca)
        except (ssl.SSLError, OSError):
            raise UsageError(f"{files.root_ca}: holds no certificate in PEM") from None


class _PasswordAsked(Exception):
    """The key is encrypted: there is nobody who could be asked."""


def _refuse_password() -> str:
    raise _PasswordAsked


def _why_no_pair(files: TlsFiles, error: Exception) -> str:
    if isinstance(error, _PasswordAsked):
        return f"{files.key}: the key has a password; take one without: openssl pkey -in KEY"
    reason = getattr(error, "reason", "") or ""
    if "MISMATCH" in reason:
        return f"{files.key}: is not the key of the certificate {files.cert}"
    if b"-----BEGIN CERTIFICATE" not in _pem(files.cert):
        return f"{files.cert}: holds no certificate in PEM"
    if b"PRIVATE KEY-----" not in _pem(files.key):
        return f"{files.key}: holds no private key in PEM"
    return f"{files.cert} and {files.key}: cannot be used: {why_tls_failed(error)}"


def _pem(path: str) -> bytes:
    try:
        return read_file(Path(path), MIB)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def expires_at(path: str) -> float:
    """When the first certificate of a PEM file ends, in Unix seconds. Raises UsageError."""
    from cryptography import x509  # a tenth of a second, and most programs show no certificate

    try:
        return x509.load_pem_x509_certificate(_pem(path)).not_valid_after_utc.timestamp()
    except ValueError:
        raise UsageError(f"{path}: holds no certificate in PEM") from None


class Renewed:
    """A context that follows its files.

    context:    for the next handshake; those who have had theirs keep what they have
    expires_at: when its certificate ends, in Unix seconds
    failed:     why the newest files are not in use; empty where they are
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
        self._contents = files.contents()
        self._tried = self._contents
        self.context = make(files)
        self.expires_at = expires_at(files.cert) if files.cert else float("inf")
        self.failed = ""
        self._told_day = -1.0
        self.warn_of_end()

    @classmethod
    def of(cls, files: TlsFiles | None) -> Self | None:
        """None without files. Raises UsageError."""
        return None if files is None else cls(files)

    def look(self) -> bool:
        """Read the files again: are others in use now? Those that do not work are told of once."""
        try:
            contents = self.files.contents()
            if contents == self._tried:
                return False
            self._tried = contents
            context, expires = self._make(self.files), expires_at(self.files.cert)
        except UsageError as error:
            if str(error) != self.failed:
                self.failed = str(error)
                log.error("the certificate in use stays: %s", error)
            return False
        self.failed = ""
        if contents == self._contents:
            return False
        self._contents = contents
        self.context, self.expires_at = context, expires
        log.info("%s: the certificate was read anew", self.files.cert)
        self.warn_of_end()
        return True

    def warn_of_end(self) -> None:
        """Once a day, where the certificate ends soon or has ended."""
        left = self.expires_at - self._wall_seconds()
        day = left // _DAY_SECONDS
        if left > WARN_DAYS * _DAY_SECONDS or day == self._told_day:
            return
        self._told_day = day
        if left <= 0:
            log.error("%s: the certificate has expired", self.files.cert)
        else:
            log.warning("%s: the certificate ends in %.0f days", self.files.cert, max(day, 0))
