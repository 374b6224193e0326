"""The door of a program that serves /ping, /stats and /metrics alone: TLS, and who may ask."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from srtm.bridge.file import BridgeTable
from srtm.consumer.door import open_door
from srtm.consumer.file import ConsumerTable, ControllerTable
from srtm.host.certificates import TlsFiles, client_context
from srtm.http.client import Endpoint, request
from srtm.http.metrics import Text
from srtm.options.door import HttpDoor
from srtm.text.address import Address
from srtm.text.errors import UsageError
from tests.support.certificates import Authority
from tests.support.servers import free_port

TOKEN = "a" * 32


class Told:
    def fault(self) -> str:
        return ""

    def stats(self) -> dict[str, Any]:
        return {"a": 1}

    def metrics(self) -> Text:
        return Text()


@pytest.mark.parametrize("by_tls", [False, True], ids=["plain", "tls"])
def test_with_callers_all_but_the_ping_needs_one(
    tmp_path: Path, authority: Authority, by_tls: bool
) -> None:
    callers = tmp_path / "callers"
    callers.write_text(f"prometheus:read:{hashlib.sha256(TOKEN.encode()).hexdigest()}\n")
    files: dict[str, Any] = {}
    tls = None
    if by_tls:
        cert, key = authority.issue("d", ip=["127.0.0.1"])
        files = {"tls_cert": cert, "tls_key": key}
        tls = client_context(TlsFiles(root_ca=authority.ca_file))
    address = Address("127.0.0.1", free_port())
    door = HttpDoor(http_address=address, token_file=str(callers), **files)
    open_door(door, Told(), "here")
    for token, status in (("", 401), ("b" * 32, 401), (TOKEN, 200)):
        endpoint = Endpoint(str(address), token, tls)
        assert request(endpoint, "GET", "/ping").status == 200
        assert request(endpoint, "GET", "/stats").status == status
        assert request(endpoint, "GET", "/metrics").status == status


def test_without_callers_everybody_may_ask() -> None:
    address = Address("127.0.0.1", free_port())
    open_door(HttpDoor(http_address=address), Told(), "here")
    assert request(str(address), "GET", "/stats").document == {"a": 1}


def test_a_wrong_file_is_one_line() -> None:
    address = Address("127.0.0.1", free_port())
    with pytest.raises(UsageError, match=r"^here: token-file /no: No such file"):
        open_door(HttpDoor(http_address=address, token_file="/no"), Told(), "here")
    with pytest.raises(UsageError, match=r"^here: /no: No such file"):
        open_door(HttpDoor(http_address=address, tls_cert="/no", tls_key="/no"), Told(), "here")


@pytest.mark.parametrize("table", [BridgeTable, ConsumerTable, ControllerTable])
def test_each_table_with_a_door_has_the_same_keys(table: Any) -> None:
    more = {"process": "m:f"} if table is ConsumerTable else {}
    keys = {"token-file": "t", "tls-cert": "c", "tls-key": "k", "tls-min-version": "tls1.3"}
    found = table.model_validate({**more, **keys, "http-address": "127.0.0.1:1"})
    assert found.tls_files == TlsFiles("c", "k", min_version="tls1.3")
    with pytest.raises(ValueError, match="TLS needs both"):
        table.model_validate({**more, "tls-cert": "c"})
    with pytest.raises(ValueError, match='did you mean "tls-cert"'):
        table.model_validate({**more, "tls-certs": "c"})
