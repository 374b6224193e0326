"""The distributor's door: TLS, who may do what, and the log of who did."""

import contextlib
import hashlib
import json
import re
import socket
import ssl
import time
from dataclasses import replace
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

from srtm.host.certificates import TlsFiles, client_context
from tests.support.certificates import Authority
from tests.support.distributors import DistributorProcess, Starter, srtm
from tests.support.servers import http, wait_for

TOKENS = {name: letter * 32 for name, letter in (("gw-1", "a"), ("ops", "b"), ("prom", "c"))}


def write_callers(path: Path, **more: str) -> str:
    roles = {"gw-1": "agent", "ops": "operator", "prom": "read"}
    lines = [f"{name}:{roles[name]}:{digest(token)}\n" for name, token in TOKENS.items()]
    lines += [f"{name}:{role}\n" for name, role in more.items()]
    path.write_text("".join(lines))
    return str(path)


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def asked(broker: str) -> dict[str, Any]:
    return {"name": broker, "tcp_address": "h:1", "http_address": "h:2"}


def test_each_role_may_do_its_part_and_changes_are_logged(start: Starter, tmp_path: Path) -> None:
    audit = tmp_path / "audit"
    file = write_callers(tmp_path / "callers")
    ops = start(
        tmp_path / "s.db", f"--token-file={file}", f"--audit-log={audit}", token=TOKENS["ops"]
    )
    ops.wait_leading()
    agent, reader, stranger = (
        replace(ops, token=token) for token in (TOKENS["gw-1"], TOKENS["prom"], "d" * 32)
    )
    ops.topic("t", rate=120.0)
    for each, status in ((stranger, 401), (reader, 403), (agent, 403)):
        assert each.call("PUT", "/topics/u", {"rate": 1.0, "burst": 1.0})[0] == status
        assert each.call("DELETE", "/topics/t")[0] == status
    for each, status in ((stranger, 401), (reader, 200), (agent, 200), (ops, 200)):
        assert each.call("GET", "/topics")[0] == status
    rows = {"publishers": [{"id": "p", "rate": 1.0}]}
    for each, status in ((stranger, 401), (reader, 403), (agent, 200)):
        assert each.call("POST", "/topics/t/publishers", rows)[0] == status
    assert reader.call("POST", "/brokers", asked("prom"))[0] == 403
    assert agent.call("POST", "/brokers", asked("gw-1"))[0] == 200
    agent.broker("gw-1").report()
    status, refused = agent.call("POST", "/brokers", asked("gw-2"))
    assert status == 403
    assert refused["error"].startswith("gw-1 may not speak for broker gw-2: an agent speaks for")
    ops.broker("gw-2")
    for _ in range(3):
        assert agent.call("POST", "/brokers/gw-2/report", {"applied_epoch": 0})[0] == 403
    assert agent.call("GET", "/brokers/gw-2/desired")[0] == 403
    assert agent.call("GET", "/brokers/gw-1/desired")[0] == 200
    assert stranger.call("GET", "/health")[0] == 200
    text = http(ops.address, "/metrics")[0], ops.process.text()
    assert text[0] == 401
    assert text[1].count("wrong token or none") == 1
    lines = [json.loads(each) for each in audit.read_text().splitlines()]
    assert lines[0] == {
        "time": lines[0]["time"],
        "name": "ops",
        "role": "operator",
        "address": "127.0.0.1",
        "method": "PUT",
        "path": "/v1/topics/t",
        "asked": {
            "rate": 120.0, "burst": 20.0, "slo": "0.99@1ms", "mode": "delay", "batch": 1,
            "batches": "whole",
        },
        "status": 200,
    }  # fmt: skip
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", lines[0]["time"])
    told = [(each["name"], each["method"], each["path"], each["status"]) for each in lines[1:]]
    assert told == [
        ("prom", "PUT", "/v1/topics/u", 403),
        ("prom", "DELETE", "/v1/topics/t", 403),
        ("gw-1", "PUT", "/v1/topics/u", 403),
        ("gw-1", "DELETE", "/v1/topics/t", 403),
        ("prom", "POST", "/v1/topics/t/publishers", 403),
        ("gw-1", "POST", "/v1/topics/t/publishers", 200),
        ("prom", "POST", "/v1/brokers", 403),
        ("gw-1", "POST", "/v1/brokers", 200),
        ("gw-1", "POST", "/v1/brokers", 200),
        ("gw-1", "POST", "/v1/brokers", 403),
        ("ops", "POST", "/v1/brokers", 200),
        ("gw-1", "POST", "/v1/brokers/gw-2/report", 403),
    ]
    for secret in (*TOKENS.values(), *map(digest, TOKENS.values())):
        assert secret not in audit.read_text() + ops.process.text()


