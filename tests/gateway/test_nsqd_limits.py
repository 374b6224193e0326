"""nsqd's limits are those of the process that is there: whoever restarts it may change them."""

import contextlib
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from srtm.gateway.backlog import Bounds
from srtm.gateway.run import Run
from srtm.gateway.topic import Topic
from srtm.limits.contract import Fair, Limit, Mode
from srtm.nsq.commands import Limits, Publish, dpub, first_refused, message, mpub, pub
from srtm.nsq.errors import ProtocolError
from tests.gateway.test_topic_bucket_time import NS, ORDERS, World
from tests.support.cases import cases
from tests.support.servers import GatewayProcess, Servers, http, wait_for
from tests.support.v2 import V2

SMALL = Limits(max_msg_size=10, max_body_size=40, max_req_timeout_ms=1000)


def batch(*sizes: int) -> Publish:
    chunk = b"".join(message(b"x" * size) for size in sizes)
    return Publish(b"t", [chunk], len(sizes), True, None)


def singles(*sizes: int) -> Publish:
    return Publish(b"t", [message(b"x" * size) for size in sizes], len(sizes), False, None)


def deferred(size: int, defer_ms: int) -> Publish:
    return Publish(b"t", [message(b"x" * size)], 1, True, defer_ms)


@pytest.mark.parametrize(
    ("publish", "refused"),
    [
        pytest.param(singles(10, 1), None, id="PUBs-that-fit"),
        pytest.param(
            singles(10, 11, 12), (1, "E_BAD_MESSAGE PUB message too big 11 > 10"), id="a-big-PUB"
        ),
        pytest.param(batch(10, 10), None, id="an-MPUB-that-fits"),
        pytest.param(
            batch(10, 11), (0, "E_BAD_MESSAGE MPUB message too big 11 > 10"), id="a-big-message"
        ),
        pytest.param(
            batch(10, 10, 10), (0, "E_BAD_BODY MPUB body too big 46 > 40"), id="a-big-body"
        ),
        pytest.param(deferred(10, 1000), None, id="a-DPUB-that-fits"),
        pytest.param(
            deferred(11, 0), (0, "E_BAD_MESSAGE DPUB message too big 11 > 10"), id="a-big-DPUB"
        ),
        pytest.param(
            deferred(11, 1001), (0, "E_INVALID DPUB timeout 1001 out of range 0-1000"),
            id="a-late-DPUB",
        ),
    ],
)  # fmt: skip
def test_what_nsqd_refuses_by_other_limits(
    publish: Publish, refused: tuple[int, str] | None
) -> None:
    found = first_refused(publish, SMALL)
    assert (found and (found[0], str(found[1]))) == refused


def of_sizes(topic: Topic, run: Run, sizes: Sequence[int]) -> None:
    """Give the messages of a run that has been offered these sizes."""
    run.messages = [message(b"x" * size) for size in sizes]
    size = sum(map(len, run.messages))
    topic.backlog.shrink(0, run.size - size)
    run.size = size


@pytest.mark.parametrize("rate", [0.001, 1e6])
@pytest.mark.parametrize(
    ("sizes", "taken"),
    [
        pytest.param((1, 1, 30, 1), 2, id="in-the-middle"),
        pytest.param((30, 1), 0, id="first"),
        pytest.param((1, 30), 1, id="last"),
        pytest.param((1, 1), 2, id="none"),
    ],
)
def test_of_the_pubs_of_one_read_those_before_the_big_one_go(
    rate: float, sizes: tuple[int, ...], taken: int
) -> None:
    """Whether they have their tokens or not; a neighbour's are not touched."""
    world = World(rate, 1.0)
    topic = world.topic
    world.is_open = rate > 1
    topic.in_flight = 2  # nothing leaves
    world.offer(NS, 1, False)
    [neighbour] = topic.arrivals
    world.offer(NS, len(sizes), False)
    run = topic.arrivals[-1]
    of_sizes(topic, run, sizes)
    world.wake(2 * NS)
    topic.follow(SMALL, Bounds(10**9, 10**12, 40))
    topic.in_flight, world.is_open = 0, True
    topic.set_limit(None, 3 * NS)
    while world.nsqd.batches:
        topic.acknowledged(world.nsqd.batches.pop(), 4 * NS)
    meter = topic.meter
    assert (neighbour.left, run.left) == (0, 0)
    assert (meter.admitted, meter.rejected) == (1 + taken, len(sizes) - taken)
    assert meter.offered == meter.admitted + meter.rejected
    assert (topic.backlog.messages, topic.backlog.bytes) == (0, 0)
    error = ProtocolError("E_BAD_MESSAGE", "PUB message too big 30 > 10")
    assert run.refused == (error if taken < len(sizes) else None)


