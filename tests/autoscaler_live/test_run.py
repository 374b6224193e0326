"""`srtm autoscale run` on a real Kafka, with real consumers: nothing is lost and no partition is
had by two, under kill -9 and SIGSTOP of each part."""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.cimpl import NewPartitions

from tests.support.groups import Group, under_load
from tests.support.servers import wait_for

Make = Callable[..., Group]


def test_a_controller_is_killed_and_another_takes_over(make_group: Make) -> None:
    """The group goes on without it; the next one finds it as it is, and launches nobody."""
    group = make_group("headless", group={"min": 2, "max": 2})
    first = group.controller()
    group.wait_state(2)
    pids = group.pids()
    with under_load(group):
        wait_for(lambda: len(group.ids()) > 20, "it works")
        first.kill()
        sent = group.sent
        wait_for(lambda: len(group.ids()) > sent + 30, "it goes on without a controller")
        second = group.controller()
        group.wait_state(2)
        assert group.pids() == pids
        third_file = group.folder / "third.toml"
        third_file.write_text(
            "\n".join(
                line
                for line in group.file.read_text().splitlines()
                if not line.startswith("http-address")
            )
        )
        third = group.controller(third_file)
        wait_for(lambda: group.stats()["epoch"] == 2, "the second leads")
        second.kill()
        wait_for(lambda: "leads with epoch 3" in third.text(), "the third takes over", 20)
        assert third.alive
    group.wait_kept()
    group.check()
    assert set(group.ids().values()) == {1}


def test_what_starts_as_a_controller_is_killed_is_not_launched_again(make_group: Make) -> None:
    group = make_group("slow-start", group={"min": 1, "max": 1})
    work = group.folder / "work.py"
    work.write_text(f"import time\ntime.sleep(4)\n{work.read_text()}")
    first = group.controller()
    logs = group.folder / "logs"
    # Its log is there before the process is, which would never be if the first were killed then.
    wait_for(group.pids, "one is launched", 20)
    first.kill()
    group.controller()
    group.wait_state(1)
    assert len(list(logs.glob("c-*"))) == 1


def test_a_consumer_frozen_past_its_lease_drops_its_batch(make_group: Make) -> None:
    """It stops in the middle of a batch; another gets its partitions; when it thaws the batch goes
    nowhere, and it comes back as somebody new."""
    group = make_group("frozen", group={"min": 2, "max": 2})
    group.controller()
    group.wait_state(2)
    (group.folder / "stall").touch()
    group.kafka.produce("frozen", [b"stall"], partition=0)
    wait_for(lambda: list(group.folder.glob("stalled-*")), "a consumer has the batch")
    (marker,) = group.folder.glob("stalled-*")
    pid = int(marker.name.removeprefix("stalled-"))
    os.kill(pid, signal.SIGSTOP)
    (group.folder / "stall").unlink()
    group.produce(40)
    group.wait_kept()
    before = [each for each in group.kept() if each.id == "stall"]
    assert [each.pid != pid for each in before] == [True]
    os.kill(pid, signal.SIGCONT)
    wait_for(lambda: "comes back with nothing" in group.logs(), "it knows that it is out")
    group.produce(40)
    group.wait_kept()
    assert group.ids()["stall"] == 1
    group.check()


def test_a_frozen_consumer_that_thaws_in_time_keeps_all(make_group: Make) -> None:
    group = make_group("blink", group={"min": 1, "max": 1, "lease": "4s"})
    group.controller()
    group.wait_state(1)
    (pid,) = group.pids()
    os.kill(pid, signal.SIGSTOP)
    group.produce(50)
    os.kill(pid, signal.SIGCONT)
    group.wait_kept()
    group.check()
    assert {each.pid for each in group.kept()} == {pid}
    assert "fenced" not in group.logs()


def test_a_consumer_that_hangs_in_a_batch_is_replaced(make_group: Make) -> None:
    group = make_group(
        "hung",
        group={"min": 1, "max": 2},
        consumer={
            "process": "work:handle",
            "sink": "callback",
            "callback": "work:keep",
            "batch-timeout": "1s",
        },
    )
    group.controller()
    group.wait_state(1)
    (pid,) = group.pids()
    (group.folder / "stall").touch()
    group.kafka.produce("hung", [b"stall"], partition=0)
    wait_for(lambda: pid not in group.pids(), "it ends itself", 20)
    (group.folder / "stall").unlink()
    group.produce(20)
    group.wait_kept()
    assert group.ids()["stall"] == 1
    group.check()


def test_an_executor_that_cannot_start_anything_backs_off(make_group: Make) -> None:
    group = make_group("quota", executor={"command": [sys.executable, "-c", "raise SystemExit(7)"]})
    controller = group.controller()
    group.produce(10)
    wait_for(
        lambda: "ended with code 7 before it joined" in str(group.stats().get("health")),
        "it says why",
        20,
    )
    assert f"before it joined; look at {group.folder}/logs/c-" in group.stats()["health"]
    wait_for(lambda: "before it joined" in controller.text().partition("up: ")[2], "and again")
    group.write()
    controller.kill()
    group.controller()
    group.wait_kept()


