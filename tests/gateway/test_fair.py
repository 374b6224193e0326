"""A contract that is fair: who publishes much delays itself, whatever the door."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtm.gateway.run import Run
from srtm.limits.contract import Fair, Limit
from srtm.nsq.commands import dpub, message, mpub, pub
from tests.gateway.test_topic_bucket_time import ORDERS, Publisher, World
from tests.limits.test_bucket import NS
from tests.support.cases import cases
from tests.support.fake_distributor import FakeDistributor, fake_distributor
from tests.support.programs import run_srtm
from tests.support.servers import GatewayProcess, Servers, http, wait_for
from tests.support.v2 import V2

SLOW = {"rate": 4, "burst": 1}
OPEN = {"rate": 1e6, "burst": 1e6}


@pytest.fixture(scope="module")
def gateway(shared: Servers) -> GatewayProcess:
    return shared.gateway()


def by_http(path: str, body: bytes) -> Callable[[GatewayProcess, str], None]:
    def publish(gateway: GatewayProcess, topic: str) -> None:
        assert http(gateway.http, f"/{path}?topic={topic}", body)[0] == 200

    return publish


def by_tcp(command: Callable[[bytes], bytes]) -> Callable[[GatewayProcess, str], None]:
    def publish(gateway: GatewayProcess, topic: str) -> None:
        with V2(gateway.tcp) as client:
            client.identify(client_id="quiet")
            client.send(command(topic.encode()))
            client.oks(1)

    return publish


DOORS = {
    "pub": by_tcp(lambda topic: pub(topic, b"quiet")),
    "mpub": by_tcp(lambda topic: mpub(topic, [message(b"quiet")] * 2, 2)),
    "dpub": by_tcp(lambda topic: dpub(topic, 0, message(b"quiet"))),
    "http-pub": by_http("pub", b"quiet"),
    "http-mpub": by_http("mpub", b"quiet\nquiet"),
}


@pytest.mark.parametrize("door", DOORS)
def test_one_message_does_not_wait_for_a_hundred_of_another(
    gateway: GatewayProcess, door: str
) -> None:
    topic = f"fair_{door}"
    gateway.set_limit(topic, **SLOW, fair="publisher")
    with V2(gateway.tcp) as noisy, ThreadPoolExecutor() as threads:
        noisy.identify(client_id="noisy")
        noisy.send(pub(topic.encode(), b"noisy") * 100)
        wait_for(lambda: gateway.inside(topic)["waiting"] >= 90, "the noisy one waits")
        threads.submit(DOORS[door], gateway, topic).result(60)
        assert gateway.inside(topic)["waiting"] >= 20, "the noisy one still waits"
        gateway.set_limit(topic, **OPEN)
        noisy.oks(100)


def test_the_order_may_change_while_messages_wait(gateway: GatewayProcess) -> None:
    topic = "changed"
    gateway.set_limit(topic, **SLOW)
    with V2(gateway.tcp) as noisy:
        noisy.send(pub(topic.encode(), b"noisy") * 100)
        wait_for(lambda: gateway.inside(topic)["waiting"] >= 90, "the noisy one waits")
        gateway.set_limit(topic, **SLOW, fair="publisher")
        DOORS["pub"](gateway, topic)
        gateway.set_limit(topic, **SLOW)
        assert gateway.inside(topic)["waiting"] >= 20
        gateway.set_limit(topic, **OPEN)
        noisy.oks(100)


def test_stat_names_who_waits(gateway: GatewayProcess) -> None:
    gateway.set_limit("who", rate=0.001, burst=1, fair="publisher")
    assert http(gateway.http, "/pub?topic=who", b"the first token")[0] == 200
    clients = [V2(gateway.tcp) for _ in range(8)]
    for number, client in enumerate(clients, 1):
        client.identify(client_id=f"c{number % 7}\x1b")
        client.send(pub(b"who", b"x") * number)
    wait_for(lambda: gateway.inside("who")["waiting"] == 36, "all wait")
    found = gateway.inside("who")["throttled_publishers"]
    assert found["count"] == 7
    assert [each["waiting"] for each in found["most"]] == [9, 7, 6, 5, 4]
    assert found["most"][0]["publisher"] == "c1\x1b@127.0.0.1"
    shown = run_srtm("stat", "--count=1", "--topic=who", f"--nsqd-http-address={gateway.http}")
    assert "c1?@127.0.0.1" in shown.stdout
    assert "2 more" in shown.stdout
    for client in clients:
        client.close()
    wait_for(lambda: gateway.inside("who")["waiting"] == 0, "nobody waits")
    assert "throttled_publishers" not in gateway.inside("who")


# --- keys -----------------------------------------------------------------------------------------


@pytest.fixture
def fake() -> Iterator[FakeDistributor]:
    with fake_distributor() as started:
        yield started


def test_publishers_of_one_key_share_its_part(servers: Servers, fake: FakeDistributor) -> None:
    fake.desire(5, {"topic": "t", "rate": 20, "burst": 1, "mode": "delay", "fair": "key"})
    keys = [[f"a{n}", "a"] for n in range(4)]
    fake.keys = [{"topic": "t", "version": "v1", "publishers": keys}]
    gateway = servers.gateway(f"--distributor-address={fake.address}")
    wait_for(lambda: any(each["keys"] == {"t": "v1"} for each in list(fake.reports)), "it has them")
    clients = [V2(gateway.tcp) for _ in range(5)]
    for client, name in zip(clients, ["a0", "a1", "a2", "a3", "b"], strict=True):
        client.identify(srtm_publisher=name)
        client.send(pub(b"t", name.encode()) * 20)
    wait_for(lambda: gateway.inside("t")["offered"] == 100, "all have come")
    clients[-1].oks(20)
    others = gateway.inside("t")["waiting"]
    assert others >= 20, "each of 4 publishers would have had as many as b"
    fake.desire(6, {"topic": "t", **OPEN, "mode": "delay"})
    for client in clients[:-1]:
        client.oks(20)
    wait_for(lambda: fake.reports[-1]["keys"] == {}, "keys that nobody needs are forgotten")


def test_keys_that_are_told_later_count_for_who_waits() -> None:
    world = World(1.0, 1.0, fair=Fair.KEY)
    publishers = [Publisher(name) for name in ("a0", "a1", "a2", "b")]
    for publisher in publishers:
        world.offer(0, 20, False, publisher)
    world.wake(0)
    world.topic.set_keys({"a0": "a", "a1": "a", "a2": "a"})
    world.wake(20 * NS)
    assert 10 <= publishers[-1].settled <= 11


@pytest.mark.parametrize(
    "flag", ["--topic=t,rate=1,burst=1,fair=key", "--default-limit=rate=1,burst=1,fair=key"]
)
def test_keys_need_a_distributor(flag: str) -> None:
    nsqd = ("--nsqd-tcp-address=127.0.0.1:1", "--nsqd-http-address=127.0.0.1:2")
    shown = run_srtm("gateway", *nsqd, flag)
    assert shown.returncode == 2
    assert len(shown.stderr.splitlines()) == 1
    assert 'fair = "key" is for a topic of a Load Distributor' in shown.stderr


def test_keys_need_a_distributor_at_run_time_too(gateway: GatewayProcess) -> None:
    body = b'{"rate": 1, "burst": 1, "fair": "key"}'
    status, document, _ = http(gateway.admin, "/topics/keyed", body, method="PUT")
    assert status == 409
    assert "register the topic with one" in document["message"]


# --- a late gateway ---------------------------------------------------------------------------


def test_a_late_gateway_gives_tokens_as_if_it_had_not_been() -> None:
    """It stands still for 50 s, in which a quiet publisher's message comes."""
    world, quiet = World(1.0, 1.0, fair=Fair.PUBLISHER), Publisher("quiet")
    world.offer(0, 100, False)
    world.wake(0)
    run = world.offer(10 * NS + 1, 1, False, quiet)
    world.wake(50 * NS)
    assert run.since == 12 * NS, "the noisy one was next, then the quiet one"
    assert world.topic.waiting == 100 - 50


