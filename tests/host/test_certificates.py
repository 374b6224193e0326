"""Doors follow their files, and what does not work is one line and leaves the old certificate."""

import contextlib
import logging
import os
import resource
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import example, given
from hypothesis import strategies as st

from srtm.host.certificates import (
    Renewed,
    TlsFiles,
    client_context,
    expires_at,
    key_is_open,
    server_context,
)
from srtm.text.certificates import why_tls_failed
from srtm.text.errors import UsageError
from tests.support.certificates import Authority, handshake

DAY = 86_400.0


def number(cert: str) -> int:
    return x509.load_pem_x509_certificate(Path(cert).read_bytes()).serial_number


def pair(authority: Authority, name: str = "server", days: float = 1) -> tuple[str, str]:
    return authority.issue(name, ip=("127.0.0.1",), days=days)


# --- one side and the other


def test_both_sides_are_verified(authority: Authority) -> None:
    cert, key = pair(authority)
    mine, my_key = authority.issue("publisher", client=True)
    door = server_context(TlsFiles(cert, key, authority.ca_file, require_peer=True))
    client = client_context(TlsFiles(mine, my_key, authority.ca_file))
    assert handshake(door, client) == number(cert)


@pytest.mark.parametrize(
    ("shown", "require", "works"),
    [
        pytest.param("", False, True, id="none-is-shown-and-none-is-needed"),
        pytest.param("", True, False, id="none-is-shown"),
        pytest.param("good", False, True, id="one-is-shown-and-none-is-needed"),
        pytest.param("foreign", False, False, id="one-of-another-authority"),
        pytest.param("server", True, False, id="one-that-is-for-a-server"),
        pytest.param("expired", True, False, id="one-that-has-expired"),
    ],
)
def test_what_a_door_takes(
    authority: Authority, tmp_path: Path, shown: str, require: bool, works: bool
) -> None:
    client_files = {
        "": ("", ""),
        "good": authority.issue("publisher", client=True),
        "foreign": Authority(tmp_path).issue("publisher", client=True),
        "server": authority.issue("publisher"),
        "expired": authority.issue("publisher", client=True, expired=True),
    }[shown]
    door = server_context(TlsFiles(*pair(authority), authority.ca_file, require_peer=require))
    client = client_context(TlsFiles(*client_files, authority.ca_file))
    if works:
        handshake(door, client)
        return
    with pytest.raises(ssl.SSLError):
        handshake(door, client)


@pytest.mark.parametrize(
    ("server", "name", "said"),
    [
        pytest.param("expired", "127.0.0.1", "certificate has expired", id="expired"),
        pytest.param("other-name", "127.0.0.1", "IP address mismatch", id="another-name"),
        pytest.param("foreign", "127.0.0.1", "unable to get local issuer", id="another-authority"),
        pytest.param("client", "127.0.0.1", "unsuitable certificate purpose", id="of-a-client"),
    ],
)
def test_why_a_client_refuses(
    authority: Authority, tmp_path: Path, server: str, name: str, said: str
) -> None:
    files = {
        "expired": authority.issue("server", ip=("127.0.0.1",), expired=True),
        "other-name": authority.issue("127.0.0.1", dns=("broker.example",), ip=("127.0.0.2",)),
        "foreign": pair(Authority(tmp_path, "another authority")),
        "client": authority.issue("server", ip=("127.0.0.1",), client=True),
    }[server]
    client = client_context(TlsFiles(root_ca=authority.ca_file))
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        handshake(server_context(TlsFiles(*files)), client, name)
    assert said in why_tls_failed(caught.value)


def test_a_client_that_verifies_nothing_takes_anybody(tmp_path: Path) -> None:
    files = Authority(tmp_path).issue("whoever", expired=True)
    handshake(server_context(TlsFiles(*files)), client_context(TlsFiles(), verify=False))


def test_the_oldest_version_that_is_spoken(authority: Authority) -> None:
    old = client_context(TlsFiles(root_ca=authority.ca_file))
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    files = pair(authority)
    handshake(server_context(TlsFiles(*files)), old)
    with pytest.raises(ssl.SSLError) as caught:
        handshake(server_context(TlsFiles(*files, min_version="tls1.3")), old)
    assert "protocol" in why_tls_failed(caught.value)


# --- files that do not work


