"""`srtm certs`: an authority and what it issues, tried by OpenSSL, and one line for each slip."""

import datetime
import json
import os
import ssl
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import example, given
from hypothesis import strategies as st

from srtm.certs.authority import create
from srtm.certs.certificate import read_shown
from srtm.cli.main import cli
from srtm.host.certificates import TlsFiles, client_context, server_context
from srtm.text.errors import SrtmError, UsageError
from tests.support.certificates import Authority, handshake
from tests.support.small_disk import fill, small_disk


def certs(*words: str | Path) -> Result:
    """What a command prints; raises what it ends with."""
    result = CliRunner().invoke(cli, ["certs", *map(str, words)])
    if isinstance(result.exception, SrtmError):
        raise result.exception
    return result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An authority's."""
    made = tmp_path / "pki"
    assert certs("init", made).exit_code == 0
    return made


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_an_authority_is_for_its_owner_alone(folder: Path) -> None:
    assert mode(folder) == 0o700
    assert (mode(folder / "ca.key"), mode(folder / "ca.pem")) == (0o600, 0o644)
    assert sorted(each.name for each in folder.iterdir()) == ["ca.key", "ca.pem"]
    [shown] = json.loads(certs("show", folder / "ca.pem", "--json").output)
    assert shown["subject"] == shown["issuer"]
    assert shown["subject"].startswith("CN=SRTM authority ")
    assert (shown["key"], shown["authority"]) == ("EC secp256r1", True)
    assert shown["days_left"] == 3650.0


@pytest.mark.parametrize("left", ["ca.pem", "ca.key"])
def test_an_authority_is_never_overwritten(folder: Path, left: str) -> None:
    (folder / "ca.pem").rename(folder / "moved.pem")
    (folder / "ca.key").rename(folder / "moved.key")
    (folder / left).symlink_to("nowhere")
    with pytest.raises(UsageError, match=f"{left} is there already; remove it, or choose another"):
        certs("init", folder)
    assert os.readlink(folder / left) == "nowhere"


def test_two_authorities_have_two_names(tmp_path: Path) -> None:
    for name in ("a", "b"):
        certs("init", tmp_path / name)
    shown = json.loads(certs("show", tmp_path / "a/ca.pem", tmp_path / "b/ca.pem", "--json").output)
    assert shown[0]["subject"] != shown[1]["subject"]


@pytest.mark.parametrize("name", ["b1", "127.0.0.1", "localhost", "x.example.org"])
def test_a_certificate_works_for_a_server_and_a_client(folder: Path, name: str) -> None:
    said = certs(
        "issue", folder, "b1", "--ip", "127.0.0.1", "--dns", "localhost", "--dns", "*.example.org"
    ).output
    assert said == (
        f"{folder}/b1.pem: for b1, localhost, *.example.org, 127.0.0.1; 90 days\n"
        f"{folder}/b1.key: its key\n"
    )
    assert (mode(folder / "b1.key"), mode(folder / "b1.pem")) == (0o600, 0o644)
    files = (f"{folder}/b1.pem", f"{folder}/b1.key", f"{folder}/ca.pem")
    door = server_context(TlsFiles(*files, require_peer=True))
    client = client_context(TlsFiles(*files))
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python 3.13 does by itself
    handshake(door, client, name)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(door, client, "b2")


def test_it_is_not_for_this_host_unless_that_is_asked(folder: Path) -> None:
    certs("issue", folder, "b1", "--days", "7")
    [shown] = json.loads(certs("show", folder / "b1.pem", "--json").output)
    assert (shown["names"], shown["subject"], shown["days_left"]) == (["DNS:b1"], "CN=b1", 7.0)


def test_a_certificate_is_replaced_only_by_force(folder: Path) -> None:
    certs("issue", folder, "b1")
    files = [folder / "b1.pem", folder / "b1.key"]
    before = [each.read_bytes() for each in files]
    with pytest.raises(UsageError, match=r"b1\.pem is there already; replace it with --force"):
        certs("issue", folder, "b1")
    assert [each.read_bytes() for each in files] == before
    certs("issue", folder, "b1", "--force")
    after = [each.read_bytes() for each in files]
    assert all(new != old for new, old in zip(after, before, strict=True))
    server_context(TlsFiles(str(files[0]), str(files[1])))


