"""Opening the connections of a run: the only blocking sockets, before anything is measured."""

import json
import resource
import socket

from srtm.nsq.commands import MAGIC_V2, identify
from srtm.nsq.frames import ERROR, OK_FRAME, FrameError, FrameReader
from srtm.text.address import Address
from srtm.text.errors import UnavailableError, UsageError

TIMEOUT_SECONDS = 10.0
"""The timeout for a connection and for each answer before the run: nsqd may ask a hung nsqlookupd
for 5 s."""

_OTHER_FILES = 64  # standard streams, epoll, timer, libraries


def target_of(address: str) -> str | Address:
    """host:port, or the path of a unix socket as it is. Raises UsageError."""
    return address if "/" in address and "://" not in address else Address.of(address)


def raise_file_limit(connections: int) -> None:
    """Allow so many open sockets. Raises UsageError when the hard limit does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed and soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise UsageError(
            f"{connections} connections need {needed} open files and the limit is {hard}: "
            "raise it (ulimit -Hn) or take fewer publishers"
        )


def dial(address: str, client_id: str, **identity: object) -> socket.socket:
    """Connect and send IDENTIFY; `await_ok` takes its answer. Raises UnavailableError."""
    document = {"client_id": client_id, "user_agent": "srtm-load", **identity}
    try:
        target = target_of(address)
        if isinstance(target, str):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(TIMEOUT_SECONDS)
            sock.connect(target)
        else:
            sock = socket.create_connection(target, TIMEOUT_SECONDS)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(MAGIC_V2 + identify(json.dumps(document).encode()))
    except OSError as error:
        raise UnavailableError(
            f"{address}: {_reason(error)}; is an nsqd or a gateway listening there?"
        ) from None
    return sock


def await_ok(sock: socket.socket, address: str, command: str) -> None:
    """Read the OK of one command, and not a byte more. Raises UnavailableError."""
    reader = FrameReader(max_size=1 << 16)
    needed = len(OK_FRAME)
    try:
        while True:
            data = sock.recv(needed)
            if not data:
                raise UnavailableError(f"{address}: closed the connection at {command}")
            frames = reader.feed(data)
            if frames and frames[0].kind == ERROR:
                text = frames[0].data.decode("ascii", "replace")
                raise UnavailableError(f"{address}: {command} was refused: {text}")
            if frames:
                return
            needed = max(1, len(OK_FRAME) - reader.buffered)
    except FrameError:
        raise UnavailableError(f"{address}: the answer to {command} is not NSQ's") from None
    except OSError as error:
        raise UnavailableError(f"{address}: no answer to {command}: {_reason(error)}") from None


def ask(sock: socket.socket, address: str, command: bytes) -> None:
    """Send one command and read its OK. Raises UnavailableError."""
    name = command.split(b" ", 1)[0].decode()
    try:
        sock.sendall(command)
    except OSError as error:
        raise UnavailableError(f"{address}: {name} could not be sent: {_reason(error)}") from None
    await_ok(sock, address, name)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
