"""A real sshd in a network namespace, and an `ssh` that knows its key; a skip without
openssh-server."""

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from srtm.testbed.inventory import subnet_of
from srtm.testbed.network import (
    SUBNETS,
    Names,
    free_subnet,
    inside,
    make_network,
    processes_in,
    remove_network,
)
from tests.support.deployments import wait_for
from tests.support.netns import need_namespaces

ALIAS = "lab-host"


@dataclass(frozen=True)
class Sshd:
    """address: of its host; folder: its keys and configuration, and the ssh on PATH."""

    address: str
    folder: Path

    def forget_key(self) -> None:
        (self.folder / "authorized_keys").write_text("")

    def change_host_key(self) -> None:
        """In what ssh knows."""
        _key(self.folder / "other")
        words = (self.folder / "other.pub").read_text().split()
        (self.folder / "known_hosts").write_text(f"{self.address} {words[0]} {words[1]}\n")


def need_sshd() -> None:
    need_namespaces()
    missing = [each for each in ("sshd", "ssh", "ssh-keygen") if shutil.which(each) is None]
    if missing:
        reason = f"no {', '.join(missing)}: install openssh-server and openssh-client"
        pytest.skip(reason)


@contextmanager
def sshd_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    names = Names(uuid.uuid4().hex[:6])
    subnet = subnet_of(free_subnet(names, int(names.id, 16) % SUBNETS))
    address = str(subnet[11])
    for each in ("host", "user"):
        _key(folder / each)
    shutil.copy(folder / "user.pub", folder / "authorized_keys")
    words = (folder / "host.pub").read_text().split()
    (folder / "known_hosts").write_text(f"{address} {words[0]} {words[1]}\n")
    (folder / "sshd_config").write_text(
        f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized_keys\n"
        f"PidFile {folder}/sshd.pid\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPort 22\n"
        # bash reads ~/.bashrc for each command: that of whoever runs the tests may take long.
        f"SetEnv HOME={folder}\n"
    )
    (folder / "ssh_config").write_text(
        f"Host {ALIAS} {address}\n  HostName {address}\n  User root\n  IdentityFile {folder}/user\n"
        f"  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known_hosts\n"
        "  StrictHostKeyChecking yes\n"
    )
    (folder / "bin").mkdir()
    ssh = folder / "bin" / "ssh"
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    make_network(names, subnet, [("h1", address)])
    namespace = names.host("h1")
    log = (folder / "sshd.log").open("w")
    process = subprocess.Popen(
        [
            *inside(namespace),
            str(shutil.which("sshd")),
            "-D",
            "-e",
            "-f",
            str(folder / "sshd_config"),
        ],
        stdout=log,
        stderr=log,
    )
    try:
        wait_for(lambda: "listening" in (folder / "sshd.log").read_text())
        yield Sshd(address, folder)
    finally:
        process.terminate()
        process.wait(10)
        for pid in processes_in(namespace):
            with suppress(ProcessLookupError):
                os.kill(pid, 15)
        remove_network(names)
        log.close()


def _key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
