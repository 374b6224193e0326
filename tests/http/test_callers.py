"""Who may call a server: the file of tokens, client certificates, and a file that changes."""

import hashlib
import logging
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.http.access import Access
from srtm.http.callers import ANYBODY, Caller, Role, holder_of, read_tokens
from srtm.text.errors import UsageError

TOKEN, OTHER = "a" * 32, "b" * 32
LOG = logging.getLogger("test.access")


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def write(path: Path, text: str, mode: int = 0o644) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_name_may_have_two_tokens_and_lines_may_be_comments(tmp_path: Path) -> None:
    text = (
        f"# gateways\n\ngw-1:agent:{digest(TOKEN)}\n  gw-1:agent:{digest(OTHER).upper()}\n"
        f"[::1]:4150:agent:{digest('c')}\nops:operator:{digest('d')}\nprom:read:{digest('e')}\n"
    )
    tokens = read_tokens(write(tmp_path / "callers", text), "--token-file")
    assert tokens.caller(TOKEN) == tokens.caller(OTHER) == Caller("gw-1", Role.AGENT)
    assert tokens.caller("c") == Caller("[::1]:4150", Role.AGENT)
    assert tokens.caller("d") == Caller("ops", Role.OPERATOR)
    assert tokens.caller("e") == Caller("prom", Role.READ)
    assert tokens.caller(digest(TOKEN)) is None
    assert tokens.caller("") is None


@pytest.mark.parametrize("token", [TOKEN, "one:colon-" + TOKEN])
def test_a_file_of_the_older_form_makes_an_operator(tmp_path: Path, token: str) -> None:
    tokens = read_tokens(write(tmp_path / "token", token + "\n", 0o600), "--token-file")
    assert tokens.caller(token) == Caller("token", Role.OPERATOR)
    assert tokens.caller(OTHER) is None


@pytest.mark.parametrize(
    ("text", "mode", "sentence"),
    [
        pytest.param("", 0o600, "no line names a caller", id="empty"),
        pytest.param("# nobody\n", 0o600, "no line names a caller", id="comments-alone"),
        pytest.param(TOKEN, 0o640, "chmod 600", id="a-token-that-others-read"),
        pytest.param("short", 0o600, "16 to 4096", id="a-short-token"),
        pytest.param(f"a:read:{'0' * 63}", 0o600, "line 1: the sha256 of a", id="63-digits"),
        pytest.param(f"a:read:{'g' * 64}", 0o600, "64 hexadecimal", id="no-hexadecimal"),
        pytest.param(f"a:reader:{'0' * 64}", 0o600, "write read, agent, operator", id="no-role"),
        pytest.param(f"a b:read:{'0' * 64}", 0o600, "name:role:sha256", id="no-name"),
        pytest.param(f":read:{'0' * 64}", 0o600, "name:role:sha256", id="an-empty-name"),
        pytest.param(f"a:read:{'0' * 64}\n{TOKEN}", 0o600, "line 2: write name", id="a-bare-token"),
        pytest.param(
            f"a:read:{'0' * 64}\n\nb:read:{'0' * 64}", 0o644, "line 3: .* same sha256", id="twice"
        ),
        pytest.param(
            f"a:read:{'0' * 64}\na:agent:{'1' * 64}", 0o644, "gives a another role", id="two-roles"
        ),
        pytest.param(f"a:read:{'0' * 64}", 0o664, "chmod go-w", id="the-group-may-write"),
        pytest.param("\N{BULLET}" * 30_000, 0o600, "bigger than", id="too-big"),
    ],
)
def test_a_wrong_file_is_one_line_that_shows_no_token(
    tmp_path: Path, text: str, mode: int, sentence: str
) -> None:
    path = write(tmp_path / "callers", text, mode)
    with pytest.raises(UsageError, match=sentence) as caught:
        read_tokens(path, "--token-file")
    assert str(caught.value).startswith(f"--token-file {path}: ")
    for secret in (TOKEN, "0" * 63):
        assert secret not in str(caught.value)


@given(st.text(max_size=200), st.sampled_from([0o600, 0o644]))
def test_any_text_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, text: str, mode: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_text(text, errors="surrogatepass", newline="")
    path.chmod(mode)
    with suppress(UsageError):
        assert read_tokens(str(path), "x").known


NAMED = {"subject": ((("organizationName", "o"),), (("commonName", "gw-1"),))}


@pytest.mark.parametrize(
    ("certificate", "caller"),
    [
        pytest.param(NAMED, Caller("gw-1", Role.AGENT), id="its-common-name"),
        pytest.param({}, None, id="not-verified"),
        pytest.param(None, None, id="no-certificate"),
        pytest.param({"subject": ((("organizationName", "o"),),)}, None, id="no-name"),
        pytest.param({"subject": ((("commonName", "a b"),),)}, None, id="no-name-of-a-broker"),
        pytest.param(
            {"subject": ((("commonName", "a"),), (("commonName", "b"),))}, None, id="two-names"
        ),
    ],
)
def test_a_certificate_names_an_agent(certificate: dict[str, object], caller: Caller) -> None:
    assert holder_of(certificate) == caller


def test_a_token_decides_before_a_certificate(tmp_path: Path) -> None:
    file = write(tmp_path / "callers", f"ops:operator:{digest(TOKEN)}")
    access = Access(file, "--token-file", LOG)
    assert access.caller(f"Bearer {TOKEN}", NAMED) == Caller("ops", Role.OPERATOR)
    assert access.caller(f"Bearer {TOKEN}x", NAMED) is None
    assert access.caller(f"Basic {TOKEN}", NAMED) is None
    assert access.caller("Bearer \udcff", None) is None
    assert access.caller(None, NAMED) == Caller("gw-1", Role.AGENT)
    assert access.caller(None, None) is None
    by_certificate = Access("", "--token-file", LOG, require_peer=True)
    assert by_certificate.caller("Bearer x", NAMED) == Caller("gw-1", Role.AGENT)
    assert by_certificate.caller(None, None) is None
    assert access.has_operator
    assert not by_certificate.has_operator
    assert Access("", "--token-file", LOG).caller(None, NAMED) == ANYBODY


def test_a_file_is_followed_and_a_wrong_one_leaves_the_callers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "callers"
    access = Access(write(path, f"a:read:{digest(TOKEN)}"), "--token-file", LOG)
    for wrong in ("a:read:12", "", "a:read:12"):
        write(path, wrong)
        access.look()
        access.look()
        assert access.caller(f"Bearer {TOKEN}", None) == Caller("a", Role.READ)
    path.unlink()
    access.look()
    assert access.caller(f"Bearer {TOKEN}", None)
    assert len(caplog.records) == 4
    new = tmp_path / "new"
    write(new, f"a:read:{digest(OTHER)}")
    path.symlink_to(new)
    access.look()
    assert access.caller(f"Bearer {OTHER}", None) == Caller("a", Role.READ)
    assert access.caller(f"Bearer {TOKEN}", None) is None
    assert TOKEN not in caplog.text


def test_strangers_are_counted_each_and_told_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    access = Access("", "--token-file", LOG, seconds=lambda: now)
    for _ in range(1000):
        access._count_stranger("192.0.2.7")
    assert (access.strangers, len(caplog.records)) == (1000, 1)
    now = 60.0
    access._count_stranger("192.0.2.8")
    assert caplog.messages[1] == "1000 requests with a wrong token or none, the last from 192.0.2.8"
