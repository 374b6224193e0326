"""What an auth server allows a client, read and judged as nsqd 1.3.0 does it. No I/O.

The patterns are Go's regular expressions, which are RE2's: they match anywhere in a name. `publish`
needs a channel pattern that matches the empty channel, because that is what nsqd asks for.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple
from weakref import WeakValueDictionary

import re2

from srtm.host.clock import NS
from srtm.nsq.errors import ProtocolError
from srtm.nsq.go_json import dumps

MAX_ANSWER_BYTES = 256 * 1024
"""some 3,000 authorizations, whose JSON is read in 4 ms; who needs more writes one pattern"""
_TOGETHER = 16
"""patterns that are compiled at once, and matched at once: 0.2 ms, and then 5 us a name"""
_PATTERN_BYTES = 1 << 20
"""of RE2, for those that are together; with repetitions of repetitions it finds after 7 ms that it
needs more. Go takes bigger ones."""
_MOST_CHECKED = 1024
"""topics of which is remembered whether they may be published to"""
MOST_BYTES = 512 * 1024 * 1024
"""of all answers in use that differ, about: 10,000 of some patterns, or 80 of 256 KiB"""
_RULES_BYTES, _PATTERN_BYTES_HELD, _CHECKED_BYTES = 12_000, 1_500, 250
"""of an answer, of a pattern and of a checked topic, as measured. Patterns with many repetitions
take more, at most 64 KiB."""
_MOST_TTL = (1 << 63) - 1  # Go's int
_HALF = re.compile("[\ud800-\udfff]")  # Go's decoder reads U+FFFD for each, and for no UTF-8

FAILED = ProtocolError("E_AUTH_FAILED", "AUTH failed")
"""An auth server said no, or something that is no answer; the log says which."""
UNANSWERED = ProtocolError("E_AUTH_FAILED", "AUTH failed: no auth server answers")
"""Where nsqd leaves out the reason: whose secret is right need not look for another."""
NOTHING_ALLOWED = ProtocolError("E_UNAUTHORIZED", "AUTH no authorizations found")
ALREADY_SET = ProtocolError("E_INVALID", "AUTH already set")
DISABLED = ProtocolError("E_AUTH_DISABLED", "AUTH disabled")


def auth_first(command: str) -> ProtocolError:
    return ProtocolError("E_AUTH_FIRST", f"AUTH required before {command}")


def not_allowed(command: str, topic: bytes, channel: bytes = b"") -> ProtocolError:
    where = f'"{topic.decode()}" "{channel.decode()}"'
    return ProtocolError("E_UNAUTHORIZED", f"AUTH failed for {command} on {where}")


_OPTIONS = re2.Options()
_OPTIONS.log_errors = False  # RE2 would write them to stderr
_OPTIONS.max_mem = _PATTERN_BYTES


class BadAnswer(Exception):
    """An answer that allows nothing, because nsqd would not take it. It quotes nothing of it: the
    secret may be in there."""


class NoRoom(Exception):
    """The answers in use leave no room for one that differs from them."""


class _Patterns:
    """A list of patterns: which of them match a text."""

    __slots__ = ("_sets",)

    def __init__(self) -> None:
        self._sets: list[tuple[int, re2.Set]] = []  # each with the number of its first

    def compile(self, patterns: Sequence[str]) -> Iterator[None]:
        """Take the patterns in, with a pause after each part. Raises BadAnswer."""
        for start in range(0, len(patterns), _TOGETHER):
            yield from self._compile(patterns[start : start + _TOGETHER], start)

    def _compile(self, patterns: Sequence[str], start: int) -> Iterator[None]:
        found = re2.Set.SearchSet(_OPTIONS)
        for number, pattern in enumerate(patterns, start + 1):
            try:
                found.Add(pattern)
            except re2.error:
                raise BadAnswer(f"pattern {number} is no regular expression of RE2") from None
        try:
            found.Compile()
        except re2.error:
            half = len(patterns) // 2
            if not half:
                raise BadAnswer(f"pattern {start + 1} is too big") from None
            yield
            yield from self._compile(patterns[:half], start)
            yield from self._compile(patterns[half:], start + half)
        else:
            self._sets.append((start, found))
            yield

    def matches(self, text: bytes) -> Iterator[int]:
        """The numbers of those that match."""
        for start, found in self._sets:
            for index in found.Match(text) or ():
                yield start + index

    def match_any(self, text: bytes) -> bool:
        return any(found.Match(text) for _, found in self._sets)


class _Rule(NamedTuple):
    """One authorization, but for the pattern of its topics."""

    publish: bool
    subscribe: bool
    channels: _Patterns


class Rules:
    """The authorizations of an answer. Clients with the same ones share them.

    held_bytes: of all together, about
    """

    __slots__ = ("__weakref__", "_bytes", "_checked", "_rules", "_topics")
    held_bytes: ClassVar[int] = 0

    def __init__(self) -> None:
        self._bytes = 0
        self._hold(_RULES_BYTES)
        self._topics = _Patterns()  # of each of `_rules`
        self._rules: list[_Rule] = []
        self._checked: dict[bytes, bool] = {}

    def __len__(self) -> int:
        return len(self._rules)

    def _hold(self, more_bytes: int) -> None:
        self._bytes += more_bytes
        Rules.held_bytes += more_bytes

    def __del__(self) -> None:
        self._hold(-self._bytes)

    def take_in(self, authorizations: list[Any]) -> Iterator[None]:
        """Take the authorizations in, with a pause after each part. Raises BadAnswer, NoRoom."""
        topics: list[str] = []
        shared: dict[tuple[str, ...], _Patterns] = {}
        for number, authorization in enumerate(authorizations):
            if number % _TOGETHER == 0:
                yield
            document = _lowered(authorization)
            topics.append(_text(document, "topic"))
            allowed = set(_texts(document, "permissions"))
            if allowed - {"publish", "subscribe"}:
                raise BadAnswer("a permission is neither publish nor subscribe")
            named = tuple(dict.fromkeys(_texts(document, "channels")))
            channels = shared.get(named)
            self._hold(_PATTERN_BYTES_HELD * (1 if channels else 1 + len(named)))
            if Rules.held_bytes > MOST_BYTES:
                raise NoRoom(
                    f"authorizations of different clients take {MOST_BYTES >> 20} MiB, which is "
                    "the most: give clients equal answers, or fewer and wider patterns"
                )
            if channels is None:
                channels = shared[named] = _Patterns()
                yield from channels.compile(named)
            publish = "publish" in allowed and channels.match_any(b"")
            self._rules.append(_Rule(publish, "subscribe" in allowed, channels))
        yield from self._topics.compile(topics)

    def may_publish(self, topic: bytes) -> bool:
        allowed = self._checked.get(topic)
        if allowed is None:
            if len(self._checked) >= _MOST_CHECKED or Rules.held_bytes > MOST_BYTES:
                self._hold(-len(self._checked) * _CHECKED_BYTES)
                self._checked.clear()
            self._hold(_CHECKED_BYTES)
            matching = map(self._rules.__getitem__, self._topics.matches(topic))
            allowed = self._checked[topic] = any(rule.publish for rule in matching)
        return allowed

    def may_subscribe(self, topic: bytes, channel: bytes) -> bool:
        matching = map(self._rules.__getitem__, self._topics.matches(topic))
        named = {rule.channels for rule in matching if rule.subscribe}
        return any(channels.match_any(channel) for channels in named)


_in_use: WeakValueDictionary[bytes, Rules] = WeakValueDictionary()
"""rules by a digest of theirs, as long as a client has them"""


class Answer(NamedTuple):
    """ttl_seconds: how long it may be used, from its arrival on"""

    ttl_seconds: int
    identity: str
    identity_url: str
    rules: Rules


def read_answer(body: bytes) -> Iterator[Answer | None]:
    """None after each part of the work, as thousands of patterns take their time, and at last the
    answer. Raises BadAnswer, NoRoom."""
    document = _lowered(_parsed(body))
    ttl = document.get("ttl")
    if type(ttl) is not int or not 0 < ttl <= _MOST_TTL:
        raise BadAnswer("its ttl is no whole number of seconds above 0")
    identity, identity_url = _text(document, "identity"), _text(document, "identity_url")
    authorizations = _list(document, "authorizations")
    yield None
    digest = hashlib.sha256(json.dumps(authorizations).encode()).digest()
    rules = _in_use.get(digest)
    if rules is None:
        rules = Rules()
        yield from rules.take_in(authorizations)
        rules = _in_use.setdefault(digest, rules)
    yield Answer(ttl, identity, identity_url, rules)


class Authorization:
    """What one client may do, and until when.

    expires_at: monotonic ns; later it allows nothing, and the auth server is asked again
    """

    __slots__ = ("_rules", "expires_at", "identity", "identity_url")

    def __init__(self, answer: Answer, now_ns: int) -> None:
        """now_ns: when the answer came"""
        self._rules = answer.rules
        self.identity = answer.identity
        self.identity_url = answer.identity_url
        self.expires_at = now_ns + answer.ttl_seconds * NS

    def is_over(self, now_ns: int) -> bool:
        return now_ns > self.expires_at

    def may_publish(self, topic: bytes, now_ns: int) -> bool:
        return now_ns <= self.expires_at and self._rules.may_publish(topic)

    def may_subscribe(self, topic: bytes, channel: bytes, now_ns: int) -> bool:
        return now_ns <= self.expires_at and self._rules.may_subscribe(topic, channel)

    @property
    def permissions(self) -> int:
        """How many authorizations it has."""
        return len(self._rules)

    @property
    def is_empty(self) -> bool:
        """Is there no authorization in the answer? AUTH is then refused, by `NOTHING_ALLOWED`."""
        return not self.permissions

    def reply(self) -> bytes:
        """The answer to AUTH."""
        return dumps(
            {
                "identity": self.identity,
                "identity_url": self.identity_url,
                "permission_count": self.permissions,
            }
        ).encode()


# --- JSON as Go's decoder reads it ----------------------------------------------------------------


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body.decode(errors="surrogateescape"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise BadAnswer("it is no JSON") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _lowered(document: Any) -> dict[str, Any]:
    """Go's decoder ignores case, and takes null for an object without fields."""
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise BadAnswer("there is no JSON object where one must be")
    return {key.lower(): value for key, value in document.items()}


def _text(document: dict[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str | None):
        raise BadAnswer(f"{name} is no text")
    return _HALF.sub("\ufffd", value or "")


def _list(document: dict[str, Any], name: str) -> list[Any]:
    value = document.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadAnswer(f"{name} is no list")
    return value


def _texts(document: dict[str, Any], name: str) -> Iterable[str]:
    for value in _list(document, name):
        if not isinstance(value, str | None):
            raise BadAnswer(f"{name} holds what is no text")
        yield _HALF.sub("\ufffd", value or "")
