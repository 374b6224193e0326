"""Doors follow their files, and certificates that do not work are told of in one line."""

import ssl

from srtm.host.certificates import TlsFiles, client_context, server_context
from tests.support.certificates import Authority


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "127.0.0.1") -> str:
    """The name of the client in its certificate once both sides are done; in memory. Raises
    ssl.SSLError of either side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=name)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (near, far):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    shown = far.getpeercert() or {}
    return next((value for part in shown.get("subject", ()) for _key, value in part), "")


def test_both_sides_are_verified(authority: Authority) -> None:
    cert, key = authority.issue("server", ip=("127.0.0.1",))
    mine, my_key = authority.issue("publisher", client=True)
    door = TlsFiles(cert, key, authority.ca_file, require_peer=True)
    client = client_context(TlsFiles(mine, my_key, authority.ca_file))
    assert handshake(server_context(door), client) == "publisher"
