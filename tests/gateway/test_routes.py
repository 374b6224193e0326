"""Paths that are meant: the rules of nsqd's router. Side by side with nsqd: test_http.py."""

import pytest

from srtm.gateway.http.routes import Answer, clean, route


@pytest.mark.parametrize(
    ("method", "target", "answer", "elsewhere"),
    [
        pytest.param("POST", "/pub?topic=t", None, "", id="there"),
        pytest.param("POST", "//pub?topic=t", Answer.MOVED, "/pub?topic=t", id="two-slashes"),
        pytest.param("POST", "/Pub/?a=\xe9", Answer.MOVED, "/pub?a=%e9", id="no-ascii"),
        pytest.param("GET", "/pub", Answer.NOT_ALLOWED, "OPTIONS, POST", id="another-method"),
        pytest.param("GET", "/pub/", Answer.NOT_FOUND, "", id="another-method-and-path"),
        pytest.param("OPTIONS", "/ping", Answer.OPTIONS, "GET, OPTIONS", id="options"),
        pytest.param("GET", "/config/x", Answer.NOT_FOUND, "", id="nsqds-alone"),
        pytest.param("GET", "/%zz", Answer.BAD, "", id="a-broken-escape"),
        pytest.param("GET", "ping", Answer.BAD, "", id="no-slash"),
    ],
)
def test_a_target_has_its_answer(
    method: str, target: str, answer: Answer | None, elsewhere: str
) -> None:
    found = route(method, target)
    assert (found.answer, found.elsewhere) == (answer, elsewhere)


@pytest.mark.parametrize(
    ("path", "cleaned"),
    [
        ("/", "/"),
        ("", "/"),
        ("//a", "/a"),
        ("/a/./b/../c/", "/a/c/"),
        ("/..", "/"),
        ("/a/.", "/a/"),
    ],
)
def test_paths_are_cleaned(path: str, cleaned: str) -> None:
    assert clean(path) == cleaned
