"""Rule 6: MPUBs are not split, big ones leave a debt, and no command can fail its neighbours."""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from srtm.http.client import request
from srtm.limits.contract import Limit
from srtm.nsq.commands import dpub, message, mpub, pub
from tests.gateway.test_topic_bucket_time import World
from tests.support.fake_nsqd import fake_nsqd
from tests.support.servers import GatewayProcess, Servers, http, wait_for
from tests.support.small_disk import small_disk
from tests.support.v2 import V2

EMPTY = {"rate": 0.001, "burst": 1}
OPEN = {"rate": 1e6, "burst": 1e6}
MAX_MESSAGE, MAX_BODY = 1000, 5000
MAX_COUNT = (MAX_BODY - 4) // 5
"""Of an nsqd with small limits, so that they are reached quickly."""


@pytest.fixture(scope="module")
def gateway(shared: Servers) -> GatewayProcess:
    nsqd = shared.nsqd(f"--max-msg-size={MAX_MESSAGE}", f"--max-body-size={MAX_BODY}")
    return shared.gateway(nsqd=nsqd)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    topic.count = getattr(topic, "count", 0) + 1  # type: ignore[attr-defined]
    return f"t{topic.count}"  # type: ignore[attr-defined]


def hold(gateway: GatewayProcess, topic: str) -> None:
    """A contract with no token left, so that what comes gathers."""
    gateway.set_limit(topic, **EMPTY)
    assert http(gateway.http, f"/pub?topic={topic}", b"the first token")[0] == 200


def tokens(gateway: GatewayProcess, topic: str) -> float:
    return float(gateway.inside(topic)["tokens"])


# --- tokens ---------------------------------------------------------------------------------


def test_an_mpub_takes_a_token_for_each_message(gateway: GatewayProcess, topic: str) -> None:
    gateway.set_limit(topic, rate=0.001, burst=100)
    with V2(gateway.tcp) as client:
        client.send(mpub(topic.encode(), [message(b"x")] * 30, 30))
        client.oks(1)
        assert round(tokens(gateway, topic)) == 70
        # What is left is not enough for this one, and none of it goes.
        client.send(mpub(topic.encode(), [message(b"y")] * 71, 71))
        wait_for(lambda: gateway.inside(topic)["waiting"] == 71, "all of it waits")
        assert gateway.nsqd.message_count(topic) == 30
        gateway.set_limit(topic, **OPEN)
        client.oks(1)


def test_an_mpub_is_not_split_whatever_comes_with_it(servers: Servers) -> None:
    with fake_nsqd(lambda command: "OK") as fake:
        gateway = servers.gateway(f"--nsqd-tcp-address={fake.address}")
        gateway.set_limit("t", rate=300, burst=7)
        with V2(gateway.tcp) as one, V2(gateway.tcp) as two:
            batches = [[b"%d/%d" % (batch, n) for n in range(6)] for batch in range(20)]
            for batch in batches:
                one.send(mpub(b"t", map(message, batch), 6))
                two.send(pub(b"t", b"single"))
            one.oks(20)
            two.oks(20)
        for batch in batches:
            whole = [c for c in fake.commands if batch[0] in c.bodies]
            assert len(whole) == 1
            at = whole[0].bodies.index(batch[0])
            assert whole[0].bodies[at : at + 6] == batch


def test_a_batch_bigger_than_the_bucket_goes_when_it_is_full_and_leaves_a_debt(
    gateway: GatewayProcess, topic: str
) -> None:
    gateway.set_limit(topic, rate=0.001, burst=10)
    with V2(gateway.tcp) as client, V2(gateway.tcp) as other:
        client.send(mpub(topic.encode(), [message(b"x")] * 25, 25))
        client.oks(1)
        assert round(tokens(gateway, topic)) == -15
        other.send(pub(topic.encode(), b"waits until the debt is paid"))
        wait_for(lambda: gateway.inside(topic)["waiting"] == 1, "it waits")
        # Neither a bigger nor a smaller bucket forgives the debt.
        for burst in (1000, 1, 10):
            gateway.set_limit(topic, rate=0.001, burst=burst)
            assert round(tokens(gateway, topic)) == -15
        gateway.set_limit(topic, rate=100, burst=10)
        other.oks(1)
        # A bucket with one token missing is not full: the next big one waits for it.
        wait_for(lambda: tokens(gateway, topic) == 10, "it is full again")
        gateway.set_limit(topic, rate=0.001, burst=10)
        other.send(pub(topic.encode(), b"y"))
        other.oks(1)
        client.send(mpub(topic.encode(), [message(b"z")] * 25, 25))
        wait_for(lambda: gateway.inside(topic)["waiting"] == 25, "it waits for a full bucket")
        gateway.set_limit(topic, rate=100, burst=10)
        client.oks(1)


