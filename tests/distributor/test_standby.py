"""Two distributors on one store, of which one leads: gateways and commands that know both."""

import json
import os
import signal
from typing import Any

from srtm.text.address import free_addresses
from tests.support.distributors import DistributorProcess, Starter, srtm
from tests.support.postgres import Postgres
from tests.support.servers import GatewayProcess, Servers, http, wait_for

LEASE = "--lease-duration=6s"


def led(start: Starter, store: str) -> tuple[DistributorProcess, DistributorProcess]:
    """The one that leads, and the one that stands by for it."""
    leader = start(store, LEASE)
    leader.wait_leading()
    standby = start(store, LEASE)
    wait_for(lambda: "waits until it may lead" in standby.process.text(), "it stands by")
    return leader, standby


def told(gateway: GatewayProcess) -> dict[str, Any]:
    found = http(gateway.admin, "/topics")[1]["distributor"]
    assert isinstance(found, dict)
    return found


def placed(servers: Servers, leader: DistributorProcess, both: str) -> GatewayProcess:
    """A gateway that has its share of topic t."""
    gateway = servers.gateway(
        f"--distributor-address={both}", "--broker-name=b1", "--broker-capacity=1000"
    )
    leader.topic(rate=500.0)
    leader.publishers(2)
    leader.place()
    wait_for(lambda: gateway.inside("t").get("rate") == 500, "it has its share")
    return gateway


def obeys(gateway: GatewayProcess, leader: DistributorProcess, rate: float) -> None:
    """The contract is changed at the new leader, and the gateway follows, with a lease of its."""
    leader.topic(rate=rate)
    wait_for(lambda: gateway.inside("t").get("rate") == rate, "it obeys the new leader")
    assert told(gateway)["contact"] is True


def test_after_kill_9_the_standby_is_led_to(servers: Servers, start: Starter, store: str) -> None:
    leader, standby = led(start, store)
    both = f"{standby.address},{leader.address}"
    gateway = placed(servers, leader, both)
    shown = srtm("topic", "list", "--json", "--distributor-address", both)
    assert [each["topic"] for each in json.loads(shown.stdout)["topics"]] == ["t"], shown.stderr
    leader.process.kill()
    standby.wait_leading()
    obeys(gateway, standby, 300.0)
    assert told(gateway)["safe_share"] is False
    shown = srtm("topic", "list", "--json", "--distributor-address", both)
    assert [each["rate"] for each in json.loads(shown.stdout)["topics"]] == [300.0]


def test_a_leader_that_is_frozen_is_unseated(
    servers: Servers, start: Starter, server: Postgres
) -> None:
    leader, standby = led(start, server.database())
    gateway = placed(servers, leader, f"{leader.address},{standby.address}")
    os.kill(leader.process.popen.pid, signal.SIGSTOP)
    try:
        standby.wait_leading()
        obeys(gateway, standby, 300.0)
    finally:
        os.kill(leader.process.popen.pid, signal.SIGCONT)

    def refused() -> str:
        status, said = leader.call("PUT", "/topics/u", {"rate": 1.0, "burst": 1.0})
        assert status == 503
        return str(said["error"])

    wait_for(lambda: f"at {standby.address} has the store" in refused(), "it says who leads")
    assert f"process {standby.process.popen.pid} on " in refused()
    assert standby.ok("GET", "/topics/t")["rate"] == 300.0


def test_one_that_stands_by_answers_reads_with_their_age(
    servers: Servers, start: Starter, store: str
) -> None:
    leader, standby = led(start, store)
    placed(servers, leader, leader.address)
    wait_for(lambda: leader.ok("GET", "/topics/t/publishers/p0")["broker"], "it is led there")
    paths = [
        "/topics",
        "/topics/t",
        "/topics/t/publishers",
        "/topics/t/publishers/p0",
        "/topics/t/placements",
        "/topics/t/placements/current",
        "/topics/t/adaptation",
        "/topics/t/groups",
    ]
    for path in paths:
        status, said = standby.call("GET", path)
        assert (status, said["leading"]) == (503, False), "only who says so is told what is old"
        found = standby.ok("GET", f"{path}?stale=yes")
        assert 0 <= found.pop("age_seconds") < 60
        assert found == leader.ok("GET", path)
        assert "age_seconds" not in leader.ok("GET", f"{path}?stale=yes"), "it is the leader's"
    (broker,) = standby.ok("GET", "/brokers?stale=yes")["brokers"]
    assert (broker["name"], broker["state"]) == ("b1", "unknown")
    assert standby.call("GET", "/topics/u?stale=yes")[0] == 404
    assert standby.call("GET", "/penalties?stale=yes")[0] == 503, "only the leader knows"
    assert standby.call("DELETE", "/topics/t?stale=yes")[0] == 503
    leader.topic(rate=300.0)
    wait_for(lambda: standby.ok("GET", "/topics/t?stale=yes")["rate"] == 300, "it is read again")


