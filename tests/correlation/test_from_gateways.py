"""From real gateways through their traces to answers: what was sent is what Spark finds."""

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from srtm.client import Publisher
from srtm.correlation.correlate_command import correlate
from srtm.correlation.need_tables import envelope_tables, statistics_tables, what_if_tables
from srtm.correlation.result import read_result
from srtm.correlation.run import Request, run
from srtm.correlation.stream.current import Current
from srtm.correlation.trace import open_trace
from srtm.text.errors import SrtmError, UsageError
from srtm.text.terminal import show
from tests.support.servers import GatewayProcess, Servers, http, wait_for

SENT = {"room-1/door": 30, "room-2/door": 10}


async def _publish(gateway: GatewayProcess, who: str, count: int) -> None:
    async with Publisher("sensors", id=who, nsqd=gateway.tcp) as publisher:
        for _ in range(count):
            await publisher.publish(b"123")


@pytest.fixture(scope="module")
def traced(shared: Servers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two gateways: the first is killed and the second drained; both kept a trace there."""
    folder = tmp_path_factory.mktemp("trace")
    flags = (f"--trace-dir={folder}", "--trace-file-age=200ms")
    gateways = [shared.gateway(*flags, "--topic=sensors,rate=2000,burst=5") for _ in range(2)]
    for gateway, (who, count) in zip(gateways, SENT.items(), strict=True):
        asyncio.run(_publish(gateway, who, count))
        assert http(gateway.http, "/pub?topic=alarms", b"12")[0] == 200
    gateways[1].set_limit("strict", rate=0.001, burst=1, mode="reject")
    assert [http(gateways[1].http, "/pub?topic=strict", b"1")[0] for _ in range(4)] == [
        200, 429, 429, 429,
    ]  # fmt: skip
    wait_for(
        lambda: gateways[0].metric("srtm_trace_handed_messages_total") == 31, "it was handed over"
    )
    gateways[0].process.kill()
    assert gateways[1].process.stop() == 0
    wait_for(lambda: open_trace(folder).rows >= 31 + 11 + 4, "all rows are in files", 90)
    return folder


def answer(*arguments: str | Path) -> Any:
    done = CliRunner().invoke(correlate, [*map(str, arguments), "--json"], catch_exceptions=False)
    return json.loads(done.stdout)


def shown(*arguments: str | Path) -> str:
    return CliRunner().invoke(correlate, list(map(str, arguments)), catch_exceptions=False).stdout


def test_statistics_are_those_of_what_was_sent(
    spark: SparkSession, traced: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = answer("statistics", "--trace", traced, "--slo", "0.99@1h")
    topics = {each["topic"]: each for each in document["topics"]}
    assert topics.keys() == {"sensors", "alarms", "strict"}
    sensors = topics["sensors"]
    assert (sensors["messages"], sensors["publishers"], sensors["brokers"]) == (40, 2, 2)
    assert {each["publisher"]: each["messages"] for each in sensors["talkers"]} == SENT
    assert sensors["bytes"] == 120
    assert sum(sensors["hours"]) == pytest.approx(1)
    assert sensors["late"] == {"tokens": 0, "rejected": 0, "closed": 0}
    assert topics["strict"]["late"]["rejected"] == 0.75
    assert topics["alarms"]["talkers"][0]["publisher"] == "@127.0.0.1"
    (alone,) = answer("statistics", "--trace", traced, "--topic", "sensors")["topics"]
    assert alone["messages"] == 40
    show(*statistics_tables(document))
    assert "room-1/door 75.0%, room-2/door 25.0%" in capsys.readouterr().out


def test_envelopes_of_a_real_trace(spark: SparkSession, traced: Path) -> None:
    document = answer("envelope", "--trace", traced, "--topic", "sensors", "--by", "publisher")
    found = {each["publisher"]: each for each in document["envelopes"]}
    assert {who: each["messages"] for who, each in found.items()} == SENT
    for each in found.values():
        bursts = [point["burst"] for point in each["curve"]]
        assert bursts == sorted(bursts, reverse=True)
        assert 1 <= each["burst"] <= bursts[2] + 1
    (split,) = document["split"]
    assert (split["topic"], split["brokers"], split["messages"]) == ("sensors", 2, 40)


def test_envelopes_of_groups_are_those_of_their_members_together(
    spark: SparkSession, traced: Path, tmp_path: Path
) -> None:
    """And no more are shown than are asked for."""
    kept = {"lift": 9.0, "q": 0.01, "coincidences": 30}
    members = {"sensors": [*SENT], "alarms": ["@127.0.0.1"]}
    topics = [
        {
            "topic": topic,
            "publishers": 2,
            "groups": [{"name": "g", "publishers": publishers, **kept}],
            "ungrouped": 0,
        }
        for topic, publishers in members.items()
    ]
    (tmp_path / "groups.json").write_text(json.dumps({"topics": topics}))
    asked = ("--by", "group", "--groups", tmp_path, "--most", "1")
    (found,) = answer("envelope", "--trace", traced, *asked)["envelopes"]
    assert (found["topic"], found["group"], found["messages"]) == ("sensors", "g", 40)


def test_what_if_of_a_real_trace(spark: SparkSession, traced: Path, tmp_path: Path) -> None:
    placement = tmp_path / "placement.csv"
    placement.write_text("publisher,broker\nroom-1/door,b9\nroom-2/door,b9\n")
    arguments = ("--topic", "sensors", "--rate", "1e6", "--burst", "100", "--slo", "0.99@1ms")
    document = answer("what-if", "--trace", traced, *arguments, "--placement", placement)
    (sensors,) = document["topics"]
    assert sensors["contract"] == {"rate": 1e6, "burst": 100.0}
    assert set(sensors["cases"]) == {"one_bucket", "traced", "placed"}
    for case in sensors["cases"].values():
        assert (case["messages"], case["p99_ms"], case["late_share"]) == (40, 0, 0)
    assert [each["broker"] for each in sensors["cases"]["placed"]["brokers"]] == ["b9"]
    traced_brokers = sensors["cases"]["traced"]["brokers"]
    assert sorted(each["messages"] for each in traced_brokers) == [10, 30]
    assert sorted(each["burst"] for each in traced_brokers) == pytest.approx([25, 75])
    text = shown("what-if", "--trace", traced, "--topic", "sensors", "--split", "even")
    assert "one bucket" in text
    assert "as traced" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(("statistics", "--topic", "x"), "no arrivals of topic x", id="no-topic"),
        pytest.param(
            ("what-if", "--topic", "sensors", "--rate", "9", "--burst", "1.5"),
            "b = 1.5 leaves less than one message on each of 2 brokers",
            id="too-small-a-burst",
        ),
    ],
)
def test_a_slip_is_one_line(
    spark: SparkSession, traced: Path, arguments: tuple[str, ...], said: str
) -> None:
    command, *rest = arguments
    with pytest.raises(UsageError, match=said):
        shown(command, "--trace", traced, *rest)


def test_a_trace_cut_short_is_told_or_left_out(
    spark: SparkSession, traced: Path, tmp_path: Path
) -> None:
    for path in traced.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    whole = next(tmp_path.iterdir())
    (tmp_path / "x-0000000001.parquet").write_bytes(whole.read_bytes()[:-9])
    with pytest.raises(UsageError, match=r"x-0000000001.parquet: truncated, or not Parquet"):
        shown("statistics", "--trace", tmp_path)
    document = answer("statistics", "--trace", tmp_path, "--skip-damaged")
    assert sum(each["messages"] for each in document["topics"]) == 46


def _spoil_before_footer(source: Path, target: Path) -> Path:
    whole = source.read_bytes()
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    target.write_bytes(whole[:4] + b"\xff" * (len(whole) - footer - 4) + whole[-footer:])
    return target


@pytest.fixture(scope="module")
def result(spark: SparkSession, traced: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the whole trace."""
    folder = tmp_path_factory.mktemp("found") / "result"
    run(spark, Request(traced, folder))
    return folder


def test_or_it_is_left_out_and_the_stream_goes_on(
    spark: SparkSession, traced: Path, result: Path, tmp_path: Path
) -> None:
    folder, said = tmp_path / "a trace", list[str]()
    shutil.copytree(traced, folder)
    spoilt = _spoil_before_footer(next(traced.iterdir()), folder / "x-0000000001.parquet")
    request = Request(folder, tmp_path / "out", skip_damaged=True)
    found, left_out = run(spark, request)
    assert found == read_result(result)
    line = f"{spoilt}: a damaged trace: its footer is whole, and what is before it cannot be read"
    assert left_out == (line,)
    assert Current(spark, replace(request, skip_damaged=False), 1, said.append).look(0)
    assert said[0] == f"left out: {line}"


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("statistics",), id="what-a-topic-needs"),
        pytest.param(("run", "--out", "OUT"), id="run"),
        pytest.param(("report", "RESULT", "--out", "OUT"), id="report"),
    ],
)
def test_a_file_that_is_spoilt_before_its_footer_is_named_in_one_line(
    spark: SparkSession, traced: Path, result: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Spark finds out while it works."""
    folder = tmp_path / "trace"
    folder.mkdir()
    spoilt = _spoil_before_footer(next(traced.iterdir()), folder / "x-0000000001.parquet")
    places = {"OUT": str(tmp_path / "out"), "RESULT": str(result)}
    words = [places.get(each, each) for each in command]
    with pytest.raises(SrtmError) as error:
        shown(words[0], *words[1:], "--trace", folder)
    assert str(error.value) == (
        f"{spoilt}: a damaged trace: its footer is whole, and what is before it cannot be read; "
        "remove this file"
    )


def test_an_empty_folder_says_what_fills_it(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / ".b1.unfinished").touch()
    arguments = ["run", f"--trace={tmp_path / 'trace'}", f"--out={tmp_path / 'out'}"]
    done = CliRunner().invoke(correlate, arguments, catch_exceptions=False)
    assert "no arrivals in it yet" in done.stderr
    assert "srtm gateway --trace-dir writes them" in done.stderr
    with pytest.raises(UsageError, match="no arrivals in it yet"):
        shown("statistics", "--trace", tmp_path / "trace")


def test_a_terminal_is_given_no_commands_by_the_names_of_strangers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    strange = "\x1b[2J\n\0" + "x" * 1_000
    each: dict[str, object] = {"messages": 1, "rate": 1.0, "burst": 1, "brokers": 1}
    wait: dict[str, object] = dict.fromkeys(("mean_ms", "p50_ms", "p99_ms", "worst_ms"), 0.0)
    wait |= {"late_share": None}
    talker = {"publisher": strange, "share": 1.0}
    statistics: dict[str, object] = {
        "topic": strange,
        "publishers": 1,
        "seconds": 1.0,
        "drift": None,
    }
    statistics |= {"dispersion": {}, "hours": [0.0] * 24, "talkers": [talker]}
    point = {"rate": 1.0, "burst": 1}
    envelope: dict[str, object] = {"headroom": 1.1, "percentile": 0.99, "keys": ["publisher"]}
    envelope["envelopes"] = [{"publisher": strange, "curve": [point]} | each]
    envelope["split"] = [{"topic": strange} | each]
    case = each | wait | {"brokers": [{"broker": strange} | each | wait] * 2}
    whats = {"topic": strange, "contract": point, "cases": {"placed": case}}
    tables = [
        *envelope_tables(envelope),
        *statistics_tables({"topics": [statistics | each]}),
        *what_if_tables({"topics": [whats]}),
    ]
    show(*tables)
    said = capsys.readouterr().out
    assert said.count("?[2J??") == 10
    assert not {"\x1b", "\0"} & set(said)
