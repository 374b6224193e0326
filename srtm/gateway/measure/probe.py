"""Broker latency by measurement: a subscriber of ours that is always ready.

It is there only while the topic has another channel (a topic keeps its messages for its first
channel, and a probe that came first would eat them), takes a sample, and FINs at once.
"""

import json
import math
import socket
from collections.abc import Callable

from srtm.clock import monotonic_ns
from srtm.gateway.measure.matching import Deliveries
from srtm.gateway.reactor import BROKEN, READABLE, Reactor
from srtm.gateway.topic import Topic
from srtm.gateway.upstream import NsqdAddress
from srtm.nsq.commands import MAGIC_V2, NOP, fin, identify, rdy, sub
from srtm.nsq.frames import HEARTBEAT_FRAME, MESSAGE, FrameError, FrameReader, parse_message

CHANNEL = "srtm_probe#ephemeral"
_SAMPLES_PER_SECOND = 500
"""At 1 % late that is five late messages a second: p99 of a minute rests on 300 of them."""
_READ_BYTES = 256 * 1024


def sample_rate(rate: float) -> int:
    """nsqd's sample_rate for a topic of `rate` msg/s; 0 takes all. nsqd lets a message pass where
    rand(100) <= sample_rate, so that s gives s + 1 percent."""
    wanted = math.ceil(100 * _SAMPLES_PER_SECOND / rate)
    return 0 if wanted >= 100 else max(1, wanted - 1)


def percent(sample_rate: int) -> int:
    """That nsqd lets pass."""
    return sample_rate + 1 if sample_rate else 100


class Probe:
    """One topic's probe. `closed` when nsqd has ended it."""

    def __init__(
        self,
        reactor: "Reactor",
        address: "NsqdAddress",
        topic: "Topic",
        deliveries: "Deliveries",
        max_msg_size: int,
    ) -> None:
        self._reactor = reactor
        self._topic = topic
        self._deliveries = deliveries
        self._frames = FrameReader(max_msg_size + 64)
        assert topic.limit is not None
        self._sample_rate = sample_rate(topic.limit.rate)
        self._seen = 0
        self._stride = 1  # of what nsqd samples, every how many-th is taken
        self._out = bytearray(
            MAGIC_V2
            + identify(
                json.dumps(
                    {
                        "client_id": "srtm-probe",
                        "hostname": "srtm-gateway",
                        "user_agent": "srtm/probe",
                        "feature_negotiation": True,
                        "output_buffer_size": -1,
                        "sample_rate": self._sample_rate,
                    }
                ).encode()
            )
            + sub(topic.name, CHANNEL.encode())
            + rdy(1000)
        )
        self.closed = False
        self._afterwards: list[Callable[[], None]] = []
        self._socket = address.connect()
        reactor.watch(self._socket.fileno(), self._on_event, READABLE, self.close)
        self._write(b"")

    def _write(self, data: bytes) -> None:
        self._out += data
        try:
            sent = self._socket.send(self._out)
        except BlockingIOError:
            return  # goes with the next delivery or heartbeat
        except OSError:
            self.close()
            return
        del self._out[:sent]

    def _on_event(self, mask: int) -> None:
        if not mask & READABLE and mask & BROKEN:
            self.close()
            return
        try:
            data = self._socket.recv(_READ_BYTES)
            raw, ends = self._frames.feed_raw(data)
        except BlockingIOError:
            return
        except (OSError, FrameError):
            data = b""
        if not data:
            self.close()
            return
        now = monotonic_ns()
        start = 0
        answers: list[bytes] = []
        for end in ends:
            if raw[start + 7] == MESSAGE:
                message = parse_message(raw[start + 8 : end])
                answers.append(fin(message.id))
                self._seen += 1
                if message.attempts == 1 and self._seen % self._stride == 0:
                    self._deliveries.probed(self._topic, message, now)
            elif raw[start:end] == HEARTBEAT_FRAME:
                answers.append(NOP)
            start = end
        if answers or self._out:
            self._write(b"".join(answers))

    def tick(self, rate: float) -> None:
        """Once a second: take no more than is wanted of what comes. Where the contract is for
        `rate` messages/s by now, and nsqd was asked for less than half of what that would need,
        or for more than twice as much, leave: the next probe asks anew."""
        self._stride = max(1, self._seen // _SAMPLES_PER_SECOND)
        self._seen = 0
        if not 0.5 <= percent(self._sample_rate) / percent(sample_rate(rate)) <= 2:
            self.leave()

    def leave(self, then: Callable[[], None] | None = None) -> None:
        """Stop receiving; nsqd closes its side once the channel has let go of us, and then
        `then` is called."""
        if then is not None:
            self._afterwards.append(then)
        if self.closed:
            self._finish()
            return
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.close()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._reactor.forget(self._socket.fileno())
            self._socket.close()
            self._finish()

    def _finish(self) -> None:
        afterwards, self._afterwards = self._afterwards, []
        for then in afterwards:
            then()
