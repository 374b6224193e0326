"""The connections of one run, and the poller that all of them stand in."""

import os
from collections import Counter
from collections.abc import Callable
from select import EPOLLET, EPOLLIN, epoll
from socket import socket

from srtm.load.connection import ask, await_ok, dial, raise_file_limit, split_address
from srtm.load.consumer import MAX_IN_FLIGHT, Consumer
from srtm.load.payload import Payload
from srtm.load.publisher import Publisher
from srtm.load.record import Received, Record
from srtm.load.settings import LoadSettings
from srtm.nsq.commands import rdy, sub
from srtm.timerfd import TimerFd


class Fleet:
    """handlers: by file descriptor, what to call when the poller reports it."""

    def __init__(self, settings: LoadSettings, record: Record) -> None:
        """Raises UsageError: an address, or more connections than this process may have."""
        for address in (*settings.publish_addresses, *settings.consume_addresses):
            split_address(address)
        raise_file_limit(settings.publishers + len(settings.consume_addresses))
        self._settings = settings
        self._record = record
        self._sockets: list[socket] = []
        self.errors: Counter[str] = Counter()
        self.publishers: list[Publisher] = []
        self.consumers: list[Consumer] = []
        self.poller = epoll()
        self.timer = TimerFd()
        self.poller.register(self.timer.fd, EPOLLIN | EPOLLET)
        self.handlers: dict[int, Callable[[], None]] = {self.timer.fd: _only_wake}

    def connect(self) -> None:
        """Consumers first, so that the topic has its channel before the first message.

        Raises UnavailableError.
        """
        settings = self._settings
        run_id = int.from_bytes(os.urandom(4), "big")
        payload = Payload(
            settings.topic, settings.message_bytes, run_id, settings.batch, settings.mpub
        )
        for address in settings.consume_addresses:
            self.consumers.append(self._subscribe(address, payload))
        self._connect_publishers(payload)
        for link in (*self.consumers, *self.publishers):
            self.handlers[link.sock.fileno()] = link.on_ready

    def start_consumers(self) -> None:
        for consumer in self.consumers:
            consumer.write(rdy(MAX_IN_FLIGHT))

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()
        self.poller.close()
        self.timer.close()

    def _subscribe(self, address: str, payload: Payload) -> Consumer:
        settings, received = self._settings, Received()
        buffering = {"output_buffer_size": -1} if settings.low_latency else {}
        sock = self._dial(address, "srtm-load-consumer", **buffering)
        await_ok(sock, address, "IDENTIFY")
        ask(sock, address, sub(settings.topic.encode(), settings.channel.encode()))
        self._record.received.append(received)
        return Consumer(sock, payload.frame_layout(), received, self.poller, self.errors)

    def _connect_publishers(self, payload: Payload) -> None:
        """Ask all, then hear all: one round trip for thousands."""
        settings = self._settings
        addresses = [
            settings.publish_addresses[settings.address_index(index)]
            for index in range(settings.publishers)
        ]
        socks = [self._dial(at, f"srtm-load-{index}") for index, at in enumerate(addresses)]
        for index, (sock, address) in enumerate(zip(socks, addresses, strict=True)):
            await_ok(sock, address, "IDENTIFY")
            publisher = Publisher(sock, index, payload, self._record, self.poller, self.errors)
            self.publishers.append(publisher)

    def _dial(self, address: str, client_id: str, **identity: object) -> socket:
        sock = dial(address, client_id, **identity)
        self._sockets.append(sock)
        return sock


def _only_wake() -> None:
    """The timer has nothing to say but the time."""
