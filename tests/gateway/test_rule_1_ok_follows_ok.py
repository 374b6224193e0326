"""Rule 1: a client's OK follows nsqd's, never before; what nsqd did not answer is not answered."""

import contextlib
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from srtm.nsq.commands import dpub, message, mpub, pub
from tests.support.fake_nsqd import Command, fake_nsqd
from tests.support.servers import Servers, http, wait_for
from tests.support.v2 import V2

DISK = ("--mem-queue-size=0", "--sync-every=1")
"""An nsqd that puts each message on disk. It answers an instant before it syncs, so a test waits
for its index before a kill -9."""


def test_no_ok_comes_while_nsqd_is_frozen_and_all_come_after(servers: Servers) -> None:
    gateway = servers.gateway()
    with V2(gateway.tcp) as one, V2(gateway.tcp) as other, ThreadPoolExecutor() as threads:
        one.send(pub(b"t", b"known from here on"))
        one.oks(1)
        gateway.nsqd.process.freeze()
        one.send(pub(b"t", b"a") + mpub(b"t", [message(b"b"), message(b"c")], 2))
        one.send(dpub(b"t", 0, message(b"d")))
        other.send(pub(b"t", b"e") + pub(b"new", b"f"))
        web = threads.submit(http, gateway.http, "/pub?topic=t", b"g")
        wait_for(lambda: gateway.offered("t") == 7, "all of it is in the gateway")
        wait_for(lambda: gateway.offered("new") == 1, "the new topic's too")
        assert one.silent(0.3)
        assert other.silent(0.1)
        assert not web.done()
        gateway.nsqd.process.thaw()
        one.oks(3)
        other.oks(2)
        assert web.result(10)[:2] == (200, "OK")
    assert gateway.nsqd.message_count("t") == 7
    assert gateway.nsqd.message_count("new") == 1


def test_a_killed_nsqd_closes_whom_it_owes_and_gets_nothing_twice(servers: Servers) -> None:
    gateway = servers.gateway(nsqd=servers.nsqd(*DISK))
    nsqd = gateway.nsqd
    with V2(gateway.tcp) as safe:
        safe.send(b"".join(pub(b"t", b"safe %d" % n) for n in range(200)))
        safe.oks(200)
        index = nsqd.data_path / "t.diskqueue.meta.dat"
        wait_for(lambda: index.read_text().startswith("200\n"), "all are on disk")
        nsqd.process.freeze()
        unlucky, waiting = V2(gateway.tcp), V2(gateway.tcp)
        for number in range(2):  # in flight: two batches of a topic
            unlucky.send(mpub(b"t", [message(b"lost")] * 3, 3))
            wait_for(lambda n=number: gateway.offered("t") == 203 + 3 * n, "it is in flight")
        waiting.send(pub(b"t", b"not sent before nsqd was back"))
        wait_for(lambda: gateway.offered("t") == 207, "it waits in the gateway")
        nsqd.process.signal(signal.SIGKILL)  # and not an instant to read them
        nsqd.process.popen.wait(60)
        assert unlucky.frame() is None, "closed without a word"
        wait_for(lambda: http(gateway.http, "/ping")[0] == 500, "the gateway knows")
        nsqd.process.start()
        nsqd.wait_ready()
        waiting.oks(1)
        # The client that was owed nothing was kept.
        safe.send(pub(b"t", b"after"))
        safe.oks(1)
        unlucky.close()
        waiting.close()
    assert nsqd.topic("t")["depth"] == 202  # type: ignore[index]
    with V2(nsqd.tcp) as consumer:
        consumer.subscribe("t", "c")
        bodies = [consumer.message().body for _ in range(202)]
    expected = [b"safe %d" % n for n in range(200)]
    assert sorted(bodies) == sorted([b"after", b"not sent before nsqd was back", *expected])
    counts = gateway.inside("t")
    assert (counts["admitted"], counts["unknown"]) == (202, 6)


