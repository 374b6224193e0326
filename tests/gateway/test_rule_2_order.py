"""Rule 2: replies keep the order of commands; a refusal is an error in its turn, then the end."""

import json
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from srtm.gateway.run import Run
from srtm.nsq.commands import dpub, identify, message, mpub, pub
from tests.gateway.test_topic_bucket_time import World
from tests.support.servers import GatewayProcess, Servers, http, wait_for
from tests.support.v2 import V2

EMPTY = {"rate": 0.001, "burst": 1.0}
"""A contract whose next token comes in a quarter of an hour: what waits for it is held."""
OPEN = {"rate": 1e6, "burst": 1e6}


@pytest.fixture(scope="module")
def gateway(shared: Servers) -> GatewayProcess:
    return shared.gateway()


@pytest.fixture
def names(request: pytest.FixtureRequest) -> Iterator[str]:
    """Topics of one test's own at a gateway that the tests of this file share."""
    names.count = getattr(names, "count", 0) + 1  # type: ignore[attr-defined]
    return (f"t{names.count}_{n}" for n in range(100))  # type: ignore[attr-defined,return-value]


def hold(gateway: GatewayProcess, topic: str, **limit: object) -> None:
    """A contract with no token left."""
    gateway.set_limit(topic, **EMPTY)
    assert http(gateway.http, f"/pub?topic={topic}", b"the first token")[0] == 200
    if limit:
        gateway.set_limit(topic, **{**EMPTY, **limit})


def test_a_held_message_keeps_back_the_oks_behind_it_and_no_message(
    gateway: GatewayProcess, names: Iterator[str]
) -> None:
    held, other = next(names), next(names)
    hold(gateway, held)
    with V2(gateway.tcp) as client:
        client.identify(client_id="c")
        client.send(pub(other.encode(), b"before") + pub(held.encode(), b"x"))
        client.oks(1)
        client.send(pub(other.encode(), b"behind") + identify(b'{"feature_negotiation":true}'))
        wait_for(lambda: gateway.inside(other)["admitted"] == 2, "nsqd has the one behind")
        assert client.silent(0.2)
        gateway.set_limit(held, **OPEN)
        client.oks(2)
        assert json.loads(client.reply() or b"")["version"]


class Plan:
    """Random commands of one client to several topics, and the replies that they must get.

    OKs look alike, so IDENTIFYs stand between them whose answers tell which one they belong to.
    """

    def __init__(self, seed: int, client: int, topics: list[str]) -> None:
        chance = random.Random(seed * 100 + client)
        self.commands: list[bytes] = []
        self.replies: list[bytes | int] = []
        self.bodies: dict[str, list[bytes]] = {topic: [] for topic in topics}
        for number in range(80):
            topic = chance.choice(topics)
            bodies = [b"%d/%d/%d" % (client, number, n) for n in range(chance.randrange(1, 6))]
            kind = chance.choice(["pub", "pub", "pub", "mpub", "dpub", "identify"])
            if kind == "identify":
                timeout = 1000 + number
                document = {"feature_negotiation": True, "msg_timeout": timeout}
                self.commands.append(identify(json.dumps(document).encode()))
                self.replies.append(timeout)
                continue
            if kind == "mpub":
                elements = map(message, bodies)
                self.commands.append(mpub(topic.encode(), elements, len(bodies)))
            else:
                bodies = bodies[:1]
                element = message(bodies[0])
                whole = {"pub": pub(topic.encode(), bodies[0])}
                whole["dpub"] = dpub(topic.encode(), 0, element)
                self.commands.append(whole[kind])
            self.bodies[topic] += bodies
            self.replies.append(b"OK")
        self.commands.append(b"PUB bad*name\n")
        self.replies.append(b'E_BAD_TOPIC PUB topic name "bad*name" is not valid')

    def run(self, address: str, seed: int) -> list[bytes | int]:
        """Send them cut anywhere; the replies."""
        chance = random.Random(seed)
        data = b"".join(self.commands)
        replies: list[bytes | int] = []
        with V2(address) as client:
            while data:
                size = chance.randrange(1, 400)
                client.send(data[:size])
                data = data[size:]
                if chance.random() < 0.2:
                    time.sleep(0.002)
            while (reply := client.reply()) is not None:
                is_json = reply.startswith(b"{")
                replies.append(json.loads(reply)["msg_timeout"] if is_json else reply)
        return replies