def test_a_key_alone_is_not_overwritten_either(folder: Path) -> None:
    (folder / "b1.key").write_text("mine")
    with pytest.raises(UsageError, match=r"b1\.key is there already"):
        certs("issue", folder, "b1")
    assert (folder / "b1.key").read_text() == "mine"


def _ed25519(folder: Path) -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "ca.key").write_bytes(pem)


def _of_a_server(folder: Path) -> None:
    certs("issue", folder, "b0")
    (folder / "b0.pem").replace(folder / "ca.pem")
    (folder / "b0.key").replace(folder / "ca.key")


SPOILT = {
    "no-authority": (
        lambda folder: (folder / "ca.pem").unlink(),
        "{0}/ca.pem: there is no authority; make one: srtm certs init {0}",
    ),
    "no-key": (lambda folder: (folder / "ca.key").unlink(), "{0}/ca.key: No such file"),
    "half-a-certificate": (
        lambda folder: (folder / "ca.pem").write_bytes((folder / "ca.pem").read_bytes()[:99]),
        "{0}/ca.pem: a certificate in it cannot be read; is the file whole?",
    ),
    "half-a-key": (
        lambda folder: (folder / "ca.key").write_bytes((folder / "ca.key").read_bytes()[:99]),
        "{0}/ca.key: holds no private key in PEM",
    ),
    "a-pipe": (
        lambda folder: ((folder / "ca.key").unlink(), os.mkfifo(folder / "ca.key")),
        "{0}/ca.key: it is a pipe or a device, and no file",
    ),
    "a-key-of-another-kind": (_ed25519, "{0}/ca.key: is neither an EC nor an RSA key"),
    "a-server's": (_of_a_server, "{0}/ca.pem: is the certificate of no authority; see srtm certs"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_an_authority_that_does_not_work_issues_nothing(folder: Path, case: str) -> None:
    spoil, line = SPOILT[case]
    spoil(folder)
    with pytest.raises(UsageError) as caught:
        certs("issue", folder, "b1")
    assert str(caught.value).startswith(line.format(folder))
    assert not list(folder.glob("*b1*"))


def test_the_key_of_another_authority(folder: Path, tmp_path: Path) -> None:
    certs("init", tmp_path / "other")
    (tmp_path / "other/ca.key").replace(folder / "ca.key")
    with pytest.raises(UsageError, match=r"ca.key: is not the key of the certificate"):
        certs("issue", folder, "b1")


def test_the_key_of_an_authority_with_a_password(folder: Path, authority: Authority) -> None:
    _, key = authority.issue("locked", password=b"x")
    (folder / "ca.key").write_bytes(Path(key).read_bytes())
    with pytest.raises(UsageError, match=r"ca.key: the key has a password; take one without"):
        certs("issue", folder, "b1")


@pytest.mark.parametrize(
    ("years", "said"), [(9.9, "ends in 36 days"), (11, "ends within a day or has ended")]
)
def test_no_certificate_outlives_its_authority(tmp_path: Path, years: float, said: str) -> None:
    create(tmp_path, datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=365 * years))
    with pytest.raises(UsageError, match=f"ca.pem: the authority {said}, before this certificate"):
        certs("issue", tmp_path, "b1")


def test_a_full_disk_leaves_the_old_files(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        pki = disk / "pki"
        certs("init", pki)
        certs("issue", pki, "b1")
        before = {each.name: each.read_bytes() for each in pki.iterdir()}
        fill(disk, left=0)
        with pytest.raises(SrtmError, match=r"b1.pem: cannot be written: No space left") as caught:
            certs("issue", pki, "b1", "--force")
        assert caught.value.exit_code == 1
        assert {each.name: each.read_bytes() for each in pki.iterdir()} == before
        with pytest.raises(SrtmError, match="No space left"):
            certs("init", disk / "other")
        assert not list((disk / "other").glob("*"))


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SrtmError, match=r"file/pki: cannot be made: Not a directory"):
        certs("init", tmp_path / "file/pki")


def test_a_folder_is_in_the_way(folder: Path) -> None:
    (folder / "b1.key").mkdir()
    with pytest.raises(SrtmError, match=r"b1.pem: cannot be written: Is a directory"):
        certs("issue", folder, "b1", "--force")


def test_show_is_a_table_for_people(folder: Path) -> None:
    certs("issue", folder, "b1", "--ip", "::1")
    result = certs("show", folder / "b1.pem", folder / "ca.pem")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].split("  ")[0] == "file"
    assert "CN=b1" in lines[2]
    assert "DNS:b1, IP:::1" in lines[2]
    assert lines[2].rstrip().endswith("no")
    assert lines[3].rstrip().endswith("yes")


