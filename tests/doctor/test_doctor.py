"""Each finding has a verdict that follows from what was seen, and a remedy where it is not ok."""

import json
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from srtm.certs.trial import Trial
from srtm.deploy.certificates import NamedCertificate, judge
from srtm.deploy.file import plan_of
from srtm.doctor import findings
from srtm.doctor.doctor_command import doctor
from srtm.doctor.findings import Finding
from srtm.doctor.look import examine
from srtm.host.certificates import TlsFiles
from srtm.host.processes import child_listens
from srtm.text.address import free_addresses
from srtm.text.errors import Exit
from tests.support.certificates import Authority
from tests.support.deployments import Spec, need_nsq, outside, srtm, write_file

DAY = 86_400


def certificate(
    left: float, chain: str = "", name: str = "", not_yet: bool = False, own: bool = False
) -> Finding:
    tried = NamedCertificate("", "k", "h", TlsFiles("c", "c.key"), "root", own)
    return findings.certificate(judge(tried, Trial(left, chain, name, not_yet), 0.0))


CASES = [
    pytest.param(findings.nsq("nsqd", "nsqd v1.3.0 (built w/go1.21)"), "ok", "", id="nsqd"),
    pytest.param(findings.nsq("nsqlookupd", "nsqlookupd v1.3.0 (built"), "ok", "", id="lookupd"),
    pytest.param(findings.nsq("nsqd", "nsqd v1.2.1"), "warning", "install NSQ 1.3", id="old-nsqd"),
    pytest.param(findings.open_files(1024, 524288), "ok", "", id="many-files"),
    pytest.param(findings.open_files(1024, 1024), "warning", "LimitNOFILE", id="few-files"),
    pytest.param(findings.timestamps("ebpf", ""), "ok", "", id="ebpf"),
    pytest.param(
        findings.timestamps("sockopt", "ebpf: loading segments.bpf.o: CAP_BPF missing"),
        "warning",
        "CAP_BPF CAP_NET_ADMIN",
        id="no-capability",
    ),
    pytest.param(
        findings.timestamps("sockopt", "ebpf: no cgroup2: the kernel has none"),
        "warning",
        "mount -t cgroup2",
        id="no-cgroup-for-stamps",
    ),
    pytest.param(findings.cgroup2("/sys/fs/cgroup", ""), "ok", "", id="cgroup"),
    pytest.param(findings.cgroup2("", "no cgroup2: x"), "warning", "mount -t", id="no-cgroup"),
    pytest.param(findings.disk("/d", 5 << 30), "ok", "", id="disk"),
    pytest.param(findings.disk("/d", 500 << 20), "warning", "make room", id="little-disk"),
    pytest.param(findings.disk("/d", 5 << 20), "failed", "make room", id="no-disk"),
    pytest.param(findings.clock(0.002), "ok", "", id="clock"),
    pytest.param(findings.clock(16.0), "warning", "chrony", id="no-ntp"),
    pytest.param(findings.java('openjdk version "17.0.9"'), "ok", "", id="java"),
    pytest.param(findings.java('openjdk version "11.0.9"'), "warning", "17 or 21", id="old-java"),
    pytest.param(findings.java(""), "failed", "17 or 21", id="no-java"),
    pytest.param(certificate(90 * DAY), "ok", "", id="certificate"),
    pytest.param(certificate(13 * DAY), "warning", "renew it", id="ends-soon"),
    pytest.param(certificate(-1), "failed", "renew it", id="expired"),
    pytest.param(certificate(9, not_yet=True), "failed", "set the clock", id="not-valid-yet"),
    pytest.param(
        certificate(90 * DAY, chain="no issuer"), "warning", "an authority of", id="another-root"
    ),
    pytest.param(
        certificate(90 * DAY, name="no"), "warning", "have h among its names", id="another-name"
    ),
    pytest.param(
        certificate(90 * DAY, name="no", own=True), "failed", "among", id="a-name-that-we-need"
    ),
    pytest.param(
        certificate(90 * DAY, chain="no", own=True), "failed", "authority", id="a-root-that-we-need"
    ),
    pytest.param(findings.port("k", "a:1", ""), "ok", "", id="port"),
    pytest.param(findings.port("k", "a:1", "k is in use; stop it"), "failed", "stop it", id="busy"),
]


