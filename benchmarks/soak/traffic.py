"""Closed-loop publishers that number their messages, and what nsqd has of them afterwards."""

import contextlib
import threading
import time
from dataclasses import dataclass, field

from srtm.nsq.blocking import Blocking
from srtm.nsq.commands import CLS, pub, rdy, sub
from srtm.text.errors import UnavailableError

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
        self._address = address
        self._topic = topic.encode()
        self._over = over
        self.found = Sent()

    def run(self) -> None:
        number = 0
        while not self._over.wait(_PAUSE_SECONDS):
            with (
                contextlib.suppress(UnavailableError),
                Blocking(self._address, {"client_id": "soak"}, 2) as link,
            ):
                link.socket.settimeout(_ANSWER_SECONDS)
                link.identify()
                while not self._over.is_set():
                    body = f"{self.name}-{number}".encode()
                    number += 1
                    self.found.sent.add(body)
                    link.ask(pub(self._topic, body))
                    self.found.acknowledged.add(body)


def drain(nsqd_socket: str, topic: str, channel: str, quiet_seconds: float) -> dict[bytes, int]:
    """Take what a channel of nsqd itself has by now, or until nothing comes for so long: body ->
    nsqd's own time of receipt, in ns since 1970. All that was sent here is finished: what is in
    flight dies with nsqd. Raises OSError, UnavailableError."""
    found: dict[bytes, int] = {}
    began_at = time.time_ns()
    identity = {"client_id": "soak", "heartbeat_interval": 60000}
    with Blocking(nsqd_socket, identity, quiet_seconds) as link:
        link.identify().ask(sub(topic.encode(), channel.encode()))
        link.write(rdy(2000))
        ends = False
        while True:
            try:
                messages = link.messages()
            except TimeoutError:
                return found
            for message in messages:
                found.setdefault(bytes(message.body), message.timestamp_ns)
            newest = max((each.timestamp_ns for each in messages), default=0)
            if newest > began_at and not ends:
                ends = True  # publishers go on, and it would never be quiet
                link.write(CLS)
