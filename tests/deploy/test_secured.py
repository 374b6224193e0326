"""A deployment whose distributor speaks TLS and knows its callers, and who reaches it."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from srtm.client import SyncPublisher
from srtm.deploy.file import read_plan
from srtm.deploy.up import Up
from srtm.host.certificates import TlsFiles, client_context
from srtm.http.client import Endpoint, TlsFailed, request
from srtm.text.address import free_addresses
from srtm.text.errors import SrtmError
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
        assert "HTTPS" in up.output
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
        ("ops", "POST", "/v1/topics", 200),
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


def checked(folder: Path, spec: Spec) -> list[str]:
    """What `srtm up --check` says of a file, with its effect."""
    up = Up(read_plan(write_file(folder, spec)), lambda line: None)
    return [f"{each.effect.name}: {each}" for each in up.check()]


def test_a_file_in_which_all_fits_is_right(tmp_path: Path, spec: Spec) -> None:
    assert [each for each in checked(tmp_path, spec) if "ends in" not in each] == []


@pytest.mark.parametrize(
    ("file", "said"),
    [
        pytest.param("broker-1", "it is that of broker-1; give that of broker-2", id="another"),
        pytest.param("eye", "eye has the role read, and agent is needed", id="of-a-reader"),
        pytest.param("gone", "the distributor does not know its holder", id="of-nobody"),
    ],
)
def test_a_token_by_which_a_gateway_does_not_report(
    tmp_path: Path, spec: Spec, file: str, said: str
) -> None:
    (tmp_path / "gone.token").write_text("g" * 32)
    (tmp_path / "gone.token").chmod(0o600)
    spec["broker"][1]["distributor-token-file"] = f"{file}.token"
    path = tmp_path / f"{file}.token"
    [found] = [each for each in checked(tmp_path, spec) if "token" in each]
    assert found.startswith(f"STOPS: distributor-token-file of broker broker-2 {path}: {said}")


def test_a_token_by_which_up_cannot_place(tmp_path: Path, spec: Spec) -> None:
    spec["distributor"]["distributor-token-file"] = "app.token"
    [found] = [each for each in checked(tmp_path, spec) if "token" in each]
    assert "app has the role agent, and operator is needed" in found
    del spec["topic"]
    assert not [each for each in checked(tmp_path, spec) if "token" in each]


def test_a_certificate_that_is_shown_for_another_broker(
    tmp_path: Path, spec: Spec, authority: Authority
) -> None:
    """Without a token the certificate says who calls."""
    (tmp_path / "ops").write_text("o" * 32)
    for number, broker in enumerate(spec["broker"], 1):
        del broker["distributor-token-file"]
        cert, key = authority.issue(f"broker-{number % 2 + 1}", client=True)
        broker |= {"distributor-tls-cert": cert, "distributor-tls-key": key}
    del spec["distributor"]["distributor-token-file"], spec["distributor"]["token-file"]
    del spec["topic"]
    found = [each for each in checked(tmp_path, spec) if "ends in" not in each]
    assert [each.partition(": it is")[0] for each in found] == [
        f"STOPS: distributor-tls-cert of broker broker-{number} {broker['distributor-tls-cert']}"
        for number, broker in enumerate(spec["broker"], 1)
    ]
    assert "it is that of broker-2; give that of broker-1" in found[0]


@pytest.mark.parametrize(
    ("table", "given", "said"),
    [
        pytest.param("broker", {"expired": True}, "FAILS has expired; renew it", id="expired"),
        pytest.param("broker", {"begins_days": 1, "days": 30},
                     "FAILS is not valid yet; set the clock", id="not-yet"),
        pytest.param("broker", {"ip": ["127.0.0.9"]}, "WARNS is not for 127.0.0.1, at which "
                     "clients reach it; renew it; have 127.0.0.1 among", id="another-name"),
        pytest.param("distributor", {"expired": True}, "STOPS has expired; renew it", id="d-old"),
        pytest.param("distributor", {"ip": ["127.0.0.9"]},
                     "STOPS is not for 127.0.0.1, at which clients reach it; renew it; have",
                     id="d-name"),
    ],
)  # fmt: skip
def test_a_certificate_that_nobody_will_take(
    tmp_path: Path,
    spec: Spec,
    authority: Authority,
    table: str,
    given: dict[str, Any],
    said: str,
) -> None:
    cert, key = authority.issue("x", **{"ip": ["127.0.0.1"], **given})
    changed = spec["broker"][0] if table == "broker" else spec["distributor"]
    changed |= {"tls-cert": cert, "tls-key": key}
    effect, _, words = said.partition(" ")
    [found] = [each for each in checked(tmp_path, spec) if cert in each]
    assert found.startswith(f"{effect}: tls-cert of {table}")
    assert words in found


def test_a_root_by_which_the_distributor_is_not_verified(
    tmp_path: Path, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Authority(tmp_path / "other", "another").ca_file
    spec["broker"][1]["distributor-tls-root-ca-file"] = other
    [found] = [each for each in checked(tmp_path, spec) if "chain" in each]
    assert "STOPS: tls-cert of distributor, as broker broker-2 verifies it: " in found
    assert f"does not chain to {other}" in found
    del spec["broker"][1]["distributor-tls-root-ca-file"]
    spec["distributor"]["distributor-tls-root-ca-file"] = other
    for words in (["up"], ["up", "--check"]):
        done = run_srtm(*words, str(write_file(tmp_path, spec)))
        assert done.returncode == 2
        lines = [each for each in done.stderr.splitlines() if "does not chain" in each]
        assert len(lines) == 1
        assert "have it issued by an authority of that file, or change the file" in lines[0]
        assert "is correct" not in done.stdout
    assert not (tmp_path / "d").exists()
    monkeypatch.setattr("srtm.deploy.up.faults_of", lambda *_: [])  # of what files do not tell
    with pytest.raises(SrtmError, match=r"distributor is not reached: .* certificate is not acc"):
        Up(read_plan(write_file(tmp_path, spec)), lambda line: None).run(lambda _: None)


def test_a_distributor_without_tls_is_not_reached_by_it(tmp_path: Path, spec: Spec) -> None:
    table = spec["distributor"]
    for key in ("tls-cert", "tls-key", "tls-root-ca-file", "tls-client-auth-policy"):
        del table[key]
    found = [each for each in checked(tmp_path, spec) if "speaks no TLS" in each]
    assert len(found) == 3
    assert "give [distributor] tls-cert and tls-key, or leave it out" in found[0]


def test_a_distributor_elsewhere_is_asked(tmp_path: Path, spec: Spec, authority: Authority) -> None:
    table = spec["distributor"]
    other = Authority(tmp_path / "other", "another").ca_file
    reach = {key: value for key, value in table.items() if key.startswith("distributor-")}
    with outside(tmp_path, spec) as up:
        up.until("is up")
        tcp, web = map(str, free_addresses(2))
        far: Spec = {
            "deployment": {"data-path": str(tmp_path / "e"), "name": "e"},
            "elsewhere": {
                "brokers": ["broker-1", "broker-2"],
                "distributor-address": table["http-address"],
                **reach,
            },
            "distributor": False,
            "broker": [
                {"name": "broker-2", "tcp-address": tcp, "http-address": web,
                 "distributor-token-file": "broker-2.token"}
            ],
        }  # fmt: skip
        folder = tmp_path / "far"
        folder.mkdir()
        for path in tmp_path.glob("*.token"):
            shutil.copy(path, folder)
        assert not [each for each in checked(folder, far) if "ends in" not in each]
        far["broker"][0]["distributor-token-file"] = "broker-1.token"
        [found] = [each for each in checked(folder, far) if "ends in" not in each]
        assert found.startswith(f"FAILS: broker broker-2: distributor {table['http-address']}: ")
        assert "broker-1 may not speak for broker broker-2" in found
        with outside(folder, far) as second:
            second.until("warning: broker broker-2: distributor ")
            second.until("is up")
        far["broker"][0]["distributor-token-file"] = "broker-2.token"
        far["elsewhere"]["distributor-tls-root-ca-file"] = other
        found, _ = [each for each in checked(folder, far) if "ends in" not in each]
        assert "certificate is not accepted: self-signed" in found
        with outside(folder, far) as second:  # it does not wait until one is accepted
            second.until("starting without the distributor: ")
            second.until("is up")
        assert "certificate is not accepted" in "".join(second.lines)


def test_brokers_go_on_with_a_certificate_that_has_expired(
    tmp_path: Path, spec: Spec, authority: Authority
) -> None:
    """Whoever comes by plain TCP is served; who comes by TLS is not, which is told."""
    cert, key = authority.issue("old", ip=["127.0.0.1"], expired=True)
    spec["broker"][0] |= {"tls-cert": cert, "tls-key": key, "https-address": ""}
    with outside(tmp_path, spec) as up:
        up.until(f"warning: tls-cert of broker broker-1 {cert}; has expired; renew it")
        up.until("is up")


def test_a_network_that_is_safe_already_needs_no_tls(tmp_path: Path, spec: Spec) -> None:
    table = spec["distributor"]
    for key in [each for each in table if "tls-" in each]:
        del table[key]
    table["distributor-tls-root-ca-file"] = "plain-text"
    for broker in spec["broker"]:
        broker["distributor-tls-root-ca-file"] = "plain-text"
    assert checked(tmp_path, spec) == []
    with outside(tmp_path, spec) as up:
        up.until("is up")
