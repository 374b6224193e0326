"""An ssh host by a real sshd in a network namespace: what goes wrong is one clear line, and a
broker runs there as anywhere."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from srtm import __version__
from srtm.deploy.host_tables import HostTable
from srtm.http.client import request
from srtm.testbed import open_testbed
from srtm.testbed.host import Clock, Facts
from srtm.testbed.ssh import SshHost
from srtm.testbed.testbed import Failed
from srtm.text.errors import UnavailableError
from tests.support.deployments import need_nsq
from tests.support.sshd import ALIAS, Sshd, need_sshd, sshd_in
from tests.support.testbeds import quiet, short_folder, up


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


@pytest.fixture
def sshd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    need_sshd()
    need_nsq(monkeypatch)
    monkeypatch.setattr("srtm.testbed.ssh._ROOTS_PROGRAMS", str(tmp_path))
    (tmp_path / "sshd").mkdir()
    with sshd_in(tmp_path / "sshd", monkeypatch) as found:
        yield found


def inventory(folder: Path, sshd: Sshd, login: str = ALIAS) -> Path:
    file = folder / "far.toml"
    file.write_text(
        f'[deployment]\nname = "far"\ndata-path = "{folder}/d"\nsecure = true\n'
        f'[[host]]\nname = "h1"\nkind = "ssh"\naddress = "{sshd.address}"\nlogin = "{login}"\n'
        f'python = "{sys.executable}"\ndata-path = "{folder}/far"\n'
        '[lookupd]\n[[broker]]\nname = "b1"\nhost = "h1"\n'
        '[[topic]]\nname = "alarms"\nrate = 100\nburst = 10\n'
    )
    return file


def host(sshd: Sshd, folder: Path, **values: str) -> SshHost:
    table = {"name": "h1", "kind": "ssh", "address": sshd.address, "login": ALIAS, **values}
    return SshHost(HostTable.model_validate(table), "far", folder)


def test_a_broker_over_ssh(tmp_path: Path, sshd: Sshd) -> None:
    file = inventory(tmp_path, sshd)
    with up(file) as found:
        (status,) = found.status()
        assert (status.state, status.why) == ("up", "")
        assert status.facts
        assert status.facts.srtm == __version__
        clock = status.facts.clock
        assert abs(clock.offset) <= clock.error  # it is our own clock
        broker = found.inventory.broker_http_address(found.inventory.plan.brokers[0])
        assert request(str(broker), "GET", "/ping").body == b"OK"
        for secret in ("token", "host.key"):
            assert (tmp_path / "far" / "testbed" / secret).stat().st_mode & 0o777 == 0o600
        open_testbed(file).up(quiet)
    assert not (tmp_path / "far").exists()


def test_what_goes_wrong_is_a_line_with_its_remedy(
    tmp_path: Path, sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = inventory(tmp_path, sshd)

    def refused() -> str:
        with pytest.raises(Failed) as caught:
            open_testbed(file).up(quiet)
        assert list(caught.value.failures) == ["h1"]
        assert not (tmp_path / "far").exists()
        return str(caught.value.failures["h1"])

    with monkeypatch.context() as patch:
        far = Facts(2, "", "", Clock(3.0, 0.01))
        patch.setattr(SshHost, "facts", lambda self: far)
        assert "its clock is off by +3000.00 ms, give or take 10.00: set it" in refused()
    host(sshd, tmp_path).release()
    sshd.forget_key()
    assert "the key was refused: ssh-copy-id lab-host" in refused()
    sshd.change_host_key()
    assert f"ssh-keygen -R {ALIAS}" in refused()
    (sshd.folder / "known_hosts").write_text("")
    assert "its host key is not known: ssh lab-host once" in refused()
    inventory(tmp_path, sshd, "nobody.invalid")
    assert "nobody.invalid: its name is not known" in refused()


def test_a_shell_that_writes_a_banner_is_named(tmp_path: Path, sshd: Sshd) -> None:
    ssh = sshd.folder / "bin" / "ssh"
    ssh.write_text(f"#!/bin/sh\necho Welcome to the lab\n{ssh.read_text()}")
    found = host(sshd, tmp_path)
    try:
        with pytest.raises(
            UnavailableError, match=r"more than it is asked for.*Welcome to the lab"
        ):
            found.open()
    finally:
        found.release()


def test_no_word_reaches_a_shell_unquoted(tmp_path: Path, sshd: Sshd) -> None:
    found = host(sshd, tmp_path)
    found.open()
    nasty = f"{tmp_path}/a b;$(touch {tmp_path}/made)'\"`id`\n*"
    try:
        found.put(nasty, b"x")
        assert found.read(nasty) == b"x"
        assert found.run(["printf", "%s|", nasty, "-n"]).output == f"{nasty}|-n|".encode()
        found.remove(nasty)
        assert not (tmp_path / "made").exists()
        assert not Path(nasty).exists()
    finally:
        found.release()


def test_one_with_another_version_of_srtm_is_refused(tmp_path: Path, sshd: Sshd) -> None:
    old = tmp_path / "old" / "bin" / "python"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\necho 0.0.1\n")
    old.chmod(0o755)
    file = inventory(tmp_path, sshd)
    file.write_text(file.read_text().replace(sys.executable, str(old)))
    try:
        with pytest.raises(Failed, match=rf"{old} there has srtm 0\.0\.1; {__version__} is needed"):
            open_testbed(file).up(quiet)
    finally:
        open_testbed(file).down(quiet, purge=True)


def test_nsq_is_brought_where_it_is_not(tmp_path: Path, sshd: Sshd) -> None:
    """Into SRTM's folder, wherever its Python is: that may be the system's."""
    bare = tmp_path / "bare" / "bin"
    bare.mkdir(parents=True)
    (bare / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (bare / "python").chmod(0o755)
    found = host(sshd, tmp_path, python=str(bare / "python"))
    found.open()
    own = tmp_path / "srtm" / __version__
    try:
        called = found.install()
        done = subprocess.run([own / "bin" / "nsqd", "--version"], capture_output=True, check=True)
        assert done.stdout.startswith(b"nsqd v1.3")
        assert os.access(own / "bin" / "nsqlookupd", os.X_OK)
        assert [each.name for each in bare.iterdir()] == ["python"]
        assert called[1].startswith("PATH=")
        assert called[1].endswith(f":{own}/bin")
        assert subprocess.run([*called, "--version"], capture_output=True).returncode == 0
        words = found.calling(
            ["sh", "-c", 'nsqd --version >&2; read -r line; echo "$line"; exit 3']
        )
        done = subprocess.run(words, input=b"a b\n", capture_output=True)
        assert (done.returncode, done.stdout) == (3, b"a b\n")
        assert b"nsqd v1.3" in done.stderr
    finally:
        found.release()


def test_somebody_elses_folder_of_connections_is_not_used(
    tmp_path: Path, sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    (tmp_path / f"srtm-ssh-{os.getuid()}").mkdir(mode=0o777)
    (tmp_path / f"srtm-ssh-{os.getuid()}").chmod(0o777)
    with pytest.raises(UnavailableError, match="is somebody else's: remove it"):
        host(sshd, tmp_path).open()
