"""A closed-loop publisher that numbers its messages."""

import contextlib
import threading

from srtm.nsq.blocking import Blocking
from srtm.nsq.commands import pub
from srtm.text.errors import UnavailableError

_ANSWER_SECONDS = 20.0
"""A gateway that is frozen for longer than any fault lasts has lost the connection."""
_PAUSE_SECONDS = 0.05


class Publisher(threading.Thread):
    """One message out at a time, to one gateway, whatever the placement says. A message whose
    answer did not come is not sent again. sent, acknowledged: all its messages, and those of them
    that were answered with OK."""

    def __init__(self, address: str, topic: str, name: str, over: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self._address = address
        self._topic = topic.encode()
        self._over = over
        self.sent: set[bytes] = set()
        self.acknowledged: set[bytes] = set()

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
                    self.sent.add(body)
                    link.ask(pub(self._topic, body))
                    self.acknowledged.add(body)
