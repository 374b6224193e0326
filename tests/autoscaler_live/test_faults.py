"""What went wrong once: a topic that is deleted, a commit without an answer, hidden processes, a
Kafka that is away when a program is to end, and records that nobody of the group wrote."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer
from kafka.errors import RebalanceInProgressError

from srtm.consumer import process
from srtm.consumer.assignor import PlanAssignor
from srtm.consumer.process import Process, here
from tests.support.groups import Group, under_load
from tests.support.programs import Forked, start_srtm
from tests.support.servers import wait_for

Make = Callable[..., Group]


def metadata(group: Group) -> str:
    return f"consumer.metadata.{group.topic}-group"


def test_a_consumer_frozen_while_the_groups_topic_is_made_anew(make_group: Make) -> None:
    """The topic is deleted: it is made again, and all go on. Who was frozen meanwhile comes back
    with nothing, though no fence of his stands in the new topic."""
    group = make_group("anew", group={"min": 2, "max": 2})
    group.controller()
    group.wait_state(2)
    assert group.kafka.setting(metadata(group), "cleanup.policy") == "compact"
    frozen = group.pids()[0]
    os.kill(frozen, signal.SIGSTOP)
    group.kafka.delete(metadata(group))
    wait_for(lambda: group.kafka.partitions(metadata(group)) == 1, "it is made again", 30)
    assert group.kafka.setting(metadata(group), "cleanup.policy") == "compact"
    with under_load(group):
        sent = group.sent
        wait_for(lambda: len(group.ids()) >= sent + 40, "all partitions are worked on", 40)
        os.kill(frozen, signal.SIGCONT)
        wait_for(lambda: "comes back with nothing" in group.logs(), "it knows that it is out", 30)
    group.wait_kept()
    group.wait_state(2, 60)
    group.produce(40)
    group.wait_kept()
    group.check()
    assert "is gone; it is made anew" in group.logs()


def test_a_commit_that_is_never_answered(make_group: Make) -> None:
    """Kafka answers all else: the process ends, and its work comes again."""
    group = make_group("unanswered", group={"min": 1, "max": 1})
    (group.folder / "hanging.py").write_text(
        "import pathlib, time\n"
        "def hang():\n"
        "    from srtm.consumer import reader, runner\n"
        "    runner._COMMIT_SECONDS = 1.0\n"
        "    commit = reader.Reader.commit\n"
        "    def first(self):\n"
        "        marker = pathlib.Path(__file__).parent / 'hung'\n"
        "        if max(self._places.offsets.values(), default=0) > 0 and not marker.exists():\n"
        "            marker.touch()\n"
        "            time.sleep(600)\n"
        "        return commit(self)\n"
        "    reader.Reader.commit = first\n"
    )
    text = (group.folder / "work.py").read_text()
    (group.folder / "work.py").write_text(text + "\nimport hanging\nhanging.hang()\n")
    group.controller()
    group.wait_state(1)
    (pid,) = group.pids()
    group.produce(10)
    wait_for(lambda: (group.folder / "hung").exists(), "a commit hangs", 30)
    wait_for(lambda: pid not in group.pids(), "the process has ended", 30)
    wait_for(lambda: group.kafka.committed("unanswered-group", "unanswered") == 10, "committed", 40)
    group.check_kept()
    assert "Kafka answers, but not to a commit" in group.logs()


def test_its_consumers_are_told_from_those_of_its_namesake_on_another_kafka(
    make_group: Make,
) -> None:
    group = make_group("namesake", group={"min": 1, "max": 1})
    cluster = AdminClient({"bootstrap.servers": group.kafka.address}).list_topics().cluster_id
    group.controller()
    group.wait_state(1)
    (pid,) = group.pids()
    found = (Path("/proc") / str(pid) / "environ").read_text().split("\0")
    assert f"SRTM_GROUP=kafka:{cluster}/namesake-group/namesake" in found


def test_a_process_that_proc_hides_is_not_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        known = Process(here().place, child.pid, process._begun(child.pid))
        assert not known.is_dead
        with monkeypatch.context() as patch:
            patch.setattr(process, "_stat", lambda file: [])
            assert not known.is_dead
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert known.is_dead  # nobody has waited for it yet
        child.wait()
        with monkeypatch.context() as patch:
            patch.setattr(process, "_stat", lambda file: [])
            assert known.is_dead
    finally:
        child.kill()
        child.wait()


def test_only_what_an_executor_began_is_killed() -> None:
    begun = {**os.environ, process.LAUNCH: "c-1"}
    child = subprocess.Popen(["sleep", "60"], env=begun)
    try:
        wait_for(lambda: process._launch(child.pid) == "c-1", "it has begun")
        known = Process(here().place, child.pid, process._begun(child.pid))
        assert not known.kill(signal.SIGKILL, "c-2")
        assert not known.kill(signal.SIGKILL, "")
        assert known.kill(signal.SIGKILL, "c-1")
        assert child.wait(10) == -signal.SIGKILL
    finally:
        child.kill()
        child.wait()


def test_programs_end_in_seconds_where_kafka_is_away(make_group: Make) -> None:
    group = make_group("away", group={"min": 1, "max": 1})
    controller = group.controller()
    group.wait_state(1)
    consumer = group.consumer()
    wait_for(lambda: "has joined" in consumer.text(), "it has joined", 30)
    group.produce(20)
    group.wait_kept()
    with group.kafka.frozen():
        for each in (controller, consumer):
            each.popen.send_signal(signal.SIGTERM)
        assert consumer.popen.wait(20) == 0, consumer.text()
        assert controller.popen.wait(20) == 0, controller.text()


HOSTILE = [
    (["leader", ""], {"name": "thief", "epoch": 2**53, "beat": 1}),
    (["leader", ""], {"name": "thief", "epoch": -1, "beat": 1}),
    (["command", "NAME"], {"name": "NAME", "leader": "thief", "epoch": 2**53, "version": 2**53}),
    (["command", "NAME"], {"name": "NAME", "leader": "t", "epoch": 1, "version": 9, "fence": True}),
    (["command", "NAME"], {"name": "NAME", "leader": "t", "epoch": 9, "version": 9,
                           "start": {str(10**30): 10**30}}),
    (["member", "ghost"], {"name": "ghost", "beat": 1, "version": 2**53, "holds": {"0": 1}}),
    (["member", "ghost"], {"name": "ghost", "beat": 1, "pid": 10**30, "begun": 10**30}),
    (["plan", ""], {"name": "thief", "epoch": 2**53, "version": 2**53, "parts": {"x": [0]}}),
    (["memory", "0001"], {"name": "0001", "document": {"number": 10**30, "wall": "x"}}),
    (["decision", "0001"], {"name": "0001", "document": {"number": "x"}}),
]  # fmt: skip


def test_records_that_nobody_of_the_group_wrote(make_group: Make) -> None:
    group = make_group("hostile", group={"min": 1, "max": 1})
    group.controller()
    group.wait_state(1)
    pids, name = group.pids(), _member(group)
    keys = [json.dumps(["hostile-group/hostile", *key]).replace("NAME", name).encode()
            for key, _ in HOSTILE]  # fmt: skip
    values: list[bytes | None] = [
        json.dumps(value).replace("NAME", name).encode() for _, value in HOSTILE
    ]
    group.kafka.produce(metadata(group), [*values, b"\xff" * 1000, None], [*keys, b"\x00", b"{"])
    group.produce(40)
    group.wait_kept()
    group.wait_state(1)
    group.check()
    assert group.pids() == pids
    assert "Traceback" not in group.logs()
    explained = group.command("explain")
    assert explained.returncode == 0, explained.stderr


def test_programs_that_find_no_kafka_say_so(tmp_path: Path) -> None:
    file = tmp_path / "group.toml"
    file.write_text(
        '[kafka]\nbootstrap-servers = "127.0.0.1:1"\n[group]\ntopic = "t"\nid = "g"\n'
        'slo = "0.99@500ms"\n[consumer]\nprocess = "json:loads"\n'
    )
    running: dict[Path, Forked] = {}
    for name in ("autoscale run", "autoscale explain", "autoscale stop", "consume"):
        with open(tmp_path / name, "wb") as said:  # together, since each tries for some seconds
            running[tmp_path / name] = start_srtm(*name.split(), file, stdout=said, stderr=said)
    for said_by, program in running.items():
        assert program.wait(60) == 3, said_by.read_text()
        assert "127.0.0.1:1" in said_by.read_text().splitlines()[-1]
        assert "Traceback" not in said_by.read_text()


def _member(group: Group) -> str:
    for record in group.kafka.records(metadata(group)):
        _, kind, name = json.loads(record.key or b"")
        if kind == "member":
            return str(name)
    raise AssertionError("nobody has joined")


def test_a_consumer_of_ones_own_follows_the_plan(make_group: Make) -> None:
    """A plain KafkaConsumer with the assignor; another one takes over when it has gone."""
    group = make_group("own", group={"min": 1, "max": 1, "handover": "assignor"})
    plan = PlanAssignor(group.file)
    consumer = KafkaConsumer(
        "own",
        bootstrap_servers=group.kafka.address,
        group_id="own-group",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=[plan],
    )
    try:
        group.produce(40)
        ids: set[str] = set()

        def has_all() -> bool:
            plan.follow(consumer)
            for records in consumer.poll(timeout_ms=50).values():
                ids.update(each.value.decode() for each in records)
            with contextlib.suppress(RebalanceInProgressError):  # as any consumer's loop has to
                consumer.commit()
            return len(ids) == 40 and len(consumer.assignment()) == 4

        wait_for(has_all, "it has all, where nobody leads yet", 40)
        assert not plan.version
        group.controller()
        wait_for(lambda: has_all() and plan.version, "it has all, by the plan", 40)
        assert not plan.is_to_leave
        consumer.close()
        plan.close()
        group.kafka.produce("own", [b"40", b"41"])
        wait_for(lambda: group.ids().keys() == {"40", "41"}, "the next one goes on", 40)
    finally:
        consumer.close()


def test_a_static_member_that_never_returns(make_group: Make) -> None:
    """Kafka would keep its place for 45 s; whoever is killed is taken out of the group."""
    group = make_group("static", group={"min": 2, "max": 2, "handover": "assignor"})
    group.controller()
    group.wait_state(2)
    for expected in (1, 2):  # one after the other
        os.kill(group.pids()[0], signal.SIGKILL)
        wait_for(lambda: group.logs().count("taken out of") == expected, "it is taken out", 40)  # noqa: B023
        group.wait_state(2)
    begun = time.monotonic()
    os.kill(group.pids()[0], signal.SIGSTOP)
    group.produce(40)
    try:
        group.wait_kept(40)
    finally:
        for pid in group.pids():
            os.kill(pid, signal.SIGCONT)
    assert time.monotonic() - begun < 40
    group.wait_state(2)
    group.produce(40)
    group.wait_kept()
    group.check()


def test_a_group_weighed_by_bytes(make_group: Make) -> None:
    group = make_group("heavy", partitions=2, group={"min": 1, "max": 1, "weigh": "bytes"})
    group.kafka.produce("heavy", [b"x" * 10_000] * 20, partition=0)
    group.kafka.produce("heavy", [b"x" * 100] * 20, partition=1)
    look = json.loads(group.command("watch", "--count", "1", "--json").stdout)
    heavy, light = (each["lag"] for each in look["partitions"])
    assert heavy > 20 * 10_000
    assert 20 * 100 < light < heavy / 10


def test_a_budget_and_a_policy_outlive_their_controller(make_group: Make) -> None:
    group = make_group("recalls", group={"min": 1, "max": 1, "slo": "0.99@500ms over 1m"})
    first = group.controller()
    group.wait_state(1)
    group.produce(200)
    group.wait_kept()
    wait_for(lambda: group.stats()["served"] >= 200, "it has counted", 20)
    counted_at = group.stats()["replica_seconds"]
    # What is counted now is kept with this decision; the next ones are made when it is.
    wait_for(lambda: group.stats()["replica_seconds"] > counted_at + 2, "two decisions more", 60)
    first.kill()
    group.controller()
    group.wait_state(1)
    wait_for(lambda: group.stats()["served"] >= 200, "the next one knows")
