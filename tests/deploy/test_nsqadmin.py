"""nsqadmin of a deployment whose brokers close their HTTP addresses."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from srtm.deploy.nsqadmin import NsqadminTable, shortcomings
from srtm.gateway.options import GatewayOptions
from srtm.host.certificates import TlsFiles, client_context
from srtm.http.client import Answer, request
from srtm.nsq.commands import pub, sub
from srtm.text.address import free_addresses
from tests.support.certificates import Authority
from tests.support.deployments import Spec, need_nsq, outside, wait_for, write_file
from tests.support.programs import run_srtm
from tests.support.secure import SecureV2

Tls = dict[str, str]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Short, for the paths of unix sockets, and gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="srtm-") as folder:
        yield Path(folder)


@pytest.fixture
def spec(tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Spec:
    need_nsq(monkeypatch)
    cert, key = authority.issue("b", dns=["localhost"], ip=["127.0.0.1"])
    tcp, http, https, nsqadmin = map(str, free_addresses(4))
    return {
        "distributor": False,
        "deployment": {"data-path": str(tmp_path / "d")},
        "nsqadmin": {"http-address": nsqadmin},
        "broker": [
            {
                "tcp-address": tcp, "http-address": http, "https-address": https,
                "tls-cert": cert, "tls-key": key, "tls-required": "true", "http-admin": True,
            }
        ],
    }  # fmt: skip


def reads(authority: Authority) -> Tls:
    return {"http-client-tls-root-ca-file": authority.ca_file}


def shows(authority: Authority) -> Tls:
    cert, key = authority.issue("nsqadmin", client=True)
    return {**reads(authority), "http-client-tls-cert": cert, "http-client-tls-key": key}


def topic_of(spec: Spec) -> Answer:
    return request(spec["nsqadmin"]["http-address"], "GET", "/api/topics/events")


def publish(spec: Spec, authority: Authority, tls: Tls) -> None:
    shown = (tls.get("http-client-tls-cert", ""), tls.get("http-client-tls-key", ""))
    context = client_context(TlsFiles(*shown, authority.ca_file))
    address = spec["broker"][0]["tcp-address"]
    with SecureV2(address, context) as publisher, SecureV2(address, context) as consumer:
        publisher.send(pub(b"events", b"x"))
        assert publisher.reply() == b"OK"
        consumer.send(sub(b"events", b"workers"))
        assert consumer.reply() == b"OK"


@pytest.mark.parametrize(
    ("by_lookupd", "policy"),
    [
        pytest.param(False, "", id="by-address"),
        pytest.param(True, "", id="by-nsqlookupd"),
        pytest.param(True, "require-verify", id="with-a-certificate"),
    ],
)
def test_nsqadmin_reads_and_acts_by_https(
    tmp_path: Path, spec: Spec, authority: Authority, by_lookupd: bool, policy: str
) -> None:
    tls = shows(authority) if policy else reads(authority)
    spec["nsqadmin"] |= tls
    if policy:
        client = {"tls-root-ca-file": authority.ca_file, "tls-client-auth-policy": policy}
        spec["broker"][0] |= client
    if by_lookupd:
        tcp, http = map(str, free_addresses(2))
        spec["lookupd"] = {"tcp-address": tcp, "http-address": http}
    nsqadmin = spec["nsqadmin"]["http-address"]

    def asked(path: str) -> Any:
        answer = request(nsqadmin, "GET", path)
        assert answer.status == 200, answer.document
        return answer.document

    with outside(tmp_path, spec) as up:
        up.until("is up")
        assert not any("nsqadmin" in line for line in up.lines)
        publish(spec, authority, tls)
        wait_for(lambda: "events" in asked("/api/topics")["topics"])
        topic = asked("/api/topics/events")
        assert (topic["message"], topic["message_count"]) == ("", 1)
        assert [each["channel_name"] for each in topic["channels"]] == ["workers"]
        stats = asked("/api/counter")["stats"]
        assert [each["message_count"] for each in stats.values()] == [1]
        [node] = asked("/api/nodes")["nodes"]
        broker = spec["broker"][0]["http-address"]
        assert f"{node['broadcast_address']}:{node['http_port']}" == broker
        assert asked(f"/api/nodes/{broker}")["total_messages"] == 1
        pause = {"action": "pause"}
        done = request(nsqadmin, "POST", "/api/topics/events", document=pause)
        assert (done.status, done.document["message"]) == (200, "")
        assert asked("/api/topics/events")["paused"] is True
        given = {"root-ca-file": authority.ca_file, "cert": "", "key": ""}
        given |= {name: tls.get(f"http-client-tls-{name}", "") for name in ("cert", "key")}
        ways = [f"--nsqd-tls-{name}={path}" for name, path in given.items() if path]
        at = ("stat", "--count=1", "--json", "--deployment", str(tmp_path / "d"))
        shown = run_srtm(*at, *ways)
        assert shown.stderr == ""
        assert [row["messages"] for row in json.loads(shown.stdout)] == [1]
        refused = run_srtm(*at)
        assert refused.returncode == 3
        assert "give --nsqd-tls-root-ca-file" in refused.stderr


def test_what_nsqadmin_cannot_read_is_said(
    tmp_path: Path, spec: Spec, authority: Authority
) -> None:
    said = (
        "srtm up: warning: nsqadmin verifies broker-1 by the authorities of this host: write "
        "http-client-tls-root-ca-file in [nsqadmin] if another one issued its certificate"
    )
    checked = run_srtm("up", "--check", str(write_file(tmp_path, spec)))
    assert (checked.returncode, checked.stderr.splitlines()[0]) == (0, said)
    with outside(tmp_path, spec) as up:
        up.until("is up")
        assert said in up.lines
        publish(spec, authority, {})
        assert "certificate signed by unknown authority" in topic_of(spec).body.decode()


def test_an_authority_that_does_not_know_the_brokers(tmp_path: Path, spec: Spec) -> None:
    other = Authority(tmp_path / "other", "another").ca_file
    spec["nsqadmin"]["http-client-tls-root-ca-file"] = other
    checked = run_srtm("up", "--check", str(write_file(tmp_path, spec)))
    assert "tls-cert of broker broker-1, as nsqadmin verifies it:" in checked.stderr
    assert f"does not chain to {other}" in checked.stderr


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        pytest.param(
            {"http-client-tls-root-ca-file": "none.pem"},
            "none.pem: No such file or directory",
            id="no-file",
        ),
        pytest.param(
            {"http-client-tls-cert": "c"},
            "http-client-tls-cert and http-client-tls-key go together",
            id="half-a-pair",
        ),
    ],
)
def test_files_that_nsqadmin_could_not_use_are_refused(
    tmp_path: Path, spec: Spec, keys: Tls, says: str
) -> None:
    """Before it starts; a relative path is beside the file."""
    spec["nsqadmin"] |= keys
    checked = run_srtm("up", "--check", str(write_file(tmp_path, spec)))
    assert checked.returncode == 2
    assert says in checked.stderr
    assert checked.stderr.count("\n") == 1
    if "none.pem" in says:
        assert f"[nsqadmin]: {tmp_path}/none.pem" in checked.stderr


ROOT = {"http-client-tls-root-ca-file": "ca"}
PAIR = {"http-client-tls-cert": "c", "http-client-tls-key": "k"}
SECURE = {"tls_cert": "c", "tls_key": "k"}
POLICY = {"tls_root_ca_file": "ca", "tls_client_auth_policy": "require-verify"}


@pytest.mark.parametrize(
    ("table", "gateway", "says"),
    [
        pytest.param({}, {}, "", id="plain"),
        pytest.param({}, {**SECURE, "tls_required": "tcp-https"}, "", id="http-is-open"),
        pytest.param(ROOT, {**SECURE, "tls_required": "true"}, "", id="read"),
        pytest.param({}, {**SECURE, "tls_required": "true"}, "by the authorities", id="no-root"),
        pytest.param(ROOT, {**SECURE, **POLICY}, "b1, b2, which takes only", id="no-certificate"),
        pytest.param({**ROOT, **PAIR}, {**SECURE, **POLICY}, "", id="with-a-certificate"),
        pytest.param(
            ROOT, {**SECURE, "tls_required": "true", "https_address": ""}, "no HTTPS", id="no-https"
        ),
        pytest.param(
            {}, {"http_admin": True, "auth_http_address": ["h:1"]}, "wants AUTH", id="auth"
        ),
        pytest.param({}, {"auth_http_address": ["h:1"]}, "", id="auth-without-buttons"),
    ],
)
def test_one_line_tells_what_it_cannot_do_at_which_brokers(
    table: Tls, gateway: dict[str, Any], says: str
) -> None:
    nsqd = {"nsqd_tcp_address": "h:1", "nsqd_http_address": "h:2"}
    options = GatewayOptions.model_validate(nsqd | gateway)
    lines = list(shortcomings(NsqadminTable.model_validate(table), {"b1": options, "b2": options}))
    assert len(lines) == bool(says)
    assert says in "".join(lines)
    assert "b1, b2" in "".join(lines) or not says
