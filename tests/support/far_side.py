"""A broker's TCP side for publishers' tests: it answers as the test says, and counts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from srtm.nsq.commands import CommandReader, Identify, Limits, Line, Publish
from srtm.nsq.frames import ERROR, HEARTBEAT_FRAME, OK_FRAME, build_frame

Reply = Callable[[int, bytes], bytes | None]
"""(number of the message here, its body) -> the frame that answers it; None: close."""


def ok(_number: int, _body: bytes) -> bytes:
    return OK_FRAME


def error(text: bytes) -> bytes:
    return build_frame(ERROR, text)


class FarSide:
    """bodies: as they came, over all connections; after an error frame it closes, as nsqd does."""

    def __init__(self, reply: Reply = ok, port: int = 0) -> None:
        self.reply = reply
        self.bodies: list[bytes] = []
        self.commands = 0
        self.connections = 0
        self.open = 0
        self.beats = 0
        self.answering = asyncio.Event()
        self.answering.set()
        self.address = f"127.0.0.1:{port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        commands = CommandReader(Limits())
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                for command in commands.feed(data):
                    if not await self._run(command, writer):
                        await writer.drain()
                        writer.close()
                        self.open -= 1
                        return
        writer.close()
        self.open -= 1

    async def _run(self, command: object, writer: asyncio.StreamWriter) -> bool:
        if isinstance(command, Identify):
            writer.write(OK_FRAME + HEARTBEAT_FRAME)
        elif isinstance(command, Line):
            self.beats += 1
        elif isinstance(command, Publish):
            bodies = command.bodies()
            for group in [bodies] if command.atomic else [[body] for body in bodies]:
                self.bodies += group
                self.commands += 1
                await self.answering.wait()
                frame = self.reply(len(self.bodies), group[0])
                if frame is None:
                    return False
                writer.write(frame)
                if frame[7] == ERROR:
                    return False
        return True


@asynccontextmanager
async def far_side(reply: Reply = ok, port: int = 0) -> AsyncIterator[FarSide]:
    far = FarSide(reply)
    server = await asyncio.start_server(far.serve, "127.0.0.1", port)
    far.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield far
    finally:
        server.close()
