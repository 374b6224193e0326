"""What the gateway's audit log says of a request that changes something."""

import ssl
import struct
from collections.abc import Mapping
from socket import AF_UNIX, SO_PEERCRED, SOL_SOCKET

from tornado.httputil import HTTPServerRequest

from srtm.gateway.host import Host
from srtm.host.audit_log import audited
from srtm.host.clock import NS, monotonic_ns
from srtm.nsq.layers.tls import common_name

_CREDENTIALS = struct.Struct("3i")
"""struct ucred of unix(7): process, user, group"""


def sender_of(request: HTTPServerRequest) -> str:
    """Who sent a request: the user at a unix socket, or the name in a client's certificate."""
    socket = request.connection.stream.socket  # type: ignore[union-attr]
    if isinstance(socket, ssl.SSLSocket):
        return common_name(socket) or "anybody"
    if socket is not None and socket.family == AF_UNIX:
        found = socket.getsockopt(SOL_SOCKET, SO_PEERCRED, _CREDENTIALS.size)
        return f"uid {_CREDENTIALS.unpack(found)[1]}"
    return "anybody"


def note(
    gateway: Host,
    request: HTTPServerRequest,
    sender: str,
    asked: Mapping[str, object],
    status: int,
) -> None:
    """sender: by `sender_of`, while the request was under way"""
    if gateway.audit is None:
        return
    now = (monotonic_ns() + gateway.wall.offset_ns) / NS
    address = "" if sender.startswith("uid ") else request.remote_ip or ""
    what = f"{request.method} {request.path}"
    gateway.audit.write(audited(now, sender, "operator", address, what, asked, status))
