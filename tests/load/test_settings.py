"""What a person can ask for, and what is said when it makes no sense."""

import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from srtm.load.fleet import raise_file_limit
from srtm.load.load_command import load
from srtm.load.settings import LoadSettings
from srtm.load.trace import read_trace
from srtm.nsq.blocking import target_of
from srtm.text.errors import UnavailableError, UsageError


def settings(**changes: Any) -> LoadSettings:
    same: dict[str, Any] = {
        "topic": "t",
        "publish_addresses": ("127.0.0.1:4150",),
        "rate_per_second": 1.0,
    }
    return LoadSettings(**(same | changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"topic": "a b"}, "topic 'a b'", id="a-topic-name"),
        pytest.param({"channel": ""}, "channel ''", id="a-channel-name"),
        pytest.param({"publish_addresses": ()}, "at least one address", id="nowhere-to-publish"),
        pytest.param({"rate_per_second": None}, "give one of a rate", id="no-pace"),
        pytest.param({"outstanding": 1}, "give one of a rate", id="two-paces"),
        pytest.param({"rate_per_second": 0.0}, "rate 0.0 is not over 0", id="no-rate"),
        pytest.param({"rate_per_second": float("nan")}, "not over 0", id="not-a-rate"),
        pytest.param({"publishers": 0}, "publishers 0 is not over 0", id="no-publishers"),
        pytest.param({"message_bytes": 23}, "too small", id="a-small-message"),
        pytest.param({"message_bytes": 2**30}, "is over", id="a-large-message"),
        pytest.param({"jitter_seconds": -1.0}, "jitter -1.0 is below 0", id="negative-jitter"),
        pytest.param({"duration_seconds": None}, "a duration is needed", id="no-duration"),
        pytest.param({"duration_seconds": 0.0}, "duration 0 s", id="no-time"),
        pytest.param({"warmup_seconds": 10.0}, "leaves nothing", id="all-warmup"),
        pytest.param({"rate_per_second": 1e9}, "more than one run can hold", id="too-much"),
        pytest.param({"ids": ("a",)}, "ids: give 10", id="too-few-ids"),
        pytest.param({"assignment": (0,)}, "10 indexes below 1", id="a-short-assignment"),
        pytest.param({"assignment": (1,) * 10}, "10 indexes below 1", id="an-assignment-outside"),
        pytest.param(
            {"rate_per_second": None, "outstanding": 1, "batch": 2}, "is an MPUB", id="fast-batch"
        ),
        pytest.param(
            {"rate_per_second": None, "outstanding": 1, "group_size": 2},
            "nothing is scheduled",
            id="fast-groups",
        ),
        pytest.param({"rates": (1.0,) * 10}, "give one of a rate", id="rates-and-a-rate"),
        pytest.param(
            {"rate_per_second": None, "rates": (1.0,)}, "rates: give 10", id="too-few-rates"
        ),
        pytest.param(
            {"rate_per_second": None, "rates": (1.0,) * 9 + (0.0,)}, "each over 0", id="a-zero-rate"
        ),
        pytest.param({"groups": (0,)}, "groups: give 10 numbers", id="too-few-groups"),
        pytest.param({"groups": (0,) * 9 + (2,)}, "without a gap", id="a-group-left-out"),
        pytest.param({"groups": (-1,) * 10}, "from 0 on", id="a-group-below-0"),
        pytest.param(
            {"rate_per_second": None, "outstanding": 1, "groups": (0,) * 10},
            "nothing is scheduled",
            id="fast-groups-by-number",
        ),
        pytest.param(
            {"rate_per_second": None, "trace": (1.0,), "groups": (0,) * 10},
            "groups of one size",
            id="a-trace-with-groups-of-their-own",
        ),
        pytest.param(
            {"rate_per_second": None, "trace": (0.0,)}, "no events", id="a-trace-of-nothing"
        ),
    ],
)
def test_wrong_settings_are_one_line(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings(**changes)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_publishers_take_addresses_in_turn_or_as_assigned() -> None:
    two = ("127.0.0.1:1", "127.0.0.1:2")
    turns = settings(publish_addresses=two, publishers=3)
    assert [turns.address_index(p) for p in range(3)] == [0, 1, 0]
    assigned = settings(publish_addresses=two, publishers=3, assignment=(1, 1, 0))
    assert [assigned.address_index(p) for p in range(3)] == [1, 1, 0]


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        pytest.param("0.5,1.5\n1.5,2\n", (1.5, 2.0), id="time-and-rate"),
        pytest.param("second,events/s\n0.5,1.5\n", (1.5,), id="a-header"),
        pytest.param("2022-09-05 16:34:44,0.69\n\n", (0.69,), id="a-date-and-an-empty-line"),
        pytest.param("3\n4\n", (3.0, 4.0), id="rates-alone"),
    ],
)
def test_traces(tmp_path: Path, text: str, rates: tuple[float, ...]) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    assert read_trace(path) == rates


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("time,rate\n", "no line ends with a number", id="only-a-header"),
        pytest.param("1,2\n2,x\n", "line 2: 'x' is not a number", id="a-word-among-figures"),
        pytest.param("1,-2\n", "line 1: a rate cannot be -2.0", id="a-negative-rate"),
    ],
)
def test_wrong_traces(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        read_trace(path)


def test_a_missing_trace_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.csv: No such file"):
        read_trace(tmp_path / "none.csv")


def test_addresses() -> None:
    assert target_of("broker-1:4150") == ("broker-1", 4150)
    assert target_of("[::1]:4150") == ("::1", 4150)


def test_too_many_connections_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (100, 1000))
    with pytest.raises(UsageError, match=r"5000 connections need 5064 open files.*1000"):
        raise_file_limit(5000)


