"""/ping, /stats and /metrics of a program whose main thread is at work elsewhere."""

import asyncio
import threading

from srtm.http.status import Status, status_server
from srtm.text.address import Address, cannot_listen
from srtm.text.errors import SrtmError, UnavailableError


def open_door(address: Address, told: Status, where: str) -> None:
    """Open the door at `address`; it stays open until the process ends. Raises UnavailableError."""
    opened = threading.Event()
    faults: list[SrtmError] = []

    def serve() -> None:
        async def listen() -> None:
            try:
                status_server(told).listen(address.port, address.host or None)
            except OSError as error:
                faults.append(cannot_listen(f"{where}: http-address {address}", error))
                opened.set()
                return
            opened.set()
            await asyncio.Event().wait()

        asyncio.run(listen())

    threading.Thread(target=serve, name="http", daemon=True).start()
    if not opened.wait(10):
        raise UnavailableError(f"{where}: http-address {address} cannot be listened on")
    if faults:
        raise faults[0]
