"""`srtm autoscale run` and `srtm consume` on a real NSQ: nothing is lost, whoever is killed."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.pools import Pool, pool
from tests.support.servers import Servers, free_port, http, wait_for

Make = Callable[..., Pool]


@pytest.fixture
def make_pool(servers: Servers) -> Iterator[Make]:
    made: list[Pool] = []

    def make(brokers: int = 1, **tables: dict[str, Any]) -> Pool:
        made.append(pool(servers, brokers, **tables))
        return made[-1]

    yield make
    for each in made:
        each.end()


def test_each_message_once_over_two_brokers_and_decisions_explained(make_pool: Make) -> None:
    found = make_pool(2, group={"min": 2, "max": 2})
    found.publish(200)
    found.controller()
    found.wait_kept()
    found.wait_consumers(2)
    found.publish(100)
    found.wait_kept()
    assert set(found.ids().values()) == {1}
    found.wait(lambda: found.backlog() == 0, "all is finished")
    kept = found.file.with_suffix(".state.json")
    found.wait(lambda: "took_seconds" in kept.read_text(), "it is carried out")
    (decision,) = json.loads(found.command("explain", "--json").stdout)
    assert (decision["action"], decision["consumers"]) == ("up", 2)
    assert len(found.stats()["brokers"]) == 2
    look = json.loads(found.command("watch", "--count", "1", "--json").stdout)
    assert len(look["consumers"]) == 2
    assert look["policies"]["li-ku"]


def test_a_pool_of_a_limited_topic(make_pool: Make) -> None:
    """2,000/s need more consumers than there may be, whatever comes and is learnt of mu."""
    keys = {"policy": "contract", "contract": "rate=2000,burst=20", "mu": 100, "max": 3}
    found = make_pool(group={**keys, "slo": "0.99@500ms"})
    found.controller(EACH="0.01")
    found.publish(50)
    found.wait_consumers(3)
    found.wait_kept()
    look = json.loads(found.command("watch", "--count", "1", "--json").stdout)
    assert "rate=2000,burst=20" in look["policies"]["contract"]["reason"]


def test_a_consumer_that_is_killed_in_a_batch_loses_nothing(make_pool: Make) -> None:
    found = make_pool(group={"min": 2, "max": 2})
    found.controller()
    found.wait_consumers(2)
    (found.folder / "stall").touch()
    found.publish_body(b"stall")
    found.wait(lambda: list(found.folder.glob("stalled-*")), "a consumer has it")
    (marker,) = found.folder.glob("stalled-*")
    os.kill(int(marker.name.removeprefix("stalled-")), signal.SIGKILL)
    (found.folder / "stall").unlink()
    found.publish(50)
    found.wait_kept()
    found.wait(lambda: found.ids()["stall"] == 1, "it comes to another")
    found.wait_consumers(2)


def test_scale_in_drains(make_pool: Make) -> None:
    """Who leaves works off what it has: nothing waits for msg-timeout, nothing comes twice."""
    found = make_pool(nsq={"msg_timeout": "60s"}, group={"min": 3, "max": 3})
    first = found.controller(EACH="0.01")
    found.wait_consumers(3)
    first.stop(60)
    found.publish(300)
    found.wait(lambda: len(found.ids()) > 30, "they work")
    found.write(nsq={"msg_timeout": "60s"}, group={"min": 1, "max": 1})
    found.controller()
    found.wait_consumers(1)
    found.wait_kept()
    assert set(found.ids().values()) == {1}
    found.wait(lambda: found.backlog() == 0, "all is finished")
    assert len(found.pids()) == 1


def test_a_controller_is_killed_and_another_stands_by(make_pool: Make) -> None:
    """The pool goes on meanwhile; the next one finds it as it is, and launches nobody."""
    found = make_pool(group={"min": 2, "max": 2})
    first = found.controller()
    found.wait_consumers(2)
    pids = found.pids()
    address = f"127.0.0.1:{free_port()}"
    second_file = found.folder / "second.toml"
    second_file.write_text(found.file.read_text().replace(found.address, address))
    second = found.controller(second_file)
    found.wait(lambda: "stands by" in ping(address), "the second waits")
    assert second.text().count("this one stands by") == 1
    assert "end it first" in found.command("stop").stderr
    first.kill()
    found.publish(50)
    found.wait_kept()
    wait_for(lambda: "this controller leads" in second.text(), "the second leads")
    wait_for(lambda: http(address, "/stats")[1].get("consumers") == 2, "it knows them")
    assert found.pids() == pids
    second.stop(60)
    assert found.command("stop").returncode == 0
    assert not found.pids()


def ping(address: str) -> str:
    try:
        return str(http(address, "/ping", timeout=5)[1])
    except OSError:
        return ""


def test_a_consumer_frozen_past_msg_timeout_drops_its_batch(make_pool: Make) -> None:
    found = make_pool(nsq={"msg_timeout": "1s"}, group={"min": 2, "max": 2})
    found.controller()
    found.wait_consumers(2)
    (found.folder / "stall").touch()
    found.publish_body(b"stall")
    found.wait(lambda: list(found.folder.glob("stalled-*")), "a consumer has it")
    (marker,) = found.folder.glob("stalled-*")
    pid = int(marker.name.removeprefix("stalled-"))
    os.kill(pid, signal.SIGSTOP)
    (found.folder / "stall").unlink()
    found.wait(lambda: found.ids()["stall"] == 1, "it comes to another")
    os.kill(pid, signal.SIGCONT)
    found.wait(lambda: "nothing of the batch goes to the sink" in found.logs(), "it knows")
    found.publish(50)
    found.wait_kept()
    assert found.ids()["stall"] == 1


def test_a_batch_longer_than_msg_timeout_is_touched(make_pool: Make) -> None:
    found = make_pool(nsq={"msg_timeout": "1s"}, group={"min": 2, "max": 2})
    found.controller(EACH="0.15")
    found.wait_consumers(2)
    found.publish(40)
    found.wait_kept()
    assert set(found.ids().values()) == {1}


def test_a_message_that_fails_is_soon_alone(make_pool: Make) -> None:
    found = make_pool()
    (found.folder / "work.py").write_text(
        (found.folder / "work.py")
        .read_text()
        .replace(
            "    for record in records:",
            "    assert b'bad' not in [r.value for r in records]\n    for record in records:",
            1,
        )
    )
    found.publish_body(b"bad")
    found.publish(60)
    found.controller()
    found.wait_kept()
    found.wait(lambda: found.backlog() == 1, "the others are finished")


def test_a_program_of_the_users_own(make_pool: Make) -> None:
    """pynsq, by process count alone: it drains on SIGTERM as it likes."""
    found = make_pool(consumer={}, group={"min": 2, "max": 2})
    script = found.folder / "own.py"
    script.write_text(
        "import json, os, sys, time, nsq, tornado.ioloop\n"
        "sink = os.open(f'{sys.argv[2]}/sink-{os.getpid()}.jsonl', os.O_CREAT | os.O_WRONLY)\n"
        "def handle(message):\n"
        "    row = json.dumps([time.time(), os.getpid(), message.body.decode()])\n"
        "    os.write(sink, row.encode() + b'\\n')\n"
        "    return True\n"
        "nsq.Reader(topic='events', channel='workers', message_handler=handle,\n"
        "           lookupd_http_addresses=[sys.argv[1]], lookupd_poll_interval=1)\n"
        "nsq.run()\n"
    )
    command = [sys.executable, str(script), f"http://{found.lookupd}", str(found.folder)]
    found.write(executor={"command": command}, group={"min": 2, "max": 2})
    text = found.file.read_text()
    start = text.index("[consumer]")
    found.file.write_text(text[:start] + text[text.index("[executor]") :])
    found.publish(50)
    found.controller()
    found.wait_consumers(2)
    found.wait_kept()
    os.kill(found.pids()[0], signal.SIGKILL)
    found.wait(lambda: len(found.pids()) == 2, "it is replaced")
    found._controllers[0].stop(60)
    assert found.command("stop").returncode == 0
    assert not found.pids()


def test_through_a_gateway_and_an_nsqd_that_begins_anew(make_pool: Make, servers: Servers) -> None:
    """Consumers and controller know the gateway only; nsqd keeps what waits over SIGTERM."""
    found = make_pool(group={"min": 2, "max": 2, "interval": "300ms"})
    gateway = servers.gateway()
    found.brokers = [gateway.http]
    found.publish(10)
    addresses = {"lookupd": [], "nsqd": [gateway.tcp], "nsqd_http": [gateway.http]}
    found.write(nsq=addresses, group={"min": 2, "max": 2})
    found.controller()
    found.wait_consumers(2)
    found.wait_kept()
    nsqd = gateway.nsqd.process
    nsqd.stop()
    found.wait(lambda: gateway.http in str(found.stats().get("health")), "its nsqd is away")
    assert len(found.pids()) == 2
    nsqd.start()
    gateway.nsqd.wait_ready()
    gateway.wait_ready()
    found.publish(50)
    found.wait_kept()
    found.wait(lambda: found.stats()["health"] == "OK", "all is well again")
    assert set(found.ids().values()) == {1}


def test_a_broker_that_hangs_holds_up_nobody(make_pool: Make, servers: Servers) -> None:
    found = make_pool(2, group={"min": 1, "max": 1})
    found.controller()
    found.wait_consumers(1)
    hung = next(each for each in servers._processes if each.log.name.startswith("nsqd"))
    hung.freeze()
    found.publish(40, broker=1)
    found.wait_kept()
    found.wait(lambda: "did not answer within" in str(found.stats().get("health")), "it is said")
    assert found.stats()["consumers"] == 1
    hung.thaw()
    found.publish(20, broker=0)
    found.wait_kept()
    found.wait(lambda: found.stats()["health"] == "OK", "all is well again")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param({"group": {"policy": "peak"}}, "simulated, not run", id="policy"),
        pytest.param({"controller": {"state_folder": "/nowhere"}}, "set state-folder", id="state"),
    ],
)
def test_a_start_that_cannot_be_is_one_line(
    make_pool: Make, change: dict[str, Any], says: str
) -> None:
    found = make_pool(**change)
    controller = found.controller()
    assert controller.popen.wait(60) == 2
    assert says in controller.text()
    assert "Traceback" not in controller.text()


def test_what_is_not_there_is_told(make_pool: Make) -> None:
    """Once in the log; `stop` does not wait for it, and ends nobody."""
    found = make_pool(nsq={"topic": "other"})
    controller = found.controller()
    nobody = "no nsqd has topic other yet"
    wait_for(lambda: nobody in controller.text(), "it is told")
    controller.stop(60)
    assert controller.text().count(nobody) == 1
    stopped = found.command("stop")
    assert stopped.returncode == 3
    assert stopped.stderr == f"srtm: {nobody}: who consumes is not known; nobody was ended\n"
    away = f"127.0.0.1:{free_port()}"
    found.write(nsq={"lookupd": [away]})
    looked = found.command("watch", "--count", "1")
    assert looked.returncode == 3
    assert looked.stderr == f"srtm: nsqlookupd {away}: nothing listens there\n"