def test_the_soft_limit_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr("resource.getrlimit", lambda _: (100, 10000))
    monkeypatch.setattr("resource.setrlimit", lambda *limits: asked.append(limits[1]))
    raise_file_limit(10)
    assert asked == []
    raise_file_limit(5000)
    assert asked == [(10000, 10000)]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        pytest.param(["--duration", "10"], "--duration: '10' is not a duration", id="no-unit"),
        pytest.param(["--slo", "p99"], "--slo: 'p99' is not an SLO", id="not-an-slo"),
        pytest.param(["--rate", "1", "--max-speed"], "exclude each other", id="two-paces"),
        pytest.param(["--outstanding", "2"], "goes with --max-speed", id="window-with-a-rate"),
        pytest.param(["--no-consumer", "--slo", "0.9@1s"], "need a consumer", id="no-receipts"),
        pytest.param(
            ["--no-consumer", "--consumer-buffer"], "exclude each other", id="a-buffer-for-nobody"
        ),
        pytest.param(["--histogram", "/proc/no"], "--histogram /proc/no: ", id="no-such-place"),
        pytest.param(["--strict"], "needs an --slo", id="nothing-to-judge"),
        pytest.param(["--nsqd-tcp-address", "here"], "write HOST:PORT", id="no-port"),
        pytest.param(
            ["--distributor-token-file", "f"], "goes with --distributor-address", id="a-token-alone"
        ),
        pytest.param(["--distributor-address", "here"], "write HOST:PORT", id="no-distributor"),
        pytest.param(
            ["--distributor-address", "h:1", "--distributor-token-file", "/no"],
            "--distributor-token-file /no: No such file",
            id="no-token",
        ),
        *(
            pytest.param(
                ["--distributor-address", "h:1", *flag],
                f"{flag[0]}: the distributor says it",
                id=f"placed{flag[0]}",
            )
            for flag in (
                ["--nsqd-tcp-address", "h:1"],
                ["--publishers", "10"],
                ["--rate", "1"],
                ["--group-size", "1"],
                ["--max-speed"],
                ["--trace", "t.csv"],
            )
        ),
    ],
)
def test_wrong_flags_are_one_line(flags: list[str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        CliRunner().invoke(load, flags, standalone_mode=False, catch_exceptions=False)
    assert said in str(caught.value)


def test_nobody_listening_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    flags = ["--nsqd-tcp-address", f"127.0.0.1:{port}"]
    with pytest.raises(UnavailableError, match=r"Connection refused; is an nsqd or a gateway"):
        CliRunner().invoke(load, flags, standalone_mode=False, catch_exceptions=False)
