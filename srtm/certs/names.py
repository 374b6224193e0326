"""Names that a certificate is for, and the name of the file that it is in. Pure."""

import ipaddress
import re
from dataclasses import dataclass

from srtm.text.errors import UsageError

_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_MOST_DNS = 253
"""characters of a host name, by RFC 1035"""
_MOST_COMMON = 64
"""characters of a common name, by RFC 5280's ub-common-name"""


@dataclass(frozen=True, slots=True)
class Names:
    """What a certificate is verified for: host names and IP addresses."""

    dns: tuple[str, ...] = ()
    ip: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, dns: tuple[str, ...] = (), ip: tuple[str, ...] = ()) -> "Names":
        """`name`, by itself a host name or an address, and the others. Raises UsageError."""
        _check_common(name)
        own = cls.mixed(name)
        hosts = (*own.dns, *map(_host, dns))
        addresses = (*own.ip, *map(_address, ip))
        return cls(tuple(dict.fromkeys(hosts)), tuple(dict.fromkeys(addresses)))

    @classmethod
    def mixed(cls, *texts: str) -> "Names":
        """Host names and addresses in one list. Raises UsageError."""
        hosts = (_host(each) for each in texts if not _is_address(each))
        addresses = (_address(each) for each in texts if _is_address(each))
        return cls(tuple(dict.fromkeys(hosts)), tuple(dict.fromkeys(addresses)))


def _check_common(name: str) -> None:
    if len(name) > _MOST_COMMON:
        raise UsageError(
            f"{name!r}: a certificate's name has at most {_MOST_COMMON} characters; give a short "
            "NAME, and this one with --dns"
        )
    if name.startswith("*"):
        raise UsageError(f"{name!r}: a wildcard names no file; give a NAME, and this with --dns")
    if name == "ca":
        raise UsageError("'ca' is the name of the authority's own files; choose another NAME")


def _host(name: str) -> str:
    if _is_address(name):
        raise UsageError(f"{name!r} is an address; give it with --ip")
    if not name.isascii():
        raise UsageError(f"{name!r}: write a host name in ASCII, as DNS has it: xn--...")
    labels = name.removeprefix("*.").split(".")
    if len(name) > _MOST_DNS or not all(map(_LABEL.fullmatch, labels)):
        raise UsageError(
            f"{name!r} is no host name: letters, digits, - and _ in parts of at most 63 that dots "
            "separate"
        )
    return name


def _address(text: str) -> str:
    if not _is_address(text):
        raise UsageError(f"{text!r} is no IP address; give a host name with --dns")
    return str(ipaddress.ip_address(text))


def _is_address(text: str) -> bool:
    try:
        # A zone, as in fe80::1%eth0, is of this host alone and in no certificate.
        return not getattr(ipaddress.ip_address(text), "scope_id", None)
    except ValueError:
        return False
