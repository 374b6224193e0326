"""JSON as Go writes it."""

import pytest

from srtm.nsq.go_json import dumps


@pytest.mark.parametrize(
    ("document", "text"),
    [
        pytest.param({"depth": 1, "a": [1, 2]}, '{"depth":1,"a":[1,2]}', id="no-spaces"),
        pytest.param("<a>&\u2028", '"\\u003ca\\u003e\\u0026\\u2028"', id="html"),
        pytest.param("\u00e9\u4e16", '"\u00e9\u4e16"', id="letters"),
        pytest.param(None, "null", id="nothing"),
    ],
)
def test_documents(document: object, text: str) -> None:
    assert dumps(document) == text
