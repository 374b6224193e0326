"""The open-file limit, divided between the doors: neither can use the other's part."""

import resource
from dataclasses import dataclass

from srtm.gateway.options import GatewayOptions
from srtm.text.errors import UsageError

_SPARE_FILES = 96
"""for nsqd's side, calls, farewells, the state and logs"""
_MANY_FILES = 1_000_000
_FEW_HTTP = 1024
"""HTTP connections that a small limit leaves room for, as far as half of it goes"""
_FEWEST_HTTP = 32
_MOST_HTTP = 16_384
"""256 MiB of memory"""


@dataclass(frozen=True)
class Descriptors:
    """tcp: of V2 clients, of whom a consumer has two; http: HTTP connections at once"""

    tcp: int
    http: int


def share_out(options: GatewayOptions, limit: int) -> Descriptors:
    """How many of `limit` open files each door gets. Raises UsageError where the options ask for
    more."""
    files = limit - _SPARE_FILES
    http = options.max_http_connections or min(
        max(files // 4, min(files // 2, _FEW_HTTP)),
        _MOST_HTTP,
        max(_FEWEST_HTTP, files - options.max_connections),
    )
    tcp = max(options.max_connections, 1)
    if files - http < tcp:
        flags = f"--max-connections {options.max_connections}"
        if options.max_http_connections:
            flags += f" and --max-http-connections {http} need"
        else:
            flags += " needs"
        raise UsageError(
            f"{flags} {tcp + http + _SPARE_FILES} open files, but the hard limit is {limit}; "
            "lower the option or raise the limit (ulimit -Hn)"
        )
    return Descriptors(files - http, http)


def take_descriptors(options: GatewayOptions) -> Descriptors:
    """Raise the open-file limit as far as it goes, and share it out. Raises UsageError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MANY_FILES if hard == resource.RLIM_INFINITY else hard
    descriptors = share_out(options, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    return descriptors
