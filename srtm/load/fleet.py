"""The connections of one run, and the poller that all of them stand in."""

import os
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from select import EPOLLET, EPOLLIN, epoll
from socket import socket

from srtm.host.timerfd import TimerFd
from srtm.load.consumer import MAX_IN_FLIGHT, Consumer
from srtm.load.payload import Payload
from srtm.load.publisher import Publisher
from srtm.load.record import Received, Record
from srtm.load.settings import LoadSettings
from srtm.nsq.blocking import Blocking, target_of
from srtm.nsq.commands import rdy, sub
from srtm.text.errors import UsageError

_OTHER_FILES = 64  # standard streams, epoll, timer, libraries
_USER_AGENT = {"user_agent": "srtm-load"}


class Fleet:
    """handlers: by file descriptor, what to call when the poller reports it."""

    def __init__(self, settings: LoadSettings, record: Record, spare: int = 0) -> None:
        """spare: connections that may be opened beside these. Raises UsageError: an address, or
        more connections than this process may have."""
        for address in (*settings.publish_addresses, *settings.consume_addresses):
            target_of(address)
        raise_file_limit(settings.publishers + len(settings.consume_addresses) + spare)
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
        self.publish_addresses = list(settings.publish_addresses)
        self.consume_addresses = list(settings.consume_addresses)

    def connect(self) -> None:
        """Consumers first, so that the topic has its channel before the first message.

        Raises UnavailableError.
        """
        settings = self._settings
        run_id = int.from_bytes(os.urandom(4), "big")
        payload = self._payload = Payload(
            settings.topic, settings.message_bytes, run_id, settings.batch, settings.mpub
        )
        for address in settings.consume_addresses:
            sock = self.subscribe(address)
            self._sockets.append(sock)
            self._add_consumer(sock)
        self._connect_publishers(payload)
        for link in self.publishers:
            self.handlers[link.sock.fileno()] = link.on_ready

    def start_consumers(self) -> None:
        for consumer in self.consumers:
            consumer.write(rdy(MAX_IN_FLIGHT))

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()
        self.poller.close()
        self.timer.close()

    def consume_at(self, address: str, sock: socket) -> None:
        """One broker more."""
        self.consume_addresses.append(address)
        self._sockets.append(sock)
        self._add_consumer(sock)
        self.consumers[-1].write(rdy(MAX_IN_FLIGHT))

    def publish_at(self, index: int, address: str, sock: socket) -> int:
        """Publisher `index` goes on there. Returns the address's number."""
        if address not in self.publish_addresses:
            self.publish_addresses.append(address)
        self._sockets.append(sock)
        publisher = self.publishers[index]
        self.handlers.pop(publisher.sock.fileno(), None)
        self.handlers[sock.fileno()] = publisher.on_ready
        publisher.go_on(sock)
        return self.publish_addresses.index(address)

    def dial(self, address: str, index: int) -> socket:
        """A connection to publish, for any thread. Raises UnavailableError."""
        link = Blocking(address, self._identity(index), features=self._settings.features)
        with _closed_on_failure(link):
            return link.identify().take_over()

    def subscribe(self, address: str) -> socket:
        """One to consume, likewise."""
        settings = self._settings
        buffering = {"output_buffer_size": -1} if settings.low_latency else {}
        identity = {"client_id": "srtm-load-consumer", **_USER_AGENT, **buffering}
        link = Blocking(address, identity, features=settings.features)
        with _closed_on_failure(link):
            link.identify().ask(sub(settings.topic.encode(), settings.channel.encode()))
        return link.take_over()

    def _add_consumer(self, sock: socket) -> None:
        received, layout = Received(), self._payload.frame_layout()
        self._record.received.append(received)
        consumer = Consumer(sock, layout, received, self.poller, self.errors)
        self.consumers.append(consumer)
        self.handlers[sock.fileno()] = consumer.on_ready

    def _connect_publishers(self, payload: Payload) -> None:
        """Ask all, then hear all: one round trip for thousands."""
        settings = self._settings
        addresses = [
            settings.publish_addresses[settings.address_index(index)]
            for index in range(settings.publishers)
        ]
        links = [self._dial(at, self._identity(index)) for index, at in enumerate(addresses)]
        for index, link in enumerate(links):
            sock = link.identify().take_over()
            self._sockets.append(sock)
            publisher = Publisher(sock, index, payload, self._record, self.poller, self.errors)
            self.publishers.append(publisher)

    def _identity(self, index: int) -> dict[str, str]:
        """The identity of a publisher, as traces of gateways name it."""
        ids = self._settings.ids
        registered = {} if ids is None else {"srtm_publisher": ids[index]}
        return {"client_id": f"srtm-load-{index}", **_USER_AGENT, **registered}

    def _dial(self, address: str, identity: dict[str, str]) -> Blocking:
        link = Blocking(address, identity, features=self._settings.features)
        self._sockets.append(link.socket)
        return link


@contextmanager
def _closed_on_failure(link: Blocking) -> Iterator[None]:
    try:
        yield
    except BaseException:
        link.close()
        raise


def _only_wake() -> None:
    """The timer has nothing to say but the time."""


def raise_file_limit(connections: int) -> None:
    """Allow so many open sockets. Raises UsageError when the hard limit does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed and soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise UsageError(
            f"{connections} connections need {needed} open files and the limit is {hard}: "
            "raise it (ulimit -Hn) or take fewer publishers"
        )
