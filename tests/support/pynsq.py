"""What tests of pynsq's Writer and Reader share."""

import asyncio
from collections.abc import Awaitable, Callable

import nsq


def in_loop(work: Callable[[], Awaitable[None]], seconds: float = 20) -> None:
    """pynsq lives in the IOLoop that runs when it is made."""

    async def limited() -> None:
        await asyncio.wait_for(work(), seconds)

    asyncio.run(limited())


async def connected(client: nsq.Writer | nsq.Reader, count: int = 1) -> None:
    while len([conn for conn in client.conns.values() if conn.connected()]) < count:
        await asyncio.sleep(0.01)


def finish(client: nsq.Writer | nsq.Reader) -> None:
    for conn in list(client.conns.values()):
        conn.close()
