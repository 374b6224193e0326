"""The publisher against a broker and a distributor that do what each test says."""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from srtm.client import NotSent, OutcomeUnknown, Publisher, Refused, SyncPublisher, features
from srtm.client.connection import Connection, dial
from srtm.client.place import Place
from srtm.client.route import State
from srtm.client.watch import join, leave
from srtm.http.client import Endpoint
from srtm.nsq.frames import OK_FRAME
from srtm.text.errors import SrtmError, UsageError
from tests.support.fake_distributor import FakeDistributor, fake_distributor
from tests.support.far_side import FarSide, error, far_side
from tests.support.servers import free_port


def run(work: Callable[[], Awaitable[None]], seconds: float = 100) -> None:
    async def limited() -> None:
        await asyncio.wait_for(work(), seconds)

    asyncio.run(limited())


async def until(condition: Callable[[], Any]) -> None:
    """The test's own time limit is the bound."""
    while not condition():
        await asyncio.sleep(0.005)


async def outcomes(receipts: list["asyncio.Future[None]"]) -> list[type[BaseException] | None]:
    ended = await asyncio.gather(*receipts, return_exceptions=True)
    return [type(each) if isinstance(each, BaseException) else None for each in ended]


# --- one gateway --------------------------------------------------------------------------------


def test_messages_are_pipelined_in_order_and_heartbeats_answered() -> None:
    async def work() -> None:
        async with far_side() as far, Publisher("t", nsqd=far.address) as publisher:
            far.answering.clear()
            receipts = [await publisher.send(b"%d" % number) for number in range(50)]
            await until(lambda: far.bodies)
            assert not any(receipt.done() for receipt in receipts)
            far.answering.set()
            await publisher.publish(b"last")
            assert all(receipt.done() for receipt in receipts)
            assert far.bodies == [*(b"%d" % number for number in range(50)), b"last"]
            await until(lambda: far.beats)
        assert far.connections == 1

    run(work)


def test_no_more_than_max_in_flight_are_unanswered() -> None:
    async def work() -> None:
        async with (
            far_side() as far,
            Publisher("t", nsqd=far.address, max_in_flight=3) as publisher,
        ):
            far.answering.clear()
            sending = [asyncio.create_task(publisher.send(b"%d" % n)) for n in range(5)]
            await until(lambda: far.bodies)
            assert [task.done() for task in sending] == [True, True, True, False, False]
            far.answering.set()
            for task in sending:
                await (await task)
            assert far.bodies == [b"0", b"1", b"2", b"3", b"4"]

    run(work)


def test_a_batch_is_one_command_and_one_bigger_than_the_window_goes_alone() -> None:
    async def work() -> None:
        async with (
            far_side() as far,
            Publisher("t", nsqd=far.address, max_in_flight=2) as publisher,
        ):
            first = await publisher.send(b"first")
            await publisher.publish_many([b"a", b"b", b"c"])
            assert first.done()
            await publisher.publish_many([])
            assert far.bodies == [b"first", b"a", b"b", b"c"]
            assert far.commands == 2

    run(work)


def test_before_the_gateway_is_up_messages_wait_for_it() -> None:
    async def work() -> None:
        port = free_port()
        async with Publisher("t", nsqd=f"127.0.0.1:{port}") as publisher:
            receipt = await publisher.send(b"early")
            await until(lambda: publisher._route.failures >= 2)
            async with far_side(port=port) as far:
                await receipt
                assert far.bodies == [b"early"]

    run(work)