@pytest.mark.parametrize(("finding", "verdict", "remedy"), CASES)
def test_a_verdict_and_its_remedy(finding: Finding, verdict: str, remedy: str) -> None:
    assert finding.verdict == verdict
    assert remedy in finding.remedy
    assert bool(finding.remedy) == (verdict != "ok")


def test_a_port_that_is_taken_is_found_before_anything_is_started(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taken = f"127.0.0.1:{listener.getsockname()[1]}"
        free, other = map(str, free_addresses(2))
        broker = {"tcp-address": taken, "http-address": free}
        spec = {"distributor": {"http-address": other}, "broker": [broker]}
        plan = plan_of(spec, "file", tmp_path)
        found = {each.says: each for each in examine(plan, tmp_path / "none", java=False)}
    failed = [each for each in found.values() if each.check == "port" and each.verdict == "failed"]
    assert len(failed) == 1
    assert taken in failed[0].says


@pytest.fixture
def short() -> Iterator[Path]:
    """For the paths of unix sockets."""
    with tempfile.TemporaryDirectory(prefix="srtm-") as folder:
        yield Path(folder)


def test_what_a_running_deployment_holds_is_right(
    short: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_nsq(monkeypatch)
    cert, key = authority.issue("b", ip=["127.0.0.1"], days=89.5)
    tcp, web, secure, distributor = map(str, free_addresses(4))
    spec: Spec = {
        "deployment": {"data-path": str(short / "d")},
        "distributor": {"http-address": distributor},
        "broker": [
            {"tcp-address": tcp, "http-address": web, "https-address": secure,
             "tls-cert": cert, "tls-key": key}
        ],
    }  # fmt: skip
    with outside(short, spec) as up:
        up.until("is up")
        done = CliRunner().invoke(doctor, [str(short / "srtm.toml"), "--json"])
    rows = json.loads(done.stdout)
    held = {row["says"] for row in rows if row["check"] == "port"}
    assert held == {
        *(f"{each} is held by broker-1 of this deployment" for each in (tcp, web, secure)),
        f"{distributor} is held by distributor of this deployment",
    }
    [found] = [row["says"] for row in rows if row["check"] == "certificate"]
    assert found == f"tls-cert of broker broker-1 {cert}; ends in 89 days"
    assert done.exit_code == 0


def test_a_testbed_that_runs_with_certificates_of_its_own(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_nsq(monkeypatch)
    tcp, web, distributor = free_addresses(3)
    spec: Spec = {
        "deployment": {"data-path": "d", "secure": True},
        "distributor": {"http-address": str(distributor)},
        "host": [{"name": "h1"}, {"name": "h2"}],
        "broker": [{"host": "h2", "tcp-address": str(tcp), "http-address": str(web)}],
    }
    file = str(write_file(short, spec))
    try:
        srtm("testbed", "up", file)
        done = CliRunner().invoke(doctor, [file, "--json"])
    finally:
        srtm("testbed", "down", file)
    rows = json.loads(done.stdout)
    assert {row["says"] for row in rows if row["check"] == "port"} == {
        f"127.0.0.2:{tcp.port} is held by broker-1 of this deployment",
        f"127.0.0.2:{web.port} is held by broker-1 of this deployment",
        f"{distributor} is held by distributor of this deployment",
    }
    pki = short / "d" / "testbed" / "pki"
    assert [row["says"] for row in rows if row["check"] == "certificate"] == [
        f"certificate of host {name} {pki}/{name}.pem; ends in 364 days" for name in ("h1", "h2")
    ]
    assert done.exit_code == 0


def test_a_port_of_a_dead_program_that_another_has_taken() -> None:
    """The deployment goes on, and starts the program again and again."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert child_listens(os.getppid(), port)
        assert not child_listens(os.getpid(), port)


def test_a_host_of_its_own_network_has_its_own_ports(tmp_path: Path) -> None:
    hosts = [{"name": "h1", "kind": "netns"}, {"name": "h2", "kind": "netns"}]
    brokers = [{"host": "h1"}, {"host": "h2"}]
    plan = plan_of({"host": hosts, "broker": brokers}, "file", tmp_path)
    assert all(each.check != "port" for each in examine(plan, tmp_path, java=False))


def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    need_nsq(monkeypatch)
    done = CliRunner().invoke(doctor, ["--json"])
    checks = {row["check"]: row for row in json.loads(done.stdout)}
    assert {"nsqd", "open files", "timestamps", "cgroup2", "disk", "clock"} <= checks.keys()
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    done = CliRunner().invoke(doctor, [])
    assert done.exit_code == Exit.UNAVAILABLE
    assert "make setup" in done.stdout


@pytest.mark.parametrize(
    ("given", "verdict", "says"),
    [
        pytest.param({}, "ok", "ends in 89 days", id="ok"),
        pytest.param({"days": 13.5}, "warning", "ends in 13 days", id="ends-soon"),
        pytest.param({"days": 0.5}, "warning", "ends in less than a day", id="ends-today"),
        pytest.param({"expired": True}, "failed", "has expired", id="expired"),
        pytest.param(
            {"ip": ("127.0.0.2",)},
            "warning",
            "ends in 89 days; is not for 127.0.0.1, at which clients reach it",
            id="another-address",
        ),
        pytest.param(
            {"ip": (), "dns": ("localhost",), "expired": True},
            "failed",
            "has expired; is not for 127.0.0.1, at which clients reach it",
            id="expired-and-for-another-name",
        ),
    ],
)
def test_the_certificate_of_a_broker(
    authority: Authority, tmp_path: Path, given: dict[str, Any], verdict: str, says: str
) -> None:
    files = authority.issue("broker", **{"ip": ("127.0.0.1",), "days": 89.5, **given})
    [found] = certificates(tmp_path, *files, authority.ca_file)
    assert found.verdict == verdict
    assert found.says == f"tls-cert of broker broker-1 {files[0]}; {says}"


def test_a_certificate_of_another_root(authority: Authority, tmp_path: Path) -> None:
    files = Authority(tmp_path / "other", "another").issue("b", ip=("127.0.0.1",), days=90)
    [found] = certificates(tmp_path, *files, authority.ca_file)
    assert found.verdict == "warning"
    assert f"does not chain to {authority.ca_file}: unable to get local issuer" in found.says
    [found] = certificates(tmp_path, *files)
    assert found.verdict == "ok"


def test_a_certificate_of_a_root_that_has_expired(tmp_path: Path) -> None:
    old = Authority(tmp_path / "old", days=-0.5)
    files = old.issue("b", ip=("127.0.0.1",), days=90)
    [found] = certificates(tmp_path, *files, old.ca_file)
    assert found.verdict == "warning"
    assert found.says.endswith(
        f"does not chain to {old.ca_file}: the certificate of an authority is out of date"
    )


def test_a_certificate_that_is_not_valid_yet(authority: Authority, tmp_path: Path) -> None:
    files = authority.issue("b", ip=("127.0.0.1",), days=90, begins_days=1)
    [found] = certificates(tmp_path, *files, authority.ca_file)
    assert found.verdict == "failed"
    assert found.says.endswith("; is not valid yet")


def test_the_certificate_of_a_host_is_for_its_address(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue("h2", ip=("127.0.0.2",), days=90)
    brokers = [{"host": name, "tls-cert": cert, "tls-key": key} for name in ("h1", "h2", "h3")]
    hosts = [{"name": "h1"}, {"name": "h2"}, {"name": "h3", "kind": "netns"}]
    plan = plan_of({"host": hosts, "broker": brokers}, "file", tmp_path)
    found = [each for each in examine(plan, tmp_path, java=False) if each.check == "certificate"]
    assert [each.verdict for each in found] == ["warning", "ok", "ok"]
    assert "is not for 127.0.0.1, at which" in found[0].says


def certificates(folder: Path, cert: str, key: str, root: str = "") -> list[Finding]:
    broker = {"tls-cert": cert, "tls-key": key, **({"tls-root-ca-file": root} if root else {})}
    plan = plan_of({"broker": [broker]}, "file", folder)
    return [each for each in examine(plan, folder, java=False) if each.check == "certificate"]


def test_a_key_of_another_certificate(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue("b")[0], authority.issue("other")[1]
    [found] = certificates(tmp_path, cert, key)
    assert found.verdict == "failed"
    assert found.says == (
        f"tls-cert of broker broker-1: {key}: is not the key of the certificate {cert}"
    )
    assert "srtm certs issue" in found.remedy


def test_the_certificate_of_the_distributor_is_what_gateways_verify(
    authority: Authority, tmp_path: Path
) -> None:
    def found(root: str) -> Finding:
        distributor = {
            "http-address": "127.0.0.1:4180",
            "tls-cert": cert,
            "tls-key": key,
            "distributor-tls-root-ca-file": root,
        }
        plan = plan_of({"distributor": distributor, "broker": [{}]}, "file", tmp_path)
        looked = examine(plan, tmp_path, java=False)
        return next(each for each in looked if each.check == "certificate")

    cert, key = authority.issue("d", dns=("d.example",), days=90)
    assert (found(authority.ca_file).verdict, found(authority.ca_file).says) == (
        "failed",
        f"tls-cert of distributor {cert}; ends in 89 days; "
        "is not for 127.0.0.1, at which clients reach it",
    )
    cert, key = authority.issue("d", ip=("127.0.0.1",), days=90)
    assert found(authority.ca_file).verdict == "ok"
    other = Authority(tmp_path / "other", "another")
    assert found(other.ca_file).verdict == "failed"
    assert "does not chain to" in found(other.ca_file).says


@pytest.mark.parametrize(
    ("given", "verdict", "says"),
    [
        pytest.param({"client": True, "days": 90}, "ok", "; ends in 89 days", id="ok"),
        pytest.param({"client": True, "expired": True}, "failed", "; has expired", id="expired"),
        pytest.param(
            {"days": 90}, "failed", "unsuitable certificate purpose", id="that-of-a-server"
        ),
        pytest.param({"client": True, "days": 90, "other": True}, "failed", "unable to", id="root"),
    ],
)
def test_the_certificate_that_is_shown_to_the_distributor(
    authority: Authority, tmp_path: Path, given: dict[str, Any], verdict: str, says: str
) -> None:
    other = Authority(tmp_path / "other", "another")
    own = (other if given.pop("other", False) else authority).issue("gateway", **given)
    served = authority.issue("d", ip=("127.0.0.1",), days=90)
    distributor = {
        "tls-cert": served[0],
        "tls-key": served[1],
        "tls-root-ca-file": authority.ca_file,
        "tls-client-auth-policy": "require-verify",
        "distributor-tls-root-ca-file": authority.ca_file,
        "distributor-tls-cert": own[0],
        "distributor-tls-key": own[1],
    }
    plan = plan_of({"distributor": distributor, "broker": [{}]}, "file", tmp_path)
    looked = [each for each in examine(plan, tmp_path, java=False) if each.check == "certificate"]
    assert [each.verdict for each in looked] == ["ok", verdict]
    assert looked[1].says.startswith(f"distributor-tls-cert of distributor {own[0]}; ")
    assert says in looked[1].says


def test_the_certificate_that_nsqadmin_shows(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue("b1", ip=("127.0.0.1",), days=90)
    broker = {
        "tls-cert": cert,
        "tls-key": key,
        "tls-root-ca-file": authority.ca_file,
        "tls-client-auth-policy": "require-verify",
    }
    other = Authority(tmp_path / "other", "another")
    for issuer, verdict in ((authority, "ok"), (other, "failed")):
        own, own_key = issuer.issue("nsqadmin", client=True, days=90)
        nsqadmin = {"http-client-tls-cert": own, "http-client-tls-key": own_key}
        plan = plan_of({"nsqadmin": nsqadmin, "broker": [broker]}, "file", tmp_path)
        _, looked = (each for each in examine(plan, tmp_path, java=False)
                     if each.check == "certificate")  # fmt: skip
        assert looked.says.startswith(f"http-client-tls-cert of nsqadmin {own}; ")
        assert looked.verdict == verdict