class Held:
    """A script that answers the publishes of chosen numbers only when told, and all others OK."""

    def __init__(self, **answers: str | None) -> None:
        self._answers = {int(name[1:]): answer for name, answer in answers.items()}
        self.go = threading.Event()

    def __call__(self, command: Command) -> str | None:
        if command.number in self._answers:
            assert self.go.wait(20)
            return self._answers[command.number]
        return "OK"


def test_only_the_failed_batch_is_told_and_what_was_behind_it_is_sent_again(
    servers: Servers,
) -> None:
    script = Held(n1="E_MPUB_FAILED MPUB failed exiting")
    with fake_nsqd(script) as fake:
        gateway = servers.gateway(f"--nsqd-tcp-address={fake.address}")
        clients = [V2(gateway.tcp) for _ in range(5)]
        first, failed, also_failed, behind, far_behind = clients
        first.send(pub(b"t", b"makes the topic known"))
        first.oks(1)
        first.send(pub(b"t", b"fails"))  # alone in the first batch
        wait_for(lambda: fake.came("t") == 2, "nsqd has the batch that will fail")
        behind.send(pub(b"t", b"behind"))  # in flight behind it, not read by nsqd yet
        wait_for(lambda: gateway.offered("t") == 3, "the next is in flight")
        # These wait in the gateway: two batches of a topic are in flight at most.
        far_behind.send(pub(b"t", b"far behind") + mpub(b"t", [message(b"and")] * 2, 2))
        wait_for(lambda: gateway.offered("t") == 6, "the rest waits")
        script.go.set()
        assert first.reply() == b"E_PUB_FAILED MPUB failed exiting"
        assert first.ended()
        behind.oks(1)
        far_behind.oks(2)
        for idle in (failed, also_failed):
            idle.send(pub(b"t", b"later"))
            idle.oks(1)
        assert fake.bodies("t")[2:6] == [b"behind", b"far behind", b"and", b"and"]
        for client in clients:
            client.close()


def test_all_of_a_failed_batch_are_told_each_in_its_own_words(servers: Servers) -> None:
    script = Held(n1="OK", n2="E_MPUB_FAILED MPUB failed no space left on device")
    with fake_nsqd(script) as fake, ThreadPoolExecutor() as threads:
        gateway = servers.gateway(f"--nsqd-tcp-address={fake.address}", "--max-topics=3")
        with V2(gateway.tcp) as first, V2(gateway.tcp) as single, V2(gateway.tcp) as batch:
            first.send(pub(b"t", b"known"))
            first.oks(1)
            gateway.set_limit("t", rate=0.001, burst=1)  # the next ones gather
            first.send(pub(b"t", b"takes the token"))
            wait_for(lambda: fake.came("t") == 2, "it is in flight")
            single.send(pub(b"t", b"x") + pub(b"t", b"y"))
            batch.send(mpub(b"t", [message(b"z")] * 2, 2))
            web = threads.submit(http, gateway.http, "/pub?topic=t", b"w")
            wait_for(lambda: gateway.offered("t") == 7, "they wait together")
            gateway.set_limit("t", rate=1e6, burst=1e6)
            wait_for(lambda: gateway.inside("t")["waiting"] == 0, "they have their tokens")
            script.go.set()
            first.oks(1)
            assert single.reply() == b"E_PUB_FAILED MPUB failed no space left on device"
            assert single.ended()
            assert batch.reply() == b"E_MPUB_FAILED MPUB failed no space left on device"
            assert batch.ended()
            status, document, _ = web.result(10)
            assert (status, document["message"].split()[0]) == (503, "E_PUB_FAILED")
            first.send(pub(b"t", b"the gateway goes on"))
            first.oks(1)
        assert fake.bodies("t").count(b"x") == 1


