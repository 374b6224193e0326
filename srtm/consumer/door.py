"""/ping, /stats and /metrics of a program whose main thread is at work elsewhere."""

import asyncio
import threading

from srtm.http.status import Door, Status, listen
from srtm.text.address import cannot_listen
from srtm.text.errors import SrtmError, UnavailableError


def open_door(door: Door, told: Status, where: str) -> None:
    """Open the door; it stays open until the process ends. Raises UnavailableError, UsageError."""
    address = door.http_address
    assert address is not None
    opened = threading.Event()
    faults: list[SrtmError] = []

    def serve() -> None:
        async def run() -> None:
            try:
                server = listen(door, told)
            except OSError as error:
                faults.append(cannot_listen(f"{where}: http-address {address}", error))
                return
            except SrtmError as error:
                faults.append(type(error)(f"{where}: {error}"))
                return
            finally:
                opened.set()
            await asyncio.Event().wait()
            server.stop()

        asyncio.run(run())

    threading.Thread(target=serve, name="http", daemon=True).start()
    if not opened.wait(10):
        raise UnavailableError(f"{where}: http-address {address} cannot be listened on")
    if faults:
        raise faults[0]
