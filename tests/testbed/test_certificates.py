"""A testbed's authority, and the certificates of its hosts."""

import datetime
import ssl
import stat
from pathlib import Path

import pytest

from srtm.certs.certificate import read_shown
from srtm.deploy.host_tables import HostTable
from srtm.host.certificates import TlsFiles, client_context, server_context
from srtm.testbed.certificates import RENEW_DAYS, VALID_DAYS, make, put
from srtm.testbed.local import LocalHost
from srtm.text.errors import SrtmError
from tests.support.certificates import handshake

NOW = datetime.datetime.now(datetime.UTC)
H1 = HostTable(name="h1", address="198.18.0.11")
H2 = HostTable(name="h2", kind="ssh", address="two.example.org")


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def test_each_host_has_one_for_what_the_others_call_it(tmp_path: Path) -> None:
    folder = tmp_path / "pki"
    make(folder, [H1, H2], NOW)
    names = {"ca.pem", "ca.key", "h1.pem", "h1.key", "h2.pem", "h2.key"}
    assert contents(folder).keys() == names
    client = client_context(TlsFiles(root_ca=f"{folder}/ca.pem"))
    for host, called in (("h1", "198.18.0.11"), ("h1", "127.0.0.1"), ("h2", "two.example.org")):
        files = TlsFiles(f"{folder}/{host}.pem", f"{folder}/{host}.key")
        handshake(server_context(files), client, called)
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(server_context(files), client, "three.example.org")


@pytest.mark.parametrize(
    ("days", "again"),
    [
        pytest.param(VALID_DAYS - RENEW_DAYS - 1, set(), id="nothing-changes"),
        pytest.param(
            VALID_DAYS - RENEW_DAYS + 1,
            {"h1.pem", "h1.key", "h2.pem", "h2.key"},
            id="they-end-soon",
        ),
    ],
)
def test_what_is_there_stays_until_it_ends_soon(
    tmp_path: Path, days: float, again: set[str]
) -> None:
    make(tmp_path, [H1, H2], NOW)
    before = contents(tmp_path)
    make(tmp_path, [H1, H2], NOW + datetime.timedelta(days=days))
    after = contents(tmp_path)
    assert {name for name in after if after[name] != before[name]} == again


@pytest.mark.parametrize("lost", ["h1.pem", "h1.key"])
def test_one_that_was_lost_or_is_for_another_address_is_made_anew(
    tmp_path: Path, lost: str
) -> None:
    make(tmp_path, [H1, H2], NOW)
    before = contents(tmp_path)
    (tmp_path / lost).unlink()
    moved = H2.model_copy(update={"address": "198.18.0.99"})
    make(tmp_path, [H1, moved], NOW)
    after = contents(tmp_path)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"h1.pem", "h1.key", "h2.pem", "h2.key"}
    assert "IP:198.18.0.99" in read_shown(tmp_path / "h2.pem", NOW)[0].names


def test_a_host_gets_its_own_key_and_never_that_of_the_authority(tmp_path: Path) -> None:
    folder, own = tmp_path / "pki", tmp_path / "h1" / "testbed"
    make(folder, [H1, H2], NOW)
    put(folder, LocalHost(H1), str(own))
    assert contents(own) == {
        "ca.pem": (folder / "ca.pem").read_bytes(),
        "host.pem": (folder / "h1.pem").read_bytes(),
        "host.key": (folder / "h1.key").read_bytes(),
    }
    assert stat.S_IMODE((own / "host.key").stat().st_mode) == 0o600
    with pytest.raises(SrtmError, match=r"none/ca\.pem: No such file"):
        put(tmp_path / "none", LocalHost(H1), str(own))