@pytest.mark.parametrize("seed", range(4))
def test_replies_follow_the_commands_whatever_their_topics_and_limits(
    gateway: GatewayProcess, names: Iterator[str], seed: int
) -> None:
    topics = [next(names) for _ in range(4)]
    gateway.set_limit(topics[0], rate=200, burst=1)
    gateway.set_limit(topics[1], rate=2000, burst=3)
    plans = [Plan(seed, client, topics) for client in range(4)]
    with ThreadPoolExecutor() as threads:
        results = list(threads.map(lambda plan: plan.run(gateway.tcp, seed), plans))
    for plan, replies in zip(plans, results, strict=True):
        assert replies == plan.replies
    for topic in topics:
        expected = sorted(body for plan in plans for body in plan.bodies[topic])
        with V2(gateway.nsqd.tcp) as consumer:
            consumer.identify(output_buffer_size=-1)  # at once
            consumer.subscribe(topic, "c")
            assert sorted(consumer.message().body for _ in expected) == expected


def test_reject_answers_what_came_before_then_errs_and_closes(
    gateway: GatewayProcess, names: Iterator[str]
) -> None:
    topic, other = next(names), next(names)
    gateway.set_limit(topic, rate=0.001, burst=5, mode="reject")
    with V2(gateway.tcp) as client:
        client.send(b"".join(pub(topic.encode(), b"%d" % n) for n in range(8)))
        client.oks(5)
        refusal = client.reply()
        assert refusal is not None
        assert refusal.startswith(f"E_PUB_FAILED over the limit of topic {topic} ".encode())
        assert client.frame() is None
    with V2(gateway.tcp) as client:
        client.send(
            pub(other.encode(), b"a")
            + mpub(topic.encode(), [message(b"x")] * 2, 2)
            + pub(other.encode(), b"b")
        )
        client.oks(1)
        refusal = client.reply()
        assert refusal is not None
        assert refusal.startswith(b"E_MPUB_FAILED over the limit of topic ")
        assert client.frame() is None
    assert gateway.nsqd.message_count(topic) == 5
    assert gateway.nsqd.message_count(other) == 1, "nothing behind the refusal is stored"
    assert gateway.inside(topic)["rejected"] == 5


def test_nothing_behind_a_refusal_is_stored_though_others_publish_there(
    servers: Servers,
) -> None:
    """Another client's PUB makes topic B known to this wake-up before the refusal in topic A."""
    gateway = servers.gateway()
    gateway.set_limit("a", rate=0.001, burst=1, mode="reject")
    with V2(gateway.tcp) as one, V2(gateway.tcp) as two:
        two.send(pub(b"a", b"takes the token") + pub(b"b", b"known"))
        two.oks(2)
        gateway.process.freeze()
        one.send(pub(b"b", b"of the other"))
        two.send(pub(b"b", b"before") + pub(b"a", b"refused") + pub(b"b", b"behind"))
        gateway.process.thaw()
        one.oks(1)
        two.oks(1)
        assert (two.reply() or b"").startswith(b"E_PUB_FAILED")
        assert two.frame() is None
    assert gateway.nsqd.message_count("b") == 3


def test_nothing_behind_a_refused_new_topic_is_stored(servers: Servers) -> None:
    gateway = servers.gateway("--max-topics=1")
    gateway.set_limit("a", **OPEN)
    with V2(gateway.tcp) as client:
        client.send(pub(b"a", b"x") + pub(b"new", b"refused") + pub(b"a", b"behind"))
        client.oks(1)
        assert (client.reply() or b"").startswith(b"E_PUB_FAILED 1 topics are in use")
        assert client.frame() is None
    assert gateway.nsqd.message_count("a") == 1


def test_a_refusal_waits_for_the_oks_of_held_messages_before_it(
    gateway: GatewayProcess, names: Iterator[str]
) -> None:
    held, full, other = next(names), next(names), next(names)
    hold(gateway, held)
    hold(gateway, full, mode="reject")
    with V2(gateway.tcp) as client:
        client.identify(heartbeat_interval=1000)
        client.send(pub(other.encode(), b"a") + pub(held.encode(), b"x"))
        client.send(pub(full.encode(), b"refused") + pub(other.encode(), b"behind"))
        client.oks(1)
        wait_for(lambda: gateway.inside(full)["rejected"] == 1, "it is refused")
        client.send(pub(other.encode(), b"too late"))
        # It lives on while it waits for its turn, though we read nothing of it any more.
        beats = 0
        while beats < 3:
            frame = client.frame()
            assert frame is not None
            assert frame.data == b"_heartbeat_"
            beats += 1
        gateway.set_limit(held, **OPEN)
        client.oks(1)
        assert (client.reply() or b"").startswith(b"E_PUB_FAILED over the limit")
        assert client.frame() is None
    assert gateway.nsqd.message_count(held) == 2
    assert gateway.nsqd.message_count(other) == 1


