"""nsqd's disk is full and has room again. Nobody waits meanwhile, and nothing is left."""

import time

import pytest

from srtm.gateway.disk_trial import TOPIC
from srtm.nsq.commands import pub
from tests.support.servers import GatewayProcess, Nsqd, Servers, http, wait_for
from tests.support.v2 import V2


def make_ill(gateway: GatewayProcess, nsqd: Nsqd, topic: str, messages: int) -> None:
    """Publish past nsqd's memory; on its disk nothing more fits."""
    statuses = [http(nsqd.http, f"/pub?topic={topic}", b"x")[0] for _ in range(messages)]
    assert statuses[-1] == 503, statuses
    wait_for(lambda: http(gateway.http, "/ping")[0] == 500, "the gateway admits nothing")


def files_of_trials(nsqd: Nsqd) -> int:
    """nsqd leaves a file when it cannot write its metadata: one when a topic comes, one when it
    goes."""
    return len(list(nsqd.data_path.glob("nsqd.dat.*.tmp"))) // 2


def wait_well(gateway: GatewayProcess) -> None:
    """With time to spare for a busy machine; 10 s are promised."""
    wait_for(lambda: http(gateway.http, "/ping")[0] == 200, "the gateway admits again", 30)


@pytest.mark.parametrize(
    "memory",
    [
        pytest.param(0, id="every-message-goes-to-the-disk"),
        pytest.param(20, id="what-memory-cannot-hold-goes-to-the-disk"),
    ],
)
def test_when_there_is_room_again_messages_are_taken_though_nobody_waited(
    servers: Servers, memory: int
) -> None:
    nsqd = servers.nsqd(f"--mem-queue-size={memory}")
    gateway = servers.gateway(nsqd=nsqd)
    assert http(gateway.http, "/pub?topic=t", b"first")[0] == 200
    with nsqd.full_disk():
        make_ill(gateway, nsqd, "t", memory + 1)
        assert http(nsqd.http, "/ping")[0] == 500
    wait_well(gateway)
    assert http(nsqd.http, "/ping")[0] == 200, "nsqd has written, and knows it"
    with V2(gateway.tcp) as client:
        client.send(pub(b"t", b"x") * 3)
        client.oks(3)
    wait_for(lambda: nsqd.topic(TOPIC) is None, "the topic of the trial is gone")
    assert not list(nsqd.data_path.glob(f"{TOPIC}*")), "and so are its files"
    assert nsqd.message_count("t") == 1 + max(memory - 1, 0) + 3


def test_while_the_disk_is_full_nothing_is_admitted_and_trials_are_rare(servers: Servers) -> None:
    """A queue that is full stays full when its publishers have gone elsewhere."""
    nsqd = servers.nsqd("--mem-queue-size=20")
    gateway = servers.gateway(nsqd=nsqd)
    with nsqd.full_disk():
        with V2(gateway.tcp) as client:
            client.send(pub(b"t", b"x") * 20)
            client.oks(20)
            client.send(pub(b"t", b"x"))
            assert (client.reply() or b"").startswith(b"E_PUB_FAILED")
        wait_for(lambda: http(gateway.http, "/ping")[0] == 500, "the gateway admits nothing")
        answers: list[int] = []

        def two_trials() -> bool:
            answers.append(http(gateway.http, "/ping")[0])
            return files_of_trials(nsqd) >= 2

        started = time.monotonic()
        wait_for(two_trials, "two trials", 40)
        assert time.monotonic() - started > 2, "no more than one a second"
        assert set(answers) == {500}, "the gate stayed closed"
    wait_well(gateway)


def test_what_waits_goes_to_nsqd_when_there_is_room_again(servers: Servers) -> None:
    nsqd = servers.nsqd("--mem-queue-size=0")
    gateway = servers.gateway("--topic=limited,rate=1000,burst=10", nsqd=nsqd)
    with V2(gateway.tcp) as waiting, V2(gateway.tcp) as limited:
        with nsqd.full_disk():
            make_ill(gateway, nsqd, "t", 1)
            waiting.send(pub(b"t", b"a") + pub(b"t", b"b"))
            limited.send(pub(b"limited", b"c"))
            assert waiting.silent(0.2), "nobody's message is the trial"
        waiting.oks(2, timeout=30)
        limited.oks(1)
    assert nsqd.message_count("t") == 2


def test_a_topic_of_a_trial_that_a_killed_gateway_left_is_deleted(servers: Servers) -> None:
    nsqd = servers.nsqd()
    assert http(nsqd.http, f"/mpub?topic={TOPIC}", b"x\nx")[0] == 200
    servers.gateway(nsqd=nsqd)
    wait_for(lambda: nsqd.topic(TOPIC) is None, "it is gone")


def test_nsqlookupd_never_hears_of_a_trial(servers: Servers) -> None:
    lookupd_tcp, lookupd_http, _ = servers.lookupd()
    nsqd = servers.nsqd("--mem-queue-size=0")
    gateway = servers.gateway(f"--lookupd-tcp-address={lookupd_tcp}", nsqd=nsqd)

    def is_announced() -> bool:
        return len(http(lookupd_http, "/nodes")[1]["producers"]) == 1

    wait_for(is_announced, "it is announced")
    with nsqd.full_disk():
        make_ill(gateway, nsqd, "t", 1)
        wait_for(lambda: files_of_trials(nsqd), "a trial", 20)
        wait_for(is_announced, "it still is: consumers make room")
    wait_well(gateway)
    wait_for(is_announced, "it is announced again")
    assert TOPIC not in http(lookupd_http, "/topics")[1]["topics"]


def test_while_nsqd_is_ill_consumers_come_in_and_new_publishers_go_elsewhere(
    servers: Servers,
) -> None:
    nsqd = servers.nsqd("--mem-queue-size=20")
    gateway = servers.gateway(nsqd=nsqd)
    with V2(gateway.tcp) as before:
        with nsqd.full_disk():
            before.send(pub(b"t", b"x") * 20)
            before.oks(20)
            make_ill(gateway, nsqd, "t", 1)
            before.send(pub(b"t", b"x"))
            with V2(gateway.tcp) as late:
                late.send(pub(b"t", b"x"))
                assert late.reply() == b"E_PUB_FAILED nsqd is ill; publish to another broker"
                assert late.ended()
            assert before.silent(0.2), "it waits"
        with V2(gateway.tcp) as consumer:
            consumer.subscribe("t", "c")
            for _ in range(21):
                consumer.message()
    assert gateway.ours("t")["offered"] == 21