def _spoilt(authority: Authority, folder: Path) -> dict[str, Callable[[], TlsFiles]]:
    """By case: the files, whose cert, key and root_ca are so called."""
    cert, key = pair(authority)
    pem, key_pem = Path(cert).read_bytes(), Path(key).read_bytes()

    def files(cert: bytes = pem, key: bytes = key_pem, root_ca: bytes | None = None) -> TlsFiles:
        for name, content in (("cert", cert), ("key", key), ("root_ca", root_ca or b"")):
            (folder / name).write_bytes(content)
        return TlsFiles(
            str(folder / "cert"),
            str(folder / "key"),
            "" if root_ca is None else str(folder / "root_ca"),
        )

    def but(name: str, change: Callable[[Path], object]) -> TlsFiles:
        made = files(root_ca=pem)
        (folder / name).unlink()
        change(folder / name)
        return made

    def big(path: Path) -> None:
        with path.open("wb") as out:
            out.truncate(100_000_000)

    rsa_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    rsa_pem = rsa_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    other_pem = Path(pair(authority)[1]).read_bytes()
    locked_cert, locked_key = authority.issue("locked", password=b"x")
    locked = Path(locked_cert).read_bytes(), Path(locked_key).read_bytes()
    return {
        "another-key": lambda: files(key=other_pem),
        "a-key-of-another-kind": lambda: files(key=rsa_pem),
        "an-encrypted-key": lambda: files(*locked),
        "a-certificate-for-a-key": lambda: files(key=pem),
        "half-a-key": lambda: files(key=key_pem[:80]),
        "an-empty-key": lambda: files(key=b""),
        "a-key-for-a-certificate": lambda: files(cert=key_pem),
        "half-a-certificate": lambda: files(cert=pem[:200]),
        "a-spoilt-certificate": lambda: files(cert=pem.replace(pem[100:104], b"!!!!")),
        "der": lambda: files(cert=ssl.PEM_cert_to_DER_cert(pem.decode())),
        "zeros": lambda: files(cert=bytes(1000)),
        "no-authority": lambda: files(root_ca=b"x"),
        "half-an-authority": lambda: files(root_ca=pem + pem[:200]),
        "a-missing-certificate": lambda: but("cert", lambda _path: None),
        "a-missing-key": lambda: but("key", lambda _path: None),
        "a-missing-authority": lambda: but("root_ca", lambda _path: None),
        "a-link-to-nothing": lambda: but("cert", lambda path: path.symlink_to("..data/cert")),
        "a-pipe": lambda: but("key", os.mkfifo),
        "a-device": lambda: but("cert", lambda path: path.symlink_to("/dev/zero")),
        "a-folder": lambda: but("root_ca", Path.mkdir),
        "a-100-mb-file": lambda: but("cert", big),
    }


SPOILT = {
    "another-key": "key: is not the key of the certificate FOLDER/cert",
    "a-key-of-another-kind": "key: is not the key of the certificate FOLDER/cert",
    "an-encrypted-key": "key: the key has a password; take one without: "
    "openssl pkey -in KEY -out NEW",
    "a-certificate-for-a-key": "key: holds no private key in PEM",
    "half-a-key": "key: the key cannot be read; is the file whole?",
    "an-empty-key": "key: holds no private key in PEM",
    "a-key-for-a-certificate": "cert: holds no certificate in PEM",
    "half-a-certificate": "cert: a certificate in it cannot be read; is the file whole?",
    "a-spoilt-certificate": "cert: a certificate in it cannot be read; is the file whole?",
    "der": "cert: holds no certificate in PEM",
    "zeros": "cert: holds no certificate in PEM",
    "no-authority": "root_ca: holds no certificate in PEM",
    "half-an-authority": "root_ca: a certificate in it cannot be read; is the file whole?",
    "a-missing-certificate": "cert: No such file or directory",
    "a-missing-key": "key: No such file or directory",
    "a-missing-authority": "root_ca: No such file or directory",
    "a-link-to-nothing": "cert: No such file or directory",
    "a-pipe": "key: it is a pipe or a device, and no file",
    "a-device": "cert: it is a pipe or a device, and no file",
    "a-folder": "root_ca: Is a directory",
    "a-100-mb-file": "cert: it is bigger than the 1 MiB that are read",
}