def test_a_batch_bigger_than_the_bucket_is_not_refused_for_ever(
    gateway: GatewayProcess, names: Iterator[str]
) -> None:
    topic = next(names)
    gateway.set_limit(topic, rate=0.5, burst=4, mode="reject")
    with V2(gateway.tcp) as client:
        client.send(mpub(topic.encode(), [message(b"x")] * 9, 9))
        client.oks(1)
        client.send(pub(topic.encode(), b"y"))
        assert (client.reply() or b"").startswith(b"E_PUB_FAILED over the limit")
    status, _, headers = http(gateway.http, f"/mpub?topic={topic}", b"x\n" * 9)
    # The debt of five and four more are at half a token a second.
    assert status == 429
    assert 15 <= int(headers["Retry-After"]) <= 20


def test_http_gets_429_with_the_time_to_wait(gateway: GatewayProcess, names: Iterator[str]) -> None:
    topic = next(names)
    gateway.set_limit(topic, rate=0.1, burst=2, mode="reject")
    statuses = [http(gateway.http, f"/pub?topic={topic}", b"x") for _ in range(3)]
    assert [status for status, _, _ in statuses] == [200, 200, 429]
    _, document, headers = statuses[2]
    assert document["message"].startswith("E_PUB_FAILED over the limit")
    assert 8 <= int(headers["Retry-After"]) <= 11
    assert http(gateway.http, f"/mpub?topic={topic}", b"a\nb")[0] == 429
    assert http(gateway.http, f"/pub?topic={topic}&defer=5", b"x")[0] == 429
    assert gateway.nsqd.message_count(topic) == 2


def test_delay_holds_and_then_says_ok_at_both_doors(
    gateway: GatewayProcess, names: Iterator[str]
) -> None:
    topic = next(names)
    hold(gateway, topic)
    with V2(gateway.tcp) as client, ThreadPoolExecutor() as threads:
        client.send(pub(topic.encode(), b"x"))
        web = threads.submit(http, gateway.http, f"/pub?topic={topic}", b"y")
        wait_for(lambda: gateway.inside(topic)["waiting"] == 2, "both are held")
        assert gateway.inside(topic)["throttled"]
        assert client.silent(0.2)
        assert not web.done()
        gateway.set_limit(topic, **OPEN)
        client.oks(1)
        assert web.result(10)[:2] == (200, "OK")
    assert not gateway.inside(topic)["throttled"]


def test_a_change_to_reject_refuses_who_is_held(
    gateway: GatewayProcess, names: Iterator[str]
) -> None:
    topic = next(names)
    hold(gateway, topic)
    with V2(gateway.tcp) as client:
        client.send(pub(topic.encode(), b"x"))
        wait_for(lambda: gateway.inside(topic)["waiting"] == 1, "it is held")
        gateway.set_limit(topic, **EMPTY, mode="reject")
        assert (client.reply() or b"").startswith(b"E_PUB_FAILED over the limit")
        assert client.frame() is None


def test_a_failed_sub_is_answered_before_what_was_published_behind_it(servers: Servers) -> None:
    gateway = servers.gateway(nsqd=servers.nsqd("--max-channel-consumers=1"))
    with V2(gateway.tcp) as first, V2(gateway.tcp) as second:
        first.subscribe("t", "c")
        second.send(pub(b"u", b"before") + b"SUB t c\n" + pub(b"u", b"behind"))
        assert second.reply() == b"OK"
        assert (second.reply() or b"").startswith(b"E_SUB_FAILED")
        assert second.ended()


def test_a_late_read_never_overtakes_its_own_publisher() -> None:
    """One connection's MPUB and PUB, read after a later stamp of another was admitted: the PUB
    could have a token that was left over, the MPUB could not."""
    world = World(1.0, 10.0)

    def arrives(count: int, stamp: int) -> Run:
        world.offer(stamp, count, count > 1)
        return world.topic.arrivals[-1]

    arrives(6, 1000)
    world.topic.decide(1000, 1000)
    big, small, early = arrives(6, 500), arrives(1, 500), arrives(1, 400)
    world.topic.decide(1100, 1100)
    assert [piece.run for piece in world.topic.ready][1:] == [early]
    assert list(world.topic.held) == [big, small]