def secured(authority: Authority, *files: str) -> ssl.SSLContext:
    cert, key = files or ("", "")
    return client_context(TlsFiles(cert, key, authority.ca_file))


def flags(authority: Authority) -> list[str]:
    cert, key = authority.issue("distributor", ip=["127.0.0.1"])
    return [f"--tls-cert={cert}", f"--tls-key={key}"]


def verifying(authority: Authority) -> list[str]:
    root = f"--tls-root-ca-file={authority.ca_file}"
    return [*flags(authority), root, "--tls-client-auth-policy=require-verify"]


def test_a_certificate_lets_a_gateway_speak_for_itself_alone(
    start: Starter, tmp_path: Path, authority: Authority
) -> None:
    file = write_callers(tmp_path / "callers")
    shown = secured(authority, *authority.issue("gw-7", client=True))
    gateway = start(tmp_path / "s.db", f"--token-file={file}", *verifying(authority), tls=shown)
    gateway.wait_leading()
    assert "nobody may register topics" not in gateway.process.text()
    gateway.broker("gw-7").report()
    assert gateway.call("POST", "/brokers", asked("gw-1"))[0] == 403
    assert gateway.call("PUT", "/topics/t", {"rate": 1.0, "burst": 1.0})[0] == 403
    ops = replace(gateway, token=TOKENS["ops"])
    ops.topic()
    assert gateway.call("GET", "/topics/t")[0] == 200
    assert replace(gateway, token="d" * 32).call("GET", "/topics/t")[0] == 401
    with pytest.raises((ssl.SSLError, ConnectionError)):  # TLS 1.3 tells at the first read
        replace(gateway, tls=secured(authority), token=TOKENS["ops"]).call("GET", "/topics")
    other = Authority(tmp_path / "other")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        replace(gateway, tls=secured(authority, *other.issue("gw-7", client=True))).call(
            "GET", "/topics"
        )
    expired = authority.issue("gw-7", client=True, expired=True)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        replace(gateway, tls=secured(authority, *expired)).call("GET", "/topics")


def test_certificates_and_callers_are_followed_under_load(
    start: Starter, tmp_path: Path, authority: Authority
) -> None:
    """A link is moved to another pair and another file, as Kubernetes does; nothing is refused."""
    link = tmp_path / "now"
    for name, letter in (("old", "a"), ("new", "b")):
        folder = tmp_path / name
        folder.mkdir()
        issued = authority.issue(name, ip=["127.0.0.1"])
        for file, pem in zip(("cert", "key"), issued, strict=True):
            (folder / file).write_bytes(Path(pem).read_bytes())
        rows = [f"gw:agent:{digest(each * 32)}\n" for each in ("ab" if letter == "b" else "a")]
        (folder / "callers").write_text("".join(rows))
    link.symlink_to("old")
    running = start(
        tmp_path / "s.db",
        *(f"--{flag}={link / file}" for flag, file in (
            ("tls-cert", "cert"), ("tls-key", "key"), ("token-file", "callers"),
        )),
        token="a" * 32,
        tls=secured(authority),
    )  # fmt: skip
    running.wait_leading()
    assert shown_by(running, authority) == "old"
    assert replace(running, token="b" * 32).call("GET", "/topics")[0] == 401
    (tmp_path / "next").symlink_to("new")
    (tmp_path / "next").rename(link)

    def is_new() -> bool:
        assert running.call("GET", "/topics")[0] == 200
        taken = replace(running, token="b" * 32).call("GET", "/topics")[0] == 200
        return taken and shown_by(running, authority) == "new"

    wait_for(is_new, "the new certificate and callers are in use", 60)