@pytest.mark.parametrize("case", SPOILT)
def test_what_does_not_work_is_one_line_and_leaves_the_old_one(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    spoilt = _spoilt(authority, tmp_path)[case]()
    line = f"{tmp_path}/{SPOILT[case].replace('FOLDER', str(tmp_path))}"
    for make in (server_context, client_context):
        with pytest.raises(UsageError) as caught:
            make(spoilt)
        assert str(caught.value) == line

    door = Renewed(TlsFiles(*pair(authority, days=90)))
    context = door.context
    door.files = spoilt
    assert [door.look() for _ in range(3)] == [False] * 3
    assert (door.context, door.failed) == (context, line)
    assert caplog.messages == [f"the certificate in use stays: {line}"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda pem, key: (pem.replace(b"\n", b"\r\n"), key), id="of-windows"),
        pytest.param(lambda pem, key: (b"Subject: CN = x\n\n" + pem, key), id="text-before-it"),
        pytest.param(lambda pem, key: (key + pem, key + pem), id="both-in-one-file"),
        pytest.param(lambda pem, key: (b"\xef\xbb\xbf" + pem, key), id="a-mark-before-it"),
    ],
)
def test_what_does_work(
    authority: Authority, tmp_path: Path, change: Callable[[bytes, bytes], tuple[bytes, bytes]]
) -> None:
    cert, key = pair(authority)
    files = TlsFiles(str(tmp_path / "cert"), str(tmp_path / "key"))
    contents = change(Path(cert).read_bytes(), Path(key).read_bytes())
    for path, content in zip(files.paths, contents, strict=True):
        Path(path).write_bytes(content)
    client = client_context(TlsFiles(root_ca=authority.ca_file))
    assert handshake(Renewed(files).context, client) == number(cert)


@pytest.fixture(scope="session")
def given_pair(authority: Authority) -> tuple[str, str]:
    return pair(authority)


@example(place=12, byte=b"\x09")  # a version that there is not
@given(place=st.integers(0, 2000), byte=st.binary(min_size=1, max_size=4))
def test_whatever_the_bytes_of_a_certificate_it_is_read_or_refused(
    given_pair: tuple[str, str], tmp_path_factory: pytest.TempPathFactory, place: int, byte: bytes
) -> None:
    cert, key = given_pair
    der = bytearray(ssl.PEM_cert_to_DER_cert(Path(cert).read_text()))
    place %= len(der)
    der[place : place + len(byte)] = byte
    spoilt = tmp_path_factory.getbasetemp() / "spoilt.pem"
    spoilt.write_text(ssl.DER_cert_to_PEM_cert(bytes(der)))
    for read in (lambda: Renewed(TlsFiles(str(spoilt), key)), lambda: expires_at(str(spoilt))):
        with contextlib.suppress(UsageError):
            read()


# --- files that are renewed


class Door:
    """A door's files in a folder, what it shows, and a time that only `days` moves."""

    def __init__(self, authority: Authority, folder: Path) -> None:
        self.authority = authority
        self.cert, self.key = folder / "tls.crt", folder / "tls.key"
        self.days = 0.0
        self.client = client_context(TlsFiles(root_ca=authority.ca_file))

    def write(self, days: float = 90) -> int:
        """Files of a new certificate; its number."""
        cert, key = pair(self.authority, days=days)
        self.cert.write_bytes(Path(cert).read_bytes())
        self.key.write_bytes(Path(key).read_bytes())
        return number(cert)

    def open(self) -> Renewed:
        start = time.time()
        files = TlsFiles(str(self.cert), str(self.key))
        return Renewed(files, wall_seconds=lambda: start + self.days * DAY)

    def shown(self, opened: Renewed) -> int:
        return handshake(opened.context, self.client)


