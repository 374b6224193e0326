"""Listeners as nsqd has them: a wildcard address takes IPv4 and IPv6."""

import errno
import socket
from collections.abc import Callable

from srtm.text.address import ANY_HOST, Address, cannot_listen

_BACKLOG = 1024
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
MAPPED = "::ffff:"
"""IPv4 on a socket for both (RFC 4291, section 2.5.5.2)."""


def listen(address: str, flag: str, prepare: Callable[[socket.socket], object]) -> socket.socket:
    """Listen at the address of a flag. prepare: sees the socket before it listens. Raises
    UnavailableError that names the flag."""
    host, port = Address.parse(address, lowest=0)
    try:
        listener = _bound(host, port)
        try:
            prepare(listener)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise cannot_listen(f"{flag} {address}", error) from None
    listener.setblocking(False)
    return listener


def shown(name: tuple[object, ...]) -> str:
    """`getsockname()` or `getpeername()` as host:port, as Go writes it."""
    host, port = name[:2]
    return str(Address(str(host).removeprefix(MAPPED), int(str(port))))


def _bound(host: str, port: int) -> socket.socket:
    if host in ANY_HOST:
        try:
            return _bind(socket.AF_INET6, ("::", port))
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
            return _bind(socket.AF_INET, ("", port))
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # Of a name's addresses an IPv4 one, where it has any: so Go chooses.
    family, _, _, _, target = min(found, key=lambda each: each[0] != socket.AF_INET)
    return _bind(family, target)


def _bind(family: int, target: tuple[object, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(target)
    except OSError:
        listener.close()
        raise
    return listener
