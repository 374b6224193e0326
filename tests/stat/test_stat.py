"""`srtm stat` against a real gateway and a plain nsqd."""

import json
import subprocess
from pathlib import Path

import pytest

from srtm.http.nsqd import NsqdDoor
from srtm.nsq.commands import pub
from srtm.stat.rows import StatSource, read_rows
from srtm.text.errors import UnavailableError
from tests.support.distributors import DistributorProcess
from tests.support.programs import SRTM, run_srtm
from tests.support.servers import Servers, wait_for
from tests.support.v2 import V2


def stat(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_srtm("stat", *arguments)


def test_stat_shows_contract_tokens_and_what_nsq_stat_shows(servers: Servers) -> None:
    gateway = servers.gateway("--topic=t,rate=0.001,burst=2,slo=0.99@1s")
    with V2(gateway.tcp) as publisher:
        publisher.send(pub(b"t", b"x") * 3)  # no tokens yet: a start without a state file
        shown = stat("--nsqd-http-address", gateway.http, "--count", "1", "--json")
        (row,) = json.loads(shown.stdout)
        assert (row["broker"], row["topic"]) == (gateway.http, "t")
        assert row["srtm"]["waiting"] == 3
        assert row["srtm"]["throttled"] is True
        assert (row["srtm"]["rate"], row["srtm"]["burst"], row["srtm"]["slo"]) == (
            0.001,
            2,
            "0.99@1s",
        )
        table = stat("--nsqd-http-address", gateway.http, "--count", "1").stdout
    assert "throttled" in table
    assert "depth" in table


def test_stat_counts_rates_between_two_tables(servers: Servers) -> None:
    gateway = servers.gateway()
    arguments = ["--nsqd-http-address", gateway.http, "--interval", "1s", "--count", "2", "--json"]
    with V2(gateway.tcp) as publisher:
        publisher.send(pub(b"t", b"x"))
        assert publisher.reply() == b"OK"
        first, second = map(json.loads, stat(*arguments).stdout.splitlines())
    assert first[0]["offered_per_second"] is None
    assert second[0]["offered_per_second"] == 0
    assert second[0]["messages"] == 1


def test_stat_shows_a_trace_where_there_is_one(servers: Servers, tmp_path: Path) -> None:
    gateway = servers.gateway(f"--trace-dir={tmp_path / 'trace'}")
    with V2(gateway.tcp) as publisher:
        publisher.send(pub(b"t", b"x"))
        assert publisher.reply() == b"OK"
    shown = stat("--nsqd-http-address", gateway.http, "--count", "1").stdout
    assert "dropped" in shown
    assert str(tmp_path / "trace") in shown
    (row,) = json.loads(stat("--nsqd-http-address", gateway.http, "--count", "1", "--json").stdout)
    assert row["trace"]["dropped_messages"] == 0


def test_stat_reads_a_plain_nsqd_too(servers: Servers) -> None:
    nsqd = servers.nsqd()
    with V2(nsqd.tcp) as publisher:
        publisher.send(pub(b"t", b"x"))
        assert publisher.reply() == b"OK"
    (row,) = json.loads(stat("--nsqd-http-address", nsqd.http, "--count", "1", "--json").stdout)
    assert (row["depth"], row["srtm"]) == (1, {})


def test_stat_says_in_one_line_that_nobody_answers() -> None:
    shown = stat("--nsqd-http-address", "127.0.0.1:1", "--count", "1")
    assert shown.returncode == 3
    assert shown.stderr.startswith("srtm: 127.0.0.1:1: nothing listens")
    assert len(shown.stderr.splitlines()) == 1


def test_stat_asks_a_distributor_for_its_brokers(
    servers: Servers, distributor: DistributorProcess
) -> None:
    asked = f"--distributor-address={distributor.address}"
    gateway = servers.gateway(asked, "--broker-name=b1", "--broker-capacity=100")
    with V2(gateway.tcp) as publisher:
        publisher.send(pub(b"t", b"x"))
        assert publisher.reply() == b"OK"
    wait_for(lambda: distributor.ok("GET", "/brokers")["brokers"], "it is known")
    (row,) = json.loads(stat(asked, "--count=1", "--json").stdout)
    assert (row["broker"], row["topic"]) == ("b1", "t")


def test_stat_says_in_one_line_that_an_interval_is_none() -> None:
    shown = stat("--interval", "soon")
    assert shown.returncode == 2
    assert "--interval: 'soon' is not a duration" in shown.stderr


def test_stat_shows_what_the_gateway_knows_while_nsqd_is_away(servers: Servers) -> None:
    gateway = servers.gateway("--topic=t,rate=550,burst=20")
    gateway.nsqd.process.kill()
    shown = stat("--nsqd-http-address", gateway.http, "--count", "1")
    assert shown.returncode == 0, shown.stderr
    assert "550" in shown.stdout
    assert "does not answer" in shown.stderr
    (row,) = json.loads(stat("--nsqd-http-address", gateway.http, "--count", "1", "--json").stdout)
    assert (row["srtm"]["rate"], row.get("depth")) == (550, None)
    assert "does not answer" in row["away"]


def test_stat_shows_the_others_where_one_broker_is_silent(servers: Servers) -> None:
    gateway = servers.gateway("--topic=t,rate=550,burst=20")
    shown = stat(*("--nsqd-http-address", gateway.http), "--nsqd-http-address=127.0.0.1:1",
                 "--count=1")  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert "550" in shown.stdout
    assert shown.stderr == "127.0.0.1:1: 127.0.0.1:1: nothing listens there\n"


def test_a_broker_whose_stats_have_another_shape_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = {"odd": {"topics": [{"name": "t"}]}, "sound": {"topics": [{"topic_name": "t"}]}}
    monkeypatch.setattr("srtm.stat.rows.stats", lambda door, _: answers[door.address])
    odd, sound = StatSource("a", NsqdDoor("odd")), StatSource("b", NsqdDoor("sound"))
    why = "odd: its /stats has another shape than nsqd's"
    rows, away = read_rows([odd, sound], "")
    assert [(row.broker, row.topic) for row in rows] == [("b", "t")]
    assert away == {"a": why}
    with pytest.raises(UnavailableError, match=why):
        read_rows([odd], "")


def test_a_topic_that_nobody_knows_is_told(servers: Servers) -> None:
    shown = stat("--nsqd-http-address", servers.gateway().http, "--topic", "nosuch")
    assert shown.returncode == 2
    assert "no broker knows topic nosuch" in shown.stderr
    assert shown.stderr.count("\n") == 1


def test_into_a_pipe_there_is_one_table_unless_more_are_asked_for(servers: Servers) -> None:
    gateway = servers.gateway("--topic=t,rate=550,burst=20")
    assert stat("--nsqd-http-address", gateway.http).stdout.count("depth") == 1
    with subprocess.Popen(
        [*SRTM, *("stat", "--nsqd-http-address", gateway.http),
         "--interval=100ms", "--json"],
        stdout=subprocess.PIPE, text=True,
    ) as going_on:  # fmt: skip
        assert going_on.stdout is not None
        assert [going_on.stdout.readline()[:1] for _ in range(3)] == ["["] * 3
        going_on.terminate()
