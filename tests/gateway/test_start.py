"""What a user can do wrong at the start: one line that says what and where, and an exit code."""

import contextlib
import json
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from srtm.cli.main import main
from srtm.text.errors import Exit
from tests.support.certificates import Authority
from tests.support.servers import GatewayProcess, Nsqd, Servers, free_port, http
from tests.support.v2 import V2

NSQD = ("--nsqd-tcp-address=127.0.0.1:1", "--nsqd-http-address=127.0.0.1:1")

USAGE: dict[str, tuple[tuple[str, ...], str]] = {
    "an-unknown-flag": (("--burst=5",), "No such option '--burst'"),
    "a-misspelt-flag": (("--tcp-adress=x",), "--tcp-address"),
    "an-argument": (("sensors",), "unexpected extra argument (sensors)"),
    "a-flag-without-a-value": (("--topic",), "Option '--topic' requires an argument"),
    "no-port": (("--tcp-address=localhost",), "--tcp-address: 'localhost' is not an address"),
    "a-port-too-high": (("--http-address=:70000",), "--http-address: port '70000' of ':70000' is"),
    "one-port-for-both": (
        ("--tcp-address=:4150", "--http-address=:4150"),
        "--tcp-address and --http-address are both 0.0.0.0:4150",
    ),
    "nsqds-port-is-ours": (
        ("--tcp-address=127.0.0.1:1",),
        "nsqd needs an address of its own",
    ),
    "a-path-too-long": (
        (f"--nsqd-tcp-address=/{'x' * 108}",),
        "longer than the 107 bytes that a unix socket's path may have",
    ),
    "a-lookupd-without-a-port": (("--lookupd-tcp-address=lookup",), "'lookup' is not an address"),
    "an-auth-server-of-another-kind": (
        ("--auth-http-address=ftp://auth/",),
        "--auth-http-address: 'ftp://auth/' is neither HOST:PORT nor a URL of http://",
    ),
    "a-topic-without-a-contract": (("--topic=t",), "--topic t: rate, burst: needed"),
    "a-bad-topic-name": (("--topic=a b,rate=1,burst=1",), "'a b' is not a topic name"),
    "a-topic-twice": (
        ("--topic=t,rate=1,burst=1", "--topic=t,rate=2,burst=1"),
        "topic t is given twice",
    ),
    "a-bad-default": (("--default-limit=rate=1",), "burst: needed"),
    "a-bad-duration": (("--drain-timeout=10",), "--drain-timeout: '10' is not a duration"),
    "an-endless-duration": (("--nsqd-timeout=999999h",), "is longer than ten years"),
    "a-timeout-of-nothing": (("--nsqd-timeout=0",), "--nsqd-timeout: must be greater"),
    "a-number-in-letters": (("--max-topics=many",), "--max-topics: must be a whole number"),
    "a-number-too-low": (("--max-topics=0",), "--max-topics: must be greater than or"),
    "a-negative-number": (("--max-connections=-1",), "--max-connections: must be greater"),
    "an-unknown-source": (("--timestamps=ntp",), "--timestamps: must be 'auto'"),
    "an-unknown-level": (("--log-level=loud",), "--log-level: must be 'debug'"),
    "a-file-that-is-not-there": (("--config=/nowhere/x.toml",), "/nowhere/x.toml: No such file"),
}  # fmt: skip

FILES: dict[str, tuple[str | bytes, str]] = {
    "not-toml": ("tcp-address 5", "not TOML: Expected '=' after a key"),
    "not-text": (b"\xff\xfe", "not TOML"),
    "an-unknown-key": ('tcp-adress = "x"', 'unknown key "tcp-adress"; did you mean "tcp-address"?'),
    "a-table": ("[gateway]\nmax-topics = 5", 'unknown key "gateway"'),
    "a-number-for-a-list": ("topic = 5", "gateway.toml: topic: write a list"),
    "a-text-for-a-number": (
        'max-topics = "many"',
        "gateway.toml: max-topics: must be a whole number",
    ),
    "a-number-for-a-duration": ("drain-timeout = 5", "5 is not a duration"),
    "a-bad-contract": (
        'topic = [{topic = "t", rate = 0, burst = 1}]',
        "rate: must be greater than",
    ),
    "a-contract-without-a-name": ("topic = [{rate = 1, burst = 1}]", "topic"),
    "a-key-twice": ("max-topics = 1\nmax-topics = 2", "not TOML: Cannot overwrite a value"),
}


