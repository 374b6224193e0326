"""The process that writes a gateway's trace: chunks come on standard input, one line of JSON goes
out whenever its figures have changed. It ends when its input does, with all that came in a file:
so it outlives a gateway that is killed for as long as that takes.
"""

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace

from srtm.traces import chunk
from srtm.traces.writer import Settings, Status, Writer

_READ_BYTES = 1 << 20
_NICE = 10
"""Messages go first."""
_LAST_TRIES = 3
"""at the end, a second apart"""
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""They reach all processes of a terminal or a service; the gateway decides."""


def main(arguments: str) -> None:
    """arguments: `Settings` as JSON"""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICE)
    os.set_blocking(sys.stdout.fileno(), False)
    writer = Writer(Settings(**json.loads(arguments)))
    writer.begin()
    tell = _teller()
    tell(writer.status)
    buffer = bytearray()
    while True:
        left = writer.seconds_left(time.monotonic())
        readable, _, _ = select.select([sys.stdin.fileno()], [], [], left)
        if readable:
            data = os.read(sys.stdin.fileno(), _READ_BYTES)
            if not data:
                break
            buffer += data
            for each in chunk.read(buffer):
                writer.add(each, time.monotonic())
        writer.work(time.monotonic())
        tell(writer.status)
    for attempt in range(_LAST_TRIES):
        if attempt:
            time.sleep(1)
        if writer.write(time.monotonic()):
            break
    tell(writer.status)


def _teller() -> Callable[[Status], None]:
    told: Status | None = None

    def tell(status: Status) -> None:
        nonlocal told
        if status == told:
            return
        line = json.dumps(asdict(status)) + "\n"
        with contextlib.suppress(BrokenPipeError):
            try:
                os.write(sys.stdout.fileno(), line.encode())
            except BlockingIOError:
                return  # nobody reads: it is told with the next chunk
        told = replace(status)

    return tell


if __name__ == "__main__":
    main(sys.argv[1])