def test_admissions_never_exceed_the_contract(gateway: GatewayProcess, topic: str) -> None:
    """Over any interval: max(b, the largest batch) + r*t in bucket time."""
    rate, burst, largest = 2000.0, 20, 50
    gateway.set_limit(topic, rate=rate, burst=burst)
    path = f"/topics/{topic}/record"
    request(gateway.admin, "GET", path)  # switches recording on

    def publish(client: V2, kind: int) -> None:
        command = pub(topic.encode(), b"x") * 5
        answers = 5
        if kind:
            size = (30, largest)[kind - 1]
            command, answers = mpub(topic.encode(), [message(b"x")] * size, size), 1
        for _ in range(60 // (kind + 1)):
            client.send(command)
            client.oks(answers)

    clients = [V2(gateway.tcp) for _ in range(3)]
    with ThreadPoolExecutor() as threads:
        list(threads.map(publish, clients, range(3)))
    for client in clients:
        client.close()
    record: dict[str, Any] = request(gateway.admin, "GET", path).json()
    times = sorted(
        first + number * step
        for first, step, count in record["admissions"]
        for number in range(count)
    )
    assert len(times) == sum(count for _, count in record["arrivals"]) > 2000
    assert record["lost"] == 0
    # The most by which admissions run ahead of r*t, from any one of them to any later one.
    ahead, lowest = 0.0, 0.0
    for number, at in enumerate(times):
        spent = rate * (at - times[0]) / 1e9
        lowest = min(lowest, number - spent)
        ahead = max(ahead, number + 1 - spent - lowest)
    assert ahead <= largest + 0.01


def test_rescales_of_a_throttled_topic_do_not_multiply_its_timers() -> None:
    """Each may bring the next token forward; the timer for the later one then does nothing."""
    world = World(1.0, 1.0)
    world.offer(0, 1000, False)
    [run] = world.topic.arrivals
    world.topic.decide(0, 0)
    for number in range(50):
        world.topic.set_limit(Limit(rate=1 + number / 50, burst=1.0), number)
    for _ in range(100):
        when, alarm = min(world.alarms, key=itemgetter(0))
        world.alarms.remove((when, alarm))
        alarm(when)
        world.topic.decide(when, when)
    assert len(world.alarms) == 1
    assert 40 < run.admitted < 110, "and each token is handed out in its time"


# --- neighbours -----------------------------------------------------------------------------

BAD: dict[str, tuple[bytes, bytes]] = {
    "an empty message": (b"PUB TOPIC\n\0\0\0\0", b"E_BAD_MESSAGE"),
    "a message too big": (pub(b"TOPIC", b"x" * (MAX_MESSAGE + 1)), b"E_BAD_MESSAGE"),
    "a batch with an empty message": (
        mpub(b"TOPIC", [message(b"a"), message(b"")], 2),
        b"E_BAD_MESSAGE",
    ),
    "a batch of fewer than it says": (mpub(b"TOPIC", [message(b"a")] * 2, 3), b"E_BAD"),
    "a batch of more than it says": (mpub(b"TOPIC", [message(b"a")] * 2, 1), b"E_BAD"),
    "a body too big": (mpub(b"TOPIC", [message(b"x" * 995)] * 6, 6), b"E_BAD_BODY"),
    "a delay out of range": (dpub(b"TOPIC", 3_600_001, message(b"x")), b"E_INVALID"),
    "no command": (b"PUBLISH TOPIC\n" + message(b"x"), b"E_INVALID"),
}
"""Some of what nsqd refuses; tests/nsq has all of it."""


def test_a_bad_command_fails_its_own_client_only(gateway: GatewayProcess, topic: str) -> None:
    hold(gateway, topic)
    with V2(gateway.tcp) as neighbour:
        for number, (name, (command, code)) in enumerate(BAD.items()):
            neighbour.send(pub(topic.encode(), b"good %d" % number))
            with V2(gateway.tcp) as client:
                client.send(command.replace(b"TOPIC", topic.encode()))
                assert (client.reply() or b"").startswith(code), name
                assert client.frame() is None, name
        wait_for(lambda: gateway.inside(topic)["waiting"] == len(BAD), "the good ones wait")
        gateway.set_limit(topic, **OPEN)
        neighbour.oks(len(BAD))
    assert gateway.nsqd.message_count(topic) == 1 + len(BAD)


def test_commands_at_nsqds_limits_share_batches_with_others(
    gateway: GatewayProcess, topic: str
) -> None:
    hold(gateway, topic)
    name = topic.encode()
    inner = b"0PUB " + name + b"\n\0\0\0\1xPUB " + name + b"\n"  # a body that looks like commands
    good = [
        (pub(name, b"x" * MAX_MESSAGE), 1),
        (mpub(name, [message(b"x")] * MAX_COUNT, MAX_COUNT), MAX_COUNT),
        (mpub(name, [message(b"x" * 995)] * 5, 5), 5),
        (pub(name, inner) * 3, 3),
        (pub(name, b"x" * MAX_MESSAGE) * 6, 6),
        (dpub(name, 3_600_000, message(b"x" * MAX_MESSAGE)), 1),
        (mpub(name, [message(inner)] * 2, 2), 2),
    ]
    clients = [V2(gateway.tcp) for _ in good]
    total = 0
    for client, (command, count) in zip(clients, good, strict=True):
        client.send(command)
        total += count
        wait_for(lambda n=total: gateway.inside(topic)["waiting"] == n, "it waits")
    gateway.set_limit(topic, **OPEN)
    for client, (command, count) in zip(clients, good, strict=True):
        client.oks(count if command.startswith(b"PUB") else 1)
        client.close()
    longest = "n" * 64
    assert http(gateway.http, f"/pub?topic={longest}", b"x")[0] == 200
    assert gateway.nsqd.message_count(topic) == 1 + total
    with V2(gateway.nsqd.tcp) as consumer:
        consumer.identify(output_buffer_size=-1)  # at once
        consumer.subscribe(topic, "c")
        bodies = [consumer.message().body for _ in range(total)]
    assert bodies.count(inner) == 5


def test_what_gathers_is_cut_to_bodies_that_nsqd_takes(gateway: GatewayProcess, topic: str) -> None:
    hold(gateway, topic)
    clients = [V2(gateway.tcp) for _ in range(3)]
    expected: list[bytes] = []
    for number in range(40):
        client = clients[number % 3]
        filling = b"x" * (37 * number % 900)
        bodies = [b"%d %d " % (number, n) + filling for n in range(number % 4 + 1)]
        if number % 5 == 0:
            client.send(mpub(topic.encode(), map(message, bodies), len(bodies)))
        else:
            client.send(b"".join(pub(topic.encode(), body) for body in bodies))
        expected += bodies
        came = len(expected)
        wait_for(lambda n=came: gateway.inside(topic)["waiting"] == n, "it waits")
    gateway.set_limit(topic, **OPEN)
    with V2(gateway.nsqd.tcp) as consumer:
        consumer.identify(output_buffer_size=-1)  # at once
        consumer.subscribe(topic, "c")
        assert [consumer.message().body for _ in range(len(expected) + 1)][1:] == expected
    assert gateway.inside(topic)["failed"] == 0
    for client in clients:
        client.close()


@pytest.mark.parametrize("max_message", [MAX_BODY, MAX_BODY - 8, 2 * MAX_BODY])
def test_a_message_too_big_for_any_mpub_goes_as_a_pub(servers: Servers, max_message: int) -> None:
    """nsqd takes it so; in an MPUB it would need eight bytes more."""
    flags = f"--max-msg-size={max_message}", f"--max-body-size={MAX_BODY}"
    gateway = servers.gateway(nsqd=servers.nsqd(*flags))
    big = b"x" * max_message
    with V2(gateway.tcp) as client, V2(gateway.nsqd.tcp) as consumer:
        consumer.subscribe("t", "c")
        client.send(pub(b"t", b"a") + pub(b"t", big) + pub(b"t", b"b") + pub(b"t", big) * 2)
        client.oks(5)
        client.send(pub(b"t", big))
        client.oks(1)
        bodies = [consumer.message().body for _ in range(6)]
    assert bodies == [b"a", big, b"b", big, big, big]
    assert http(gateway.http, "/pub?topic=t", big)[0] == 200


# --- delays ---------------------------------------------------------------------------------


def test_a_dpub_goes_alone_with_its_wait_taken_off_its_delay(servers: Servers) -> None:
    with fake_nsqd(lambda command: "OK") as fake:
        gateway = servers.gateway(f"--nsqd-tcp-address={fake.address}")
        gateway.set_limit("t", rate=1, burst=1)
        with V2(gateway.tcp) as client, ThreadPoolExecutor() as threads:
            client.send(dpub(b"t", 3_600_000, message(b"takes its token on receipt")))
            client.oks(1)
            assert tokens(gateway, "t") < 1
            client.send(pub(b"t", b"a") + dpub(b"t", 50_000, message(b"waits")) + pub(b"t", b"b"))
            client.send(dpub(b"t", 10, message(b"waits longer than its delay")))
            wait_for(lambda: gateway.offered("t") == 5, "they wait")
            web = threads.submit(http, gateway.http, "/pub?topic=t&defer=50000", b"by HTTP")
            wait_for(lambda: gateway.offered("t") == 6, "this one too")
            gateway.set_limit("t", rate=4, burst=1)
            client.oks(4)
            assert web.result(10)[0] == 200
        delayed = [c for c in fake.commands if c.name == "DPUB"]
        assert [c.bodies for c in delayed] == [
            [b"takes its token on receipt"],
            [b"waits"],
            [b"waits longer than its delay"],
            [b"by HTTP"],
        ]
        assert [c.bodies for c in fake.commands if c.name != "DPUB"] == [[b"a"], [b"b"]]
        defers = [command.defer_ms for command in delayed]
        assert defers[0] == 3_600_000
        assert 40_000 < defers[1] <= 50_000 - 200, "one token at 4/s after the one before"
        assert defers[2] == 0
        assert 40_000 < defers[3] <= 50_000 - 700


# --- storage that fails ---------------------------------------------------------------------


def is_told(gateway: GatewayProcess, topic: str, fail: Callable[[], None]) -> None:
    """Two clients' messages in one batch that nsqd cannot store: each is told."""
    gateway.set_limit(topic, rate=0.001, burst=2)
    with V2(gateway.tcp) as one, V2(gateway.tcp) as two, ThreadPoolExecutor() as threads:
        one.send(pub(topic.encode(), b"known") * 2)
        one.oks(2)
        one.send(pub(topic.encode(), b"x" * 1000))
        two.send(mpub(topic.encode(), [message(b"y" * 1000)] * 200, 200))
        web = threads.submit(http, gateway.http, f"/pub?topic={topic}", b"z")
        wait_for(lambda: gateway.inside(topic)["waiting"] == 202, "they wait together")
        fail()
        gateway.set_limit(topic, rate=1e6, burst=1e6)
        assert (one.reply() or b"").startswith(b"E_PUB_FAILED MPUB failed")
        assert one.ended()
        assert (two.reply() or b"").startswith(b"E_MPUB_FAILED MPUB failed")
        assert two.ended()
        assert web.result(10)[0] == 503
    assert gateway.inside(topic)["failed"] == 202


def test_all_are_told_of_a_storage_failure(servers: Servers) -> None:
    nsqd = servers.nsqd("--mem-queue-size=0", "--max-bytes-per-file=100")
    gateway = servers.gateway(nsqd=nsqd)
    is_told(gateway, "t", lambda: shutil.rmtree(nsqd.data_path))


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 128 kB."""
    with small_disk(tmp_path / "disk") as folder:
        yield folder


def test_all_are_told_of_a_disk_that_took_a_part_of_them(servers: Servers, full_disk: Path) -> None:
    """nsqd keeps the first messages of such an MPUB; who sends again may double them."""
    nsqd = servers.nsqd("--mem-queue-size=0", data_path=full_disk)
    gateway = servers.gateway(nsqd=nsqd)
    is_told(gateway, "t", lambda: None)
    assert 2 < nsqd.message_count("t") < 204
    nsqd.process.kill()


@pytest.mark.parametrize("mode", ["delay", "reject"])
def test_a_batch_over_a_share_that_nobody_passes_round_is_refused(
    gateway: GatewayProcess, mode: str
) -> None:
    """A quarter of b = 40, as `srtm up` splits it: other brokers have the rest at the same time."""
    name = f"quarter-{mode}"
    gateway.set_limit(name, rate=1000, burst=10, mode=mode, **{"contract-burst": 40})
    body = b"\n".join([b"x"] * 20)
    status, answer = http(gateway.http, f"/mpub?topic={name}", body)[:2]
    assert status == 429
    assert "a batch of 20 is over this broker's share" in str(answer)
    with V2(gateway.tcp) as client:
        client.send(mpub(name.encode(), [message(b"x")] * 20, 20))
        refused = client.reply()
        assert refused is not None
        assert refused.startswith(b"E_MPUB_FAILED a batch of 20 is over")
        assert client.ended()
    assert http(gateway.http, f"/mpub?topic={name}", b"x\ny")[0] == 200, "what fits goes"


def test_each_broker_for_itself_is_an_option(gateway: GatewayProcess) -> None:
    gateway.set_limit("each", rate=1000, burst=10, batches="each", **{"contract-burst": 40})
    assert http(gateway.http, "/mpub?topic=each", b"\n".join([b"x"] * 20))[0] == 200
