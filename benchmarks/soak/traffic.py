"""Closed-loop publishers that number their messages, and what nsqd has of them afterwards."""

import contextlib
import socket
import threading
import time
from dataclasses import dataclass, field

from srtm.nsq.commands import CLS, MAGIC_V2, NOP, fin, identify, pub, rdy, sub
from srtm.nsq.frames import HEARTBEAT_DATA, MESSAGE, FrameReader, parse_message

_ANSWER_SECONDS = 20.0
"""A gateway that is frozen for longer than any fault lasts has lost the connection."""
_PAUSE_SECONDS = 0.05


@dataclass
class Sent:
    """What one publisher sent: ids of all its messages, and of those that were answered with OK."""

    sent: set[bytes] = field(default_factory=set)
    acknowledged: set[bytes] = field(default_factory=set)


class Publisher(threading.Thread):
    """One message out at a time, to one gateway, whatever the placement says. A message whose
    answer did not come is not sent again."""

    def __init__(self, address: str, topic: str, name: str, over: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._topic = topic.encode()
        self._over = over
        self.found = Sent()

    def run(self) -> None:
        number = 0
        while not self._over.wait(_PAUSE_SECONDS):
            with contextlib.suppress(OSError), socket.create_connection(self._address, 2) as link:
                link.settimeout(_ANSWER_SECONDS)
                link.sendall(MAGIC_V2)
                reader = FrameReader(1 << 20)
                while not self._over.is_set():
                    body = f"{self.name}-{number}".encode()
                    number += 1
                    self.found.sent.add(body)
                    link.sendall(pub(self._topic, body))
                    if not _answered(link, reader):
                        break
                    self.found.acknowledged.add(body)


def _answered(link: socket.socket, reader: FrameReader) -> bool:
    """Was the message answered with OK?"""
    while True:
        data = link.recv(4096)
        if not data:
            return False
        for frame in reader.feed(data):
            if frame.data == HEARTBEAT_DATA:
                link.sendall(NOP)
            else:
                return frame.data == b"OK"


def drain(nsqd_socket: str, topic: str, channel: str, quiet_seconds: float) -> dict[bytes, int]:
    """Take what a channel of nsqd itself has by now, or until nothing comes for so long: body ->
    nsqd's own time of receipt, in ns since 1970. All that was sent here is finished: what is in
    flight dies with nsqd. Raises OSError."""
    found: dict[bytes, int] = {}
    began_at = time.time_ns()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(quiet_seconds)
        link.connect(nsqd_socket)
        link.sendall(
            MAGIC_V2
            + identify(b'{"client_id": "soak", "heartbeat_interval": 60000}')
            + sub(topic.encode(), channel.encode())
            + rdy(2000)
        )
        reader = FrameReader(8 << 20)
        ends = False
        while True:
            try:
                data = link.recv(1 << 18)
            except TimeoutError:
                return found
            if not data:
                raise ConnectionError("nsqd ended the connection")
            answers, newest = [], 0
            for frame in reader.feed(data):
                if frame.kind == MESSAGE:
                    message = parse_message(frame.data)
                    found.setdefault(bytes(message.body), message.timestamp_ns)
                    newest = max(newest, message.timestamp_ns)
                    answers.append(fin(message.id))
                elif frame.data == HEARTBEAT_DATA:
                    answers.append(NOP)
            link.sendall(b"".join(answers))
            if newest > began_at and not ends:
                ends = True  # publishers go on, and it would never be quiet
                link.sendall(CLS)