@pytest.mark.parametrize("days", [-1, 0.5])
def test_one_that_has_ended_is_exit_code_1(authority: Authority, days: float) -> None:
    good, _ = authority.issue("b1")
    cert, _ = authority.issue("b1", days=days)
    result = certs("show", good, cert, "--json")
    assert result.exit_code == (1 if days < 0 else 0)
    assert [each["is_valid"] for each in json.loads(result.output)] == [True, days > 0]


def test_one_that_begins_tomorrow_is_not_valid(folder: Path) -> None:
    yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    assert not read_shown(folder / "ca.pem", yesterday)[0].is_valid


def test_a_chain_is_a_row_for_each(folder: Path) -> None:
    certs("issue", folder, "b1")
    chain = folder / "chain.pem"
    chain.write_bytes((folder / "b1.pem").read_bytes() + (folder / "ca.pem").read_bytes())
    shown = json.loads(certs("show", chain, "--json").output)
    assert [each["authority"] for each in shown] == [False, True]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"", "holds no certificate in PEM", id="nothing"),
        pytest.param(bytes(2 << 20), "bigger than the 1 MiB that are read", id="two-megabytes"),
        pytest.param(b"-----BEGIN CERTIFICATE-----\nx\n", "is the file whole", id="half"),
    ],
)
def test_what_is_no_certificate_is_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "x.pem"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=f"{file}: .*{said}"):
        certs("show", file)


@example(place=12, byte=b"\x09")  # a version that there is not
@given(place=st.integers(0, 2000), byte=st.binary(min_size=1, max_size=4))
def test_whatever_the_bytes_of_a_certificate_it_is_shown_or_refused(
    server_der: bytes, tmp_path_factory: pytest.TempPathFactory, place: int, byte: bytes
) -> None:
    der = bytearray(server_der)
    place %= len(der)
    der[place : place + len(byte)] = byte
    file = tmp_path_factory.getbasetemp() / "shown.pem"
    file.write_text(ssl.DER_cert_to_PEM_cert(bytes(der)))
    result = CliRunner().invoke(cli, ["certs", "show", str(file)])
    if isinstance(result.exception, UsageError):
        return
    assert result.exit_code in (0, 1), result.exception
    assert "\x1b" not in result.output


@pytest.fixture(scope="session")
def server_der(authority: Authority) -> bytes:
    cert, _ = authority.issue("b1.example.org", dns=("b1.example.org",), ip=("127.0.0.1", "::1"))
    return x509.load_pem_x509_certificate(Path(cert).read_bytes()).public_bytes(Encoding.DER)


def test_help_imports_no_cryptography() -> None:
    """It takes a tenth of a second."""
    program = "import sys\nfrom srtm.cli.main import cli\n"
    program += "cli(sys.argv[1:], standalone_mode=False)\nsys.exit('cryptography' in sys.modules)"
    for words in (["--help"], ["certs", "--help"], ["certs", "issue", "--help"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *words], capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_a_renewal_without_the_old_names_says_which_they_were(folder: Path) -> None:
    certs("issue", folder, "names", "--dns=localhost", "--ip=127.0.0.1")
    renew = ["issue", folder, "names", "--dns=localhost", "--force"]
    assert certs(*renew).stderr == "warning: only the old one was for 127.0.0.1\n"
    assert certs(*renew).stderr == ""