@pytest.mark.parametrize("host", ["127.0.0.1", "a..b"])
def test_where_nobody_was_ever_reached_a_message_fails_in_time(
    host: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        port = free_port()
        async with Publisher("t", nsqd=f"{host}:{port}", place_timeout=0.3) as publisher:
            with pytest.raises(NotSent, match=r"no connection within 0\.3 s .*correct nsqd="):
                await publisher.publish(b"early")
            if host == "127.0.0.1":
                async with far_side(port=port) as far:
                    while not far.bodies:  # it waits longer and longer between its attempts
                        with contextlib.suppress(NotSent):
                            await publisher.publish(b"later")
                    assert far.bodies == [b"later"]

    run(work)
    warned = [each for each in caplog.records if each.levelname == "WARNING"]
    assert len(warned) == 1, "the first attempt that failed is told, once"


def test_only_what_was_sent_and_not_answered_has_an_unknown_outcome() -> None:
    """The connection dies at the third message; the fourth and fifth were sent behind it."""

    async def work() -> None:
        def reply(number: int, _body: bytes) -> bytes | None:
            return None if number == 3 else OK_FRAME

        async with far_side(reply) as far, Publisher("t", nsqd=far.address) as publisher:
            far.answering.clear()
            receipts = [await publisher.send(b"%d" % number) for number in range(5)]
            await until(lambda: far.bodies)
            far.answering.set()
            ended = await outcomes(receipts)
            assert ended == [None, None, OutcomeUnknown, OutcomeUnknown, OutcomeUnknown]
            await publisher.publish(b"after")
            assert far.bodies[3:] == [b"after"], "nothing is sent again by itself"
            assert far.connections == 2

    run(work)


def test_a_message_over_the_limit_is_refused_and_those_behind_it_are_sent_in_order() -> None:
    async def work() -> None:
        def reply(_number: int, body: bytes) -> bytes:
            if body in (b"1", b"3"):
                return error(b"E_PUB_FAILED over the limit of topic t (2/s, burst 2)")
            return OK_FRAME

        async with far_side(reply) as far, Publisher("t", nsqd=far.address) as publisher:
            far.answering.clear()
            receipts = [await publisher.send(b"%d" % number) for number in range(6)]
            await until(lambda: far.bodies)
            far.answering.set()
            assert await outcomes(receipts) == [None, Refused, None, Refused, None, None]
            refusal = receipts[1].exception()
            assert isinstance(refusal, Refused)
            assert refusal.code == "E_PUB_FAILED"
            assert refusal.sentence.startswith("over the limit")
            assert far.bodies == [b"0", b"1", b"2", b"3", b"4", b"5"]

    run(work)


def test_behind_a_failure_to_write_the_outcome_is_unknown() -> None:
    async def work() -> None:
        def reply(number: int, _body: bytes) -> bytes:
            return error(b"E_PUB_FAILED PUB failed: disk full") if number == 2 else OK_FRAME

        async with far_side(reply) as far, Publisher("t", nsqd=far.address) as publisher:
            far.answering.clear()
            receipts = [await publisher.send(b"%d" % number) for number in range(4)]
            await until(lambda: far.bodies)
            far.answering.set()
            ended = await outcomes(receipts)
            assert ended == [None, Refused, OutcomeUnknown, OutcomeUnknown]

    run(work)


def test_a_far_side_that_is_no_nsqd_is_left_and_tried_again() -> None:
    async def work() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        publisher = Publisher("t", nsqd=address, close_seconds=0.2)
        async with publisher:
            receipt = await publisher.send(b"x")
            await until(lambda: publisher._route.failures >= 2)
        assert await outcomes([receipt]) == [NotSent]
        server.close()

    run(work)


def test_who_gives_up_before_it_is_sent_is_not_sent_and_leaves_its_room() -> None:
    async def work() -> None:
        port = free_port()
        async with Publisher("t", nsqd=f"127.0.0.1:{port}", max_in_flight=2) as publisher:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(publisher.publish(b"given up"), 0.02)
            receipts = [await publisher.send(b"1"), await publisher.send(b"2")]
            async with far_side(port=port) as far:
                assert await outcomes(receipts) == [None, None]
                assert far.bodies == [b"1", b"2"]

    run(work)


def test_closed_early_each_message_knows_whether_it_was_sent() -> None:
    async def work() -> None:
        async with far_side() as far:
            far.answering.clear()
            publisher = Publisher("t", nsqd=far.address, close_seconds=0.2)
            async with publisher:
                sent = await publisher.send(b"sent")
                await until(lambda: far.bodies)
            assert await outcomes([sent]) == [OutcomeUnknown]
            with pytest.raises(NotSent, match="is closed"):
                await publisher.publish(b"late")
            await publisher.close()
            far.answering.set()
            await until(lambda: not far.open)

    run(work)


# --- moves --------------------------------------------------------------------------------------


def test_a_move_waits_for_the_oks_and_keeps_the_order() -> None:
    async def work(fake: FakeDistributor) -> None:
        async with far_side() as old, far_side() as new:
            fake.place(p=old.address)
            async with Publisher("t", id="p", distributor=fake.address) as publisher:
                await publisher.publish(b"0")
                old.answering.clear()
                receipts = [await publisher.send(b"%d" % number) for number in range(1, 4)]
                await until(lambda: len(old.bodies) == 2)
                fake.place(p=new.address)
                await until(lambda: publisher._route.state.value == "leaving")
                receipts += [await publisher.send(b"%d" % number) for number in range(4, 7)]
                await asyncio.sleep(0)
                assert new.connections == 0, "it does not go before it has its answers"
                old.answering.set()
                assert await outcomes(receipts) == [None] * 6
                assert old.bodies == [b"0", b"1", b"2", b"3"]
                assert new.bodies == [b"4", b"5", b"6"]
                assert (publisher.address, publisher.moves) == (new.address, 1)
                await until(lambda: not old.open)

    with fake_distributor() as fake:
        run(lambda: work(fake))


class Patient:
    """A member that goes on where it is refused, as a bridge's lanes do."""

    id, key, rate = "p", None, 1.0

    def __init__(self) -> None:
        self.refusals = 0

    def placed(self, place: Place) -> None: ...

    def unplaced(self) -> None: ...

    def unanswered(self, why: str) -> None: ...

    def failed(self, error: SrtmError) -> bool:
        self.refusals += 1
        return False


def test_who_was_refused_is_registered_once_it_is_not_any_more() -> None:
    """Its topic may be made between the refusal and the stream, which then goes on for ever."""

    async def work(fake: FakeDistributor) -> None:
        fake.refused = 2
        member = Patient()
        endpoint = Endpoint(fake.address)
        join(endpoint, "t", member)
        await until(lambda: "p" in fake.places)
        leave(endpoint, "t", member)
        assert member.refusals == 2

    with fake_distributor() as fake:
        run(lambda: work(fake))


def test_while_the_distributor_is_away_publishers_go_on_and_learn_of_moves_afterwards() -> None:
    async def work(fake: FakeDistributor) -> None:
        async with far_side() as old, far_side() as new:
            fake.place(p=old.address)
            async with Publisher("t", id="p", distributor=fake.address) as publisher:
                await publisher.publish(b"before")
                await asyncio.to_thread(fake.stop)
                await publisher.publish(b"away")
                fake.place(p=new.address)
                fake.start()
                await until(lambda: publisher.address == new.address)
                await publisher.publish(b"after")
            assert old.bodies == [b"before", b"away"]
            assert new.bodies == [b"after"]

    with fake_distributor() as fake:
        run(lambda: work(fake))


def test_who_is_not_placed_yet_waits_and_then_sends() -> None:
    async def work(fake: FakeDistributor) -> None:
        async with far_side() as far:
            fake.place(p=None)
            async with Publisher("t", id="p", distributor=fake.address) as publisher:
                receipt = await publisher.send(b"x")
                await until(lambda: fake.watches)
                assert publisher.address == ""
                fake.place(p=far.address)
                await receipt
                assert far.bodies == [b"x"]

    with fake_distributor() as fake:
        run(lambda: work(fake))


@pytest.mark.parametrize(
    ("known", "remedy"),
    [
        pytest.param(True, "srtm placement apply t --keep places it", id="without-a-broker"),
        pytest.param(False, "nothing listens there; start it", id="no-distributor-answers"),
    ],
)
def test_a_message_without_a_place_fails_in_time_and_a_later_one_is_sent(
    known: bool, remedy: str
) -> None:
    async def work() -> None:
        with fake_distributor() as distributor:
            distributor.places["p"] = None
            if not known:
                distributor.stop()
            publisher = Publisher(
                "t", id="p", rate=1, distributor=distributor.address, place_timeout=0.5
            )
            async with far_side() as far, publisher:
                receipts = [await publisher.send(b"early"), await publisher.send(b"too")]
                [error, _] = await asyncio.gather(*receipts, return_exceptions=True)
                assert isinstance(error, NotSent)
                assert "publisher p of topic t has no place" in str(error)
                assert remedy in str(error)
                assert "\n" not in str(error)
                await publisher.flush()
                if known:
                    distributor.place(p=far.address)
                    await publisher.publish(b"late")
                    assert far.bodies == [b"late"]

    run(work)


def test_a_named_gateway_that_refuses_us_ends_what_waits_in_time() -> None:
    async def work(fake: FakeDistributor) -> None:
        async with far_side() as far:
            fake.place(p=far.address)
            asked = features(tls_v1=True)
            async with Publisher(
                "t", id="p", distributor=fake.address, features=asked, place_timeout=0.5
            ) as publisher:
                with pytest.raises(NotSent, match="offers no TLS"):
                    await publisher.publish(b"x")
            assert not far.bodies

    with fake_distributor() as fake:
        run(lambda: work(fake))


def test_who_is_placed_nowhere_any_more_stays_connected_and_sends_nothing() -> None:
    async def work(fake: FakeDistributor) -> None:
        async with far_side() as far, far_side() as other:
            fake.place(p=far.address)
            async with Publisher("t", id="p", distributor=fake.address) as publisher:
                await publisher.publish(b"1")
                fake.place(p=None)
                await until(lambda: publisher._route.state is State.HELD)
                held = await publisher.send(b"2")
                await asyncio.sleep(0)  # the turn in which it would be sent
                assert not held.done()
                assert not publisher._outbox.in_flight
                assert far.open == 1
                fake.place(p=far.address)
                await held
                assert far.connections == 1, "the same connection"
                fake.place(p=None)
                await until(lambda: publisher._route.state is State.HELD)
                held = await publisher.send(b"3")
                fake.place(p=other.address)
                await held
            assert (far.bodies, other.bodies) == ([b"1", b"2"], [b"3"])

    with fake_distributor() as fake:
        run(lambda: work(fake))


def test_many_publishers_register_together_and_share_one_stream() -> None:
    async def work(fake: FakeDistributor) -> None:
        async with far_side() as far:
            publishers = [
                Publisher("t", key=f"k{n % 3}", id=f"p{n}", rate=2.5, distributor=fake.address)
                for n in range(100)
            ]
            for publisher in publishers:
                await publisher.__aenter__()
            sending = [asyncio.create_task(each.publish(b"x")) for each in publishers]
            await until(lambda: fake.watches)
            fake.place(**{each.id: far.address for each in publishers})
            await asyncio.gather(*sending)
            assert len(fake.registered) == 1
            assert {each["id"] for each in fake.registered[0]} == {p.id for p in publishers}
            assert fake.registered[0][0] == {"id": "p0", "rate": 2.5, "key": "k0"}
            assert len(fake.watches) == 1
            assert len(far.bodies) == 100
            for publisher in publishers:
                await publisher.close()

    with fake_distributor() as fake:
        run(lambda: work(fake))


def test_who_is_not_registered_and_gives_no_rate_is_told_what_to_do() -> None:
    async def work(fake: FakeDistributor) -> None:
        async with Publisher("t", id="who", distributor=fake.address) as publisher:
            receipt = await publisher.send(b"x")
            assert await outcomes([receipt]) == [NotSent]
            with pytest.raises(UsageError, match="who: it is not registered with topic t"):
                await publisher.publish(b"y")

    with fake_distributor() as fake:
        run(lambda: work(fake))


def test_a_publisher_that_the_distributor_has_forgotten_registers_again() -> None:
    async def work(fake: FakeDistributor) -> None:
        async with far_side() as far:
            async with Publisher("t", id="p", rate=1, distributor=fake.address) as publisher:
                await until(lambda: fake.registered)
                fake.place(p=far.address)
                await publisher.publish(b"x")
                fake.places.clear()
                fake.place()
                await until(lambda: len(fake.registered) == 2)
                fake.place(p=far.address)  # who registers anew is placed nowhere, and held
                await publisher.publish(b"y")
            assert far.bodies == [b"x", b"y"]

    with fake_distributor() as fake:
        run(lambda: work(fake))


def test_the_token_comes_from_a_file_that_only_its_owner_may_read(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    token.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        Publisher("t", id="p", distributor="127.0.0.1:1", token_file=str(token))
    token.chmod(0o600)

    async def work(fake: FakeDistributor) -> None:
        fake.token = "0123456789abcdef"
        async with far_side() as far:
            fake.place(p=far.address)
            publisher = Publisher("t", id="p", distributor=fake.address, token_file=str(token))
            async with publisher:
                await publisher.publish(b"x")
            assert "0123456789abcdef" not in repr(publisher._endpoint)

    with fake_distributor() as fake:
        run(lambda: work(fake))


def test_two_of_one_id_in_one_process_are_refused() -> None:
    async def work(fake: FakeDistributor) -> None:
        fake.place(p=None)
        async with Publisher("t", id="p", distributor=fake.address):
            with pytest.raises(UsageError, match="publisher p of topic t is open already"):
                await Publisher("t", id="p", distributor=fake.address).__aenter__()

    with fake_distributor() as fake:
        run(lambda: work(fake))


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param({"topic": "a b", "nsqd": "h:1"}, "is not a topic name", id="topic"),
        pytest.param({"topic": "t"}, "needs distributor= or nsqd=", id="nowhere-to-send"),
        pytest.param(
            {"topic": "t", "nsqd": "h:1", "distributor": "h:2"}, "and not both", id="both"
        ),
        pytest.param({"topic": "t", "nsqd": "h"}, "'h' is not an address", id="no-port"),
        pytest.param({"topic": "t", "distributor": "h:1"}, "give id=", id="no-id"),
        pytest.param(
            {"topic": "t", "distributor": "h:1", "id": "p", "key": "k"},
            "give rate= too",
            id="a-key-without-a-rate",
        ),
        pytest.param(
            {"topic": "t", "distributor": "h:1", "id": "p", "rate": -1.0}, "rate=-1.0", id="rate"
        ),
        pytest.param(
            {"topic": "t", "nsqd": "h:1", "rate": 1.0}, "are for a distributor", id="idle-rate"
        ),
    ],
)
def test_a_publisher_of_no_sense_is_refused_in_one_line(
    arguments: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        Publisher(**arguments)


@pytest.mark.parametrize("body", [b"", "text", None], ids=["empty", "text", "nothing"])
def test_what_is_no_message_is_refused_before_it_is_sent(body: Any) -> None:
    async def work() -> None:
        async with far_side() as far, Publisher("t", nsqd=far.address) as publisher:
            with pytest.raises(UsageError, match="one byte or more"):
                await publisher.publish(body)
            with pytest.raises(UsageError, match="one byte or more"):
                await publisher.publish_many([b"good", body])
            assert far.commands == 0

    run(work)


# --- without a loop -----------------------------------------------------------------------------


def in_thread(far: FarSide, started: threading.Event, stop: threading.Event) -> None:
    async def work() -> None:
        async with far_side(far.reply) as served:
            far.address = served.address
            far.bodies = served.bodies
            started.set()
            await asyncio.to_thread(stop.wait)

    asyncio.run(work())


def test_a_script_publishes_without_a_loop() -> None:
    def reply(_number: int, body: bytes) -> bytes:
        return error(b"E_BAD_MESSAGE no") if body == b"bad" else OK_FRAME

    async def made() -> FarSide:
        return FarSide(reply)

    far = asyncio.run(made())
    started, stop = threading.Event(), threading.Event()
    server = threading.Thread(target=in_thread, args=(far, started, stop))
    server.start()
    try:
        started.wait(10)
        publisher = SyncPublisher("t", nsqd=far.address)
        with pytest.raises(UsageError, match="inside its `with` block"):
            publisher.publish(b"too early")
        with publisher:
            publisher.publish(b"1")
            publisher.publish_many([b"2", b"3"])
            receipts = [publisher.send(b"%d" % number) for number in range(4, 8)]
            with pytest.raises(Refused, match="E_BAD_MESSAGE no"):
                publisher.publish(b"bad")
            publisher.flush()
            assert [receipt.result(10) for receipt in receipts] == [None] * 4
        assert far.bodies == [b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"bad"]
        assert not publisher._thread.is_alive()
        with pytest.raises(UsageError, match="inside its `with` block"):
            publisher.publish(b"too late")
    finally:
        stop.set()
        server.join(10)


# --- the connection -----------------------------------------------------------------------------


class Deaf:
    """Who hears of a connection, and does nothing."""

    def replied(self, kind: int, data: bytes) -> None: ...

    def writable(self) -> None: ...

    def broken(self, connection: Connection) -> None: ...


def test_nothing_is_written_to_a_connection_that_is_being_closed() -> None:
    """Its end is told a turn of the loop later; what is written until then would be lost."""

    async def work() -> None:
        async with far_side() as far:
            connection = await dial(far.address, Deaf())
            assert connection.can_write
            connection.abort()
            assert not connection.can_write
            assert connection.alive
            await until(lambda: not connection.alive)

    run(work)