def test_consumers_that_nobody_launched_are_put_to_work(make_group: Make) -> None:
    group = make_group("volunteers", group={"min": 1, "max": 1})
    volunteers = [group.consumer(), group.consumer()]
    group.produce(20)
    group.controller()
    group.wait_kept()
    group.wait_state(1)
    wait_for(lambda: sum(each.alive for each in volunteers) == 1, "one is too many, and told so")
    (left,) = [each for each in volunteers if not each.alive]
    assert left.popen.wait(5) == 0
    group.check()


def test_a_topic_that_grows(make_group: Make) -> None:
    group = make_group("grows", partitions=1, group={"min": 1, "max": 2})
    group.controller()
    group.wait_state(1)
    group.kafka.admin.create_partitions([NewPartitions("grows", 3)])["grows"].result(10)
    wait_for(lambda: group.kafka.partitions("grows") == 3, "it has grown")
    group.produce(20, partition=2)
    group.wait_kept()
    group.check()


def test_a_group_that_subscribes_is_refused(make_group: Make) -> None:
    group = make_group("taken")
    consumer = Consumer({"bootstrap.servers": group.kafka.address, "group.id": "taken-group"})
    consumer.subscribe(["taken"])
    try:
        wait_for(lambda: consumer.poll(0.1) or consumer.assignment(), "it has joined", 20)
        controller = group.controller()
        assert controller.popen.wait(30) == 3
        assert "stop them, or give [group] another id" in controller.text()
    finally:
        consumer.close()


def test_a_worker_of_the_users_own(make_group: Make) -> None:
    """A script that names its functions itself, as the executor's command."""
    group = make_group("script")
    script = group.folder / "script.py"
    script.write_text(
        "import sys, work\n"
        "from srtm.consumer import consume\n"
        "if __name__ == '__main__':\n"
        "    sys.exit(consume(sys.argv[1], process=work.handle, callback=work.keep))\n"
    )
    group.write(executor={"command": [sys.executable, str(script), str(group.file)]})
    text = group.file.read_text()
    group.file.write_text(
        text.partition("[consumer]")[0] + "[executor]" + text.partition("[executor]")[2]
    )
    group.controller()
    group.produce(20)
    group.wait_kept()
    group.check()


def test_sigterm_leaves_the_group_at_work(make_group: Make) -> None:
    group = make_group("left")
    controller = group.controller()
    group.wait_state(1)
    assert controller.stop() == 0
    group.produce(20)
    group.wait_kept()
    again = group.controller()
    wait_for(lambda: "leads with epoch 2" in again.text(), "the next one leads at once", 20)
    look = group.command("watch", "--count", "1", "--json")
    (consumer,) = json.loads(look.stdout)["consumers"]
    assert consumer["partitions"] == [0, 1, 2, 3]
    assert "end it first" in group.command("stop").stderr
    again.stop()
    assert group.command("stop").returncode == 0
    wait_for(lambda: not group.pids(), "all have ended")


def test_stop_ends_who_starts_and_who_is_frozen(make_group: Make) -> None:
    group = make_group("half-there", group={"min": 2, "max": 2}, executor={"grace": "1s"})
    work = group.folder / "work.py"
    wait = "if (HERE / 'slow').exists():\n    time.sleep(8)\n"
    work.write_text(work.read_text().replace("\n\ndef handle", f"{wait}\n\ndef handle"))
    first = group.controller()
    group.wait_state(2)
    starting, frozen = group.pids()
    os.kill(frozen, signal.SIGSTOP)
    (group.folder / "slow").touch()
    os.kill(starting, signal.SIGKILL)
    wait_for(lambda: len(list((group.folder / "logs").glob("c-*"))) > 2, "another is launched", 20)
    assert first.stop() == 0
    assert group.command("stop").returncode == 0
    assert not group.pids()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param("policy = 'peak'", "simulated, not run", id="policy"),
        pytest.param("topic = 'nowhere'", "has no topic nowhere", id="topic"),
    ],
)
def test_a_start_that_cannot_be_is_one_line(make_group: Make, change: str, says: str) -> None:
    group = make_group(f"refused-{change.split()[0]}")
    text = group.file.read_text()
    name = change.split()[0]
    lines = [change if line.startswith(f"{name} =") else line for line in text.splitlines()]
    file = Path(group.folder / "changed.toml")
    file.write_text("\n".join(lines))
    controller = group.controller(file)
    assert controller.popen.wait(30) in (2, 3)
    assert says in controller.text()
    assert "Traceback" not in controller.text()
