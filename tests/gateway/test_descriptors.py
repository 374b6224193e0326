"""Open files are shared out between the doors."""

import pytest

from srtm.gateway.descriptors import Descriptors, share_out
from srtm.gateway.options import GatewayOptions
from srtm.text.errors import UsageError


def options(**given: int) -> GatewayOptions:
    return GatewayOptions(nsqd_tcp_address="127.0.0.1:1", nsqd_http_address="127.0.0.1:2", **given)


@pytest.mark.parametrize(
    ("limit", "given", "shared"),
    [
        pytest.param(20_096, {}, Descriptors(15_000, 5_000), id="a-quarter-is-for-http"),
        pytest.param(1_000_096, {}, Descriptors(983_616, 16_384), id="at-most-so-many"),
        pytest.param(2_096, {}, Descriptors(1_000, 1_000), id="half-of-a-small-limit"),
        pytest.param(1_096, {"max_connections": 900}, Descriptors(900, 100), id="v2-clients-first"),
        pytest.param(
            20_096, {"max_http_connections": 9}, Descriptors(19_991, 9), id="as-many-as-asked-for"
        ),
    ],
)
def test_both_doors_have_theirs(limit: int, given: dict[str, int], shared: Descriptors) -> None:
    assert share_out(options(**given), limit) == shared


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        pytest.param(
            {"max_connections": 2000}, "--max-connections 2000 needs 2128 open files", id="v2"
        ),
        pytest.param(
            {"max_http_connections": 2000},
            "--max-connections 0 and --max-http-connections 2000 need 2097 open files",
            id="http",
        ),
    ],
)
def test_more_than_there_are_is_told(given: dict[str, int], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        share_out(options(**given), 1_096)