class Leaving(Publisher):
    """Its connection ends as its first run is refused: the others are given up."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.runs: list[Run] = []

    def refuse(self, run: Run, retry_seconds: float | None) -> None:
        super().refuse(run, retry_seconds)
        for each in self.runs:
            if each is not run:
                self.world.topic.give_up(each)


@pytest.mark.parametrize("fair", [None, Fair.PUBLISHER])
@pytest.mark.parametrize("how", ["nsqd is away", "placed elsewhere", "max-wait"])
def test_who_is_refused_once_has_no_other_run_refused(fair: Fair | None, how: str) -> None:
    world = World(0.001, 1.0, fair=fair)
    owner = Leaving(world)
    owner.runs = [world.offer(number, 2, True, owner) for number in range(4)]
    world.wake(10)
    if how == "nsqd is away":
        world.topic.fail_waiting("nsqd is away")
    elif how == "placed elsewhere":
        world.topic.shut(True, 20)
    else:
        world.topic.set_limit(Limit(rate=0.001, burst=1.0, max_wait=1.0, fair=fair), NS * 2)
    meter = world.topic.meter
    assert owner.refused == 1
    assert (meter.rejected, meter.abandoned) == (2, 4), "the first one had its tokens"
    assert not [run for run in world.topic.held if not run.void]


# --- what must not wait longer --------------------------------------------------------------------


class Patient(Publisher):
    """Keeps when each of its runs was refused."""

    def __init__(self, publisher: str, world: "Timed") -> None:
        super().__init__(publisher)
        self.world = world
        self.ends: list[tuple[Run, int]] = []

    def refuse(self, run: Run, retry_seconds: float | None) -> None:
        super().refuse(run, retry_seconds)
        self.ends.append((run, self.world.now))


class Timed(World):
    now = 0

    def wake(self, now: int) -> None:
        self.now = now
        super().wake(now)


QUANTUM_NS = 100_000


@given(
    st.lists(
        st.tuples(st.integers(0, 3 * NS), st.integers(0, 4), st.integers(1, 6), st.booleans()),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from([1.0, 3.0]),
    ORDERS,
    st.booleans(),
)
@settings(max_examples=cases(300))
def test_nobody_waits_longer_than_max_wait(
    arrivals: list[tuple[int, int, int, bool]], rate: float, fair: Fair | None, is_open: bool
) -> None:
    """Whoever is next, and though nsqd is away; and nobody is refused before."""
    world, wait = Timed(rate, 2.0), 4 * NS
    world.topic.set_limit(Limit(rate=rate, burst=2.0, max_wait=4.0, fair=fair), 0)
    world.is_open = is_open
    publishers = [Patient(f"p{n}", world) for n in range(5)]
    offered = 0
    now = 0

    def pass_until(end: int) -> None:
        while (when := min((when for when, _ in world.alarms), default=end)) < end:
            world.wake(max(when, world.now))
        world.wake(end)

    for gap, who, count, atomic in arrivals:
        now += gap
        pass_until(now)
        world.offer(now, count, atomic, publishers[who])
        world.wake(now)
        offered += count
    pass_until(now + 5 * NS)
    assert not world.topic.held
    for publisher in publishers:
        for run, at in publisher.ends:
            assert run.stamp + wait <= at <= run.stamp + wait + QUANTUM_NS
    settled = sum(each.settled for each in publishers)
    assert settled + world.topic.meter.rejected == offered
    assert settled > 0 or not is_open
