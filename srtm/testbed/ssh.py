"""Any Linux host, by the system's own ssh and its configuration.

Each question to the host is one command of the system's `ssh`, so that keys, jump hosts and names
are what `~/.ssh/config` says. The first command opens a connection that stays for a minute, and
those that follow go through it. On the host a POSIX shell runs them; words are quoted for it, and
only fixed scripts of this file are more than one word.

    SshHost ──▶ ssh -o ControlPath=... LOGIN -- 'words' ──▶ sshd ──▶ sh
       open      once: home, user, machine, cores, systemd or not
       install   a wheel into /opt/srtm/VERSION or ~/.local/share/srtm/VERSION, NSQ where it lacks
       start,    with systemd: a unit file and systemctl
       stop      without: python -m srtm.units.units_command, JSON in and out
"""

import hashlib
import json
import os
import re
import shlex
import stat
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import srtm
from srtm.deploy.host_tables import HostTable
from srtm.deploy.programs import find_program, is_tested, said_version
from srtm.deployment.layout import Layout
from srtm.host.clock import NS, monotonic_ns
from srtm.host.python import module
from srtm.testbed import systemd
from srtm.testbed.host import Clock, Done, Facts
from srtm.testbed.inventory import OWN_FOLDER
from srtm.testbed.local import tail
from srtm.text.errors import SrtmError, UnavailableError
from srtm.units import Running, Unit, seen

PROGRAMS = ("nsqd", "nsqlookupd", "nsqadmin")
_CONNECT_SECONDS = 10
_INSTALL_SECONDS = 600.0
_STAYS_SECONDS = 60
"""the connection, for the next command"""
_SSH_FAILED = 255
_NO_FILE = 44
_CLOCK_READINGS = 5
_OPTIONS = (
    "BatchMode=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "ControlMaster=auto",
    f"ControlPersist={_STAYS_SECONDS}",
    f"ConnectTimeout={_CONNECT_SECONDS}",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
)
_FAILURES = {
    "REMOTE HOST IDENTIFICATION HAS CHANGED": "its host key is another than is known: if it was "
    "installed anew, ssh-keygen -R {host}",
    "Host key verification failed": "its host key is not known: ssh {login} once, and compare it",
    "Permission denied": "the key was refused: ssh-copy-id {login}, or name the right one in "
    "~/.ssh/config",
    "Could not resolve": "its name is not known: mend login, or ~/.ssh/config",
}
"""what ssh says -> what that means"""
_PROBE = """
cd && pwd && id -u && uname -m && nproc
if [ "$(id -u)" = 0 ] && [ -d /run/systemd/system ]; then echo systemd; else echo none; fi
"""
_PROBED = re.compile(r"(/.*)\n(\d+)\n(.+)\n(\d+)\n(systemd|none)\n")
_ROOTS_PROGRAMS = "/opt"
_PUT = """
umask 077 && mkdir -p "$(dirname "$1")" && cat >"$1.new" && chmod "$2" "$1.new" &&
{ sync "$1.new" 2>/dev/null || :; } && mv "$1.new" "$1"
"""
_STATUS = f"""
[ -e "$1" ] || exit {_NO_FILE}
read -r line <"$1" && echo "$line" && cat "/proc/${{line%% *}}/stat" 2>/dev/null; :
"""


