"""What is in a certificate, for people and programs."""

import datetime
import warnings
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import NameOID

from srtm.host.certificates import read_pem, why_no_certificate
from srtm.text.errors import UsageError

_DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Shown:
    """names:     host names and addresses that it is for, as `DNS:b1` and `IP:127.0.0.1`
    valid_from: and `valid_until`: in ISO 8601, UTC
    days_left:  below 0 once it has ended
    key:        kind and size, such as `EC secp256r1`
    authority:  others may be issued by it
    """

    file: str
    subject: str
    names: tuple[str, ...]
    issuer: str
    valid_from: str
    valid_until: str
    days_left: float
    is_valid: bool
    key: str
    authority: bool

    @classmethod
    def of(cls, certificate: x509.Certificate, file: str, now: datetime.datetime) -> "Shown":
        start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        return cls(
            file,
            certificate.subject.rfc4514_string(),
            _names(certificate),
            certificate.issuer.rfc4514_string(),
            start.strftime("%Y-%m-%dT%H:%M:%SZ"),
            end.strftime("%Y-%m-%dT%H:%M:%SZ"),
            round((end - now).total_seconds() / _DAY_SECONDS, 2),
            start <= now < end,
            _key(certificate),
            is_authority(certificate),
        )


def read_certificates(path: Path) -> list[x509.Certificate]:
    """All of a PEM file, one at least. Raises UsageError."""
    pem = read_pem(str(path))
    with warnings.catch_warnings():
        # Of serial numbers that RFC 5280 forbids: a word to programmers, not to who looks at one.
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        try:
            return x509.load_pem_x509_certificates(pem)
        except (ValueError, x509.InvalidVersion):
            raise UsageError(why_no_certificate(str(path))) from None


def read_shown(path: Path, now: datetime.datetime) -> list[Shown]:
    """What is in each certificate of a PEM file. Raises UsageError."""
    try:
        return [Shown.of(each, str(path), now) for each in read_certificates(path)]
    except ValueError:  # a certificate is read when it is loaded, and its names when they are shown
        raise UsageError(why_no_certificate(str(path))) from None


def is_authority(certificate: x509.Certificate) -> bool:
    """May others be issued by it?"""
    try:
        found = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        return False
    return found.value.ca


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    except (x509.DuplicateExtension, ValueError):
        return ("not readable",)
    return tuple(_name(each) for each in found.value)


def _name(name: x509.GeneralName) -> str:
    kinds = {
        x509.DNSName: "DNS",
        x509.IPAddress: "IP",
        x509.UniformResourceIdentifier: "URI",
        x509.RFC822Name: "email",
    }
    return f"{kinds.get(type(name), type(name).__name__)}:{name.value}"


def _key(certificate: x509.Certificate) -> str:
    try:
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return "not known"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return f"EC {key.curve.name}"
    if isinstance(key, rsa.RSAPublicKey):
        return f"RSA {key.key_size}"
    return type(key).__name__.removesuffix("PublicKey").strip("_")


def names_in(path: Path) -> tuple[str, ...]:
    """The host names and addresses that the certificate of a file is for; none where no certificate
    is there."""
    try:
        return tuple(each.partition(":")[2] for each in _names(read_certificates(path)[0]))
    except (UsageError, ValueError):
        return ()


def common_names(path: Path) -> tuple[str, ...]:
    """Those of the subject of a file's certificate. Raises UsageError."""
    try:
        found = read_certificates(path)[0].subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return tuple(str(each.value) for each in found)
    except ValueError:
        raise UsageError(why_no_certificate(str(path))) from None