def test_an_nsqd_that_ends_without_a_word_costs_only_those_in_flight(servers: Servers) -> None:
    script = Held(n1=None)
    with fake_nsqd(script) as fake, ThreadPoolExecutor() as threads:
        gateway = servers.gateway(f"--nsqd-tcp-address={fake.address}")
        with V2(gateway.tcp) as one, V2(gateway.tcp) as two, V2(gateway.tcp) as three:
            one.send(pub(b"t", b"known"))
            one.oks(1)
            one.send(pub(b"t", b"read, not answered"))
            wait_for(lambda: fake.came("t") == 2, "it is at nsqd")
            web = threads.submit(http, gateway.http, "/pub?topic=t", b"on its way")
            wait_for(lambda: gateway.offered("t") == 3, "so is the next")
            two.send(pub(b"t", b"on its way"))
            three.send(pub(b"t", b"not sent yet") + mpub(b"t", [message(b"nor this")], 1))
            wait_for(lambda: gateway.offered("t") == 6, "the others wait in the gateway")
            script.go.set()
            assert one.frame() is None
            assert web.result(10)[0] == 504
            # Nothing of these two was sent, so nothing is unknown: they go on by themselves.
            two.oks(1)
            three.oks(2)
            assert sorted(fake.bodies("t")) == sorted(
                [b"known", b"read, not answered", b"on its way", b"not sent yet", b"nor this"]
            )


def test_what_waits_behind_a_new_topics_failed_first_publish_goes_on(servers: Servers) -> None:
    script = Held(n0="E_PUB_FAILED PUB failed exiting")
    with fake_nsqd(script) as fake:
        gateway = servers.gateway(f"--nsqd-tcp-address={fake.address}")
        with V2(gateway.tcp) as unlucky, V2(gateway.tcp) as waiting:
            unlucky.send(pub(b"new", b"first"))
            wait_for(lambda: fake.came("new") == 1, "nsqd has it")
            waiting.send(pub(b"new", b"second"))
            wait_for(lambda: gateway.offered("new") == 2, "the second waits")
            script.go.set()
            assert unlucky.reply() == b"E_PUB_FAILED PUB failed exiting"
            waiting.oks(1)


def test_a_failed_clients_later_commands_are_not_sent_again(servers: Servers) -> None:
    """They did not run at nsqd, and would not have run after the error that ended them."""
    script = Held(n1="E_MPUB_FAILED MPUB failed exiting")
    with fake_nsqd(script) as fake:
        gateway = servers.gateway(f"--nsqd-tcp-address={fake.address}")
        with V2(gateway.tcp) as client, V2(gateway.tcp) as other:
            client.send(pub(b"t", b"known"))
            client.oks(1)
            client.send(pub(b"t", b"fails"))
            wait_for(lambda: fake.came("t") == 2, "nsqd has it")
            client.send(pub(b"t", b"in flight behind it"))
            wait_for(lambda: gateway.offered("t") == 3, "in flight")
            client.send(pub(b"t", b"not sent yet"))
            wait_for(lambda: gateway.offered("t") == 4, "in the gateway")
            script.go.set()
            assert client.reply() == b"E_PUB_FAILED MPUB failed exiting"
            assert client.ended()
            other.send(pub(b"t", b"the last"))
            other.oks(1)
        assert fake.bodies("t") == [b"known", b"fails", b"the last"]


@pytest.mark.parametrize("reset", [True, False], ids=["by-a-reset", "in-order"])
@pytest.mark.parametrize(
    "answer", ["OK", "E_MPUB_FAILED MPUB failed", None], ids=["ok", "error", "end"]
)
def test_a_client_that_left_while_it_was_owed_harms_nobody(
    servers: Servers, answer: str | None, reset: bool
) -> None:
    script = Held(n1=answer)
    with fake_nsqd(script) as fake:
        gateway = servers.gateway(f"--nsqd-tcp-address={fake.address}")
        with V2(gateway.tcp) as other:
            other.send(pub(b"t", b"known"))
            other.oks(1)
            gone = V2(gateway.tcp)
            gone.send(pub(b"t", b"in flight"))
            wait_for(lambda: fake.came("t") == 2, "it is in flight")
            if reset:
                gone.reset()
                wait_for(lambda: gateway.metric("srtm_connections") == 1, "the gateway saw it")
            gone.close()
            other.send(pub(b"u", b"meanwhile"))
            other.oks(1)
            script.go.set()
            wait_for(lambda: gateway.inside("t")["backlog_bytes"] == 0, "it is done with")
            other.send(pub(b"t", b"later"))
            other.oks(1)


