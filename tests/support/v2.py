"""A bare V2 client for tests: what it sends and reads is exactly what the test says."""

import json
import socket
import struct
import time
from typing import Any

from srtm.nsq.commands import MAGIC_V2, fin, identify, rdy, sub
from srtm.nsq.frames import ERROR, MESSAGE, RESPONSE, Frame, FrameReader, Message, parse_message


class V2:
    """A blocking connection; every read has a deadline."""

    def __init__(self, address: str, magic: bytes = MAGIC_V2, receive_buffer: int = 0) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(60)
        self.socket.connect((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = FrameReader(8 * 1024 * 1024)
        self._frames: list[Frame] = []
        if magic:
            self.send(magic)

    def __enter__(self) -> "V2":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self, timeout: float = 60) -> Frame | None:
        """The next frame; None when the other side has closed. Raises TimeoutError."""
        deadline = time.monotonic() + timeout
        while not self._frames:
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._frames += self._reader.feed(data)
        return self._frames.pop(0)

    def reply(self, timeout: float = 60) -> bytes | None:
        """The data of the next RESPONSE or ERROR that is no heartbeat; None at the end."""
        while True:
            frame = self.frame(timeout)
            if frame is None:
                return None
            if frame.data != b"_heartbeat_":
                assert frame.kind in (RESPONSE, ERROR), frame
                return frame.data

    def oks(self, count: int, timeout: float = 60) -> None:
        """The next `count` replies, all of them OK."""
        for number in range(count):
            assert self.reply(timeout) == b"OK", f"reply {number} of {count}"

    def silent(self, seconds: float) -> bool:
        """Does nothing come for so long?"""
        try:
            self._frames.insert(0, self.frame(seconds))  # type: ignore[arg-type]
        except TimeoutError:
            return True
        return False

    def ended(self, timeout: float = 60) -> bool:
        """Does the other side close (whatever it sends before)?"""
        try:
            while self.frame(timeout) is not None:
                pass
        except TimeoutError:
            return False
        return True

    def identify(self, **values: Any) -> Any:
        """IDENTIFY; the answer, parsed where it is JSON."""
        self.send(identify(json.dumps(values).encode()))
        answer = self.reply()
        return json.loads(answer) if answer and answer.startswith(b"{") else answer

    def subscribe(self, topic: str, channel: str, ready: int = 1000) -> None:
        self.send(sub(topic.encode(), channel.encode()))
        assert self.reply() == b"OK"
        self.send(rdy(ready))

    def message(self, timeout: float = 60, finish: bool = True) -> Message:
        """The next message, answered with FIN. Raises TimeoutError."""
        while True:
            frame = self.frame(timeout)
            assert frame is not None, "the connection has ended"
            if frame.kind == MESSAGE:
                message = parse_message(frame.data)
                if finish:
                    self.send(fin(message.id))
                return message

    def reset(self) -> None:
        """Leave as a killed client's host does: no orderly end."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self.socket.close()
