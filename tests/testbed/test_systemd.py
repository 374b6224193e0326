"""The unit of a part: what systemd itself says of it, and what must not be otherwise."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from srtm.testbed.systemd import shown, unit_name, unit_text
from srtm.text.errors import UsageError

COMMAND = ("/bin/true", "-m", "srtm", "up", "/var/lib/srtm-testbed/lab/testbed/srtm.toml")
DATA = "/var/lib/srtm-testbed/lab"
MOST_EXPOSED = 4.0
"""systemd-analyze security: 0 is shut, 10 open; 9.6 is a unit that says nothing of it"""


def text(command: tuple[str, ...] = COMMAND, data: str = DATA) -> str:
    return unit_text("lab", "up", command, data, f"{data}/testbed/units/up.log")


def test_srtm_up_alone_is_told_to_end_and_has_the_time() -> None:
    """mixed and control-group would end nsqd before the gateway has drained, or kill it."""
    assert "KillMode=process\n" in text()
    assert int(re.search(r"TimeoutStopSec=(\d+)", text())[1]) >= 150  # type: ignore[index]


def test_systemd_takes_it(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    file = tmp_path / unit_name("lab", "h1", "up")
    file.write_text(text())
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    own = [line for line in done.stderr.splitlines() if file.name in line]
    assert (done.returncode, own) == (0, []), done.stderr


def test_it_is_shut_to_what_it_does_not_need(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    file = tmp_path / unit_name("lab", "h1", "up")
    file.write_text(text())
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    assert float(found[1]) <= MOST_EXPOSED, done.stdout


def test_a_home_is_seen_where_the_data_are_there() -> None:
    assert "ProtectHome=yes\n" in text()
    assert "ProtectHome=no\n" in text(data="/home/ann/srtm-testbed/lab")


@pytest.mark.parametrize("path", ["/a b", '/a"b', "/a\nUser=root", "/a$b", "/a\\b"])
def test_a_path_that_could_say_something_else_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="cannot stand in a systemd unit"):
        text(data=path)


def test_a_percent_sign_is_no_specifier() -> None:
    assert "ReadWritePaths=/data/%%h\n" in text(data="/data/%h")


def test_what_systemctl_shows() -> None:
    assert shown("LoadState=loaded\nMainPID=12\n") == {"LoadState": "loaded", "MainPID": "12"}
