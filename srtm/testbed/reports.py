"""A relay that loses, repeats and reorders the requests that pass it: between a gateway and the
Load Distributor, whose reports have a connection each.

It runs on the broker's host, where `redirect` leads the reports to it.
"""

import argparse
import asyncio
import contextlib
import random
import socket
from dataclasses import dataclass
from enum import StrEnum

from srtm.text.address import Address

MARK = 0x5352
"""of packets that a relay sends itself: they are not led to it again"""
_ANSWER_SECONDS = 30.0
_MAX_BYTES = 1 << 22


class Fate(StrEnum):
    """What becomes of one request."""

    PASS = "pass"
    LOSE = "lose"  # it never arrives
    DEAFEN = "deafen"  # it arrives, its answer does not
    HOLD = "hold"  # it arrives after later ones


@dataclass(frozen=True, slots=True)
class Odds:
    """Shares of the requests; what is left passes. hold_seconds: the longest."""

    lose: float = 0.0
    deafen: float = 0.0
    hold: float = 0.0
    hold_seconds: float = 3.0

    def draw(self, at: float) -> Fate:
        """at: 0 to 1, drawn evenly."""
        for fate, share in (
            (Fate.LOSE, self.lose),
            (Fate.DEAFEN, self.deafen),
            (Fate.HOLD, self.hold),
        ):
            if at < share:
                return fate
            at -= share
        return Fate.PASS


class Relay:
    def __init__(self, to: Address, odds: Odds, seed: int) -> None:
        self._to = to
        self._odds = odds
        self._random = random.Random(seed)
        self.counts = dict.fromkeys(Fate, 0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fate = self._odds.draw(self._random.random())
        self.counts[fate] += 1
        try:
            if fate is Fate.LOSE:
                await asyncio.wait_for(reader.read(_MAX_BYTES), _ANSWER_SECONDS)
                return
            if fate is Fate.HOLD:
                await asyncio.sleep(self._random.uniform(0.0, self._odds.hold_seconds))
            await asyncio.wait_for(self._pass_on(reader, writer, fate), _ANSWER_SECONDS)
        except (OSError, TimeoutError):
            pass  # whoever asked notices
        finally:
            writer.close()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fate: Fate
    ) -> None:
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
        link.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(link, tuple(self._to))
        except OSError:
            link.close()
            raise
        there, back = await asyncio.open_connection(sock=link)
        asking = asyncio.create_task(_copy(reader, back))
        try:
            if fate is Fate.DEAFEN:
                await there.read(_MAX_BYTES)  # its answer, for nobody
            else:
                await _copy(there, writer)
        finally:
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await asking
            back.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


async def _run(listen: int, relay: Relay) -> None:
    server = await asyncio.start_server(relay.serve, "0.0.0.0", listen)
    print(f"listens on port {listen}", flush=True)
    async with server:
        await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description="lose, repeat and reorder reports")
    parser.add_argument("--listen", type=int, required=True)
    parser.add_argument("--to", required=True)
    for name in ("lose", "deafen", "hold"):
        parser.add_argument(f"--{name}", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    odds = Odds(given.lose, given.deafen, given.hold)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(given.listen, Relay(Address.of(given.to), odds, given.seed)))


if __name__ == "__main__":
    main()
