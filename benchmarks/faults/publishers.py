"""Publishers that number their messages: some at a steady pace within the contract, some that
always have more to send. One process; at SIGTERM it writes what became of every message.

A steady message that could not be sent within `GIVE_UP_SECONDS` of its time is given up: it counts
as late, and is never sent. No message is sent twice.
"""

import argparse
import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from srtm.host.clock import NS, monotonic_ns
from srtm.nsq.commands import pub
from srtm.nsq.connection import Connection
from srtm.text.address import Address

GIVE_UP_SECONDS = 1.0
_MOST_BYTES = 1 << 16
_ANSWER_SECONDS = 2.0
"""a client that waits longer takes its connection for dead"""
_AGAIN_SECONDS = 0.1


@dataclass(slots=True)
class Message:
    """Times are monotonic, in ns. sent: as far as a socket, at least; acknowledged_at: 0 where it
    is not."""

    body: str
    at: int
    sent: bool = False
    acknowledged_at: int = 0


@dataclass
class Ledger:
    """The messages of one topic. A message is in it before it is sent."""

    messages: list[Message] = field(default_factory=list)

    def new(self, body: str, at_ns: int) -> Message:
        message = Message(body, at_ns)
        self.messages.append(message)
        return message


class Link:
    """One connection at a time, made again whenever it fails."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._writer: asyncio.StreamWriter | None = None
        self._frames: AsyncIterator[bytes] | None = None

    async def publish(self, topic: str, message: Message, within: float) -> None:
        """Publish the message once, with `within` seconds for a connection."""
        try:
            async with asyncio.timeout(within):
                await self._connect()
            assert self._writer is not None
            assert self._frames is not None
            message.sent = True
            async with asyncio.timeout(_ANSWER_SECONDS):
                self._writer.write(pub(topic.encode(), message.body.encode()))
                await self._writer.drain()
                if await anext(self._frames) == b"OK":
                    message.acknowledged_at = monotonic_ns()
        except (OSError, TimeoutError, StopAsyncIteration):
            self.drop()

    async def _connect(self) -> None:
        if self._writer is not None:
            return
        reader, writer = await asyncio.open_connection(*self._address)
        self._writer = writer
        self._frames = _answers(reader, Connection(writer.write, {}, _MOST_BYTES))

    def drop(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
        self._writer = None


async def _answers(reader: asyncio.StreamReader, v2: Connection) -> AsyncIterator[bytes]:
    while data := await reader.read(_MOST_BYTES):
        for frame in v2.receive(data):
            yield frame.data


async def steady(ledger: Ledger, address: Address, topic: str, name: str, rate: float) -> None:
    """Publish `rate` messages a second, each with a time of its own, whatever became of the others
    before it; one that is GIVE_UP_SECONDS late is not sent."""
    link, began_ns, number = Link(address), monotonic_ns(), 0
    while True:
        at_ns = began_ns + int(number * NS / rate)
        await asyncio.sleep(max(0.0, (at_ns - monotonic_ns()) / NS))
        left = GIVE_UP_SECONDS - (monotonic_ns() - at_ns) / NS
        message = ledger.new(f"{name}-{number}", at_ns)
        if left > 0:
            await link.publish(topic, message, left)
        number += 1


async def pressed(ledger: Ledger, address: Address, topic: str, name: str) -> None:
    """One message out at a time, the next at each answer."""
    link, number = Link(address), 0
    while True:
        message = ledger.new(f"{name}-{number}", monotonic_ns())
        await link.publish(topic, message, GIVE_UP_SECONDS)
        number += 1
        if not message.acknowledged_at:
            await asyncio.sleep(_AGAIN_SECONDS)


async def _run(given: argparse.Namespace) -> None:
    ledgers = {name: Ledger() for name in ("steady", "pressed")}
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    tasks = []
    for broker, text in enumerate(given.address):
        address = Address.of(text)
        for number in range(given.publishers):
            for kind, ledger in ledgers.items():
                name = f"{kind}-{broker}-{number}"
                tasks.append(
                    asyncio.create_task(
                        steady(ledger, address, kind, name, given.rate)
                        if kind == "steady"
                        else pressed(ledger, address, kind, name)
                    )
                )
    print("publishes", flush=True)
    await over.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    text = json.dumps(
        {
            name: [
                (each.body, each.at, each.sent, each.acknowledged_at) for each in ledger.messages
            ]
            for name, ledger in ledgers.items()
        }
    )
    fresh = Path(f"{given.out}.new")
    fresh.write_text(text)
    fresh.rename(given.out)


def main() -> None:
    parser = argparse.ArgumentParser(description="publish, and write down what became of it")
    parser.add_argument("--out", required=True)
    parser.add_argument("--publishers", type=int, required=True, help="of each broker and kind")
    parser.add_argument("--rate", type=float, required=True, help="of a steady one, messages/s")
    parser.add_argument("address", nargs="+")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
