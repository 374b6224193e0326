"""`host:port` as NSQ's flags take it, and whether it can be listened on."""

import errno
import ipaddress
import os
import random
import socket
from typing import NamedTuple

from srtm.text.errors import UnavailableError, UsageError

_FREE_PORTS = (10_000, 32_000)
ANY_HOST = ("", "0.0.0.0", "::")
"""Hosts that stand for every address of the machine."""


class Address(NamedTuple):
    """A TCP address; an empty host means every address of this machine."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: object, lowest: int = 1) -> "Address":
        """Read `host:port` or `[v6]:port`. lowest: port; 0 stands for any free one. Raises
        ValueError."""
        if isinstance(text, str) and "://" in text:
            raise ValueError(f"{text!r} is a URL; write HOST:PORT alone, such as 127.0.0.1:4150")
        host, colon, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
        if not colon or (":" in host and not (host[0] == "[" and host[-1] == "]")):
            raise ValueError(f"{text!r} is not an address; write HOST:PORT, such as 127.0.0.1:4150")
        if not (port.isascii() and port.isdigit() and lowest <= int(port) <= 65535):
            raise ValueError(f"port {port!r} of {text!r} is not a number from {lowest} to 65535")
        return cls(host.strip("[]"), int(port))

    @classmethod
    def of(cls, text: str) -> "Address":
        """Read the address of somebody to connect to, which therefore has a host. Raises
        UsageError."""
        try:
            found = cls.parse(text)
        except ValueError as error:
            raise UsageError(str(error)) from None
        if not found.host:
            raise UsageError(f"{text!r} names no host; write HOST:PORT, such as 127.0.0.1:4150")
        return found

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def reachable(self) -> "Address":
        """Where a client on this host connects: an address that means all of them is none."""
        if self.host not in ANY_HOST:
            return self
        return Address("::1" if self.host == "::" else "127.0.0.1", self.port)

    @property
    def is_local(self) -> bool:
        """Is it reached from this host alone?"""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:  # 127.example.com is a name, which stands for any address
            return False

    def clashes_with(self, other: "Address") -> bool:
        """Could the two not be listened on at once?"""
        if self.port != other.port:
            return False
        hosts = {each.host.replace("localhost", "127.0.0.1") for each in (self, other)}
        return len(hosts) == 1 or not hosts.isdisjoint(ANY_HOST)


MOST_ADDRESSES = 8
"""of one service"""


def addresses_of(text: str) -> tuple[Address, ...]:
    """Read `host:port,host:port`: where those are of whom one serves at a time, as a leader and who
    stands by. Raises UsageError."""
    try:
        found = tuple(Address.parse(each.strip()).reachable for each in text.split(","))
    except ValueError as error:
        raise UsageError(str(error)) from None
    for each in found:
        if found.count(each) > 1:
            raise UsageError(f"{text!r} names {each} twice")
    if len(found) > MOST_ADDRESSES:
        raise UsageError(f"{len(found)} addresses of one service: {MOST_ADDRESSES} at most")
    return found


def require_free(address: Address, where: str) -> None:
    """Try to listen on it for a moment. Raises UnavailableError that names `where` it is set."""
    try:
        for family, kind, proto, _, target in socket.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[:1]:
            with socket.socket(family, kind, proto) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(target)
                probe.listen(1)  # with SO_REUSEADDR the bind alone may succeed beside a listener
    except OSError as error:
        raise cannot_listen(f"{where} {address}", error) from None


def cannot_listen(where: str, error: OSError) -> UnavailableError:
    """What is wrong with the address that `where` names, and how to mend it."""
    if isinstance(error, socket.gaierror):
        return UnavailableError(f"{where}: {error.strerror}: no address of this name is known")
    number = error.errno or 0
    why = {
        errno.EADDRINUSE: "is in use by another process; stop it or choose another port",
        errno.EADDRNOTAVAIL: "is no address of this machine; ip addr shows those that it has",
        errno.EACCES: "may not be listened on by this user; choose a port from 1024 on",
    }.get(number, f"cannot be listened on: {os.strerror(number)}")
    return UnavailableError(f"{where} {why}")


_TRIES = 10_000


def free_addresses(count: int, host: str = "127.0.0.1") -> list[Address]:
    """Addresses that nobody listens on now: for demos and tests, which must not clash. They are
    below the ports that the kernel gives to connections, which could take one before its user.
    Raises UnavailableError where there are none of this host."""
    found: dict[int, socket.socket] = {}
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        for _ in range(_TRIES):
            if len(found) == count:
                return [Address(host, port) for port in found]
            made = socket.socket(family, socket.SOCK_STREAM)
            port = random.randrange(*_FREE_PORTS)
            try:
                made.bind((host, port))
            except OSError:
                made.close()
            else:
                found[port] = made
        raise UnavailableError(f"no free port of {host} was found in {_TRIES:,} tries")
    finally:
        for each in found.values():
            each.close()
