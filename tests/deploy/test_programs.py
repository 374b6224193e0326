"""NSQ's programs: found on PATH or beside Python, of the tested version, or said what to do."""

from pathlib import Path

import pytest

from srtm.deploy.file import plan_of
from srtm.deploy.programs import (
    check_nsqd_flags,
    find_program,
    find_programs,
    version_warning,
)
from srtm.text.address import Address, free_addresses, require_free
from srtm.text.errors import UnavailableError, UsageError
from tests.support.deployments import need_nsq


def fake(folder: Path, name: str = "nsqd", says: str = "nsqd v1.3.0 (built w/go1.21.1)") -> str:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without NSQ: an empty PATH, and a Python in an empty folder."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin" / "python"))
    return tmp_path


def test_a_missing_nsqd_comes_with_a_remedy(alone: Path) -> None:
    with pytest.raises(UnavailableError, match="nsqd is neither on PATH nor in") as caught:
        find_program("nsqd")
    assert "make setup" in str(caught.value)
    assert "install NSQ 1.3.0" in str(caught.value)


def test_path_comes_first_and_pythons_own_folder_second(alone: Path) -> None:
    beside = fake(alone / "bin")
    assert find_program("nsqd") == beside
    on_path = fake(alone / "path")
    assert find_program("nsqd") == on_path


def test_only_what_the_plan_needs_must_be_there(alone: Path) -> None:
    fake(alone / "path")
    find_programs(plan_of({"broker": [{}]}, "test", alone))
    with pytest.raises(UnavailableError, match="nsqlookupd is neither"):
        find_programs(plan_of({"broker": [{}], "lookupd": True}, "test", alone))
    with pytest.raises(UnavailableError, match="nsqadmin is neither"):
        find_programs(plan_of({"broker": [{}], "nsqadmin": True}, "test", alone))


@pytest.mark.parametrize(
    ("says", "warned"),
    [
        pytest.param("nsqd v1.3.0 (built w/go1.26.8)", False, id="the-tested-one"),
        pytest.param("nsqd v1.3.7 (built w/go1.26.8)", False, id="a-later-patch"),
        pytest.param("nsqd v1.2.1 (built w/go1.15)", True, id="older"),
        pytest.param("nsqd v1.30.0 (built w/go1.30)", True, id="1.30-is-not-1.3"),
        pytest.param("", True, id="says-nothing"),
    ],
)
def test_another_version_is_one_line_of_warning(tmp_path: Path, says: str, warned: bool) -> None:
    warning = version_warning(fake(tmp_path, says=says))
    assert bool(warning) is warned
    if warning:
        assert warning.startswith(f"warning: {tmp_path}/nsqd says '{says or 'nothing'}'")
        assert "\n" not in warning


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        pytest.param(["--mem-queue-size=0", "-verbose"], "", id="right"),
        pytest.param(["--max-body-size=5x"], 'invalid value "5x" for flag', id="no-number"),
        pytest.param(["--mem-size=5"], "not defined: -mem-size", id="no-such-flag"),
        pytest.param(["--help"], "nsqd would only print its help", id="help"),
    ],
)
def test_nsqd_reads_its_flags_before_it_is_started(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], said: str
) -> None:
    need_nsq(monkeypatch)
    if not said:
        check_nsqd_flags(find_program("nsqd"), flags, "broker b")
        return
    with pytest.raises(UsageError, match=f"^broker b: nsqd-flags: .*{said}"):
        check_nsqd_flags(find_program("nsqd"), flags, "broker b")


def test_a_program_that_cannot_be_run(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="No such file"):
        version_warning(str(tmp_path / "nsqd"))


def test_a_port_in_use_is_named_with_its_key() -> None:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = Address("127.0.0.1", listener.getsockname()[1])
        with pytest.raises(UnavailableError) as caught:
            require_free(address, "tcp-address of broker b")
    assert str(caught.value).startswith(f"tcp-address of broker b {address} is in use")
    require_free(address, "tcp-address of broker b")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (Address("192.0.2.1", 4150), "is no address of this machine"),
        (Address("no.such.host.invalid", 4150), "tcp-address no.such.host.invalid:4150: "),
    ],
)
def test_an_address_that_is_not_ours(address: Address, said: str) -> None:
    with pytest.raises(UnavailableError, match=said):
        require_free(address, "tcp-address")


def test_free_addresses_are_distinct_and_free() -> None:
    addresses = free_addresses(20)
    assert len(set(addresses)) == 20
    for address in addresses:
        require_free(address, "test")


@pytest.mark.parametrize(
    ("text", "reachable"),
    [
        (":4150", "127.0.0.1:4150"),
        ("0.0.0.0:4150", "127.0.0.1:4150"),
        ("[::]:4150", "[::1]:4150"),
        ("10.1.2.3:4150", "10.1.2.3:4150"),
    ],
)
def test_where_a_client_on_this_host_connects(text: str, reachable: str) -> None:
    assert str(Address.parse(text).reachable) == reachable