class SshHost:
    """Commands go over one connection, which stays for a minute. No word of a file reaches a shell
    unquoted."""

    def __init__(self, table: HostTable, deployment: str, folder: Path) -> None:
        self.table = table
        self._login = table.login or table.address
        self._deployment = deployment
        self._folder = folder
        self._programs = ""
        self._arch = ""
        self._cores = 0
        self._has_systemd = False
        self._is_open = False

    def open(self) -> None:
        if self._is_open:
            return
        done = self._ssh(["sh", "-c", _PROBE], _CONNECT_SECONDS * 3)
        said = done.output.decode(errors="replace")
        found = _PROBED.fullmatch(said)
        if found is None and _PROBED.search(said):
            raise UnavailableError(
                f"{self._login}: its shell writes more than it is asked for "
                f"({said.splitlines()[0][:80]!r}): let its ~/.bashrc write only on a terminal"
            )
        if done.code or found is None:
            raise UnavailableError(
                f"{self._login}: no POSIX shell: {done.errors[-200:] or said[:200]!r}"
            )
        home, user, self._arch, cores, manager = found.groups()
        is_root = user == "0"
        base = "/var/lib" if is_root else home
        path = str(Path(base, self.table.data_path))
        self.table = self.table.model_copy(update={"data_path": path})
        parent = _ROOTS_PROGRAMS if is_root else f"{home}/.local/share"
        self._programs = f"{parent}/srtm/{srtm.__version__}"
        self._cores = int(cores)
        self._has_systemd = manager == "systemd"
        self._is_open = True

    # --- programs -------------------------------------------------------------------------------

    def install(self) -> tuple[str, ...]:
        """srtm by a wheel into a folder of its version, NSQ into the same: a system's nsqd stays
        what it is, and is taken where there is one."""
        if self._said_srtm() != srtm.__version__ and not self.table.python:
            self._install_srtm()
        for name in PROGRAMS:
            self._install_nsq(name)
        return *self._environment(), *module("srtm", self._python)

    def _environment(self) -> tuple[str, str]:
        path = self.run(["sh", "-c", 'echo "$PATH"']).output.decode(errors="replace").strip()
        return "/usr/bin/env", f"PATH={path}:{self._places}"

    def calling(self, command: Sequence[str]) -> tuple[str, ...]:
        terminal = ["-t"] if os.isatty(0) else ["-T"]
        return self._words([*self._environment(), *command], terminal)

    @property
    def _python(self) -> str:
        return self.table.python or f"{self._programs}/bin/python"

    def _said_srtm(self) -> str:
        words = "import srtm; print(srtm.__version__)"
        done = self.run([self._python, "-c", words])
        return done.output.decode(errors="replace").strip() if done.code == 0 else ""

    def _install_srtm(self) -> None:
        wheel = build_wheel(self._folder)
        target = f"{self._programs}/{wheel.name}"
        self.put(target, wheel.read_bytes())
        steps = (
            ["python3", "-m", "venv", self._programs],
            [*module("pip", self._python), "install", "--quiet", target],
        )
        for step in steps:
            done = self.run(step, _INSTALL_SECONDS)
            if done.code:
                said = (done.errors or "no words").splitlines()[-1][:200]
                raise UnavailableError(
                    f"{' '.join(step[1:4])} failed: {said}; Python 3.11 with venv is needed, or "
                    "install srtm there and name its interpreter with python"
                )

    def _install_nsq(self, name: str) -> None:
        look = 'PATH="$PATH:$1"; command -v "$2"'
        there = self.run(["sh", "-c", look, "sh", self._places, name])
        if there.code == 0:
            return
        if os.uname().machine != self._arch:
            raise UnavailableError(
                f"has no {name}, and this machine's is for {os.uname().machine}, not {self._arch}: "
                "install NSQ 1.3.0 there, on its PATH"
            )
        program = find_program(name)
        if is_tested(said_version(program).replace(name, "nsqd", 1)):
            self.put(f"{self._bin}/{name}", Path(program).read_bytes(), 0o755)

    @property
    def _bin(self) -> str:
        return f"{self._programs}/bin"

    @property
    def _places(self) -> str:
        """Where programs are, besides the PATH."""
        return f"{Path(self._python).parent}:{self._bin}"

    def versions(self) -> tuple[str, str]:
        nsqd = self.run(["sh", "-c", 'PATH="$PATH:$1"; nsqd --version', "sh", self._places])
        said = nsqd.output.decode(errors="replace").strip() if nsqd.code == 0 else ""
        return self._said_srtm(), said

    def facts(self) -> Facts:
        return Facts(self._cores, *self.versions(), self._clock())

    def _clock(self) -> Clock:
        """The host's clock against ours: of several readings the one that took least tells most."""
        found = []
        for _ in range(_CLOCK_READINGS):
            before_ns, wall_ns = monotonic_ns(), time.time_ns()
            done = self.run(["date", "+%s%N"])
            error_ns = (monotonic_ns() - before_ns) // 2
            text = done.output.strip()
            if done.code or not text.isdigit():
                raise UnavailableError("its date knows no nanoseconds (+%N): GNU date is needed")
            found.append((error_ns, int(text) - wall_ns - error_ns))
        error_ns, offset_ns = min(found)
        return Clock(offset_ns / NS, error_ns / NS)

    # --- files ----------------------------------------------------------------------------------

    def put(self, path: str, content: bytes, mode: int = 0o644) -> None:
        command = ["sh", "-c", _PUT, "sh", path, f"{mode:o}"]
        self._done(self._ssh(command, _INSTALL_SECONDS, content), path)

    def read(self, path: str) -> bytes | None:
        words = f'[ -e "$1" ] || exit {_NO_FILE}; cat "$1"'
        done = self._ssh(["sh", "-c", words, "sh", path], 60.0)
        return None if done.code == _NO_FILE else self._done(done, path)

    def list(self, path: str) -> Sequence[str]:
        words = f'[ -d "$1" ] || exit {_NO_FILE}; ls -A "$1"'
        done = self._ssh(["sh", "-c", words, "sh", path], 30.0)
        return [] if done.code == _NO_FILE else self._done(done, path).decode().split("\n")[:-1]

    def remove(self, path: str) -> None:
        self._done(self._ssh(["rm", "-rf", "--", path], 60.0), path)

    def _done(self, done: Done, path: str) -> bytes:
        if done.code:
            raise SrtmError(f"{path}: {done.errors[-200:] or f'exit code {done.code}'}")
        return done.output

    # --- units ----------------------------------------------------------------------------------

    def start(self, unit: Unit) -> None:
        if not self._has_systemd:
            environment = dict(unit.environment or {})
            self._unit("start", unit.name, command=list(unit.command), environment=environment)
            return
        text = systemd.unit_text(
            self._deployment, unit.name, unit.command, self.table.data_path, self._log(unit.name)
        )
        name = self._unit_name(unit.name)
        self.put(self._log(unit.name), self.read(self._log(unit.name)) or b"", 0o600)
        self.put(f"/etc/systemd/system/{name}", text.encode())
        for words in (["daemon-reload"], ["enable", "--quiet", name], ["start", name]):
            self._systemctl(*words)

    def status(self, unit: str) -> Running | None:
        if not self._has_systemd:
            file = f"{self.table.data_path}/{OWN_FOLDER}/units/{unit}.pid"
            done = self._ssh(["sh", "-c", _STATUS, "sh", file], 30.0)
            if done.code == _NO_FILE:
                return None
            written, _, now = self._done(done, file).decode(errors="replace").partition("\n")
            return seen(written, now)
        name = self._unit_name(unit)
        properties = "--property=LoadState,ActiveState,MainPID"
        said = systemd.shown(self._systemctl("show", name, properties))
        if said.get("LoadState") != "loaded":
            return None
        alive = said.get("ActiveState") in ("active", "activating", "deactivating")
        return Running(int(said.get("MainPID", "0")), alive)

    def stop(self, unit: str, grace_seconds: float) -> bool:
        if not self._has_systemd:
            if self.status(unit) is None:
                return False  # srtm may not be there yet
            return bool(self._unit("stop", unit, grace_seconds=grace_seconds)["ran"])
        found = self.status(unit)
        if found is None:
            return False
        name = self._unit_name(unit)
        self._systemctl("stop", name)
        self._systemctl("disable", "--quiet", name)
        self.remove(f"/etc/systemd/system/{name}")
        self._systemctl("daemon-reload")
        return found.alive

    def end_left(self, grace_seconds: float) -> bool:
        lock = str(Layout(Path(self.table.data_path)).lock)
        if self.read(lock) is None:
            return False  # srtm may not be there yet
        return bool(self._unit("end", "up", file=lock, grace_seconds=grace_seconds)["ran"])

    def log(self, unit: str, lines: int) -> str:
        return tail(self.read(self._log(unit)) or b"", lines)

    def _log(self, unit: str) -> str:
        return f"{self.table.data_path}/{OWN_FOLDER}/units/{unit}.log"

    def _unit_name(self, unit: str) -> str:
        return systemd.unit_name(self._deployment, self.table.name, unit)

    def _systemctl(self, *words: str) -> str:
        done = self.run(["systemctl", *words], systemd.STOP_SECONDS + 30.0)
        if done.code:
            raise SrtmError(f"systemctl {words[0]}: {done.errors[-200:] or done.code}")
        return done.output.decode(errors="replace")

    def _unit(self, do: str, name: str, **more: Any) -> dict[str, Any]:
        folder = f"{self.table.data_path}/{OWN_FOLDER}/units"
        asked = {"do": do, "folder": folder, "name": name, **more}
        command = module("srtm.units.units_command", self._python)
        done = self.run(command, more.get("grace_seconds", 0.0) + 60.0, json.dumps(asked).encode())
        if done.code:
            raise SrtmError(f"{name}: {done.errors[-200:] or done.code}")
        said: dict[str, Any] = json.loads(done.output)
        if "error" in said:
            raise SrtmError(said["error"])
        return said

    # --- commands -------------------------------------------------------------------------------

    def run(
        self, command: Sequence[str], timeout_seconds: float = 30.0, given: bytes = b""
    ) -> Done:
        return self._ssh(command, timeout_seconds, given)

    def release(self) -> None:
        options = ["-o", f"ControlPath={_control_path()}", "-O", "exit"]
        subprocess.run(["ssh", *options, "--", self._login], capture_output=True, check=False)

    def _ssh(self, command: Sequence[str], timeout_seconds: float, given: bytes = b"") -> Done:
        try:
            done = subprocess.run(
                self._words(command, ["-T"]),
                input=given,
                capture_output=True,
                timeout=timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UnavailableError(
                f"{self._login}: {command[0]} did not end within {timeout_seconds:g} s"
            ) from None
        except OSError as error:
            raise UnavailableError(f"ssh: {error.strerror}: install openssh-client") from None
        errors = done.stderr.decode(errors="replace").strip()
        if done.returncode == _SSH_FAILED:
            raise UnavailableError(self._why(errors))
        return Done(done.returncode, done.stdout, errors)

    def _words(self, command: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
        options = [word for each in _OPTIONS for word in ("-o", each)]
        options += ["-o", f"ControlPath={_control_path()}", *more]
        return "ssh", *options, "--", self._login, shlex.join(command)

    def _why(self, said: str) -> str:
        for words, meaning in _FAILURES.items():
            if words in said:
                host = self._login.rpartition("@")[2]
                return f"{self._login}: {meaning.format(login=self._login, host=host)}"
        last = said.splitlines()[-1][-200:] if said else "the connection ended"
        return f"{self._login} is not reached: {last}; try ssh {self._login}"


def build_wheel(folder: Path) -> Path:
    """The wheel of this source tree, built once for each state of it. Raises UnavailableError."""
    root = Path(srtm.__file__).parents[1]
    if not (root / "pyproject.toml").is_file():
        raise UnavailableError(
            "a wheel is built from SRTM's source tree, and this is an installed one: install the "
            "same wheel on the host, and name its interpreter with python"
        )
    digest = hashlib.sha256()
    for part in ("srtm", "distributor", "tb_adaptor", "kernel"):
        for file in sorted((root / part).rglob("*.py")):
            digest.update(file.read_bytes())
    target = folder / "wheels" / digest.hexdigest()[:12]
    found = list(target.glob("*.whl"))
    if found:
        return found[0]
    command = [*module("pip"), "wheel", "--quiet", "--no-deps", str(root)]
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        done = subprocess.run(
            [*command, "--wheel-dir", fresh], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise UnavailableError(f"pip wheel {root}: {done.stderr.strip()[-200:]}")
        target.mkdir(parents=True, exist_ok=True)
        for wheel in Path(fresh).glob("*.whl"):
            wheel.rename(target / wheel.name)
    return next(target.glob("*.whl"))


def _control_path() -> str:
    """Sockets of ours alone, with a short path. Raises UnavailableError."""
    folder = Path(tempfile.gettempdir(), f"srtm-ssh-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or not stat.S_ISDIR(found.st_mode):
        raise UnavailableError(f"{folder} is somebody else's: remove it")
    return f"{folder}/%C"
