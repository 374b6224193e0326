"""AUTH at the TCP door: the answers are those of an nsqd before the same auth server, and nobody
waits for somebody else's."""

import ssl
from collections.abc import Iterator

import pytest

from srtm.nsq.commands import auth, identify, message, mpub, pub, sub
from tests.support.auth_server import AuthServerProcess, allowing, auth_server
from tests.support.certificates import Authority
from tests.support.secure import SecureV2
from tests.support.servers import GatewayProcess, Nsqd, Servers, http, wait_for
from tests.support.v2 import V2

ALL = allowing("publish", "subscribe")


@pytest.fixture(scope="module")
def asked() -> Iterator[AuthServerProcess]:
    with auth_server() as server:
        server.answers = {
            "all": ALL,
            "publisher": allowing("publish", topic="^allowed$"),
            "subscriber": allowing("subscribe", channels=("^mine$",)),
            "publisher-of-one-channel": allowing("publish", channels=("^c$",)),
            "nothing": {"ttl": 60, "authorizations": []},
            "ttl-0": {**ALL, "ttl": 0},
            "unknown-permission": allowing("publish", "delete"),
            "bad-pattern": allowing("publish", topic="("),
            "nonsense": b"<html>",
        }
        yield server


@pytest.fixture(scope="module")
def nsqd(shared: Servers, asked: AuthServerProcess) -> Nsqd:
    return shared.nsqd(f"--auth-http-address={asked.address}")


@pytest.fixture(scope="module")
def gateway(shared: Servers, asked: AuthServerProcess) -> GatewayProcess:
    return shared.gateway(f"--auth-http-address={asked.address}", "--auth-http-request-method=post")


DIALOGUES = {
    "pub-before-auth": [pub(b"t", b"x")],
    "mpub-before-auth": [mpub(b"t", [message(b"x")], 1)],
    "dpub-before-auth": [b"DPUB t 1\n" + message(b"x")],
    "sub-before-auth": [sub(b"t", b"c")],
    "nop-needs-none": [b"NOP\n", auth(b"all")],
    "all": [auth(b"all"), pub(b"t", b"x"), mpub(b"t", [message(b"x")], 1), sub(b"t", b"c")],
    "twice": [auth(b"all"), auth(b"all")],
    "not-known": [auth(b"wrong")],
    "after-sub": [auth(b"all"), sub(b"t", b"c"), auth(b"all")],
    "allowed": [auth(b"publisher"), pub(b"allowed", b"x")],
    "another-topic": [auth(b"publisher"), pub(b"other", b"x")],
    "mpub-to-another-topic": [auth(b"publisher"), mpub(b"other", [message(b"x")], 1)],
    "dpub-to-another-topic": [auth(b"publisher"), b"DPUB other 5\n" + message(b"x")],
    "publisher-subscribes": [auth(b"publisher"), sub(b"allowed", b"c")],
    "its-channel": [auth(b"subscriber"), sub(b"any", b"mine")],
    "another-channel": [auth(b"subscriber"), sub(b"any", b"other")],
    "subscriber-publishes": [auth(b"subscriber"), pub(b"any", b"x")],
    "publish-needs-the-empty-channel": [auth(b"publisher-of-one-channel"), pub(b"any", b"x")],
    "nothing": [auth(b"nothing")],
    "ttl-0": [auth(b"ttl-0")],
    "unknown-permission": [auth(b"unknown-permission")],
    "bad-pattern": [auth(b"bad-pattern")],
    "nonsense": [auth(b"nonsense")],
    "parameters": [b"AUTH x\n" + message(b"all")],
    "no-secret": [b"AUTH\n\0\0\0\0"],
}  # fmt: skip


def answers(address: str, commands: list[bytes]) -> list[bytes | None]:
    with V2(address) as client:
        found = [client.identify(feature_negotiation=True)["auth_required"]]
        for command in commands:
            client.send(command)
            if command != b"NOP\n":
                found.append(client.reply())
        client.send(b"CLS\n")
        found += [client.reply(), client.ended() if found[-1] is None else None]
        return found


@pytest.mark.parametrize(
    "commands", [pytest.param(each, id=name) for name, each in DIALOGUES.items()]
)
def test_the_answers_are_nsqds(gateway: GatewayProcess, nsqd: Nsqd, commands: list[bytes]) -> None:
    assert answers(gateway.tcp, commands) == answers(nsqd.tcp, commands)


def test_the_auth_server_is_told_of_the_client_itself(
    gateway: GatewayProcess, asked: AuthServerProcess
) -> None:
    with V2(gateway.tcp) as client:
        client.send(auth(b"all") + pub(b"t", b"x"))
        assert client.reply() is not None
        client.oks(1)
        [entry] = [
            each
            for each in http(gateway.http, "/stats?format=json")[1]["producers"]
            if each["remote_address"].endswith(f":{client.socket.getsockname()[1]}")
        ]
    assert asked.asked[-1] == {
        "method": "POST",
        "path": "/auth",
        "common_name": "",
        "remote_ip": "127.0.0.1",
        "secret": "all",
        "tls": "false",
    }
    assert (entry["authed"], entry["auth_identity"]) == (True, "somebody")