@pytest.fixture
def door(authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Door:
    caplog.set_level(logging.INFO)
    return Door(authority, tmp_path)


def test_renewed_contents_are_for_the_next_handshake(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    first = door.write()
    opened = door.open()
    before = opened.context
    assert (opened.look(), door.shown(opened)) == (False, first)
    second = door.write(days=200)
    assert (opened.look(), opened.look()) == (True, False)
    assert door.shown(opened) == second
    assert opened.expires_at == pytest.approx(time.time() + 200 * DAY, abs=DAY)
    assert handshake(before, door.client) == first
    assert caplog.messages == [f"{door.cert}, {door.key}: in use"]


def test_the_same_contents_written_anew_are_no_news(door: Door) -> None:
    door.write()
    opened = door.open()
    door.cert.write_bytes(door.cert.read_bytes())
    os.utime(door.key, (0, 0))
    assert not opened.look()


def test_a_symlink_swap_as_kubernetes_makes_it(door: Door, tmp_path: Path) -> None:
    def publish(version: str) -> int:
        folder = tmp_path / f"..{version}"
        folder.mkdir()
        inner = Door(door.authority, folder)
        made = inner.write()
        (tmp_path / "..data_tmp").symlink_to(folder.name)
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")
        return made

    publish("2026_01")
    door.cert.symlink_to("..data/tls.crt")
    door.key.symlink_to("..data/tls.key")
    opened = door.open()
    second = publish("2026_02")
    for old in (tmp_path / "..2026_01").iterdir():
        old.unlink()
    assert opened.look()
    assert door.shown(opened) == second


@pytest.mark.parametrize("order", [("cert", "key"), ("key", "cert")], ids=" then ".join)
def test_files_that_are_written_one_after_the_other(
    door: Door, caplog: pytest.LogCaptureFixture, order: tuple[str, str]
) -> None:
    first = door.write()
    opened = door.open()
    new = dict(zip(("cert", "key"), pair(door.authority, days=90), strict=True))
    paths = {"cert": door.cert, "key": door.key}
    paths[order[0]].write_bytes(Path(new[order[0]]).read_bytes())
    assert (opened.look(), door.shown(opened)) == (False, first)
    assert opened.failed == f"{door.key}: is not the key of the certificate {door.cert}"
    paths[order[1]].write_bytes(Path(new[order[1]]).read_bytes())
    assert (opened.look(), door.shown(opened)) == (True, number(new["cert"]))
    assert opened.failed == ""
    assert caplog.messages == [
        f"the certificate in use stays: {door.key}: is not the key of the certificate {door.cert}",
        f"{door.cert}, {door.key}: in use",
    ]


@pytest.mark.parametrize("how", ["missing", "spoilt"])
def test_the_old_files_come_back(door: Door, caplog: pytest.LogCaptureFixture, how: str) -> None:
    first = door.write()
    opened = door.open()
    old = door.cert.read_bytes()
    door.cert.unlink() if how == "missing" else door.cert.write_bytes(b"")
    assert not opened.look()
    assert opened.failed
    door.cert.write_bytes(old)
    assert not opened.look()
    assert (opened.failed, door.shown(opened)) == ("", first)
    assert caplog.messages[1:] == [f"{door.cert}, {door.key}: in use"]


def test_what_failed_for_the_moment_is_tried_again(door: Door) -> None:
    door.write()
    opened = door.open()
    second = door.write()
    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, most))
    try:
        assert not opened.look()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (least, most))
    assert opened.failed == f"{door.cert}: Too many open files"
    assert (opened.look(), door.shown(opened)) == (True, second)


def test_one_that_has_expired_takes_no_place_of_one_that_works(door: Door) -> None:
    first = door.write(days=20)
    opened = door.open()
    door.write(days=-1)
    assert not opened.look()
    assert opened.failed == f"{door.cert}: the certificate has expired"
    assert door.shown(opened) == first
    door.days = 21
    assert opened.look()


def test_what_ends_soon_is_told_of_once_a_day(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    door.write(days=20.5)
    opened = door.open()
    caplog.set_level(logging.WARNING)
    for quarter in range(22 * 4):
        door.days = quarter / 4
        opened.look()
    ends = [f"ends in {days} days" for days in range(13, 1, -1)]
    ends += ["ends in 1 day", "ends in less than a day"]
    said = [message.removeprefix(f"{door.cert}: the certificate ") for message in caplog.messages]
    assert said == [*ends, "has expired", "has expired"]
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING"] * len(ends) + ["ERROR"] * 2
    door.write(days=100)
    door.days = 0
    assert opened.look()
    assert len(caplog.records) == len(said)


def test_one_that_expired_in_the_last_hour_is_told_of_at_the_start(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    door.write(days=-1 / 24)
    door.open()
    assert caplog.messages == [f"{door.cert}: the certificate has expired"]


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o644, 0o604, 0o660])
def test_a_key_that_others_may_read_is_told_of_at_the_start(
    authority: Authority, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    cert, key = pair(authority)
    os.chmod(key, mode)
    assert Renewed.of(TlsFiles(cert, key)) is not None
    told = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    told = [each for each in told if "the certificate ends" not in each]
    if mode & 0o077:
        assert told == [
            f"{key}: mode {mode:04o}, and others than its owner may read the private key: "
            f"chmod 600 {key}"
        ]
    else:
        assert told == []
    Path(key).unlink()
    assert key_is_open(key) == ""


def test_authorities_alone_are_followed_too(authority: Authority, tmp_path: Path) -> None:
    root = tmp_path / "root.pem"
    root.write_bytes(Path(authority.ca_file).read_bytes())
    opened = Renewed(TlsFiles(root_ca=str(root)), client_context)
    other = Authority(tmp_path / "other", "another authority")
    root.write_bytes(Path(authority.ca_file).read_bytes() + Path(other.ca_file).read_bytes())
    assert opened.look()
    for each in (authority, other):
        handshake(server_context(TlsFiles(*pair(each))), opened.context)
    assert opened.expires_at == float("inf")
