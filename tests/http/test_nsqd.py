"""What an nsqd may answer instead of /stats."""

import ssl

import pytest

from srtm.http.client import Answer, Endpoint
from srtm.http.nsqd import NsqdDoor, https_port
from srtm.text.errors import UnavailableError, UsageError


@pytest.mark.parametrize(
    ("status", "body", "port"),
    [
        pytest.param(403, b'{"message": "TLS_REQUIRED", "https_port": 4152}', 4152, id="nsqd"),
        pytest.param(403, b'{"message": "TLS_REQUIRED", "https_port": 0}', 0, id="no-https"),
        pytest.param(403, b'{"message": "TLS_REQUIRED", "https_port": -1}', 0, id="a-socket"),
        pytest.param(403, b'{"message": "TLS_REQUIRED", "https_port": 65536}', 0, id="no-port"),
        pytest.param(403, b'{"message": "TLS_REQUIRED", "https_port": true}', 0, id="a-boolean"),
        pytest.param(403, b'{"message": "TLS_REQUIRED", "https_port": "1"}', 0, id="a-text"),
        pytest.param(403, b'{"message": "TLS_REQUIRED"}', 0, id="nothing-of-a-port"),
        pytest.param(403, b'{"message": "FORBIDDEN", "https_port": 4152}', None, id="forbidden"),
        pytest.param(403, b"[]", None, id="another-document"),
        pytest.param(403, b"TLS_REQUIRED", None, id="no-document"),
        pytest.param(200, b'{"message": "TLS_REQUIRED", "https_port": 1}', None, id="no-refusal"),
    ],
)
def test_only_a_closed_door_leads_to_another(status: int, body: bytes, port: int | None) -> None:
    assert https_port(Answer(status, body)) == port


def test_without_tls_no_https_address_is_read_in_plain_text() -> None:
    with pytest.raises(UsageError, match="is a URL"):
        _ = NsqdDoor("https://h:1").endpoint.expected_name


def test_a_remedy_that_always_holds_is_said() -> None:
    with pytest.raises(UnavailableError, match=r"h:1 answers .*, at port 2: start it with --tls-"):
        NsqdDoor("h:1").https(2)


def test_an_https_door_may_say_the_same() -> None:
    """Whatever it is, it ends no thread that reads it."""
    tls = ssl.create_default_context()
    assert NsqdDoor("https://h:1", tls, "b1").https(2) == Endpoint("h:2", "", tls, "b1")
