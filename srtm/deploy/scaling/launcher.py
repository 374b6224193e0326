"""Brokers as deployments of this host, one `srtm up` each. They live on when whoever started them
ends, and the next one finds them by their folders."""

import os
import signal
import subprocess
from collections.abc import Collection
from contextlib import suppress
from itertools import count
from pathlib import Path

from srtm.deploy.scaling.file import ScaleFile
from srtm.deployment.layout import Layout
from srtm.host.atomic import replacing
from srtm.host.files import read_file
from srtm.host.processes import is_alive
from srtm.host.python import module
from srtm.options.model import read_toml
from srtm.text.address import Address, free_addresses, require_free
from srtm.text.errors import SrtmError, UnavailableError

_FILE, _ENDED = "broker.toml", "ended"
_MOST_META_BYTES = 4_096
_END_SECONDS = 120.0
"""more than the longest grace period of its programs"""


class Launcher:
    """died: name -> why its start came to nothing, since it was asked last"""

    def __init__(self, file: ScaleFile) -> None:
        self._file = file
        self._begun: dict[str, subprocess.Popen[bytes]] = {}
        self._died: dict[str, str] = {}
        self._ending: dict[int, float] = {}

    def running(self) -> frozenset[str]:
        """Those whose `srtm up` runs, in contact or not."""
        for name, process in list(self._begun.items()):
            code = process.poll()
            if code is None:
                continue
            del self._begun[name]
            if code:
                log = self._folder(name) / "log"
                self._died[name] = f"srtm up ended with code {code}; look at {log}"
        return frozenset(self._begun) | {path.name for path in self._folders() if _pid_of(path)}

    def over(self, name: str) -> bool:
        """Was it started here, and ended on purpose with nothing left in its nsqd's files?"""
        return (self._folder(name) / _ENDED).exists() and not self.kept(name)

    def known(self) -> frozenset[str]:
        """Those that were started here and are not over: what ends by itself is started again."""
        names = (path.name for path in self._folders() if (path / _FILE).is_file())
        return frozenset(name for name in names if not self.over(name))

    def kept(self, name: str) -> int:
        """Messages in the files of its nsqd, once that has ended (the first line of a diskqueue's
        meta file)."""
        found = 0
        data = Layout(self._folder(name)).broker(name).nsqd_data
        for meta in data.glob("*.diskqueue.meta.dat"):
            with suppress(OSError, ValueError, IndexError):
                found += int(read_file(meta, _MOST_META_BYTES).split()[0])
        return found

    def nsqd_door(self, name: str) -> str:
        """The socket of its nsqd, which answers whatever the gateway's doors ask of callers."""
        return str(Layout(self._folder(name)).broker(name).nsqd_http)

    def died(self) -> dict[str, str]:
        died, self._died = self._died, {}
        return died

    def free_name(self, taken: Collection[str]) -> str:
        """The first name that nobody has."""
        names = (f"{self._file.scale.name}-{number}" for number in count(1))
        return next(name for name in names if name not in taken)

    def start(self, name: str) -> Address:
        """Where its gateway will listen. Raises UnavailableError, UsageError."""
        folder = self._folder(name)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (folder / _ENDED).unlink(missing_ok=True)
            tcp, http = self._addresses(folder / _FILE)
            text = self._file.text_for(name, tcp, http)
            with replacing(folder / _FILE, mode=0o600) as file:
                file.write(text.encode())
            with (folder / "log").open("ab") as log:
                self._begun[name] = subprocess.Popen(
                    (*module("srtm"), "up", str(folder / _FILE)),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            raise UnavailableError(f"{folder}: {error.strerror or error}") from None
        return tcp

    def end(self, name: str, at: float, for_good: bool) -> None:
        """Ask it to end; its gateway drains, and its nsqd writes down what it holds. One that has
        not ended after a while is killed. Raises UnavailableError.

        at: seconds of any clock; for_good: it is not to be started again
        """
        pid = self._begun[name].pid if name in self._begun else _pid_of(self._folder(name))
        if not pid:
            return
        try:
            if for_good:
                (self._folder(name) / _ENDED).touch()
        except OSError as error:
            raise UnavailableError(f"{self._folder(name)}: {error.strerror or error}") from None
        since = self._ending.setdefault(pid, at)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM if at - since < _END_SECONDS else signal.SIGKILL)

    def _folder(self, name: str) -> Path:
        return self._file.folder / name

    def _folders(self) -> list[Path]:
        return sorted(self._file.folder.glob(f"{self._file.scale.name}-*"))

    def _addresses(self, file: Path) -> tuple[Address, Address]:
        """Those that it had before, so that clients find it again, while nobody else has them."""
        with suppress(SrtmError, KeyError, IndexError, TypeError, ValueError):
            (table,) = read_toml(file)["broker"]
            tcp, http = Address.of(table["tcp-address"]), Address.of(table["http-address"])
            require_free(tcp, "tcp-address")
            require_free(http, "http-address")
            return tcp, http
        tcp, http = free_addresses(2, self._file.scale.host)
        return tcp, http


def _pid_of(folder: Path) -> int:
    """The pid of the `srtm up` that runs this broker; 0: none does. A pid that another program has
    by now is known by its command line."""
    with suppress(OSError, ValueError):
        pid = int(read_file(Layout(folder).lock, _MOST_META_BYTES))
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if is_alive(pid) and os.fsencode(folder / _FILE) in words:
            return pid
    return 0
