"""A gateway in front of an nsqd that takes only so many bytes a second.

`python -m benchmarks.placement.slow_nsqd BYTES FLAGS` runs `srtm gateway FLAGS` with a relay
between it and nsqd. What the gateway writes to nsqd passes in order, BYTES a second for each
message/s of --broker-capacity; what nsqd writes passes at once. Brokers of one host share its cores
and its disk: without such a limit none of them is full while another has room.
"""

import asyncio
import contextlib
import os
import socket
import sys
from pathlib import Path

from srtm.host.python import module

_READ_BYTES = 4096
"""passes at a time: 14 ms at 300 kB/s"""
_SLACK_SECONDS = 0.005
"""A sleep that ends later than asked is made up for, up to this."""


class Throttle:
    """When bytes may pass, over all connections. Time is passed in, in seconds."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._free_at = 0.0

    def wait(self, size: int, now: float) -> float:
        """Seconds until `size` more bytes have passed."""
        self._free_at = max(self._free_at, now - _SLACK_SECONDS) + size / self._rate
        return self._free_at - now


class _Relay:
    def __init__(self, nsqd: str, throttle: Throttle) -> None:
        self._nsqd = nsqd
        self._throttle = throttle

    async def serve(self, door: socket.socket, gateway: int) -> None:
        """Until the gateway has ended, which the pipe `gateway` tells."""
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(gateway, ended.set)
        server = await asyncio.start_unix_server(self._connected, sock=door)
        await ended.wait()
        server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_nsqd, to_nsqd = await asyncio.open_unix_connection(self._nsqd)
        except OSError:
            writer.close()
            return
        await asyncio.gather(
            self._copy(reader, to_nsqd, self._throttle), self._copy(from_nsqd, writer, None)
        )

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, throttle: Throttle | None
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_READ_BYTES):
                if throttle is not None:
                    now = asyncio.get_running_loop().time()
                    await asyncio.sleep(max(0.0, throttle.wait(len(data), now)))
                writer.write(data)
                await writer.drain()
        writer.close()


def main() -> None:
    flags = sys.argv[2:]
    given = dict(flag.split("=", 1) for flag in flags if "=" in flag)
    nsqd = given["--nsqd-tcp-address"]
    throttle = Throttle(float(sys.argv[1]) * float(given["--broker-capacity"]))
    path = f"{nsqd}.slow"
    Path(path).unlink(missing_ok=True)
    door = socket.socket(socket.AF_UNIX)
    door.bind(path)
    door.listen()
    gateway, ours = os.pipe()
    if os.fork() == 0:
        os.close(ours)
        asyncio.run(_Relay(nsqd, throttle).serve(door, gateway))
        return
    os.set_inheritable(ours, True)  # the gateway holds it open as long as it runs
    os.execv(sys.executable, [*module("srtm"), "gateway", *flags, f"--nsqd-tcp-address={path}"])


if __name__ == "__main__":
    main()