def test_a_command_says_who_leads(start: Starter, store: str) -> None:
    leader, standby = led(start, store)
    (away,) = map(str, free_addresses(1))
    addresses = f"{away},{standby.address},{leader.address}"
    shown = srtm("broker", "list", "--distributor-address", addresses)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert set(shown.stdout.splitlines()[:3]) == {
        f"distributor {away}: nothing listens there",
        f"distributor {standby.address}: stands by",
        f"distributor {leader.address}: leads",
    }
    document = srtm("broker", "list", "--json", "--distributor-address", leader.address)
    assert json.loads(document.stdout)["distributors"] == {leader.address: "leads"}


def test_of_several_that_are_away_each_is_named(servers: Servers) -> None:
    away = [str(each) for each in free_addresses(2)]
    both = ",".join(away)
    said = srtm("topic", "list", "--distributor-address", both)
    assert (said.returncode, said.stdout) == (3, "")
    assert said.stderr.startswith(
        f"srtm: no distributor answers at {both} ({away[0]}: nothing listens there; "
        f"{away[1]}: nothing listens there); start one with srtm distributor"
    )
    of_load = srtm("load", "--topic", "t", "--distributor-address", both)
    assert (of_load.returncode, of_load.stdout) == (3, "")
    assert f"no distributor answers at {both}; the last one, {away[1]}: " in of_load.stderr


def test_another_program_in_the_list_is_passed_over(
    servers: Servers, start: Starter, store: str
) -> None:
    leader, standby = led(start, store)
    foreign = servers.nsqd().http
    addresses = f"{foreign},{standby.address},{leader.address}"
    gateway = placed(servers, leader, addresses)
    obeys(gateway, leader, 100.0)
    shown = srtm("topic", "list", "--json", "--distributor-address", addresses)
    assert [each["topic"] for each in json.loads(shown.stdout)["topics"]] == ["t"]
    loaded = srtm("load", "--topic", "t", "--duration", "1s", "--warmup", "0s", "--json",
                  "--distributor-address", addresses)  # fmt: skip
    assert (loaded.returncode, json.loads(loaded.stdout)["counts"]["lost"]) == (0, 0), loaded.stderr
    alone = srtm("load", "--topic", "t", "--distributor-address", foreign)
    assert (alone.returncode, alone.stdout) == (3, "")
    assert alone.stderr == f"srtm: {foreign} is no distributor (HTTP 404)\n"


def test_commands_show_what_the_store_has_while_nobody_leads(
    start: Starter, server: Postgres
) -> None:
    leader, standby = led(start, server.database())
    leader.topic()
    both = f"{standby.address},{leader.address}"
    os.kill(leader.process.popen.pid, signal.SIGSTOP)
    try:
        shown = srtm("topic", "list", "--json", "--distributor-address", both)
    finally:
        os.kill(leader.process.popen.pid, signal.SIGCONT)
    assert [each["topic"] for each in json.loads(shown.stdout)["topics"]] == ["t"]
    if shown.stderr:  # it may have begun to lead meanwhile
        assert "as the store was " in shown.stderr
        assert "this distributor does not lead" in shown.stderr


def test_what_was_read_is_told_while_the_store_is_away(start: Starter, server: Postgres) -> None:
    name = server.new()
    leader, standby = led(start, server.url(name))
    leader.topic()
    assert standby.ok("GET", "/topics/t?stale=yes")["rate"] == 150.0
    leader.process.kill()
    server.run(
        "dropdb",
        "-h",
        str(server.folder),
        "-p",
        str(server.port),
        "-U",
        "postgres",
        "--force",
        name,
    )

    def older() -> Any:
        found = standby.ok("GET", "/topics/t?stale=yes")
        return found["age_seconds"] > 2 and found

    assert wait_for(older, "it grows older")["rate"] == 150.0
