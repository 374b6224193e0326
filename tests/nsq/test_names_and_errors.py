"""Names that nsqd accepts, and every error that it can send: as in the source of nsqd 1.3.0."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.nsq.errors import ERRORS, ProtocolError, is_fatal
from srtm.nsq.names import is_ephemeral, is_valid_channel_name, is_valid_topic_name

# --- names: internal/protocol/names.go ----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        pytest.param(b"", False, id="empty"),
        pytest.param(b"a", True, id="one-letter"),
        pytest.param(b".", True, id="a-dot"),
        pytest.param(b"..", True, id="two-dots"),
        pytest.param(b"-_.", True, id="signs-alone"),
        pytest.param(b"Az09._-", True, id="every-kind"),
        pytest.param(b"a" * 64, True, id="64-letters"),
        pytest.param(b"a" * 65, False, id="65-letters"),
        pytest.param(b"a#ephemeral", True, id="ephemeral"),
        pytest.param(b"a" * 54 + b"#ephemeral", True, id="64-with-the-suffix"),
        pytest.param(b"a" * 55 + b"#ephemeral", False, id="65-with-the-suffix"),
        pytest.param(b"#ephemeral", False, id="the-suffix-alone"),
        pytest.param(b"a#ephemeral#ephemeral", False, id="the-suffix-twice"),
        pytest.param(b"a#ephemera", False, id="the-suffix-cut-short"),
        pytest.param(b"a#Ephemeral", False, id="the-suffix-in-capitals"),
        pytest.param(b"a#", False, id="a-hash"),
        pytest.param(b"#ephemeral.a", False, id="the-suffix-first"),
        pytest.param(b"a\n", False, id="a-newline-behind"),
        pytest.param(b"a#ephemeral\n", False, id="a-newline-behind-the-suffix"),
        pytest.param(b"a b", False, id="a-space"),
        pytest.param(b"a\0", False, id="a-zero-byte"),
        pytest.param("ä".encode(), False, id="UTF-8"),
        pytest.param("٣".encode(), False, id="an-Arabic-digit"),
        pytest.param(b"a,b", False, id="a-comma"),
        pytest.param(b"a/b", False, id="a-slash"),
        pytest.param(b"*", False, id="a-star"),
    ],
)
def test_names(name: bytes, valid: bool) -> None:
    assert is_valid_topic_name(name) is valid
    assert is_valid_channel_name(name) is valid


@given(st.one_of(st.binary(max_size=70), st.text("a.#ephemral\n", max_size=70).map(str.encode)))
def test_names_are_those_of_nsqds_expression(name: bytes) -> None:
    theirs = re.search(rb"\A[.a-zA-Z0-9_-]+(#ephemeral)?\Z", name)
    assert is_valid_topic_name(name) is (1 <= len(name) <= 64 and theirs is not None)
    assert is_ephemeral(name) == (name[-10:] == b"#ephemeral")


# --- errors: NewFatalClientErr and NewClientErr in nsqd/protocol_v2.go, and nsqd/tcp.go ---------

SENT_BY_NSQD = {
    "E_INVALID": "fatal",  # Exec, enforceTLSPolicy, and every command's state and parameters
    "E_BAD_PROTOCOL": "fatal",  # tcp.go: no sentence, and the connection is closed
    "E_BAD_TOPIC": "fatal",  # SUB, PUB, MPUB, DPUB
    "E_BAD_CHANNEL": "fatal",  # SUB
    "E_BAD_BODY": "fatal",  # IDENTIFY, AUTH, MPUB
    "E_BAD_MESSAGE": "fatal",  # PUB, MPUB, DPUB
    "E_PUB_FAILED": "fatal",
    "E_MPUB_FAILED": "fatal",
    "E_DPUB_FAILED": "fatal",
    "E_SUB_FAILED": "fatal",
    "E_IDENTIFY_FAILED": "fatal",
    "E_AUTH_DISABLED": "fatal",
    "E_AUTH_FAILED": "fatal",
    "E_AUTH_ERROR": "fatal",
    "E_AUTH_FIRST": "fatal",  # CheckAuth, before PUB, MPUB, DPUB, SUB
    "E_UNAUTHORIZED": "fatal",  # CheckAuth, AUTH
    "E_FIN_FAILED": "the connection goes on",  # NewClientErr
    "E_REQ_FAILED": "the connection goes on",
    "E_TOUCH_FAILED": "the connection goes on",
}


@pytest.mark.parametrize("code", SENT_BY_NSQD)
def test_each_error_of_nsqd_has_its_consequence(code: str) -> None:
    fatal = SENT_BY_NSQD[code] == "fatal"
    assert ERRORS[code].fatal is fatal
    assert ProtocolError(code).fatal is fatal
    assert ProtocolError(code, "FIN 0123456789abcdef failed ID not in flight").fatal is fatal
    assert is_fatal(f"{code} with a sentence") is fatal


def test_no_error_is_known_that_nsqd_does_not_send() -> None:
    assert ERRORS.keys() == SENT_BY_NSQD.keys()


@pytest.mark.parametrize("code", ERRORS)
def test_each_error_says_what_it_means_over_http_as_well(code: str) -> None:
    kind = ERRORS[code]
    assert 400 <= kind.http_status < 600
    assert kind.meaning
    assert not kind.meaning.endswith(".")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("E_NEW something of a later nsqd", id="unknown-code"),
        pytest.param("", id="nothing"),
        pytest.param(" E_FIN_FAILED", id="a-space-before"),
        pytest.param("E_FIN_FAILED: x", id="a-code-that-only-begins-so"),
    ],
)
def test_an_unknown_error_is_taken_as_fatal(text: str) -> None:
    assert is_fatal(text)


def test_an_error_is_its_code_and_sentence() -> None:
    error = ProtocolError("E_BAD_TOPIC", "PUB topic name")
    assert str(error) == "E_BAD_TOPIC PUB topic name"
    assert (error.code, error.sentence) == ("E_BAD_TOPIC", "PUB topic name")
    assert str(ProtocolError("E_BAD_PROTOCOL")) == "E_BAD_PROTOCOL"
    assert error == ProtocolError("E_BAD_TOPIC", "PUB topic name")
    assert len({error, ProtocolError("E_BAD_TOPIC", "PUB topic name")}) == 1
    assert error != ProtocolError("E_BAD_TOPIC")
    assert error != "E_BAD_TOPIC PUB topic name"
