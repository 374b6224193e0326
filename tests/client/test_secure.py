"""Clients of ours at a gateway that requires TLS, a certificate and AUTH."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from srtm.client import NotSent, Publisher, features
from srtm.nsq.blocking import Blocking
from srtm.nsq.commands import pub, rdy, sub
from srtm.text.errors import UnavailableError, UsageError
from tests.support.certificates import Authority
from tests.support.guarded import Guarded, guarded_gateway
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
