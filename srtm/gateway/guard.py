"""What a client may do that has yet to begin TLS, or to say by AUTH who it is.

While an auth server is asked, the client's commands are held and it is not read; nobody else waits.
An authorization that has ended is asked for again by the next command that needs it, as at nsqd.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from srtm.gateway.auth import AuthError, AuthServers, Question
from srtm.gateway.authorization import (
    ALREADY_SET,
    FAILED,
    NOTHING_ALLOWED,
    UNANSWERED,
    Authorization,
    auth_first,
    not_allowed,
)
from srtm.gateway.run import Run
from srtm.host.clock import monotonic_ns
from srtm.nsq.commands import Auth, Identify, Line, Subscribe
from srtm.nsq.errors import ProtocolError
from srtm.nsq.layers.tls import TlsLayer

_Held = tuple[object, int]
_MOST_HELD = 4096
"""commands of one read; PUBs of one topic that stand together are one"""
_HELD_BYTES = 256
"""of a command beside its messages"""


class Guarded(Protocol):
    """The client."""

    host: str
    tls: TlsLayer | None
    closed: bool

    @property
    def is_secure(self) -> bool:
        """Is its handshake done?"""

    @property
    def has_subscribed(self) -> bool: ...

    def run(self, command: object, stamp: int) -> bool:
        """Run a command that was held. May what came behind it run?"""

    def fail(self, error: ProtocolError) -> None: ...
    def reply(self, content: bytes) -> None: ...
    def pause(self, reason: object) -> None: ...
    def resume(self, reason: object) -> None: ...


class Guard:
    """authorization: what AUTH has brought, for a gateway with auth servers"""

    def __init__(self, client: Guarded, servers: AuthServers | None, requires_tls: bool) -> None:
        self._client = client
        self._servers = servers
        self._requires_tls = requires_tls
        self._secret = b""
        self._held: deque[_Held] | None = None
        self.held_bytes = 0
        """what the held commands take, about"""
        self._leave: Callable[[], None] | None = None
        self.authorization: Authorization | None = None

    def lets(self, command: object, stamp: int) -> bool:
        """May the command run now? Otherwise it is held, or refused and the last one."""
        if self._held is not None:
            self._hold(command, stamp)
            return False
        if isinstance(command, Identify | ProtocolError):
            return True
        client = self._client
        if self._requires_tls and not client.is_secure:
            text = f"cannot {_name(command)} in current state (TLS required)"
            client.fail(ProtocolError("E_INVALID", text))
            return False
        if self._servers is None:
            return True
        if isinstance(command, Auth):
            self._authenticate(command)
            return False
        if isinstance(command, Run | Subscribe):
            return self._is_allowed(command, stamp)
        return True

    def _hold(self, command: object, stamp: int) -> None:
        held = self._held
        assert held is not None
        if isinstance(command, Line) and not self._client.has_subscribed and command.name == b"NOP":
            return  # which says nothing
        if len(held) >= _MOST_HELD:
            text = f"more than {_MOST_HELD} commands behind AUTH"
            self._client.fail(ProtocolError("E_INVALID", text))
            return
        self.held_bytes += _HELD_BYTES + (command.size if isinstance(command, Run) else 0)
        held.append((command, stamp))

    def _is_allowed(self, command: Run | Subscribe, stamp: int) -> bool:
        client, found, now = self._client, self.authorization, monotonic_ns()
        name = _name(command)
        if found is None:
            client.fail(auth_first(name))
        elif found.is_over(now):
            self._ask([(command, stamp)])
        elif isinstance(command, Subscribe):
            if found.may_subscribe(command.topic, command.channel, now):
                return True
            client.fail(not_allowed(name, command.topic, command.channel))
        else:
            if found.may_publish(command.topic, now):
                return True
            client.fail(not_allowed(name, command.topic))
        return False

    def _authenticate(self, command: Auth) -> None:
        client = self._client
        if client.has_subscribed:
            client.fail(ProtocolError("E_INVALID", "cannot AUTH in current state"))
        elif self.authorization is not None:
            client.fail(ALREADY_SET)
        else:
            self._secret = command.body
            self._ask([])

    def _ask(self, held: list[_Held]) -> None:
        """held: the command that needs the answer, where it is not AUTH itself"""
        client = self._client
        assert self._servers is not None
        tls = client.tls
        name = "" if tls is None else tls.common_name
        self._held = deque(held)
        self.held_bytes = 0
        client.pause(self)
        question = Question(self._secret, client.host, tls is not None, name)
        self._leave = self._servers.begin(question, self._answered)

    def _answered(self, answer: Authorization | AuthError) -> None:
        client = self._client
        self._leave = None
        held, self._held = self._held or deque(), None
        if client.closed:
            return
        is_first = self.authorization is None
        if isinstance(answer, AuthError):
            client.fail(FAILED if answer.was_answered else UNANSWERED)
        elif is_first and answer.is_empty:
            client.fail(NOTHING_ALLOWED)
        else:
            self.authorization = answer
            if is_first:
                client.reply(answer.reply())
        while held and client.run(*held.popleft()):
            if self._held is not None:  # it has ended already, and is asked for again
                self._held += held
                return
        if self._held is None:
            self.held_bytes = 0
            client.resume(self)

    def close(self) -> None:
        """The client has gone."""
        self._held = None
        self.held_bytes = 0
        if self._leave is not None:
            self._leave()


def _name(command: object) -> str:
    """The command as errors call it."""
    if isinstance(command, Run):
        return command.verb
    if isinstance(command, Line):
        return command.name.decode()
    return "SUB" if isinstance(command, Subscribe) else "AUTH"