def counted(world: World) -> dict[str, int]:
    meter = world.topic.meter
    names = ("admitted", "rejected", "failed", "unknown", "abandoned")
    return {name: getattr(meter, name) for name in names}


@settings(max_examples=cases(200))
@given(
    st.lists(st.sampled_from([1, 9, 30]), min_size=1, max_size=6),
    st.integers(1, 6),
    st.integers(0, 6),
    st.lists(
        st.sampled_from(["lower", "reject", "leave", "answer", "second", "fault"]), max_size=5
    ),
    ORDERS,
)
@example([1, 30], 1, 0, ["answer", "lower", "leave"], None)
def test_each_message_has_one_end(
    sizes: list[int], burst: int, fit: int, events: list[str], fair: Fair | None
) -> None:
    """However many have their tokens, or are stored, when nsqd's limits fall, tokens are refused
    and clients leave: offered is the sum of all ends, and nothing is held for those who left. fit:
    messages in an MPUB"""
    bounds = Bounds(10**9, 10**12, 4 + max(sizes) * max(fit, 1))
    world = World(1.0, float(burst), bounds, fair)
    topic, now = world.topic, NS
    world.publisher.lose = world.topic.give_up  # type: ignore[method-assign]
    world.offer(now, len(sizes), False)
    [run] = topic.arrivals
    of_sizes(topic, run, sizes)
    world.offer(now, 2, True)
    topic.decide(now, now)
    topic.pump(now)
    for event in events:
        now += NS // 3
        if event == "lower":
            while world.nsqd.batches:  # nothing is at nsqd that starts anew
                topic.lost(world.nsqd.batches.pop(0))
            topic.follow(SMALL, Bounds(10**9, 10**12, 40))
        elif event == "reject":
            topic.set_limit(Limit(rate=1.0, burst=burst, mode=Mode.REJECT, fair=fair), now)
        elif event == "leave":
            topic.give_up(run)
            assert not run.messages
        elif event == "answer" and world.nsqd.batches:
            topic.acknowledged(world.nsqd.batches.pop(0), now)
        elif event == "fault":
            topic.lose_waiting()
        else:
            topic.release(now)
        waits = sum(each.count for each in topic.ready if not each.run.void)
        left_behind = sum(each.count for each in topic.ready if each.run.void)
        at_nsqd = sum(each.count for each in world.nsqd.batches)
        ends = sum(counted(world).values())
        assert topic.meter.offered == ends + topic.waiting + waits + left_behind + at_nsqd
        first = topic.held.first(0)
        assert (first is None) == (not topic.held)
        assert first is None or not first.void, "who waits first is there"
    topic.set_limit(None, now)
    while world.nsqd.batches:
        topic.acknowledged(world.nsqd.batches.pop(0), now)
    assert topic.meter.offered == sum(counted(world).values()) == len(sizes) + 2
    assert (topic.backlog.messages, topic.backlog.bytes, topic.waiting) == (0, 0, 0)


# --- real ones --------------------------------------------------------------------------------


class Broker:
    """An nsqd that is restarted with other flags under a gateway that runs on."""

    def __init__(self, servers: Servers, *flags: str) -> None:
        self.gateway = servers.gateway(*flags)
        self.arguments = list(self.gateway.nsqd.process.arguments)

    @contextlib.contextmanager
    def restarted(self, *flags: str) -> Iterator[GatewayProcess]:
        process = self.gateway.nsqd.process
        process.stop()
        wait_for(lambda: http(self.gateway.http, "/ping")[0] == 500, "nsqd is away")
        process.arguments = [*self.arguments, *flags]
        process.start()
        self.gateway.nsqd.wait_ready()
        wait_for(lambda: http(self.gateway.http, "/ping")[0] == 200, "nsqd is back")
        yield self.gateway


