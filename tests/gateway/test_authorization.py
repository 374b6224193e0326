"""What an auth server allows: the same as at a real nsqd that asks the same auth server."""

import gc
import json
from collections.abc import Iterator
from typing import Any

import pytest

from srtm.gateway.authorization import (
    ALREADY_SET,
    FAILED,
    NOTHING_ALLOWED,
    Answer,
    Authorization,
    BadAnswer,
    NoRoom,
    Rules,
    auth_first,
    not_allowed,
    read_answer,
)
from srtm.host.clock import NS
from srtm.nsq.commands import auth, message, mpub, pub, sub
from tests.support.auth_server import AuthServerProcess, allowing, auth_server
from tests.support.servers import Nsqd, Servers
from tests.support.v2 import V2

BATCH = mpub(b"ab", [message(b"x")], 1)
RULE: dict[str, Any] = {"topic": "a", "channels": [".*"], "permissions": ["publish", "subscribe"]}

BODIES: dict[str, bytes] = {
    name: body if isinstance(body, bytes) else json.dumps(body).encode()
    for name, body in {
        "all-that-is-asked-for": {"ttl": 9, "authorizations": [RULE], "identity": "a<é>"},
        "nothing-allowed": {"ttl": 9, "authorizations": []},
        "no-list-at-all": {"ttl": 9},
        "null-for-a-list": {"ttl": 9, "authorizations": None},
        "keys-in-capitals": {"TTL": 9, "Authorizations": [{k.upper(): v for k, v in RULE.items()}]},
        "more-keys": {"ttl": 9, "authorizations": [{**RULE, "x": 1}], "x": {"y": []}},
        "several-rules": {
            "ttl": 9,
            "authorizations": [{**RULE, "permissions": ["publish"]}, {**RULE, "topic": "b"}],
        },
        "no-topic-is-any-topic": {"ttl": 9, "authorizations": [{**RULE, "topic": None}]},
        "no-channels": {"ttl": 9, "authorizations": [{**RULE, "channels": None}]},
        "null-for-a-rule": {"ttl": 9, "authorizations": [None]},
        "null-for-a-channel": {"ttl": 9, "authorizations": [{**RULE, "channels": [None]}]},
        "null-for-a-permission": {"ttl": 9, "authorizations": [{**RULE, "permissions": [None]}]},
        "a-channel-that-is-not-empty": {"ttl": 9, "authorizations": [{**RULE, "channels": ["."]}]},
        "a-channel-or-none": {"ttl": 9, "authorizations": [{**RULE, "channels": ["x", "^c?$"]}]},
        "only-to-publish": {"ttl": 9, "authorizations": [{**RULE, "permissions": ["publish"]}]},
        "only-to-subscribe": {"ttl": 9, "authorizations": [{**RULE, "permissions": ["subscribe"]}]},
        "no-permission": {"ttl": 9, "authorizations": [{**RULE, "permissions": []}]},
        "an-unknown-permission": {"ttl": 9, "authorizations": [{**RULE, "permissions": ["admin"]}]},
        "permissions-in-capitals": {
            "ttl": 9,
            "authorizations": [{**RULE, "permissions": ["Publish"]}],
        },
        "a-pattern-within-the-name": {"ttl": 9, "authorizations": [{**RULE, "topic": "b"}]},
        "a-pattern-of-the-whole-name": {"ttl": 9, "authorizations": [{**RULE, "topic": "^ab$"}]},
        "a-pattern-of-another-name": {"ttl": 9, "authorizations": [{**RULE, "topic": "^b$"}]},
        "a-pattern-that-ignores-case": {"ttl": 9, "authorizations": [{**RULE, "topic": "(?i)^AB"}]},
        "an-end-that-is-quoted": {"ttl": 9, "authorizations": [{**RULE, "topic": "\\Qab"}]},
        "a-bad-topic": {"ttl": 9, "authorizations": [{**RULE, "topic": "("}]},
        "a-bad-topic-without-permission": {
            "ttl": 9,
            "authorizations": [RULE, {"topic": "(", "permissions": []}],
        },
        "a-bad-channel": {"ttl": 9, "authorizations": [{**RULE, "channels": [".*", "[a"]}]},
        "look-ahead-is-not-of-go": {"ttl": 9, "authorizations": [{**RULE, "topic": "a(?=b)"}]},
        "back-references-neither": {"ttl": 9, "authorizations": [{**RULE, "topic": "(a)\\1"}]},
        "too-many-repeats": {"ttl": 9, "authorizations": [{**RULE, "topic": "a{1001}"}]},
        "two-groups-of-one-name": {
            "ttl": 9,
            "authorizations": [RULE, *({**RULE, "topic": "(?P<n>b)"} for _ in range(2))],
        },
        "half-a-letter-of-utf16": {"ttl": 9, "authorizations": [{**RULE, "topic": "\ud800|a"}]},
        "ttl-0": {"ttl": 0, "authorizations": [RULE]},
        "ttl-negative": {"ttl": -1, "authorizations": [RULE]},
        "no-ttl": {"authorizations": [RULE]},
        "ttl-as-text": {"ttl": "9", "authorizations": [RULE]},
        "ttl-with-a-point": {"ttl": 9.0, "authorizations": [RULE]},
        "ttl-true": {"ttl": True, "authorizations": [RULE]},
        "ttl-of-65-bits": {"ttl": 1 << 64, "authorizations": [RULE]},
        "a-rule-that-is-text": {"ttl": 9, "authorizations": ["publish"]},
        "rules-in-an-object": {"ttl": 9, "authorizations": {"a": RULE}},
        "a-channel-that-is-a-number": {"ttl": 9, "authorizations": [{**RULE, "channels": [1]}]},
        "a-topic-that-is-a-list": {"ttl": 9, "authorizations": [{**RULE, "topic": ["a"]}]},
        "an-identity-that-is-a-number": {"ttl": 9, "authorizations": [RULE], "identity": 7},
        "a-list": [RULE],
        "null": None,
        "nothing": b"",
        "no-json": b"<html>403",
        "two-documents": b'{"ttl": 9} {"ttl": 9}',
        "nan": b'{"ttl": NaN}',
        "no-utf8": b'{"ttl": 9, "identity": "\xff", "authorizations": [{"topic": "\xff|a", '
        b'"channels": [""], "permissions": ["publish"]}]}',
    }.items()
}