def test_the_certificate_is_in_the_metrics(
    start: Starter, tmp_path: Path, authority: Authority
) -> None:
    own = [tmp_path / "cert", tmp_path / "key"]
    for file, pem in zip(own, authority.issue("d", ip=["127.0.0.1"], days=90), strict=True):
        file.write_bytes(Path(pem).read_bytes())
    tls = secured(authority)
    flags = f"--tls-cert={own[0]}", f"--tls-key={own[1]}"
    running = start(tmp_path / "s.db", *flags, tls=tls)
    running.wait_leading()

    def metric(name: str) -> float:
        with contextlib.closing(HTTPSConnection(running.address, context=tls)) as connection:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        return float(re.findall(rf"^srtm_distributor_certificate_{name} (\S+)", text, re.M)[0])

    assert metric("end_seconds") == pytest.approx(time.time() + 90 * 86_400, abs=86_400)
    assert metric("failing") == 0
    own[1].write_bytes(b"")
    wait_for(lambda: metric("failing"), "the metric", 60)


def shown_by(running: DistributorProcess, authority: Authority) -> str:
    """The common name of the certificate that it shows."""
    host, _, port = running.address.partition(":")
    with (
        socket.create_connection((host, int(port)), 20) as plain,
        secured(authority).wrap_socket(plain, server_hostname=host) as shown,
    ):
        found = shown.getpeercert() or {}
    subject: Any = found["subject"]
    return str(dict(each for group in subject for each in group)["commonName"])


def test_plain_text_at_a_port_of_tls_is_closed_and_told_once(
    start: Starter, tmp_path: Path, authority: Authority
) -> None:
    running = start(tmp_path / "s.db", *flags(authority), tls=secured(authority))
    running.wait_leading()
    host, _, port = running.address.partition(":")
    for _ in range(50):
        with socket.create_connection((host, int(port)), 20) as plain:
            plain.sendall(b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                assert b"HTTP/1.1 200" not in plain.recv(100)
    assert running.leads()
    assert running.process.text().count("SSL Error") <= 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        pytest.param(
            ["--http-address=0.0.0.0:4180", "--tls-cert={cert}", "--tls-key={key}"],
            "give a token-file, or tls-client-auth-policy",
            id="tls-alone-is-no-guard",
        ),
        pytest.param(["--tls-cert={cert}"], "TLS needs both", id="no-key"),
        pytest.param(
            ["--tls-root-ca-file={ca}"], "--tls-root-ca-file needs a certificate", id="no-pair"
        ),
        pytest.param(
            ["--tls-cert={cert}", "--tls-key={key}", "--tls-client-auth-policy=require-verify"],
            "give --tls-root-ca-file too",
            id="no-authority",
        ),
        pytest.param(
            ["--tls-cert={cert}", "--tls-key={key}", "--tls-client-auth-policy=require"],
            "would take any certificate",
            id="unverified",
        ),
        pytest.param(["--tls-min-version=tls1.0"], "is not spoken here", id="an-old-version"),
        pytest.param(
            ["--tls-cert={ca}", "--tls-key={key}"], "is not the key of the certificate", id="mixed"
        ),
        pytest.param(["--audit-log=/no/audit"], "--audit-log /no/audit: No such", id="no-folder"),
        pytest.param(["--token-file={cert}"], "write name:role:sha256", id="no-callers"),
    ],
)
def test_bad_flags_are_one_line(
    tmp_path: Path, authority: Authority, flags: list[str], said: str
) -> None:
    cert, key = authority.issue("d")
    given = [each.format(cert=cert, key=key, ca=authority.ca_file) for each in flags]
    done = srtm("distributor", f"--store={tmp_path / 's.db'}", *given)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("srtm: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
