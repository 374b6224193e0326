"""What a client would say of a server's certificate, before the server is started."""

import ssl
from dataclasses import dataclass, replace

from srtm.host.certificates import TlsFiles, client_context, expires_at, server_context

_WRONG_NAME = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_WRONG_TIME = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED


@dataclass(frozen=True, slots=True)
class Trial:
    """expires_at:   in Unix seconds
    chain_refused: why a client that trusts the root takes no such certificate
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
    chain = _verdict(alone, root, "") if root else None
    # The certificate is its own root, so that only what is in it counts.
    of_any_name = _verdict(alone, files.cert, "")
    of_this = _verdict(alone, files.cert, name)
    chain_refused = chain.verify_message if chain else ""
    if chain and chain.verify_code in _WRONG_TIME:
        chain_refused = "" if of_any_name else "the certificate of an authority is out of date"
    return Trial(
        expires_at(files.cert),
        chain_refused,
        of_this.verify_message if of_this and of_this.verify_code in _WRONG_NAME else "",
        bool(of_any_name and of_any_name.verify_code == _WRONG_TIME[0]),
    )


def _verdict(files: TlsFiles, root_ca: str, name: str) -> ssl.SSLCertVerificationError | None:
    """What a client that trusts `root_ca` has against it; name: "" for any."""
    client = client_context(TlsFiles(root_ca=root_ca))
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.check_hostname = bool(name)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=name or None)
    far = server_context(files).wrap_bio(to_server, to_client, server_side=True)
    for side in (near, far, near):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error
    return None