def test_commands_wait_behind_auth_in_their_order_and_nobody_else_does(
    gateway: GatewayProcess, asked: AuthServerProcess
) -> None:
    with V2(gateway.tcp) as early, V2(gateway.tcp) as late:
        early.send(auth(b"all"))
        early.reply()
        asked.may_answer.clear()
        late.send(auth(b"publisher") + pub(b"allowed", b"1") * 3 + pub(b"other", b"2"))
        early.send(pub(b"t", b"x"))
        early.oks(1)
        asked.may_answer.set()
        assert b"permission_count" in (late.reply() or b"")
        late.oks(3)
        assert late.reply() == b'E_UNAUTHORIZED AUTH failed for PUB on "other" ""'
        assert late.ended()


def test_a_client_that_leaves_is_asked_for_no_more(
    gateway: GatewayProcess, asked: AuthServerProcess
) -> None:
    asked.may_answer.clear()
    clients = [V2(gateway.tcp) for _ in range(20)]
    for number, client in enumerate(clients):
        client.send(auth(b"secret-%d" % number) + pub(b"left", b"x"))
    for client in clients:
        client.reset()
    asked.may_answer.set()
    with V2(gateway.tcp) as other:
        other.send(auth(b"all") + pub(b"t", b"x"))
        assert b"permission_count" in (other.reply() or b"")
        other.oks(1)
    assert gateway.nsqd.topic("left") is None


def test_who_has_ended_is_asked_for_again_and_fails_closed(servers: Servers) -> None:
    with auth_server() as asked:
        asked.answers["short"] = allowing("publish", topic="^t$", ttl=1)
        gateway = servers.gateway(f"--auth-http-address={asked.address}")
        with V2(gateway.tcp) as client:
            client.send(auth(b"short"))
            assert b"permission_count" in (client.reply() or b"")

            def is_asked_again() -> bool:
                client.send(pub(b"t", b"x"))
                client.oks(1)
                return len(asked.asked) > 1

            wait_for(is_asked_again, "its second has passed")
            asked.answers.clear()

            def is_refused() -> bool:
                client.send(pub(b"t", b"x"))
                return client.reply() == b"E_AUTH_FAILED AUTH failed"

            wait_for(is_refused, "it is known no more")
            assert client.ended()
        assert "short" not in gateway.process.text()


def test_tls_and_the_certificates_name_are_told(
    servers: Servers, authority: Authority, asked: AuthServerProcess
) -> None:
    cert, key = authority.issue("localhost", dns=["localhost"])
    gateway = servers.gateway(
        f"--tls-cert={cert}",
        f"--tls-key={key}",
        f"--tls-root-ca-file={authority.ca_file}",
        "--https-address=",
        f"--auth-http-address={asked.address}",
    )
    context = ssl.create_default_context(cafile=authority.ca_file)
    context.load_cert_chain(*authority.issue("sensor-7", client=True))
    with SecureV2(gateway.tcp, context) as client:
        client.send(auth(b"all") + pub(b"t", b"x"))
        assert b"permission_count" in (client.reply() or b"")
        client.oks(1)
        [entry] = http(gateway.http, "/stats?format=json")[1]["producers"]
    told = asked.asked[-1]
    assert (told["method"], told["tls"], told["common_name"]) == ("GET", "true", "sensor-7")
    assert entry["tls"] is True
    assert entry["tls_version"] == "TLS1.3"
    assert entry["tls_cipher_suite"].startswith("TLS_")
    assert entry["tls_negotiated_protocol_is_mutual"] is True


def test_what_a_client_sent_behind_auth_does_not_run_once_it_has_gone(
    gateway: GatewayProcess, asked: AuthServerProcess
) -> None:
    """Its replies fail while its held commands run: that is no permission."""
    asked.may_answer.clear()
    quiet = identify(b'{"heartbeat_interval": -1}')
    clients = [V2(gateway.tcp) for _ in range(10)]
    for client in clients:
        client.send(quiet + auth(b"publisher") + quiet * 3 + pub(b"forbidden", b"x") * 3)
        client.send(sub(b"forbidden", b"c"))
        client.close()
    asked.may_answer.set()
    with V2(gateway.tcp) as other:
        other.send(auth(b"all") + pub(b"t", b"x"))
        assert b"permission_count" in (other.reply() or b"")
        other.oks(1)
    wait_for(lambda: gateway.metric("srtm_connections") == 0, "all have gone")
    assert gateway.nsqd.topic("forbidden") is None
    assert gateway.metric("srtm_faults_total") == 0


@pytest.mark.parametrize("feature", ["snappy", "deflate"])
def test_what_stands_in_clear_behind_auth_and_identify_never_runs(
    gateway: GatewayProcess, feature: str
) -> None:
    asks = identify(b'{"feature_negotiation": true, "%b": true}' % feature.encode())
    with V2(gateway.tcp) as client:
        client.send(auth(b"all") + asks + pub(b"injected", b"x") + asks)
        agreed = b'"%b":true' % feature.encode()
        came = b""
        while agreed not in came:
            came += client.socket.recv(65_536)
        assert came.count(agreed) == 1
    assert gateway.nsqd.topic("injected") is None


def test_commands_without_end_behind_auth_are_refused(
    gateway: GatewayProcess, asked: AuthServerProcess
) -> None:
    asked.may_answer.clear()
    with V2(gateway.tcp) as client:
        client.send(auth(b"all") + b"NOP\n" * 5_000 + b"RDY 1\n" * 7_000)
        reply = client.reply()
        asked.may_answer.set()
        assert reply == b"E_INVALID more than 4096 commands behind AUTH"
        assert client.ended()
