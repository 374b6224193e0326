"""When messages came to nsqd, by nsqd's own clock: what the rest of the world sees of a limiter."""

import json
import socket
import threading
from array import array

import numpy as np

from srtm.host.clock import WallClock, monotonic_ns
from srtm.limits.queueing import Floats
from srtm.nsq.commands import MAGIC_V2, NOP, fin, identify, rdy, sub
from srtm.nsq.frames import HEARTBEAT_DATA, MESSAGE, FrameReader, parse_message

_READ_BYTES = 256 * 1024
_MAX_IN_FLIGHT = 2500
_TICK_SECONDS = 0.2


class WireClock(threading.Thread):
    """Consumes a channel of nsqd itself and keeps the time that nsqd wrote into each message."""

    def __init__(self, nsqd_socket: str, topic: str, channel: str) -> None:
        super().__init__(name="wire-clock", daemon=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(nsqd_socket)
        self._socket.sendall(
            MAGIC_V2
            + identify(json.dumps({"client_id": "wire-clock"}).encode())
            + sub(topic.encode(), channel.encode())
            + rdy(_MAX_IN_FLIGHT)
        )
        self._socket.settimeout(_TICK_SECONDS)
        self._stamps = array("q")
        self._clock = WallClock()
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        reader = FrameReader(8 << 20)
        while not self._ended.is_set():
            try:
                data = self._socket.recv(_READ_BYTES)
            except TimeoutError:
                continue
            if not data:
                return
            replies = []
            for frame in reader.feed(data):
                if frame.kind == MESSAGE:
                    message = parse_message(frame.data)
                    if message.attempts == 1:
                        self._stamps.append(message.timestamp_ns)
                    replies.append(fin(message.id))
                elif frame.data == HEARTBEAT_DATA:
                    replies.append(NOP)
            self._socket.sendall(b"".join(replies))

    def finish(self, messages: int, origin_ns: int, timeout_seconds: float = 10.0) -> Floats:
        """The times of receipt once so many messages have come (or in time no more): seconds since
        `origin_ns`, sorted."""
        deadline = monotonic_ns() + int(timeout_seconds * 1e9)
        while len(self._stamps) < messages and self.is_alive() and monotonic_ns() < deadline:
            self._ended.wait(0.02)
        self.close()
        wall_origin_ns = origin_ns + self._clock.offset_ns
        stamps = [stamp - wall_origin_ns for stamp in self._stamps]
        return np.sort(np.array(stamps, dtype=np.float64)) / 1e9

    @property
    def clock_moved(self) -> bool:
        """Was the wall clock stepped meanwhile? The stamps are worth nothing then."""
        return self._clock.refresh()

    def close(self) -> None:
        self._ended.set()
        self.join()
        self._socket.close()
