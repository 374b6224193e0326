"""What a mistake is answered with: the remedy that mends it."""

import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from distributor.cli.topic_file import read_publishers
from srtm.gateway.options import GatewayOptions
from srtm.load.trace import read_trace
from srtm.text.address import cannot_listen
from srtm.text.errors import UsageError, one_line
from tests.support.programs import run_srtm
from tests.support.servers import Servers, free_port


def gateway(*flags: str) -> "subprocess.CompletedProcess[str]":
    return run_srtm("gateway", *flags)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        pytest.param(PermissionError(13, "x"), "choose a port from 1024 on", id="not-allowed"),
        pytest.param(OSError(99, "x"), "is no address of this machine", id="not-here"),
        pytest.param(OSError(98, "x"), "in use by another process", id="in-use"),
        pytest.param(socket.gaierror(-2, "unknown"), "no address of this name", id="no-name"),
    ],
)
def test_why_an_address_cannot_be_listened_on(error: OSError, said: str) -> None:
    assert said in str(cannot_listen("--tcp-address h:1", error))


@pytest.mark.parametrize("flag", ["--tcp-address", "--http-address"])
def test_an_address_of_another_machine_is_told_as_that(servers: Servers, flag: str) -> None:
    nsqd = servers.nsqd()
    done = gateway(
        f"--nsqd-tcp-address={nsqd.tcp}",
        f"--nsqd-http-address={nsqd.http}",
        f"--tcp-address=127.0.0.1:{free_port()}",
        f"--http-address=127.0.0.1:{free_port()}",
        f"{flag}=192.0.2.1:4150",
    )
    assert done.returncode == 3
    assert f"srtm: {flag} 192.0.2.1:4150 is no address of this machine" in done.stderr


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        pytest.param({"nsqd-tcp-address": "nsqd.sock"}, "or ./nsqd.sock", id="a-relative-socket"),
        pytest.param({"nsqd-http-address": "http://h:1"}, "is a URL", id="a-url-of-nsqd"),
        pytest.param({"distributor-address": "http://h:1"}, "is a URL", id="a-url"),
        pytest.param({"state-file": "/proc/no/state.json"}, "cannot be written", id="no-folder"),
    ],
)
def test_the_gateway_stops_at_a_slip(flags: dict[str, str], said: str) -> None:
    given = {"nsqd-tcp-address": "127.0.0.1:1", "nsqd-http-address": "127.0.0.1:2"} | flags
    done = gateway(*(f"--{name}={value}" for name, value in given.items()))
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_relative_admin_socket_is_a_path() -> None:
    made = GatewayOptions(
        nsqd_tcp_address="h:1", nsqd_http_address="./nsqd.sock", admin_socket="admin.sock"
    )
    assert made.admin_socket == "./admin.sock"


class _Two(BaseModel):
    rate: float
    burst: float
    mode: str = ""


@pytest.mark.parametrize(
    ("values", "said"),
    [
        pytest.param({}, "f: rate, burst: needed", id="both-are-named"),
        pytest.param({"rate": 1}, "f: burst: needed", id="one"),
        pytest.param(
            {"mode": 5}, "f: rate, burst: needed; also wrong: mode", id="and-another-fault"
        ),
    ],
)
def test_all_fields_that_are_missing_are_named(values: Any, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        _Two.model_validate(values)
    assert str(one_line(caught.value, "f")) == said


class _Either(BaseModel):
    size: int | bool = 1
    rate: float = 1.0


@pytest.mark.parametrize(
    ("values", "said"),
    [
        pytest.param({"size": "x"}, "", id="one-value-of-two-kinds"),
        pytest.param({"size": "x", "rate": "y"}, "; also wrong: rate", id="two-values"),
    ],
)
def test_a_value_that_may_be_of_two_kinds_is_one_fault(values: Any, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        _Either.model_validate(values)
    assert str(one_line(caught.value, "f")).partition("'x')")[2] == said


def test_a_csv_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    publishers = tmp_path / "p.csv"
    publishers.write_text("\ufeffid,key,rate\na,k,1\n", "utf-8")
    assert [each.id for each in read_publishers(publishers, None)] == ["a"]
    trace = tmp_path / "t.csv"
    trace.write_text("\ufeff5\n6\n", "utf-8")
    assert read_trace(trace) == (5.0, 6.0)
    publishers.write_text("\ufeffid,rates\na,1\n", "utf-8")
    with pytest.raises(UsageError, match="write id,key,rate"):
        read_publishers(publishers, None)