def read(body: bytes) -> Answer:
    *_, answer = read_answer(body)
    assert answer is not None
    return answer


@pytest.fixture(scope="module")
def server() -> Iterator[AuthServerProcess]:
    with auth_server() as server:
        yield server


@pytest.fixture(scope="module")
def nsqd(shared: Servers, server: AuthServerProcess) -> Nsqd:
    return shared.nsqd(f"--auth-http-address={server.address}")


def ours(body: bytes, command: bytes) -> bytes | None:
    """What a client hears that sends AUTH, and then the command."""
    try:
        found = Authorization(read(body), 0)
    except BadAnswer:
        return str(FAILED).encode()
    if found.is_empty:
        return str(NOTHING_ALLOWED).encode()
    name = command.split(b" ")[0].decode()
    allowed = found.may_subscribe(b"ab", b"c", 0) if name == "SUB" else found.may_publish(b"ab", 0)
    refusal = not_allowed(name, b"ab", b"c" if name == "SUB" else b"")
    return found.reply() + b" then " + (b"OK" if allowed else str(refusal).encode())


@pytest.mark.parametrize("command", [pub(b"ab", b"x"), sub(b"ab", b"c")], ids=["PUB", "SUB"])
@pytest.mark.parametrize("name", BODIES)
def test_a_client_hears_what_nsqd_says(
    server: AuthServerProcess, nsqd: Nsqd, name: str, command: bytes
) -> None:
    body = server.answers["s"] = BODIES[name]
    with V2(nsqd.tcp) as client:
        client.send(auth(b"s") + command)
        heard = client.reply() or b""
        if heard.startswith(b"{"):
            heard += b" then " + (client.reply() or b"")
    assert ours(body, command) == heard


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        pytest.param(pub(b"ab", b"x"), auth_first("PUB"), id="a-publish-without-auth"),
        pytest.param(BATCH, auth_first("MPUB"), id="a-batch-without-auth"),
        pytest.param(sub(b"ab", b"c"), auth_first("SUB"), id="a-consumer-without-auth"),
        pytest.param(auth(b"wrong"), FAILED, id="a-wrong-secret"),
        pytest.param(auth(b"right") * 2, ALREADY_SET, id="auth-twice"),
        pytest.param(auth(b"none"), NOTHING_ALLOWED, id="nothing-allowed"),
        pytest.param(
            auth(b"other") + BATCH, not_allowed("MPUB", b"ab"), id="not-allowed"
        ),
        pytest.param(
            auth(b"other") + sub(b"ab", b"c"), not_allowed("SUB", b"ab", b"c"), id="no-sub"
        ),
    ],
)  # fmt: skip
def test_the_errors_are_those_of_nsqd(
    server: AuthServerProcess, nsqd: Nsqd, sent: bytes, error: Exception
) -> None:
    server.answers = {
        "right": allowing("publish", "subscribe", topic="^ab$"),
        "other": allowing("publish", "subscribe", topic="^b$"),
        "none": {"ttl": 9, "authorizations": []},
    }
    with V2(nsqd.tcp) as client:
        client.send(sent)
        heard = client.reply()
        while heard is not None and heard.startswith(b"{"):
            heard = client.reply()
    assert heard == str(error).encode()


