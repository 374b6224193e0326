"""An authority for tests and the certificates that it issues, of EC P-256, which is fast."""

import datetime
import ipaddress
import itertools
import ssl
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID as Use
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


class Authority:
    """A certificate authority whose files are in `folder`.

    ca_file: its own certificate, by which those that it issues are verified
    """

    def __init__(self, folder: Path, name: str = "authority of tests", days: float = 1) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self._numbers = itertools.count(1)
        end = datetime.datetime.now(datetime.UTC) + days * _DAY
        certificate = (
            _builder(self._name, self._name, self._key, self._key, end - 2 * _DAY, end)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(authority=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca_file = str(folder / "ca.pem")
        Path(self.ca_file).write_bytes(certificate.public_bytes(Encoding.PEM))

    def issue(
        self,
        name: str,
        *,
        dns: Sequence[str] = (),
        ip: Sequence[str] = (),
        days: float = 1,
        begins_days: float = -1,
        expired: bool = False,
        client: bool = False,
        password: bytes = b"",
    ) -> tuple[str, str]:
        """The files of a new certificate and of its key; no two calls give the same files.

        dns, ip:  what a server's certificate is verified for; `name` alone is not
        days:     until it ends; begins_days: until it begins
        expired:  it ended an hour ago
        client:   it is for a client, and no server's
        password: the key is encrypted by it
        """
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        end = now - _DAY / 24 if expired else now + days * _DAY
        start = min(now + begins_days * _DAY, end - _DAY)
        builder = (
            _builder(_name(name), self._name, key, self._key, start, end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(authority=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([Use.CLIENT_AUTH if client else Use.SERVER_AUTH]),
                critical=False,
            )
        )
        names = [
            *map(x509.DNSName, dns),
            *(x509.IPAddress(ipaddress.ip_address(each)) for each in ip),
        ]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        protection: KeySerializationEncryption = NoEncryption()
        if password:
            protection = BestAvailableEncryption(password)
        stem = f"{name}-{next(self._numbers)}"
        cert_file, key_file = self._folder / f"{stem}.pem", self._folder / f"{stem}.key"
        certificate = builder.sign(self._key, hashes.SHA256())
        cert_file.write_bytes(certificate.public_bytes(Encoding.PEM))
        key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection))
        key_file.chmod(0o600)
        return str(cert_file), str(key_file)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    start: datetime.datetime,
    end: datetime.datetime,
) -> x509.CertificateBuilder:
    """With what newer Pythons want of each certificate of a chain: the identifiers of both keys."""
    own, issuers = key.public_key(), issuer_key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(own)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(own), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuers),
            critical=False,
        )
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


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "127.0.0.1") -> int:
    """The number of the server's certificate once both sides are done. Raises ssl.SSLError of
    either side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=name)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (near, far):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    shown = near.getpeercert(binary_form=True)
    assert shown
    return x509.load_der_x509_certificate(shown).serial_number
