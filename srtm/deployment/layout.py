"""Where the files of a deployment lie under its data path."""

import os
from dataclasses import dataclass
from pathlib import Path

from srtm.text.errors import UsageError

DATA_PATH = Path("srtm-data")
"""of a deployment whose file names none, relative to that file"""
MAX_SOCKET_PATH_BYTES = 107
"""sun_path of unix(7) holds 108 bytes with the final zero; nsqd and Python both refuse more"""
RESERVED_NAMES = frozenset({"logs", "testbed"})
"""no broker may be called so: these are names of other folders"""


@dataclass(frozen=True, slots=True)
class BrokerLayout:
    """One broker's folder. Only its owner enters it: who reaches nsqd's socket walks round us."""

    folder: Path

    @property
    def nsqd_tcp(self) -> Path:
        return self.folder / "nsqd.sock"

    @property
    def nsqd_http(self) -> Path:
        return self.folder / "nsqd-http.sock"

    @property
    def admin(self) -> Path:
        return self.folder / "admin.sock"

    @property
    def gateway_state(self) -> Path:
        return self.folder / "gateway-state.json"

    @property
    def nsqd_data(self) -> Path:
        return self.folder / "data"

    @property
    def sockets(self) -> tuple[Path, Path, Path]:
        return self.nsqd_tcp, self.nsqd_http, self.admin


@dataclass(frozen=True, slots=True)
class Layout:
    """The data path."""

    data_path: Path

    @property
    def logs(self) -> Path:
        return self.data_path / "logs"

    @property
    def lock(self) -> Path:
        return self.data_path / "up.lock"

    @property
    def deployment(self) -> Path:
        return self.data_path / "deployment.json"

    @property
    def topics(self) -> Path:
        return self.data_path / "topics.json"

    @property
    def topics_lock(self) -> Path:
        return self.data_path / "topics.lock"

    @property
    def distributor_store(self) -> Path:
        return self.data_path / "distributor.db"

    def broker(self, name: str) -> BrokerLayout:
        return BrokerLayout(self.data_path / name)

    def check_sockets(self, brokers: list[str]) -> None:
        """Raises UsageError for a socket path that the kernel would not take."""
        for path in (path for name in brokers for path in self.broker(name).sockets):
            size = len(os.fsencode(path))
            if size > MAX_SOCKET_PATH_BYTES:
                raise UsageError(
                    f"socket path {path} has {size} bytes, more than the {MAX_SOCKET_PATH_BYTES} "
                    f"of a unix socket; choose a data-path that is "
                    f"{size - MAX_SOCKET_PATH_BYTES} bytes shorter"
                )

    def make(self, brokers: list[str]) -> None:
        """Create the folders. Raises OSError."""
        self.data_path.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(exist_ok=True)
        for name in brokers:
            self.broker(name).folder.mkdir(mode=0o700, exist_ok=True)
            self.broker(name).folder.chmod(0o700)
            self.broker(name).nsqd_data.mkdir(exist_ok=True)