def test_it_is_over_when_its_time_has_passed_and_then_allows_nothing() -> None:
    found = Authorization(read(json.dumps(allowing("publish", "subscribe", ttl=2)).encode()), 5)
    assert not found.is_over(5 + 2 * NS)
    assert found.may_publish(b"t", 5 + 2 * NS)
    assert found.may_subscribe(b"t", b"c", 5 + 2 * NS)
    assert found.is_over(6 + 2 * NS)
    assert not found.may_publish(b"t", 6 + 2 * NS)
    assert not found.may_subscribe(b"t", b"c", 6 + 2 * NS)


def test_each_of_thousands_of_rules_counts_and_they_are_taken_in_in_parts() -> None:
    many = [{**RULE, "topic": f"^t{number}$"} for number in range(2000)]
    parts = list(read_answer(json.dumps({"ttl": 9, "authorizations": many}).encode()))
    answer = parts[-1]
    assert answer is not None
    assert len(parts) > 2000 // 16
    rules = answer.rules
    assert rules.may_publish(b"t0")
    assert rules.may_publish(b"t1999")
    assert not rules.may_publish(b"t2000")
    assert rules.may_subscribe(b"t77", b"c")
    assert not rules.may_subscribe(b"t77x", b"c")


def test_patterns_that_are_too_big_together_are_matched_apart() -> None:
    many = [{**RULE, "topic": f"^\\pL{{1,4}}{number}$"} for number in range(70)]
    rules = read(json.dumps({"ttl": 9, "authorizations": many}).encode()).rules
    found = [name for name in range(100) if rules.may_publish(b"abc%d" % name)]
    assert found == list(range(70))
    with pytest.raises(BadAnswer, match="pattern 1 is too big"):
        read(json.dumps(allowing("publish", topic="(\\pL{1,30}x){8}")).encode())


def test_a_rule_has_its_own_channels() -> None:
    two = [
        {**RULE, "topic": "^a$", "channels": ["^x$"]},
        {**RULE, "topic": "^b$", "channels": ["^y$"]},
    ]
    rules = read(json.dumps({"ttl": 9, "authorizations": two}).encode()).rules
    allowed = [(t, c) for t in (b"a", b"b") for c in (b"x", b"y") if rules.may_subscribe(t, c)]
    assert allowed == [(b"a", b"x"), (b"b", b"y")]


def test_what_is_remembered_of_topics_is_bounded() -> None:
    rules = read(json.dumps(allowing("publish", topic="^a")).encode()).rules
    for number in range(3000):
        assert rules.may_publish(b"a%d" % number)
        assert not rules.may_publish(b"b%d" % number)
    assert len(rules._checked) <= 1024


def test_clients_with_the_same_rules_share_them() -> None:
    one = allowing("publish", topic="shared")
    other = {**one, "identity": "another", "ttl": 1}
    kept = [read(json.dumps(each).encode()).rules for each in (one, other)]
    assert kept[0] is kept[1]


def test_the_answers_in_use_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    before = Rules.held_bytes
    monkeypatch.setattr("srtm.gateway.authorization.MOST_BYTES", before + 200_000)

    def body(client: int) -> bytes:
        rules = [{**RULE, "topic": f"^{client}-{number}$"} for number in range(20)]
        return json.dumps({"ttl": 9, "authorizations": rules}).encode()

    kept = [read(body(number)) for number in range(4)]
    with pytest.raises(NoRoom, match="which is the most: give clients equal answers"):
        read(body(4))
    read(body(0))  # which is shared
    for number in range(1000):
        kept[0].rules.may_publish(b"t%d" % number)
    assert kept[0].rules.may_publish(b"0-19")
    assert Rules.held_bytes <= before + 201_000
    del kept[0]
    kept.append(read(body(5)))
    kept.clear()
    assert Rules.held_bytes == before


@pytest.mark.parametrize(
    "rule",
    [{**RULE, "topic": "(secret"}, {**RULE, "permissions": ["secret"]}, {"channels": ["[secret"]}],
)
def test_why_an_answer_is_bad_quotes_nothing_of_it(rule: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer) as raised:
        read(json.dumps({"ttl": 9, "authorizations": [rule]}).encode())
    assert "secret" not in str(raised.value)
