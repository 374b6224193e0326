"""One controller for each pool on a host: a name that the kernel gives to one process only, and
takes back however that one ends. No file can be removed, linked to or left behind."""

import contextlib
import hashlib
import socket


class Lock:
    """The lock of one pool, within the network name space that the process is in."""

    def __init__(self, pool: str) -> None:
        digest = hashlib.sha256(pool.encode()).hexdigest()
        self._name = f"\0srtm-autoscale-{digest}"
        self._socket: socket.socket | None = None

    def take(self) -> bool:
        """False while another one has it."""
        if self._socket is not None:
            return True
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            bound.bind(self._name)
        except OSError:
            bound.close()
            return False
        self._socket = bound
        return True

    def release(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None
