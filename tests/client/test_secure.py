"""Clients of ours at a gateway that requires TLS, a certificate and AUTH."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from srtm.client import NotSent, Publisher, Refused, features
from srtm.nsq.blocking import Blocking
from srtm.nsq.commands import pub, rdy, sub
from srtm.text.errors import UnavailableError, UsageError
from tests.support.auth_server import allowing, auth_server
from tests.support.certificates import Authority
from tests.support.guarded import SECRET, Guarded, guarded_gateway
from tests.support.servers import GatewayProcess, Servers


@pytest.fixture(scope="module")
def guarded(shared: Servers, authority: Authority) -> Iterator[Guarded]:
    with guarded_gateway(shared, authority) as found:
        yield found


@pytest.fixture(scope="module")
def gateway(guarded: Guarded) -> GatewayProcess:
    return guarded.gateway


@pytest.fixture(scope="module")
def options(guarded: Guarded) -> dict[str, Any]:
    """What a client is given."""
    return guarded.options


PACKING: dict[str, dict[str, Any]] = {
    "not-packed": {},
    "snappy": {"snappy": True},
    "deflate": {"deflate": True, "deflate_level": 3},
}


@pytest.mark.parametrize("packing", [pytest.param(each, id=name) for name, each in PACKING.items()])
def test_a_publisher_and_a_blocking_consumer(
    gateway: GatewayProcess, options: dict[str, Any], packing: dict[str, Any]
) -> None:
    asked = features(**options, **packing)
    bodies = [b"%d" % number for number in range(200)] + [bytes(1 << 20)]
    topic = "-".join(["t", *packing])

    async def publish() -> None:
        async with Publisher(topic, nsqd=gateway.tcp, features=asked) as publisher:
            await asyncio.gather(*[await publisher.send(body) for body in bodies])

    asyncio.run(asyncio.wait_for(publish(), 30))
    with Blocking(gateway.tcp, {}, features=asked).identify() as link:
        link.ask(sub(topic.encode(), b"ch"))
        link.write(rdy(500))
        came: list[bytes] = []
        while len(came) < len(bodies):
            came += [message.body for message in link.messages()]
    assert sorted(came) == sorted(bodies)


@pytest.mark.parametrize(
    ("left_out", "why"),
    [
        pytest.param(
            ("tls_v1", "tls_root_ca_file", "tls_cert", "tls_key", "auth_secret_file"),
            "cannot PUB in current state (TLS required)",
            id="tls",
        ),
        pytest.param(("auth_secret_file",), "requires AUTH, and no secret is given", id="secret"),
        pytest.param(("tls_root_ca_file",), "certificate is not accepted", id="authority"),
    ],
)
def test_what_is_not_given_is_named(
    gateway: GatewayProcess, options: dict[str, Any], left_out: tuple[str, ...], why: str
) -> None:
    given = {name: value for name, value in options.items() if name not in left_out}
    with (
        pytest.raises(UnavailableError, match=why.replace("(", r"\(").replace(")", r"\)")),
        Blocking(gateway.tcp, {}, 20, features(**given)).identify() as link,
    ):
        link.ask(pub(b"t", b"x"))


def test_no_tls_where_it_is_asked_for_is_no_reason_to_go_on_in_clear_text(
    servers: Servers, options: dict[str, Any]
) -> None:
    nsqd = servers.nsqd()

    async def publish() -> None:
        async with Publisher(
            "t", nsqd=nsqd.tcp, features=features(**options), place_timeout=0.5
        ) as publisher:
            await publisher.publish(b"secret")

    with pytest.raises(NotSent, match="no TLS"):
        asyncio.run(asyncio.wait_for(publish(), 30))
    assert nsqd.topic("t") is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param("another-secret", "E_AUTH_FAILED AUTH failed$", id="a-wrong-secret"),
        pytest.param("no-secret", "requires AUTH, and no secret is given", id="no-secret"),
        pytest.param("no-authority", "certificate is not accepted", id="an-unknown-authority"),
    ],
)
@pytest.mark.parametrize("is_closed", [False, True], ids=["waits", "closed"])
def test_why_a_message_was_not_sent_is_told(
    gateway: GatewayProcess,
    options: dict[str, Any],
    tmp_path: Path,
    change: str,
    why: str,
    is_closed: bool,
) -> None:
    other = tmp_path / "secret"
    other.write_text("of-nobody")
    other.chmod(0o600)
    given = {
        "another-secret": options | {"auth_secret_file": str(other)},
        "no-secret": options | {"auth_secret_file": ""},
        "no-authority": options | {"tls_root_ca_file": ""},
    }[change]

    async def publish() -> None:
        publisher = Publisher(
            "t",
            nsqd=gateway.tcp,
            features=features(**given),
            place_timeout=60 if is_closed else 3.0,
            close_seconds=0.5,
        )
        async with publisher:
            sent = await publisher.send(b"x")
            if not is_closed:
                await sent
        await sent

    with pytest.raises(NotSent, match=why):
        asyncio.run(asyncio.wait_for(publish(), 30))


@pytest.mark.parametrize(
    ("is_down", "said"),
    [
        pytest.param(False, "E_AUTH_FAILED AUTH failed", id="revoked"),
        pytest.param(True, "E_AUTH_FAILED AUTH failed: no auth server answers", id="server-down"),
    ],
)
def test_a_publisher_that_is_let_in_no_more_waits_for_place_timeout(
    servers: Servers, options: dict[str, Any], is_down: bool, said: str
) -> None:
    asked = features(auth_secret_file=options["auth_secret_file"])
    with auth_server() as auth:
        auth.answers[SECRET] = allowing("publish", ttl=1)
        gateway = servers.gateway(f"--auth-http-address={auth.address}")

        async def without_end(publisher: Publisher) -> None:
            while True:
                await publisher.publish(b"x")

        async def publish() -> None:
            async with Publisher(
                "t", nsqd=gateway.tcp, features=asked, place_timeout=1
            ) as publisher:
                await publisher.publish(b"x")
                if is_down:
                    auth.stop()
                else:
                    auth.answers.clear()
                with pytest.raises(Refused, match=f"^{said}$"):
                    await without_end(publisher)
                with pytest.raises(NotSent, match=f"{said}$"):
                    await publisher.publish(b"x")

        asyncio.run(asyncio.wait_for(publish(), 60))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"snappy": True, "deflate": True}, "exclude each other"),
        ({"tls_cert": "x"}, "tls-cert and tls-key go together"),
        ({"tls_root_ca_file": "x"}, "no effect without tls-v1"),
        ({"tls_v1": True, "tls_root_ca_file": "/no/such/file"}, "/no/such/file: No such file"),
        ({"deflate": True, "deflate_level": 10}, "deflate_level"),
        ({"tls": True}, "there is no such option"),
        ({"auth_secret_file": "/no/such/file"}, "No such file"),
    ],
)
def test_options_that_do_not_fit_are_told_in_one_line(options: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        features(**options)
    assert "\n" not in str(caught.value)
