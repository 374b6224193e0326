"""A deployment whose distributor speaks TLS and knows its callers, and who reaches it."""

import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from srtm.client import SyncPublisher
from srtm.host.certificates import TlsFiles, client_context
from srtm.http.client import Endpoint, TlsFailed, request
from srtm.text.address import free_addresses
from tests.support.certificates import Authority
from tests.support.deployments import Spec, need_nsq, outside, write_file
from tests.support.programs import run_srtm

ROLES = {"ops": "operator", "broker-1": "agent", "broker-2": "agent", "app": "agent", "eye": "read"}


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Short, for the paths of unix sockets, and gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="srtm-") as folder:
        yield Path(folder)


@pytest.fixture
def spec(tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Spec:
    need_nsq(monkeypatch)
    callers = []
    for name, role in ROLES.items():
        token = name.ljust(32, "x")
        (tmp_path / f"{name}.token").write_text(token)
        (tmp_path / f"{name}.token").chmod(0o600)
        callers.append(f"{name}:{role}:{hashlib.sha256(token.encode()).hexdigest()}")
    (tmp_path / "callers").write_text("\n".join(callers))
    cert, key = authority.issue("d", ip=["127.0.0.1"])
    shown, shown_key = authority.issue("up", client=True)
    first, *ports = map(str, free_addresses(5))
    (tmp_path / "publishers.csv").write_text("id,rate\np1,10\np2,10\n")
    return {
        "deployment": {"data-path": str(tmp_path / "d")},
        "distributor": {
            "http-address": first,
            "token-file": "callers",
            "audit-log": "audit",
            "tls-cert": cert,
            "tls-key": key,
            "tls-root-ca-file": authority.ca_file,
            "tls-client-auth-policy": "require-verify",
            "distributor-token-file": "ops.token",
            "distributor-tls-root-ca-file": authority.ca_file,
            "distributor-tls-cert": shown,
            "distributor-tls-key": shown_key,
        },
        "broker": [
            {
                "tcp-address": tcp,
                "http-address": web,
                "capacity": 40,
                "distributor-token-file": f"broker-{number}.token",
            }
            for number, (tcp, web) in enumerate(zip(ports[:2], ports[2:], strict=True), 1)
        ],
        "topic": [
            {"name": "sensors", "rate": 44, "burst": 12, "slo": "0.99@5ms",
             "publishers": "publishers.csv"}
        ],
    }  # fmt: skip


def test_who_is_known_reaches_it_by_tls(tmp_path: Path, spec: Spec) -> None:
    table = spec["distributor"]
    address = table["http-address"]
    files = ("tls-root-ca-file", "tls-cert", "tls-key")
    by_tls = [f"--distributor-{name}={table[f'distributor-{name}']}" for name in files]
    with outside(tmp_path, spec) as up:
        up.until("is up")
        asked = ["--distributor-address", address, *by_tls]
        eye = [f"--distributor-token-file={tmp_path / 'eye.token'}"]
        told = run_srtm("broker", "list", "--json", *asked, *eye)
        brokers = json.loads(told.stdout)["brokers"]
        assert [each["name"] for each in brokers] == ["broker-1", "broker-2"]
        refused = run_srtm("topic", "delete", "sensors", *asked, *eye)
        assert refused.returncode == 2
        assert "eye has the role read: DELETE /v1/topics/sensors is for the role" in refused.stderr
        shown = run_srtm("stat", "--count", "1", "--deployment", str(tmp_path / "d"), "--json")
        assert (shown.returncode, shown.stderr) == (0, "")
        with SyncPublisher(
            "sensors",
            id="p1",
            distributor=address,
            token_file=str(tmp_path / "app.token"),
            distributor_tls_root_ca_file=table["distributor-tls-root-ca-file"],
            distributor_tls_cert=table["distributor-tls-cert"],
            distributor_tls_key=table["distributor-tls-key"],
        ) as publisher:
            publisher.publish(b"x")
        loaded = run_srtm(
            "load", "--topic=sensors", "--duration=1s", "--no-consumer", *asked,
            f"--distributor-token-file={tmp_path / 'app.token'}", seconds=60,
        )  # fmt: skip
        assert (loaded.returncode, loaded.stderr) == (0, "")
    rows = [json.loads(each) for each in (tmp_path / "audit").read_text().splitlines()]
    told_of = {(each["name"], each["method"], each["path"], each["status"]) for each in rows}
    assert {
        ("ops", "PUT", "/v1/topics/sensors", 200),
        ("broker-1", "POST", "/v1/brokers", 200),
        ("broker-2", "POST", "/v1/brokers", 200),
        ("eye", "DELETE", "/v1/topics/sensors", 403),
    } <= told_of


@pytest.mark.parametrize(
    ("drop", "said"),
    [
        pytest.param("distributor-token-file", "give distributor-token-file too", id="no-token"),
        pytest.param("distributor-tls-root-ca-file", "distributor-tls-root-ca-file", id="no-ca"),
        pytest.param("distributor-tls-cert", "go together", id="no-certificate"),
    ],
)
def test_a_file_by_which_its_own_distributor_is_not_reached_is_refused(
    tmp_path: Path, spec: Spec, drop: str, said: str
) -> None:
    del spec["distributor"][drop]
    done = run_srtm("up", str(write_file(tmp_path, spec)))
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_bridge_that_takes_only_known_clients_is_ready(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`srtm up` has no certificate for it, and waits for nothing but its door."""
    need_nsq(monkeypatch)
    cert, key = authority.issue("bridge", ip=["127.0.0.1"])
    tcp, http, distributor, door = map(str, free_addresses(4))
    (tmp_path / "bridge.toml").write_text(
        f"""
        [bridge]
        http-address = "{door}"
        tls-cert = "{cert}"
        tls-key = "{key}"
        tls-root-ca-file = "{authority.ca_file}"
        tls-client-auth-policy = "require-verify"
        [kafka]
        bootstrap-servers = "127.0.0.1:1"
        [[route]]
        from = "nsq:t/c"
        to = "kafka:t"
        nsqd = ["{tcp}"]
        """
    )
    spec = {
        "deployment": {"data-path": str(tmp_path / "d")},
        "distributor": {"http-address": distributor},
        "broker": [{"tcp-address": tcp, "http-address": http}],
        "bridge": {"file": "bridge.toml"},
    }
    shown = TlsFiles(*authority.issue("looker", client=True), authority.ca_file)
    with outside(tmp_path, spec) as up:
        up.until("is up")
        asked = Endpoint(door, tls=client_context(shown))
        assert request(asked, "GET", "/metrics").status == 200
        looked = ["stat", "--bridge-http-address", door, "--count", "1", "--json"]
        ways = [f"--bridge-tls-{name}={path}" for name, path in (
            ("root-ca-file", shown.root_ca), ("cert", shown.cert), ("key", shown.key),
        )]  # fmt: skip
        [route] = json.loads(run_srtm(*looked, *ways).stdout)
        assert (route["bridge"], route["route"]) == (door, "nsq:t/c")
        refused = run_srtm(*looked, ways[0])
        assert refused.returncode == 3
        assert refused.stderr.count("\n") == 1
        stranger = client_context(TlsFiles(root_ca=authority.ca_file))
        with pytest.raises(TlsFailed):
            request(Endpoint(door, tls=stranger), "GET", "/ping")
