"""pynsq's Writer and Reader, as they are, through the gateway."""

import asyncio
import time
from typing import Any

import nsq
import pytest

from tests.support.pynsq import connected, finish, in_loop
from tests.support.servers import GatewayProcess, Servers


@pytest.fixture(scope="module")
def lookupd(shared: Servers) -> tuple[str, str]:
    return shared.lookupd()[:2]


@pytest.fixture(scope="module")
def gateway(shared: Servers, lookupd: tuple[str, str]) -> GatewayProcess:
    return shared.gateway(
        "--topic=paced,rate=100,burst=10",
        "--topic=slow,rate=2,burst=1",
        "--topic=strict,rate=2,burst=2,mode=reject",
        f"--lookupd-tcp-address={lookupd[0]}",
        unix=True,
    )


class Answers:
    """Publishes and keeps what each callback is told, in order."""

    def __init__(self, writer: nsq.Writer) -> None:
        self.writer = writer
        self.got: list[tuple[int, Any]] = []
        self._changed = asyncio.Event()

    def pub(self, number: int, topic: str) -> None:
        body = b"%d" % number
        self.writer.pub(topic, body, callback=lambda conn, data: self.answered(number, data))

    def answered(self, number: int, data: Any) -> None:
        self.got.append((number, data))
        self._changed.set()

    async def wait(self, count: int) -> None:
        while len(self.got) < count:
            self._changed.clear()
            await self._changed.wait()


def test_a_writers_callbacks_come_in_order_and_a_reader_gets_every_message(
    gateway: GatewayProcess, lookupd: tuple[str, str]
) -> None:
    bodies: list[bytes] = []

    async def work() -> None:
        writer = nsq.Writer([gateway.tcp])
        await connected(writer)
        answers = Answers(writer)
        for number in range(200):
            answers.pub(number, "free")
            if number < 60:
                answers.pub(1000 + number, "paced")
        await answers.wait(260)
        numbers = [number for number in range(200) for number in _pair(number)]
        assert [number for number, _ in answers.got] == numbers
        assert {data for _, data in answers.got} == {b"OK"}
        done = asyncio.Event()
        writer.mpub("free", [b"m1", b"m2"], callback=lambda conn, data: done.set())
        await done.wait()
        deferred = asyncio.Event()
        writer.dpub("free", 100, b"d", callback=lambda conn, data: deferred.set())
        await deferred.wait()

        enough = asyncio.Event()

        def take(message: nsq.Message) -> bool:
            bodies.append(message.body)
            if len(set(bodies) - {b"d"}) == 202:
                enough.set()
            return True

        reader = nsq.Reader(
            topic="free",
            channel="c",
            message_handler=take,
            lookupd_http_addresses=[f"http://{lookupd[1]}"],
            lookupd_poll_interval=1,
            lookupd_poll_jitter=0.1,
            max_in_flight=50,
        )
        await enough.wait()
        assert [conn.port for conn in reader.conns.values()] == [int(gateway.tcp.split(":")[1])]
        reader.close()
        finish(writer)

    in_loop(work, 30)
    once = sorted(body for body in bodies if body != b"d")  # nsqd looks for due ones every 5 s
    assert once == sorted([b"m1", b"m2", *(b"%d" % number for number in range(200))])


def _pair(number: int) -> list[int]:
    return [number, 1000 + number] if number < 60 else [number]


def test_a_writer_that_waits_for_tokens_keeps_its_connection_and_its_heartbeats(
    gateway: GatewayProcess,
) -> None:
    async def work() -> None:
        writer = nsq.Writer([gateway.tcp], heartbeat_interval=1)
        await connected(writer)
        [conn] = writer.conns.values()
        answers = Answers(writer)
        started = time.monotonic()
        for number in range(4):
            answers.pub(number, "slow")
        await answers.wait(4)
        assert time.monotonic() - started > 1.3, "three of them waited half a second each"
        assert answers.got == [(number, b"OK") for number in range(4)]
        assert list(writer.conns.values()) == [conn]
        assert conn.connected()
        finish(writer)

    in_loop(work)


def test_over_the_limit_of_a_rejecting_topic_the_callback_gets_the_error_and_none_an_ok_of_another(
    gateway: GatewayProcess,
) -> None:
    """pynsq forgets its queue at an error frame: the gateway closes, so that no OK is left over.

    Where answers and the end come in one read, pynsq heeds the end first, and says of what was
    accepted that the connection is closed.
    """

    async def work() -> None:
        await asyncio.sleep(1)  # two tokens
        writer = nsq.Writer([gateway.tcp], reconnect_interval=0.1)
        await connected(writer)
        [first] = writer.conns.values()
        answers = Answers(writer)
        for number in range(6):
            answers.pub(number, "strict")
        while first.connected():
            await asyncio.sleep(0.01)
        assert [number for number, _ in answers.got] == list(range(6))
        accepted = [number for number, data in answers.got if data == b"OK"]
        assert accepted == [0, 1][: len(accepted)]
        assert all(isinstance(data, nsq.Error) for _, data in answers.got[len(accepted) :])
        await asyncio.sleep(0.6)
        await connected(writer)
        again = Answers(writer)
        again.pub(7, "strict")
        await again.wait(1)
        assert again.got == [(7, b"OK")]
        finish(writer)

    in_loop(work)
    assert gateway.nsqd.message_count("strict") == 3
    assert gateway.ours("strict")["admitted"] == 3
