"""What an auth server lets HTTP clients do, who say who they are by `Authorization: Bearer SECRET`.

nsqd's own HTTP asks nobody. Here /pub needs what PUB needs at the TCP door, and so do calls that
change topics (publish) and channels (subscribe); what only shows something is open to everybody.
"""

from ssl import SSLSocket

from tornado.httputil import HTTPServerRequest

from srtm.gateway.auth import AuthError, Question
from srtm.gateway.authorization import Authorization, not_allowed
from srtm.gateway.http.handler import Handler, HttpError
from srtm.gateway.http.waiting import Full
from srtm.gateway.listening import MAPPED
from srtm.host.clock import monotonic_ns
from srtm.nsq.errors import ProtocolError
from srtm.nsq.layers.tls import common_name
from srtm.nsq.names import is_valid_topic_name

_PLACE = b"/auth"
"""for which requests wait: no topic has such a name"""


async def check_publish(handler: Handler, command: str, topic: str) -> None:
    """May the sender of a request publish? A topic that is no name is refused later; here it only
    matters who asks. Raises HttpError."""
    found = await _authorization(handler)
    name = topic.encode()
    if found is not None and is_valid_topic_name(name):
        _require(found.may_publish(name, monotonic_ns()), not_allowed(command, name))


async def check_subscribe(handler: Handler, topic: str, channel: str) -> None:
    """May the sender of a request subscribe? See `check_publish`."""
    found = await _authorization(handler)
    names = topic.encode(), channel.encode()
    if found is not None and all(map(is_valid_topic_name, names)):
        _require(found.may_subscribe(*names, monotonic_ns()), not_allowed("SUB", *names))


def _require(allowed: bool, refusal: ProtocolError) -> None:
    if not allowed:
        raise HttpError(403, f"FORBIDDEN: {refusal.sentence}")


async def _authorization(handler: Handler) -> Authorization | None:
    """None where everybody may do everything. Raises HttpError."""
    servers = handler.gateway.auth
    if servers is None:
        return None
    question = _question(handler)
    found = servers.known(question)
    if found is not None:
        return found
    if handler.gateway.draining:
        raise HttpError(503, "EXITING")
    try:
        with handler.waiting.place(_PLACE):
            return await servers.ask(question)
    except Full:
        raise HttpError(429, "TOO_MANY_REQUESTS: too many wait for an auth server", 1.0) from None
    except AuthError as error:
        if error.is_refusal:
            raise _unknown(handler, 'Bearer error="invalid_token"') from None
        raise HttpError(503, "AUTH_UNAVAILABLE: no auth server answers", 1.0) from None


def _question(handler: Handler) -> Question:
    """Raises HttpError."""
    request = handler.request
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not secret:
        raise _unknown(handler, "Bearer")
    return Question(
        secret.encode("latin-1", "replace"),
        (request.remote_ip or "").removeprefix(MAPPED),
        request.protocol == "https",
        _common_name(request),
    )


def _common_name(request: HTTPServerRequest) -> str:
    connection = request.connection.stream.socket  # type: ignore[union-attr]
    return common_name(connection) if isinstance(connection, SSLSocket) else ""


def _unknown(handler: Handler, challenge: str) -> HttpError:
    handler.set_header("WWW-Authenticate", challenge)
    return HttpError(401, "UNAUTHORIZED: send Authorization: Bearer with the secret for AUTH")
