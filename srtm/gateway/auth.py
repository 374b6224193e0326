"""Auth servers are asked what a client may do, as nsqd asks them, while the messages go on.

Few are asked at once, and one address of clients has no more than half of that: who floods the
gateway with wrong secrets makes others wait little. A question that is under way is asked once.
"""

import asyncio
import hashlib
import logging
import random
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Self
from urllib.parse import urlencode
from weakref import WeakValueDictionary

from srtm.gateway.auth_server import AuthServer
from srtm.gateway.authorization import (
    MAX_ANSWER_BYTES,
    Answer,
    Authorization,
    BadAnswer,
    NoRoom,
    read_answer,
)
from srtm.gateway.reactor import Reactor
from srtm.host.certificates import TlsFiles, client_context
from srtm.host.clock import monotonic_ns
from srtm.host.seldom import Seldom
from srtm.http.client import Endpoint, call
from srtm.text.errors import UnavailableError

MAX_SECRET_BYTES = 16 * 1024
"""a token with many claims has a few KiB; HTTP servers take 8 to 64 KiB of a request line"""
_ASKED = 8
"""at once: each costs a millisecond of the loop's time"""
_OF_ONE_ADDRESS = _ASKED // 2
_PATIENCE_SECONDS = 30.0
"""until a question has its turn; go-nsq waits 60 s for an answer to AUTH"""
_MOST_KEPT, _MOST_KEPT_RULES = 4096, 100_000
"""answers that are kept for HTTP, of 8 KiB each, and the authorizations in them, of 200 bytes"""
_TOLD_SECONDS = 1.0
"""between two lines of the log about clients that were refused"""
_FORM = "application/x-www-form-urlencoded"

log = logging.getLogger("srtm.gateway")


class AuthError(Exception):
    """The client gets no authorization. Its text is for the log: a client is not told why.

    is_refusal:   an auth server said no; otherwise none has given a good answer
    was_answered: one has answered, be it with what is no answer
    """

    def __init__(self, why: str, is_refusal: bool, was_answered: bool = False) -> None:
        super().__init__(why)
        self.is_refusal = is_refusal
        self.was_answered = is_refusal or was_answered


Done = Callable[[Authorization | AuthError], None]


@dataclass(frozen=True, slots=True)
class Question:
    """What is a client allowed? Its own address, without a port; the common name is that of its
    certificate."""

    secret: bytes = field(repr=False)
    remote_ip: str
    tls: bool = False
    common_name: str = ""

    def form(self) -> str:
        """The question in nsqd's own words."""
        return urlencode(
            {
                "common_name": self.common_name,
                "remote_ip": self.remote_ip,
                "secret": self.secret,
                "tls": str(self.tls).lower(),
            }
        )

    def digest(self) -> bytes:
        """The question for a memory that need not hold secrets."""
        return hashlib.sha256(self.form().encode()).digest()


@dataclass(slots=True, eq=False)
class _Asked:
    """A question that is under way, and who waits for the answer."""

    question: Question
    task: asyncio.Task[None]
    waiting: dict[object, Done] = field(default_factory=dict)