def test_errors_of_one_topic_do_not_use_up_the_connections_of_all(servers: Servers) -> None:
    """Each fatal error ends a connection to nsqd; nsqd is not away for that."""
    known = threading.Event()

    def script(command: Command) -> str:
        failing = command.topic == "bad" and known.is_set()
        return "E_MPUB_FAILED MPUB failed exiting" if failing else "OK"

    with fake_nsqd(script) as fake:
        gateway = servers.gateway(f"--nsqd-tcp-address={fake.address}")
        with V2(gateway.tcp) as good:
            good.send(pub(b"bad", b"known") + pub(b"good", b"known"))
            good.oks(2)
            known.set()
            for number in range(30):
                with V2(gateway.tcp) as unlucky:
                    unlucky.send(pub(b"bad", b"%d" % number))
                    assert (unlucky.reply() or b"").startswith(b"E_PUB_FAILED")
                good.send(pub(b"good", b"%d" % number))
                good.oks(1)
        assert "nsqd is away" not in gateway.process.text()


class Chaos:
    """Mostly an nsqd; sometimes slow, sometimes it fails, sometimes it ends without a word."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.stored: set[bytes] = set()

    def __call__(self, command: Command) -> str | None:
        luck = self._chance.random()
        if luck < 0.015:
            return None
        if luck < 0.04:
            return "E_MPUB_FAILED MPUB failed exiting"
        if luck < 0.2:
            time.sleep(0.005)
        self.stored.update(command.bodies)
        return "OK"


@pytest.mark.parametrize("seed", [1])
def test_whatever_nsqd_does_no_ok_is_wrong_and_nothing_is_sent_twice(
    servers: Servers, seed: int
) -> None:
    script = Chaos(seed)
    with fake_nsqd(script) as fake:
        gateway = servers.gateway(f"--nsqd-tcp-address={fake.address}", "--log-level=warn")
        gateway.set_limit("b", rate=3000, burst=20)
        told_stored: list[bytes] = []
        ends: list[bytes | None] = []
        deadline = time.monotonic() + 2

        def publish(number: int) -> None:
            chance = random.Random(seed * 100 + number)
            for connection in range(1000):
                if time.monotonic() > deadline:
                    return
                try:
                    client = V2(gateway.tcp)
                except OSError:  # no connection is taken while nsqd seems away
                    time.sleep(0.05)
                    continue
                with client, contextlib.suppress(OSError):
                    for turn in range(chance.randrange(1, 20)):
                        commands = []
                        for n in range(chance.randrange(1, 8)):
                            topic = chance.choice([b"a", b"b", b"c"])
                            body = b"%d.%d.%d.%d." % (number, connection, turn, n)
                            bodies = [body + b"%d" % k for k in range(chance.randrange(1, 4))]
                            if len(bodies) > 1:
                                data = mpub(topic, map(message, bodies), len(bodies))
                            elif chance.random() < 0.2:
                                data = dpub(topic, 0, message(bodies[0]))
                            else:
                                data = pub(topic, bodies[0])
                            commands.append((data, bodies))
                        client.send(b"".join(data for data, _ in commands))
                        for _, bodies in commands:
                            reply = client.reply()
                            if reply != b"OK":
                                ends.append(reply)
                                assert reply is None or client.frame() is None
                                raise ConnectionResetError
                            told_stored.extend(bodies)

        with ThreadPoolExecutor(12) as threads:
            list(threads.map(publish, range(12)))
        sent = [body for command in fake.commands for body in command.bodies]
        assert len(sent) == len(set(sent)), "nothing that nsqd has read is sent again"
        assert set(told_stored) <= script.stored, "an OK is nsqd's OK"
        assert len(told_stored) > 500
        assert None in ends
        assert any(end is not None and b"_FAILED MPUB failed exiting" in end for end in ends)
        wait_for(
            lambda: all(not gateway.inside(topic)["backlog_bytes"] for topic in "abc"),
            "nothing is forgotten in the gateway",
        )
    assert "Traceback" not in gateway.process.text()
