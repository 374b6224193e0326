"""What `srtm testbed` asks of a host, whatever kind it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from srtm.deploy.host_tables import HostTable
from srtm.units import Running, Unit


@dataclass(frozen=True, slots=True)
class Done:
    """What a command wrote, and its exit code."""

    code: int
    output: bytes
    errors: str


@dataclass(frozen=True, slots=True)
class Clock:
    """The host's wall clock minus this machine's, and by how much that may be wrong. Seconds."""

    offset: float
    error: float

    def __str__(self) -> str:
        if not self.error:
            return "same clock"
        return f"{self.offset * 1e3:+.2f} ms, give or take {self.error * 1e3:.2f}"


@dataclass(frozen=True, slots=True)
class Facts:
    """srtm: version that runs there; nsqd: what it says of itself; "" where there is none."""

    cores: int
    srtm: str
    nsqd: str
    clock: Clock


class Host(Protocol):
    """A host of a testbed. All of it raises UnavailableError where the host is not reached,
    SrtmError where it refuses. Paths are absolute on the host."""

    table: HostTable
    """with the data path absolute, once it is open"""

    def open(self) -> None:
        """Make sure that it is there. It may be open already, here or by an earlier command."""

    def install(self) -> tuple[str, ...]:
        """Bring the programs there where they are not. Returns how `srtm` is called."""

    def versions(self) -> tuple[str, str]:
        """srtm's and nsqd's, as `Facts` has them."""

    def facts(self) -> Facts: ...

    def calling(self, command: Sequence[str]) -> tuple[str, ...]:
        """What runs `command` there, with the streams of who runs it here; srtm's own programs are
        found last on its PATH."""

    def put(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """The old file or the new one, whatever happens in between; folders are made."""

    def read(self, path: str) -> bytes | None:
        """What a file holds; None where there is no such file."""

    def list(self, path: str) -> Sequence[str]:
        """Names in a folder; none where there is no such folder."""

    def remove(self, path: str) -> None:
        """A file or a folder with all that is in it, or nothing."""

    def start(self, unit: Unit) -> None:
        """Returns once it runs; it outlives us."""

    def status(self, unit: str) -> Running | None: ...

    def stop(self, unit: str, grace_seconds: float) -> bool:
        """False where nothing ran."""

    def end_left(self, grace_seconds: float) -> bool:
        """What `srtm up` started and did not end, as it was killed itself. False where nothing
        ran."""

    def log(self, unit: str, lines: int) -> str:
        """The last lines that it wrote."""

    def run(
        self, command: Sequence[str], timeout_seconds: float = 30.0, given: bytes = b""
    ) -> Done:
        """A command on the host, and what it says."""

    def release(self) -> None:
        """What `open` made goes: a namespace, a connection."""