class AuthServers:
    """All of them: which is asked is left to chance, and so is the order of the others, until one
    gives a good answer."""

    def __init__(
        self, texts: tuple[str, ...], method: Literal["get", "post"], reactor: Reactor
    ) -> None:
        """Raises ValueError."""
        servers = [AuthServer(text) for text in texts]
        verified = client_context(TlsFiles()) if any(each.is_https for each in servers) else None
        self._servers = [
            (Endpoint(str(each.address), tls=verified if each.is_https else None), each.path)
            for each in servers
        ]
        self._method = method
        self._reactor = reactor
        self._under_way: dict[Question, _Asked] = {}
        self._turns = asyncio.Semaphore(_ASKED)
        self._turns_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._kept: OrderedDict[bytes, Authorization] = OrderedDict()
        self._kept_rules = 0
        self._reading = asyncio.Lock()  # one answer at a time, part by part
        self._lines = Seldom(_TOLD_SECONDS)

    @classmethod
    def of(
        cls, texts: tuple[str, ...], method: Literal["get", "post"], reactor: Reactor
    ) -> Self | None:
        """None without addresses: nobody needs AUTH then."""
        return cls(texts, method, reactor) if texts else None

    def begin(self, question: Question, done: Done) -> Callable[[], None]:
        """Ask, and call `done` later; until then, what is returned makes nobody wait any more."""
        asked = self._under_way.get(question)
        if asked is None:
            loop = asyncio.get_running_loop()
            asked = _Asked(question, loop.create_task(self._answer(question)))
            self._under_way[question] = asked
            self._reactor.let_asyncio_run()
        who = object()
        asked.waiting[who] = done
        return partial(self._leave, asked, who)

    def _leave(self, asked: _Asked, who: object) -> None:
        """One waits no longer; without anybody nobody is asked."""
        if asked.waiting.pop(who, None) is not None and not asked.waiting:
            self._forget(asked)
            asked.task.cancel()

    def _forget(self, asked: _Asked) -> None:
        if self._under_way.get(asked.question) is asked:
            del self._under_way[asked.question]

    def known(self, question: Question) -> Authorization | None:
        """The last answer to `ask`, where it has not ended."""
        key = question.digest()
        found = self._kept.get(key)
        if found is None or found.is_over(monotonic_ns()):
            return None
        self._kept.move_to_end(key)
        return found

    async def ask(self, question: Question) -> Authorization:
        """The answer, which is kept until it ends: HTTP asks anew for each request. Raises
        AuthError."""
        answered: asyncio.Future[Authorization | AuthError]
        answered = asyncio.get_running_loop().create_future()

        def done(answer: Authorization | AuthError) -> None:
            if not answered.done():
                answered.set_result(answer)

        leave = self.begin(question, done)
        try:
            found = await answered
        finally:
            leave()
        if isinstance(found, AuthError):
            raise AuthError(str(found), found.is_refusal, found.was_answered)
        self._keep(question.digest(), found)
        return found

    def _keep(self, key: bytes, found: Authorization) -> None:
        """In place of what is kept for the same question, and of what was not used longest."""
        before = self._kept.pop(key, None)
        self._kept_rules += found.permissions - (0 if before is None else before.permissions)
        self._kept[key] = found
        while len(self._kept) > _MOST_KEPT or self._kept_rules > _MOST_KEPT_RULES:
            self._kept_rules -= self._kept.popitem(last=False)[1].permissions

    def give_up(self) -> None:
        """Whoever waits is told that there is no answer: the gateway ends."""
        for asked in list(self._under_way.values()):
            self._forget(asked)
            asked.task.cancel()
            self._tell_all(asked, AuthError("the gateway ends", is_refusal=False))

    # --- one question -------------------------------------------------------------------------

    async def _answer(self, question: Question) -> None:
        asked = self._under_way[question]
        answer: Authorization | AuthError
        try:
            answer = await self._in_turn(question)
        except Exception as error:
            self._reactor.fault(error, "an auth server could not be asked")
            answer = AuthError("a fault of the gateway", is_refusal=False)
        finally:
            self._forget(asked)
        if isinstance(answer, AuthError):
            self._log(question, answer)
        self._tell_all(asked, answer)

    def _tell_all(self, asked: _Asked, answer: Authorization | AuthError) -> None:
        for who, done in list(asked.waiting.items()):
            if asked.waiting.pop(who, None) is None:
                continue  # one of the others made it leave
            try:
                done(answer)
            except Exception as error:
                self._reactor.fault(error, "a client could not go on after AUTH")
        self._reactor.soon()

    async def _in_turn(self, question: Question) -> Authorization | AuthError:
        """An error is returned and not raised: who keeps an exception that he caught keeps himself,
        until garbage is collected, which the gateway does rarely."""
        if not 0 < len(question.secret) <= MAX_SECRET_BYTES:
            return AuthError(f"a secret of {len(question.secret)} bytes", is_refusal=True)
        own = self._turns_of.get(question.remote_ip)
        if own is None:
            own = self._turns_of[question.remote_ip] = asyncio.Semaphore(_OF_ONE_ADDRESS)
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS) as patience:
                async with own, self._turns:
                    patience.reschedule(None)
                    return await self._ask_any(question)
        except TimeoutError:
            why = f"too many clients at once: it had no turn within {_PATIENCE_SECONDS:g} s"
            return AuthError(why, is_refusal=False)

    async def _ask_any(self, question: Question) -> Authorization | AuthError:
        reasons: list[str] = []
        is_refusal = was_answered = False
        for endpoint, path in random.sample(self._servers, len(self._servers)):
            try:
                return await self._ask(endpoint, path, question)
            except UnavailableError as error:
                reasons.append(str(error))
            except BadAnswer as error:
                was_answered = True
                reasons.append(f"{endpoint.address}: {path} gave a bad answer: {error}")
            except NoRoom as error:
                return AuthError(str(error), is_refusal=False, was_answered=True)
            except AuthError as error:
                is_refusal = True
                reasons.append(str(error))
        return AuthError("; ".join(reasons), is_refusal, was_answered)

    async def _ask(self, endpoint: Endpoint, path: str, question: Question) -> Authorization:
        form = question.form()
        if self._method == "post":
            found = await call(
                endpoint,
                "POST",
                path,
                form.encode(),
                max_bytes=MAX_ANSWER_BYTES,
                content_type=_FORM,
            )
        else:
            found = await call(endpoint, "GET", f"{path}?{form}", max_bytes=MAX_ANSWER_BYTES)
        now = monotonic_ns()
        if found.status != 200:
            # What it says of that is not told: it may repeat the secret.
            why = f"{found.where} answered {found.status}"
            if 400 <= found.status < 500:
                raise AuthError(why, is_refusal=True)
            raise UnavailableError(why)
        async with self._reading:
            try:
                return Authorization(await _read(found.body), now)
            except NoRoom:  # unless what is kept for HTTP clients makes some
                self._kept.clear()
                self._kept_rules = 0
            return Authorization(await _read(found.body), now)

    def _log(self, question: Question, error: AuthError) -> None:
        """Log who is refused and why, though not everybody of a flood."""
        count = self._lines.count()
        if count:
            more = f"; {count - 1} others before it are not told of" if count > 1 else ""
            log.warning("AUTH of a client at %s failed: %s%s", question.remote_ip, error, more)


async def _read(body: bytes) -> Answer:
    """Part by part, while messages go on. Raises BadAnswer, NoRoom."""
    answer = None
    for answer in read_answer(body):
        if answer is None:
            await asyncio.sleep(0)
    assert answer is not None
    return answer
