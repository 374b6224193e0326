"""What the other side would say of a certificate, before any server is started."""

import ssl
from dataclasses import dataclass, replace

from srtm.host.certificates import TlsFiles, client_context, expires_at, server_context
from srtm.text.certificates import why_tls_failed
from srtm.text.errors import UsageError

_WRONG_NAME = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_WRONG_TIME = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED


@dataclass(frozen=True, slots=True)
class Trial:
    """expires_at:   in Unix seconds
    chain_refused: why the other side, which trusts the root, takes no such certificate
    name_refused:  why it is none of the name that clients connect to
    not_yet:       it is not valid yet

    Both are empty where all is well, and `chain_refused` where there is no root to try.
    """

    expires_at: float
    chain_refused: str
    name_refused: str
    not_yet: bool


def try_server(files: TlsFiles, name: str, root: str) -> Trial:
    """name: what clients connect to; root: the file by which they verify it. Raises UsageError
    where a server could not use the files, or a client the root."""
    server_context(files)
    alone = replace(files, root_ca="", require_peer=False)
    chain = _of_client(alone, root, "") if root else None
    # The certificate is its own root, so that only what is in it counts.
    own = _of_client(alone, files.cert, "")
    try:
        named = _of_client(alone, files.cert, name)
    except ValueError:  # OpenSSL looks for no such name
        return replace(_trial(files.cert, chain, own, None), name_refused="it is no host name")
    return _trial(files.cert, chain, own, named)


def try_client(files: TlsFiles, root: str) -> Trial:
    """root: the file by which servers verify clients. Raises UsageError where a client could not
    use the files, or a server the root."""
    client_context(files)
    alone = replace(files, root_ca="")
    chain = _of_server(alone, root) if root else None
    return _trial(files.cert, chain, _of_server(alone, files.cert), None)


Refused = ssl.SSLCertVerificationError | None
"""What one side has against the certificate of the other."""


def _trial(cert: str, chain: Refused, alone: Refused, named: Refused) -> Trial:
    chain_refused = chain.verify_message if chain else ""
    if chain and chain.verify_code in _WRONG_TIME:
        out_of_date = alone and alone.verify_code in _WRONG_TIME
        chain_refused = "" if out_of_date else "the certificate of an authority is out of date"
    return Trial(
        expires_at(cert),
        chain_refused,
        named.verify_message if named and named.verify_code in _WRONG_NAME else "",
        bool(alone and alone.verify_code == _WRONG_TIME[0]),
    )


def _of_client(files: TlsFiles, root: str, name: str) -> Refused:
    """name: "" for any."""
    client = client_context(TlsFiles(root_ca=root))
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.check_hostname = bool(name)
    return _handshake(server_context(files), client, name, files.cert)


def _of_server(files: TlsFiles, root: str) -> Refused:
    server = server_context(replace(files, root_ca=root, require_peer=True))
    server.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return _handshake(server, client_context(files, verify=False), "", files.cert)


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str, cert: str) -> Refused:
    """cert: the file that is tried. Raises UsageError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=name or None)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (near, far, near, far):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error
        except ssl.SSLError as error:
            raise UsageError(
                f"{cert}: no other side takes it ({why_tls_failed(error)}): does the file hold "
                "more than the certificate and those of its own authorities?"
            ) from None
    return None