@pytest.fixture(scope="module")
def broker(shared: Servers) -> Broker:
    return Broker(shared)


LOWER = ("--max-msg-size=1000", "--max-body-size=2000", "--max-req-timeout=10s")
HIGHER = ("--max-msg-size=2000000", "--max-body-size=8000000", "--max-rdy-count=4000")
TOO_BIG = b"E_BAD_MESSAGE PUB message too big 1500 > 1000"


@pytest.mark.parametrize(
    ("command", "answers"),
    [
        pytest.param(pub(b"TOPIC", b"x" * 1500), [TOO_BIG], id="PUB"),
        pytest.param(
            pub(b"TOPIC", b"x") + pub(b"TOPIC", b"x" * 1500) + pub(b"TOPIC", b"y"),
            [b"OK", TOO_BIG],
            id="PUBs-of-one-read",
        ),
        pytest.param(
            mpub(b"TOPIC", [message(b"x" * 1500)], 1),
            [b"E_BAD_MESSAGE MPUB message too big 1500 > 1000"],
            id="MPUB",
        ),
        pytest.param(
            mpub(b"TOPIC", [message(b"x" * 900)] * 3, 3),
            [b"E_BAD_BODY MPUB body too big 2716 > 2000"],
            id="MPUB-body",
        ),
        pytest.param(
            dpub(b"TOPIC", 20_000, message(b"x")),
            [b"E_INVALID DPUB timeout 20000 out of range 0-10000"],
            id="DPUB-timeout",
        ),
        pytest.param(pub(b"TOPIC", b"x" * 900), [b"OK"], id="PUB-that-fits"),
    ],
)
def test_what_waits_is_judged_by_the_new_limits(
    broker: Broker, request: pytest.FixtureRequest, command: bytes, answers: list[bytes]
) -> None:
    """One that is too big gets nsqd's own error; whoever waits beside it is stored."""
    topic = f"t{abs(hash(request.node.name))}"
    with broker.restarted() as gateway:
        gateway.set_limit(topic, rate=0.001, burst=1)
        with V2(gateway.tcp) as big, V2(gateway.tcp) as small:
            small.send(pub(topic.encode(), b"takes the token"))
            small.oks(1)
            big.send(command.replace(b"TOPIC", topic.encode()))
            wait_for(lambda: gateway.inside(topic)["waiting"], "it waits")
            small.send(pub(topic.encode(), b"small"))
            with broker.restarted(*LOWER):
                gateway.set_limit(topic, rate=1e6, burst=1e6)
                assert [big.reply() for _ in answers] == answers
                assert small.reply() == b"OK"
                if answers != [b"OK"]:
                    assert big.ended()


def test_clients_that_stay_are_read_by_the_new_limits(broker: Broker) -> None:
    with broker.restarted() as gateway, V2(gateway.tcp) as client, V2(gateway.tcp) as other:
        client.send(pub(b"stays", b"x"))
        client.oks(1)
        other.send(pub(b"stays", b"x" * 1500)[:-1])  # of which the last byte is missing
        with broker.restarted(*LOWER):
            other.send(b"x")
            assert other.reply() == TOO_BIG
            assert http(gateway.http, "/pub?topic=stays", b"x" * 1500)[0] == 413
            with broker.restarted(*HIGHER):
                client.send(pub(b"stays", b"x" * 1_500_000))
                client.oks(1)
                assert http(gateway.http, "/pub?topic=stays", b"x" * 1_500_000)[0] == 200
                answer = client.identify(feature_negotiation=True)
                assert answer["max_rdy_count"] == 4000


def test_a_consumer_gets_a_message_that_is_bigger_than_nsqd_took_at_first(broker: Broker) -> None:
    with broker.restarted(*LOWER), broker.restarted(*HIGHER) as gateway:
        body = b"x" * 1_500_000
        assert http(gateway.nsqd.http, "/pub?topic=big", body)[0] == 200
        with V2(gateway.tcp) as consumer:
            consumer.subscribe("big", "c")
            assert consumer.message().body == body
