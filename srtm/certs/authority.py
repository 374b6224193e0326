"""A certificate authority in a folder, which issues certificates for servers and clients."""

import datetime
import ipaddress
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID as Use
from cryptography.x509.oid import NameOID

from srtm.certs.certificate import is_authority, read_certificates
from srtm.certs.names import Names
from srtm.host.atomic import replacing, to_disk
from srtm.host.certificates import read_pem
from srtm.text.errors import SrtmError, UsageError

SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

AUTHORITY_YEARS = 10
_BACKDATED = datetime.timedelta(hours=1)
"""a host whose clock is behind takes a new certificate at once"""


def ca_file(folder: Path) -> Path:
    """The authority's certificate: others verify by it."""
    return folder / "ca.pem"


def _ca_key(folder: Path) -> Path:
    return folder / "ca.key"


def create(folder: Path, now: datetime.datetime) -> x509.Certificate:
    """Make an authority in `folder`, which is made too. Raises UsageError where one is there, and
    SrtmError where it cannot be written."""
    for path in (ca_file(folder), _ca_key(folder)):
        if path.exists() or path.is_symlink():
            raise UsageError(f"{path} is there already; remove it, or choose another folder")
    key = ec.generate_private_key(ec.SECP256R1())
    number = x509.random_serial_number()
    # Two authorities of one name could not be told apart by what clients say of them.
    name = _common_name(f"SRTM authority {number:x}"[:24])
    end = now + datetime.timedelta(days=365 * AUTHORITY_YEARS)
    certificate = (
        _builder(name, name, key, key, now, end)
        .serial_number(number)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SrtmError(f"{folder}: cannot be made: {error.strerror}") from None
    _write(ca_file(folder), certificate, _ca_key(folder), key)
    return certificate


def issue(
    folder: Path,
    name: str,
    names: Names,
    days: float,
    now: datetime.datetime,
    *,
    replace: bool = False,
) -> tuple[Path, Path]:
    """Write a certificate for servers and clients; the paths of it and of its key.

    folder: of the authority; the files are there
    name:   its common name, and that of the files
    days:   until it ends
    replace: files of that name give way

    Raises UsageError where there is no authority, and SrtmError where nothing can be written.
    """
    cert_path, key_path = folder / f"{name}.pem", folder / f"{name}.key"
    for path in (cert_path, key_path):
        if not replace and (path.exists() or path.is_symlink()):
            raise UsageError(f"{path} is there already; replace it with --force")
    issuer, issuer_key = _read(folder)
    end = now + datetime.timedelta(days=days)
    left = issuer.not_valid_after_utc - now
    if end > issuer.not_valid_after_utc:
        says = f"ends in {left.days} days" if left.days >= 1 else "ends within a day or has ended"
        raise UsageError(f"{ca_file(folder)}: the authority {says}, before this certificate would")
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives = [
        *map(x509.DNSName, names.dns),
        *(x509.IPAddress(ipaddress.ip_address(each)) for each in names.ip),
    ]
    certificate = (
        _builder(_common_name(name), issuer.subject, key, issuer_key, now, end)
        .serial_number(x509.random_serial_number())
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([Use.SERVER_AUTH, Use.CLIENT_AUTH]), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    _write(cert_path, certificate, key_path, key)
    return cert_path, key_path


def _read(folder: Path) -> tuple[x509.Certificate, SigningKey]:
    """The authority's certificate and key. Raises UsageError."""
    path, key_path = ca_file(folder), _ca_key(folder)
    if not path.exists():
        raise UsageError(f"{path}: there is no authority; make one: srtm certs init {folder}")
    certificate = read_certificates(path)[0]
    try:
        key = load_pem_private_key(read_pem(str(key_path)), None)
    except TypeError:
        raise UsageError(f"{key_path}: the key has a password; take one without") from None
    except (ValueError, UnsupportedAlgorithm):
        raise UsageError(f"{key_path}: holds no private key in PEM") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise UsageError(f"{key_path}: is neither an EC nor an RSA key")
    if _public(key.public_key()) != _public(certificate.public_key()):
        raise UsageError(f"{key_path}: is not the key of the certificate {path}")
    if not is_authority(certificate):
        raise UsageError(f"{path}: is the certificate of no authority; see srtm certs show {path}")
    return certificate, key


def _public(key: Any) -> bytes:
    der: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return der


def _write(path: Path, certificate: x509.Certificate, key_path: Path, key: SigningKey) -> None:
    """Both files take their places when both are on disk. Raises SrtmError."""
    try:
        with replacing(path) as cert_file, replacing(key_path, mode=0o600) as key_file:
            cert_file.write(certificate.public_bytes(Encoding.PEM))
            key_file.write(
                key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            )
            to_disk(cert_file)
    except OSError as error:
        raise SrtmError(f"{path}: cannot be written: {error.strerror}") from None


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: SigningKey,
    issuer_key: SigningKey,
    now: datetime.datetime,
    end: datetime.datetime,
) -> x509.CertificateBuilder:
    """With what Python 3.13 wants of each certificate of a chain: the identifiers of both keys."""
    own, issuers = key.public_key(), issuer_key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(own)
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(own), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuers), critical=False)
    )


def _usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