def failed(arguments: tuple[str, ...], capsys: Any, monkeypatch: Any) -> tuple[int, str]:
    """Exit code and the one line of a gateway that does not come up, run in this process."""
    monkeypatch.setattr(sys, "argv", ["srtm", "gateway", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert out == ""
    [line] = err.splitlines()
    assert line.startswith("srtm: ")
    assert isinstance(ended.value.code, int)
    return ended.value.code, line


@pytest.mark.parametrize(
    ("arguments", "sentence"), [pytest.param(*row, id=name) for name, row in USAGE.items()]
)
def test_a_wrong_command_line_is_told_in_one_line(
    arguments: tuple[str, ...], sentence: str, capsys: Any, monkeypatch: Any
) -> None:
    code, line = failed((*NSQD, *arguments), capsys, monkeypatch)
    assert sentence in line
    assert code == Exit.USAGE


@pytest.mark.parametrize(
    ("content", "sentence"), [pytest.param(*row, id=name) for name, row in FILES.items()]
)
def test_a_wrong_file_is_told_in_one_line(
    content: str | bytes, sentence: str, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    file = tmp_path / "gateway.toml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    code, line = failed((*NSQD, f"--config={file}"), capsys, monkeypatch)
    assert sentence in line
    assert code == Exit.USAGE


def test_missing_addresses_of_nsqd_are_told_in_one_line(capsys: Any, monkeypatch: Any) -> None:
    code, line = failed((), capsys, monkeypatch)
    assert line.startswith("srtm: --nsqd-tcp-address, --nsqd-http-address: needed")
    assert code == Exit.USAGE


def test_flags_beat_the_environment_and_that_beats_the_file(servers: Servers) -> None:
    nsqd = servers.nsqd()
    config = servers.folder / "gateway.toml"
    config.write_text(
        "max-topics = 1\n"
        'drain-timeout = "5s"\n'
        'topic = ["a,rate=1,burst=2", {topic = "b", rate = 3, burst = 4, max-wait = "5s"}]\n'
    )
    gateway = servers.gateway(
        f"--config={config}",
        "--drain-timeout=7s",
        nsqd=nsqd,
        prefix=("env", "SRTM_GATEWAY_DRAIN_TIMEOUT=6s", "SRTM_GATEWAY_MAX_TOPICS=2"),
    )
    assert gateway.ours("b")["max-wait"] == "5s"
    assert http(gateway.http, "/pub?topic=c", b"x")[0] == 503, "two topics, and not one or three"
    gateway.process.stop()
    assert "draining for at most 7s" in gateway.process.text()


# --- what is needed is not there ----------------------------------------------------------------


@pytest.fixture(scope="module")
def nsqd(shared: Servers) -> Nsqd:
    return shared.nsqd()


def unavailable(gateway: GatewayProcess) -> str:
    """The last line of a gateway that could not start; nothing but log lines before it."""
    assert gateway.process.popen.wait(60) == Exit.UNAVAILABLE, gateway.process.text()
    text = gateway.process.text()
    assert "Traceback" not in text
    *_, line = text.splitlines()
    assert line.startswith("srtm: ")
    return line


def test_a_port_in_use_is_told_for_each_door(servers: Servers, nsqd: Nsqd) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        flags = ("--tcp-address", "--http-address")
        gateways = [servers.gateway(f"{flag}={address}", nsqd=nsqd, wait=False) for flag in flags]
        for flag, gateway in zip(flags, gateways, strict=True):
            assert unavailable(gateway) == (
                f"srtm: {flag} {address} is in use by another process; stop it or choose another "
                "port"
            )


def test_an_address_that_is_not_ours_or_has_no_name_is_told(servers: Servers, nsqd: Nsqd) -> None:
    flags = [
        (flag, f"{host}:4150")
        for flag in ("--tcp-address", "--http-address")
        for host in ("192.0.2.1", "no-such-host.invalid")
    ]
    gateways = [
        servers.gateway(f"{flag}={address}", nsqd=nsqd, wait=False) for flag, address in flags
    ]
    for (flag, address), gateway in zip(flags, gateways, strict=True):
        of = "machine" if address[0].isdigit() else "name"
        assert unavailable(gateway).startswith(f"srtm: {flag} {address}")
        assert f"no address of this {of}" in unavailable(gateway)


def test_an_nsqd_that_is_missing_is_told(servers: Servers, nsqd: Nsqd) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    told = [
        ("--nsqd-http-address", nowhere, "does not answer"),
        ("--nsqd-tcp-address", nowhere, "takes no V2 connection"),
        ("--nsqd-http-address", "/no/such/socket", "does not answer"),
        ("--nsqd-tcp-address", "/no/such/socket", "takes no V2 connection"),
        ("--nsqd-http-address", "no-such.invalid:4151", "does not answer"),
        ("--nsqd-tcp-address", nsqd.http, "takes no V2 connection: it speaks another protocol"),
    ]
    gateways = [
        servers.gateway(f"{flag}={address}", nsqd=nsqd, wait=False) for flag, address, _ in told
    ]
    for (_, address, sentence), gateway in zip(told, gateways, strict=True):
        assert f"nsqd at {address} {sentence}" in unavailable(gateway)


def test_an_nsqd_whose_http_door_is_closed_is_told_with_the_remedy(
    servers: Servers, authority: Authority
) -> None:
    cert, key = authority.issue("nsqd", ip=["127.0.0.1"])
    door = f"127.0.0.1:{free_port()}"
    pair = (f"--tls-cert={cert}", f"--tls-key={key}", "--tls-required=true")
    nsqd = servers.nsqd(*pair, f"--https-address={door}")
    root = f"--nsqd-tls-root-ca-file={authority.ca_file}"
    port = door.partition(":")[2]
    assert unavailable(servers.gateway(root, nsqd=nsqd, wait=False)) == (
        f"srtm: nsqd at {nsqd.http} answers by HTTPS alone (TLS_REQUIRED), at port {port}: give "
        f"--nsqd-http-address=https://HOST:{port} and --nsqd-tls-root-ca-file"
    )
    servers.gateway(root, f"--nsqd-http-address=https://{door}", nsqd=nsqd)


class FakeNsqd:
    """nsqd's HTTP side as a test wants it: `answers` maps a path to a status and a body."""

    def __init__(self, real: Nsqd) -> None:
        self.real = real
        self.answers: dict[str, tuple[int, bytes]] = {}
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path in fake.answers:
                    status, body = fake.answers[path]
                else:
                    status, document, _ = http(fake.real.http, self.path)
                    body = document if isinstance(document, str) else json.dumps(document)
                    body = body.encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def fake(nsqd: Nsqd) -> Iterator[FakeNsqd]:
    fake = FakeNsqd(nsqd)
    yield fake
    fake.close()


def test_what_is_no_nsqd_is_told_in_one_line(servers: Servers, nsqd: Nsqd) -> None:
    rows = [
        ("/info", 404, b"{}", "answered /info with 404"),
        ("/info", 200, b"hello", "is not an nsqd"),
        ("/info", 200, b"{}", "is not an nsqd"),
        ("/info", 200, b'{"version": 5}', "is not an nsqd"),
        ("/config/max_msg_size", 404, b"{}", "with 404"),
        ("/config/max_msg_size", 200, b'"x"', "is not an nsqd: max_msg_size is 'x'"),
        ("/stats", 200, b"OK", "answered /stats, but not with a JSON object"),
        ("/stats", 500, b"", "answered /stats"),
        ("/stats", 200, b'{"topics": [{}]}', "its /stats has another shape"),
    ]
    with contextlib.ExitStack() as stack:
        gateways = []
        for path, status, body, _ in rows:
            fake = FakeNsqd(nsqd)
            stack.callback(fake.close)
            fake.answers[path] = (status, body)
            flag = f"--nsqd-http-address={fake.address}"
            gateways.append(servers.gateway(flag, nsqd=nsqd, wait=False))
        for (_, _, _, sentence), gateway in zip(rows, gateways, strict=True):
            assert sentence in unavailable(gateway)


def test_an_nsqd_of_another_version_gives_a_warning_and_is_served(
    servers: Servers, nsqd: Nsqd, fake: FakeNsqd
) -> None:
    info = {**nsqd.get("/info"), "version": "1.2.1"}
    fake.answers["/info"] = (200, json.dumps(info).encode())
    gateway = servers.gateway(f"--nsqd-http-address={fake.address}", nsqd=nsqd)
    assert "nsqd 1.2.1: the gateway is tested with nsqd 1.3.x" in gateway.process.text()
    with V2(gateway.tcp) as client:
        assert client.identify(feature_negotiation=True)["version"] == "1.2.1"


def test_more_connections_than_files_and_a_backlog_under_one_body_are_told(
    servers: Servers, nsqd: Nsqd
) -> None:
    gateway = servers.gateway("--max-connections=100000000", nsqd=nsqd, wait=False)
    assert gateway.process.popen.wait(60) == Exit.USAGE
    line = gateway.process.text().splitlines()[-1]  # before it, why timestamps are not the best
    assert "--max-connections 100000000 needs 100000128 open files" in line
    gateway = servers.gateway("--max-connection-backlog-bytes=1000", nsqd=nsqd, wait=False)
    assert gateway.process.popen.wait(60) == Exit.USAGE
    line = gateway.process.text().splitlines()[-1]
    assert "is less than nsqd's --max-body-size" in line
