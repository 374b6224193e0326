"""The publishers of `moves` on real brokers: each follows its moves, and each message is noted."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

import numpy as np

from benchmarks.harness.world import distributor_address, distributor_of
from srtm.client import Publisher
from srtm.client.place import Place
from srtm.deploy.up import Running
from srtm.limits.queueing import Floats
from srtm.load.schedule import Ints
from srtm.nsq.commands import fin, rdy, sub
from srtm.nsq.connection import Connection
from srtm.nsq.frames import MESSAGE, parse_message
from srtm.text.errors import UnavailableError

TOPIC = "sensors"
SIZE = 480
"""bytes of a message's body"""
_UNANSWERED = 100_000
"""messages of a publisher: its load stays open"""
_READY_SECONDS, _DRAIN_SECONDS = 20.0, 30.0
_POLL_SECONDS = 0.1
_READ_BYTES = 1 << 16


class _Follower(Publisher):
    """told: when it was told to go elsewhere, monotonic seconds"""

    def __init__(self, id: str, distributor: str) -> None:
        super().__init__(
            TOPIC,
            id=id,
            distributor=distributor,
            max_in_flight=_UNANSWERED,
            close_seconds=_POLL_SECONDS,
        )
        self.told: list[float] = []
        self._goal = ""

    def placed(self, place: Place) -> None:
        if self._goal and place.address not in ("", self._goal):
            self.told.append(asyncio.get_running_loop().time())
        self._goal = place.address or self._goal
        super().placed(place)


class Arm:
    """The topic on brokers of its own.

    handed, acknowledged, received: by message, monotonic seconds; nan where it did not happen
    stored:   by message, ns of nsqd's clock; 0 where it was not
    receipts: by message, how often it was received
    refused:  messages that ended without an OK
    """

    def __init__(
        self, up: Running, mode: str, contract: dict[str, object], rates: Sequence[float]
    ) -> None:
        """mode: of migration; rates: messages/s that the publishers are registered with. The topic
        is placed: the first half of `publishers` is on the first broker."""
        self._up = up
        self.publishers: list[_Follower] = []
        remote, topic = distributor_of(up), ("topics", TOPIC)
        remote.call("PUT", *topic, body=contract)
        remote.call("PUT", *topic, "migration", body={"mode": mode})
        rows = [{"id": f"p{number}", "rate": rate} for number, rate in enumerate(rates)]
        remote.call("POST", *topic, "publishers", body={"publishers": rows})
        placed = remote.call("POST", *topic, "placements", body={"policy": "lb"})
        order = sorted((each["broker"], each["publisher"]) for each in placed["assignments"])
        self._ids = [publisher for _, publisher in order]

    async def enter(self, stack: AsyncExitStack, messages: int) -> None:
        """Subscribe, connect the publishers, and wait for their places. Raises UnavailableError."""
        self.handed, self.acknowledged, self.received = np.full((3, messages), np.nan)
        self.stored, self.receipts = np.zeros((2, messages), dtype=np.int64)
        self.refused = 0
        for broker in self._up.brokers:
            task = asyncio.create_task(self._consume(broker.nsqd_tcp_socket))
            stack.callback(task.cancel)
        address = distributor_address(self._up)
        for each in self._ids:
            follower = _Follower(each, address)
            await stack.enter_async_context(follower)
            self.publishers.append(follower)
        for _ in range(int(_READY_SECONDS / _POLL_SECONDS)):
            if all(each.address for each in self.publishers):
                return
            await asyncio.sleep(_POLL_SECONDS)
        raise UnavailableError(f"not within {_READY_SECONDS:g} s: each publisher has its place")

    async def send(self, number: int, publisher: int) -> None:
        self.handed[number] = asyncio.get_running_loop().time()
        receipt = await self.publishers[publisher].send(b"%0*d" % (SIZE, number))
        receipt.add_done_callback(lambda done: self._answered(number, done))

    def _answered(self, number: int, done: "asyncio.Future[None]") -> None:
        if done.cancelled() or done.exception() is not None:
            self.refused += 1
        else:
            self.acknowledged[number] = asyncio.get_running_loop().time()

    async def _consume(self, nsqd: str) -> None:
        """From nsqd's own socket: answers to messages take nothing of what its gateway may send."""
        reader, writer = await asyncio.open_unix_connection(nsqd)
        v2 = Connection(writer.write, {"output_buffer_size": -1}, 1 << 20)
        writer.write(sub(TOPIC.encode(), b"all") + rdy(2_500))
        while data := await reader.read(_READ_BYTES):
            now = asyncio.get_running_loop().time()
            for kind, content in v2.receive(data):
                if kind == MESSAGE:
                    message = parse_message(content)
                    writer.write(fin(message.id))
                    self._received(int(message.body), message.timestamp_ns, now)

    def _received(self, number: int, stored: int, now: float) -> None:
        self.receipts[number] += 1
        if self.receipts[number] == 1:
            self.received[number], self.stored[number] = now, stored

    @property
    def is_done(self) -> bool:
        """Is every message answered, and was each that has an OK received?"""
        known = ~np.isnan(self.acknowledged)
        answered = int(np.count_nonzero(known)) + self.refused
        return answered == known.size and bool((self.receipts[known] > 0).all())


async def play(arms: Sequence[Arm], times: Floats, who: Ints) -> float:
    """Give each message to all arms at its time, and wait for what becomes of it. Returns the time
    of 0 in monotonic seconds."""
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        for arm in arms:
            await arm.enter(stack, times.size)
        await asyncio.sleep(1.0)  # publishers connect, and buckets fill
        began_at = loop.time()
        for number, (at, publisher) in enumerate(zip(times.tolist(), who.tolist(), strict=True)):
            await asyncio.sleep(max(0.0, began_at + at - loop.time()))
            for arm in arms:
                await arm.send(number, publisher)
        deadline = loop.time() + _DRAIN_SECONDS
        while loop.time() < deadline and not all(arm.is_done for arm in arms):
            await asyncio.sleep(_POLL_SECONDS)
    return began_at
