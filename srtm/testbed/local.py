"""Processes of this machine as a host."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from srtm import __version__
from srtm.deploy.host_tables import HostTable
from srtm.deploy.programs import find_program, said_version
from srtm.deployment.layout import Layout
from srtm.host.atomic import replacing
from srtm.host.python import module
from srtm.testbed.host import Clock, Done, Facts
from srtm.testbed.inventory import OWN_FOLDER
from srtm.text.errors import SrtmError, UnavailableError
from srtm.units import Running, Unit, Units, end_all, holders


class LocalHost:
    """Units are detached processes; files lie where they are said to."""

    def __init__(
        self, table: HostTable, cores: Sequence[int] = (), prefix: Sequence[str] = ()
    ) -> None:
        self.table = table
        self._prefix = tuple(prefix)
        self.cores = tuple(cores)
        self.units = Units(Path(table.data_path, OWN_FOLDER, "units"), prefix, cores)

    def open(self) -> None:
        pass

    def install(self) -> tuple[str, ...]:
        return module("srtm")

    def versions(self) -> tuple[str, str]:
        return __version__, said_version(find_program("nsqd"))

    def facts(self) -> Facts:
        return Facts(len(os.sched_getaffinity(0)), *self.versions(), Clock(0.0, 0.0))

    def calling(self, command: Sequence[str]) -> tuple[str, ...]:
        own = Path(sys.executable).parent
        return *self._prefix, "env", f"PATH={os.environ.get('PATH', os.defpath)}:{own}", *command

    def put(self, path: str, content: bytes, mode: int = 0o644) -> None:
        target = Path(path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with replacing(target, mode=mode) as file:
                os.fchmod(file.fileno(), mode)  # whatever the umask
                file.write(content)
        except OSError as error:
            raise SrtmError(f"{path}: {error.strerror}") from None

    def read(self, path: str) -> bytes | None:
        try:
            return Path(path).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SrtmError(f"{path}: {error.strerror}") from None

    def list(self, path: str) -> Sequence[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SrtmError(f"{path}: {error.strerror}") from None

    def remove(self, path: str) -> None:
        target = Path(path)
        try:
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)
        except OSError as error:
            raise SrtmError(f"{error.filename}: {error.strerror}") from None

    def start(self, unit: Unit) -> None:
        self.units.start(unit)

    def status(self, unit: str) -> Running | None:
        return self.units.status(unit)

    def stop(self, unit: str, grace_seconds: float) -> bool:
        return self.units.stop(unit, grace_seconds)

    def end_left(self, grace_seconds: float) -> bool:
        return end_all(self._left, grace_seconds)

    def _left(self) -> set[int]:
        """The processes that `srtm up` started: all of them have its lock open."""
        return holders(Layout(Path(self.table.data_path)).lock)

    def log(self, unit: str, lines: int) -> str:
        return tail(self.read(str(self.units.log(unit))) or b"", lines)

    def run(
        self, command: Sequence[str], timeout_seconds: float = 30.0, given: bytes = b""
    ) -> Done:
        words = [*self._prefix, *command]
        try:
            done = subprocess.run(
                words, input=given, capture_output=True, timeout=timeout_seconds, check=False
            )
        except subprocess.TimeoutExpired:
            raise UnavailableError(
                f"{command[0]} did not end within {timeout_seconds:g} s"
            ) from None
        except OSError as error:
            raise UnavailableError(f"{words[0]}: {error.strerror}") from None
        return Done(done.returncode, done.stdout, done.stderr.decode(errors="replace").strip())

    def release(self) -> None:
        pass


def tail(text: bytes, lines: int) -> str:
    return "\n".join(text.decode(errors="replace").splitlines()[-lines:])
